//! [`Poller`]: a thread of its own that looks at the pointers, loads and swaps. The one owner of every
//! swap; everybody else sends it a request.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, FollowedBy, days_to_follow};
use bloomsday_common::store::{Following, Store};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::Config;
use crate::cache::Cache;
use crate::error::Error;
use crate::generations::{Generations, Next};
use crate::handle::{Generation, Slot};
use crate::loader::{Failure, Loader};
use crate::status::{Core, ReloadOutcome, Reloaded};

/// How many reloads may wait for the next round; they all get the same one.
const MAX_WAITING: usize = 1024;
/// How much each poll interval is lengthened or shortened at most: so that a fleet that was started
/// at once does not look at once for ever.
const JITTER_PERCENT: u64 = 10;

/// The polling thread; dropped, it ends after the round it is in.
pub(crate) struct Poller {
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    ready: watch::Receiver<bool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// An operator's wish to look again now.
struct Request {
    filter: Option<FilterName>,
    reply: oneshot::Sender<Vec<Reloaded>>,
}

impl Poller {
    pub(crate) fn start(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
    ) -> Result<Poller, Error> {
        let cache = config.cache_dir.as_deref().map(Cache::open).transpose()?;
        let loader = Loader {
            store,
            cache,
            deadline: config.load_deadline,
            max_blob_bytes: config.max_blob_bytes,
        };
        let followers = slots
            .into_iter()
            .zip(&config.filters)
            .map(|(slot, filter)| Follower {
                slot,
                max_age_days: filter.max_age_days,
                max_generations: config.max_generations,
                generations: Generations::default(),
                retired: Vec::new(),
            })
            .collect();
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |source| Error::System { doing, source }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start the polling runtime"))?;
        let (requests, inbox) = mpsc::channel(MAX_WAITING);
        let (announce, ready) = watch::channel(false);
        let rounds = Rounds { config, loader, followers, inbox, announce };
        let thread = std::thread::Builder::new()
            .name("bloomsday-poller".into())
            .spawn(move || runtime.block_on(rounds.run()))
            .map_err(system("start the polling thread"))?;
        let (requests, thread) = (Mutex::new(Some(requests)), Mutex::new(Some(thread)));
        Ok(Poller { requests, ready, thread })
    }

    /// Returns once every filter answers.
    pub(crate) async fn ready(&self) {
        let mut ready = self.ready.clone();
        if ready.wait_for(|ready| *ready).await.is_err() {
            // The thread is gone, and with it every hope: the caller's deadline decides.
            std::future::pending::<()>().await;
        }
    }

    /// Asks for a round that starts after this call, and returns what it did.
    pub(crate) async fn reload(&self, filter: Option<FilterName>) -> Result<Vec<Reloaded>, Error> {
        let requests = {
            let requests = self.requests.lock().expect("cloning a sender does not panic");
            requests.clone().ok_or(Error::Stopped)?
        };
        let (reply, answer) = oneshot::channel();
        requests.try_send(Request { filter, reply }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => Error::Busy,
            mpsc::error::TrySendError::Closed(_) => Error::Stopped,
        })?;
        answer.await.map_err(|_| Error::Stopped)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Closing the channel ends the loop; the thread is not waited for: a round may take minutes,
        // and a bidder that shuts down must not.
        if let Ok(mut requests) = self.requests.lock() {
            requests.take();
        }
        if let Ok(mut thread) = self.thread.lock() {
            drop(thread.take());
        }
    }
}

/// What the thread works with.
struct Rounds {
    config: Config,
    loader: Loader,
    followers: Vec<Follower>,
    inbox: mpsc::Receiver<Request>,
    announce: watch::Sender<bool>,
}

impl Rounds {
    async fn run(mut self) {
        let mut waiting: Vec<Request> = Vec::new();
        let mut first = true;
        loop {
            let asked = !waiting.is_empty();
            // Whoever asked while the last round ran is in `waiting`; whoever asks from now on gets
            // the next round.
            let wanted: Option<Vec<FilterName>> = match asked {
                true if waiting.iter().all(|request| request.filter.is_some()) => {
                    Some(waiting.iter().filter_map(|request| request.filter.clone()).collect())
                }
                _ => None,
            };
            let loader = &self.loader;
            let rounds = self
                .followers
                .iter_mut()
                .filter(|f| wanted.as_ref().is_none_or(|names| names.contains(f.slot.name())))
                .map(|follower| follower.round(loader, asked, first));
            let reloaded = join_all(rounds).await;
            first = false;
            for request in waiting.drain(..) {
                let mine =
                    |r: &&Reloaded| request.filter.as_ref().is_none_or(|name| *name == r.filter);
                // Whoever asked may have gone away.
                let _ = request.reply.send(reloaded.iter().filter(mine).cloned().collect());
            }
            let ready = self.followers.iter().all(|follower| follower.slot.is_loaded());
            self.announce.send_replace(ready);
            tokio::select! {
                () = tokio::time::sleep(self.pause(ready)) => {}
                request = self.inbox.recv() => match request {
                    Some(request) => waiting.push(request),
                    None => return,
                },
            }
            while let Ok(request) = self.inbox.try_recv() {
                waiting.push(request);
            }
        }
    }

    fn pause(&self, ready: bool) -> Duration {
        let interval = if ready {
            self.config.poll_interval
        } else {
            self.config.retry_interval.min(self.config.poll_interval)
        };
        interval * (100 - JITTER_PERCENT as u32) / 100
            + interval * (random() % (2 * JITTER_PERCENT + 1)) as u32 / 100
    }
}

/// Not for secrets: only spreads polls. The standard library seeds its hash maps from the system.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// One filter's way through the rounds.
struct Follower {
    slot: Arc<Slot>,
    max_age_days: u32,
    max_generations: usize,
    generations: Generations,
    /// Filters that no longer answer, kept until no reader holds them: so no bidder's thread frees one.
    retired: Vec<Arc<Generation>>,
}

/// What a round came to: an outcome, and what went wrong if anything did.
struct Ended {
    outcome: ReloadOutcome,
    followed: Option<Followed>,
    error: Option<String>,
}

impl Follower {
    /// Looks, and loads and swaps if need be. Failures change the status, never the answers.
    async fn round(&mut self, loader: &Loader, asked: bool, first: bool) -> Reloaded {
        self.retired.retain(|generation| Arc::strong_count(generation) > 1);
        let old = self.slot.current().map(|generation| generation.key.digest);
        let mut core = Core::clone(&self.slot.core());
        let mut ended = self.follow(loader, asked, &mut core).await;
        if first && !self.slot.is_loaded() {
            self.start_from_cache(loader, &mut ended).await;
        }
        let now = Timestamp::now();
        core.last_poll = Some(now);
        if let Some(followed) = ended.followed {
            core.followed = Some(followed);
        }
        match &ended.error {
            Some(why) => {
                core.counts.polls_failed += 1;
                tracing::warn!(filter = %self.slot.name(), "{why}");
            }
            None => {
                core.counts.polls_ok += 1;
                core.last_success = Some(now);
            }
        }
        core.last_error.clone_from(&ended.error);
        self.slot.set_core(core);
        let new = self.slot.current().map(|generation| generation.key.digest);
        let filter = self.slot.name().clone();
        Reloaded { filter, outcome: ended.outcome, old, new, reason: ended.error }
    }

    async fn follow(&mut self, loader: &Loader, asked: bool, core: &mut Core) -> Ended {
        let today = Day::of(Timestamp::now());
        let mut days = days_to_follow(today, self.generations.last_followed(), self.max_age_days);
        let mut rejected_newer: Option<String> = None;
        loop {
            let followed = match self.look(loader, &days).await {
                Ok(followed) => followed,
                // With a newer day rejected, that is what an operator must hear about.
                Err(why) => return Ended::failed(rejected_newer.unwrap_or(why)),
            };
            // A pin leaves nothing to fall back to.
            let older = |day| days.iter().copied().filter(|d| *d < day).collect::<Vec<Day>>();
            let fallback = followed.pointer_day().map(older).unwrap_or_default();
            // An operator's second chance is for the blob that should answer, not for a stopgap.
            match self.generations.next(&followed, asked && rejected_newer.is_none()) {
                Next::Stay => {
                    return match rejected_newer {
                        Some(why) => Ended::failed(why),
                        None => Ended::well(ReloadOutcome::Unchanged, followed),
                    };
                }
                Next::Refuse(why) => return Ended::failed(why),
                Next::LookBack(why) => {
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                    continue;
                }
                Next::Load => {}
            }
            match self.load(loader, &followed, core).await {
                Ok(()) if rejected_newer.is_some() => {
                    self.generations.loaded_instead(&followed);
                    let outcome = ReloadOutcome::Swapped;
                    return Ended { outcome, followed: Some(followed), error: rejected_newer };
                }
                Ok(()) => {
                    self.generations.loaded(&followed);
                    return Ended::well(ReloadOutcome::Swapped, followed);
                }
                Err(Failure::Poison(why)) => {
                    if rejected_newer.is_none() {
                        self.generations.rejected(&followed, &why);
                    }
                    if self.slot.is_loaded() || fallback.is_empty() {
                        return Ended::failed(rejected_newer.unwrap_or(why));
                    }
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                }
                Err(Failure::Passing(why)) => return Ended::failed(rejected_newer.unwrap_or(why)),
            }
        }
    }

    /// Reads pin and pointers; an error says why nothing can be followed.
    async fn look(&self, loader: &Loader, days: &[Day]) -> Result<Followed, String> {
        let filter = self.slot.name();
        let looking = loader.store.follow(filter, days, Timestamp::now());
        let following = tokio::time::timeout(loader.deadline, looking)
            .await
            .map_err(|_| format!("{} does not answer", loader.store.name()))?;
        match following.map_err(|e| e.to_string())? {
            Following::Blob(followed) => Ok(followed),
            Following::Keep(why) => Err(why),
            Following::Nothing(days) => {
                let newest = days.first().map_or(String::new(), Day::to_string);
                let oldest = days.last().map_or(String::new(), Day::to_string);
                Err(format!("`{filter}` has no pointer for any day from {oldest} to {newest}"))
            }
        }
    }

    async fn load(
        &mut self,
        loader: &Loader,
        followed: &Followed,
        core: &mut Core,
    ) -> Result<(), Failure> {
        let alive = self.retired.len() + usize::from(self.slot.is_loaded());
        if alive >= self.max_generations {
            let idle = self.slot.idle_readers().join(", ");
            return Err(Failure::Passing(format!(
                "{alive} filters are still held by readers that do not ask (threads: {idle}); \
                 the next is loaded when one of them asks or is dropped"
            )));
        }
        let clock = Instant::now();
        match loader.load(followed).await {
            Ok(generation) => {
                core.counts.loads_ok += 1;
                core.counts.load_seconds = clock.elapsed().as_secs_f64();
                self.swap(generation);
                self.keep_in_cache(loader);
                Ok(())
            }
            Err(failure) => {
                match failure {
                    Failure::Poison(_) => core.counts.loads_rejected += 1,
                    Failure::Passing(_) => core.counts.loads_failed += 1,
                }
                Err(failure)
            }
        }
    }

    fn swap(&mut self, generation: Generation) {
        let (filter, day, digest) = (self.slot.name(), generation.key.day, generation.key.digest);
        tracing::info!(%filter, %day, digest = digest.short(), "swapped");
        self.retired.extend(self.slot.swap(Arc::new(generation)));
    }

    fn keep_in_cache(&self, loader: &Loader) {
        let (Some(cache), Some(generation)) = (&loader.cache, self.slot.current()) else { return };
        if let Err(error) = cache.keep(&generation.key, generation.filter.memory()) {
            tracing::warn!(
                "the blob was not cached, which only a start without the store would miss: {error}"
            );
        }
    }

    /// With the store out of reach at start: whatever was followed last answers, whatever its age.
    async fn start_from_cache(&mut self, loader: &Loader, ended: &mut Ended) {
        let cached = loader.cache.as_ref().and_then(|cache| cache.followed(self.slot.name()));
        let Some(pointer) = cached else { return };
        let by = FollowedBy::Pointer { day: pointer.day };
        let followed = Followed { blob: pointer.blob, bytes: None, by };
        if let Some(generation) = loader.load_cached(&followed).await {
            self.swap(generation);
            self.generations.loaded_instead(&followed);
            ended.outcome = ReloadOutcome::Swapped;
            ended.followed = Some(followed);
        }
    }
}

impl Ended {
    fn well(outcome: ReloadOutcome, followed: Followed) -> Ended {
        Ended { outcome, followed: Some(followed), error: None }
    }

    fn failed(why: String) -> Ended {
        Ended { outcome: ReloadOutcome::Failed, followed: None, error: Some(why) }
    }
}
