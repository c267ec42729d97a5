//! [`Poller`]: a thread of its own on which each filter has its own pace: its looks, its retries, its
//! reloads, the end of its hold. None waits for another. Everybody else sends wishes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;
use futures::future::{join_all, try_join_all};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Config;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::error::Error;
use crate::follower::{Asked, Follower};
use crate::handle::Slot;
use crate::loader::Loader;
use crate::random::random;
use crate::room::Room;
use crate::status::Reloaded;

/// How many reloads of a filter may wait for its next round; they all get the same one.
const MAX_WAITING: usize = 1024;
/// How much each poll interval is lengthened or shortened at most: so that a fleet that was started
/// at once does not look at once for ever.
const JITTER_PERCENT: u64 = 10;
/// A filter that does not answer yet is looked for again after this part of the time that it has been
/// looked for, between the retry interval and the poll interval: so one that is there an hour late is found
/// within minutes, and one that never comes costs no more than another.
const RETRY_PART: u32 = 10;

/// The polling thread; dropped, it ends when no round is under way.
pub(crate) struct Poller {
    desks: Mutex<Option<Desks>>,
    ready: watch::Receiver<bool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Gives this thread, and those that a load starts from it, the lowest priority: reading and checking
/// a filter keeps every core busy for a tenth of a second, and a bidder's thread that asks meanwhile
/// must not wait its turn.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
        tracing::warn!("loads run at the priority of lookups: {error}");
    }
}

/// An operator's wish to look again now: at which filter, and past the guard or not.
#[derive(Clone, Default)]
pub(crate) struct Wish {
    pub(crate) filter: Option<FilterName>,
    pub(crate) force: bool,
}

impl Wish {
    fn is_for(&self, name: &FilterName) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter == name)
    }
}

/// Somebody who waits for a round.
struct Request {
    force: bool,
    reply: oneshot::Sender<Reloaded>,
}

/// Where wishes are left, filter by filter.
pub(crate) struct Desks(Vec<(FilterName, mpsc::Sender<Request>)>);

/// What rounds that somebody asked for did.
pub(crate) struct Answers(Vec<oneshot::Receiver<Reloaded>>);

impl Desks {
    /// Leaves a wish with every filter that it is for, or with none.
    pub(crate) fn ask(&self, wish: &Wish) -> Result<Answers, Error> {
        let asked = self.0.iter().filter(|(name, _)| wish.is_for(name));
        let places = asked.map(|(_, requests)| requests.try_reserve());
        let places: Vec<_> = places.collect::<Result<_, _>>().map_err(|e| match e {
            mpsc::error::TrySendError::Full(()) => Error::Busy,
            mpsc::error::TrySendError::Closed(()) => Error::Stopped,
        })?;
        let answers = places.into_iter().map(|place| {
            let (reply, answer) = oneshot::channel();
            place.send(Request { force: wish.force, reply });
            answer
        });
        Ok(Answers(answers.collect()))
    }
}

impl Answers {
    pub(crate) async fn all(self) -> Result<Vec<Reloaded>, Error> {
        try_join_all(self.0).await.map_err(|_| Error::Stopped)
    }
}

impl Poller {
    pub(crate) fn start(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
        clock: Clock,
    ) -> Result<Poller, Error> {
        Poller::start_with(config, store, slots, clock, random)
    }

    fn start_with(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
        clock: Clock,
        random: fn() -> u64,
    ) -> Result<Poller, Error> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |source| Error::System { doing, source }
        };
        let (paces, outlet) = Paces::new(config, store, slots, clock, Room::system(), random)?;
        // Last: no runtime can be dropped within another.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start the polling runtime"))?;
        let thread = std::thread::Builder::new()
            .name("bloomsday-poller".into())
            .spawn(move || {
                give_way();
                runtime.block_on(paces.run());
            })
            .map_err(system("start the polling thread"))?;
        let (desks, thread) = (Mutex::new(Some(outlet.desks)), Mutex::new(Some(thread)));
        Ok(Poller { desks, ready: outlet.ready, thread })
    }

    /// Returns once every filter answers.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread is gone, and with it every hope.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut ready = self.ready.clone();
        ready.wait_for(|ready| *ready).await.map(drop).map_err(|_| Error::Stopped)
    }

    /// Whether anything is still followed.
    pub(crate) fn is_alive(&self) -> bool {
        self.ready.has_changed().is_ok()
    }

    /// Returns when nothing is followed any more.
    pub(crate) async fn stopped(&self) {
        let mut ready = self.ready.clone();
        while ready.changed().await.is_ok() {}
    }

    /// Asks for a round of each filter that starts after this call, and returns what they did.
    pub(crate) async fn reload(&self, wish: Wish) -> Result<Vec<Reloaded>, Error> {
        let answers = {
            let desks = self.desks.lock().expect("leaving a wish does not panic");
            desks.as_ref().ok_or(Error::Stopped)?.ask(&wish)?
        };
        answers.all().await
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Closing the desks ends the paces; the thread is not waited for: a round may take minutes,
        // and a bidder that shuts down must not.
        if let Ok(mut desks) = self.desks.lock() {
            desks.take();
        }
        if let Ok(mut thread) = self.thread.lock() {
            drop(thread.take());
        }
    }
}

/// Tells whoever waits that every filter answers.
pub(crate) struct Announce {
    slots: Vec<Arc<Slot>>,
    ready: watch::Sender<bool>,
}

impl Announce {
    /// A filter was loaded; perhaps it was the last that was missing.
    pub(crate) fn loaded(&self) {
        self.ready.send_replace(self.slots.iter().all(|slot| slot.is_loaded()));
    }
}

/// What the thread works with: every filter's pace.
pub(crate) struct Paces(Vec<Pace>);

/// What others keep of the paces.
pub(crate) struct Outlet {
    pub(crate) desks: Desks,
    pub(crate) ready: watch::Receiver<bool>,
}

/// One filter's rounds: one runs, one waits.
struct Pace {
    poll_interval: Duration,
    retry_interval: Duration,
    began: Instant,
    loader: Arc<Loader>,
    follower: Follower,
    inbox: mpsc::Receiver<Request>,
    /// Not for secrets: only spreads polls.
    random: fn() -> u64,
}

impl Paces {
    pub(crate) fn new(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
        clock: Clock,
        room: Room,
        random: fn() -> u64,
    ) -> Result<(Paces, Outlet), Error> {
        let cache = config.cache_dir.as_deref().map(|folder| Cache::open(folder, &store));
        let cache = cache.transpose()?;
        let (deadline, max_blob_bytes) = (config.load_deadline, config.max_blob_bytes);
        let loader = Arc::new(Loader { store, cache, deadline, max_blob_bytes, clock, room });
        let (sender, ready) = watch::channel(false);
        let announce = Arc::new(Announce { slots: slots.clone(), ready: sender });
        let (mut paces, mut desks) = (Vec::new(), Vec::new());
        for (slot, filter) in slots.into_iter().zip(&config.filters) {
            let (requests, inbox) = mpsc::channel(MAX_WAITING);
            desks.push((filter.name.clone(), requests));
            paces.push(Pace {
                poll_interval: config.poll_interval,
                retry_interval: config.retry_interval,
                began: Instant::now(),
                loader: loader.clone(),
                follower: Follower::new(slot, filter, &config, announce.clone()),
                inbox,
                random,
            });
        }
        Ok((Paces(paces), Outlet { desks: Desks(desks), ready }))
    }

    /// Rounds for ever: until nobody can ask any more.
    pub(crate) async fn run(self) {
        join_all(self.0.into_iter().map(Pace::run)).await;
    }
}

impl Pace {
    async fn run(mut self) {
        let mut waiting: Vec<Request> = Vec::new();
        let mut first = true;
        loop {
            // Whoever asked while the last round ran is in `waiting`; whoever asks from now on gets
            // the next round.
            let force = waiting.iter().any(|request| request.force);
            let asked = Asked { now: !waiting.is_empty(), force };
            let reloaded = self.follower.round(&self.loader, asked, first).await;
            first = false;
            for Request { reply, .. } in waiting.drain(..) {
                // Whoever asked may have gone away.
                let _ = reply.send(reloaded.clone());
            }
            self.follower.keep_in_cache(&self.loader).await;
            tokio::select! {
                () = tokio::time::sleep_until(self.next_look()) => {}
                request = self.inbox.recv() => match request {
                    Some(request) => waiting.push(request),
                    None => return,
                }
            }
            while let Ok(request) = self.inbox.try_recv() {
                waiting.push(request);
            }
        }
    }

    /// When this filter is looked at next if nobody asks; at the end of a hold it is looked at before what
    /// was held answers.
    fn next_look(&self) -> Instant {
        let interval = if self.follower.slot().is_loaded() {
            self.poll_interval
        } else {
            let since = self.began.elapsed() / RETRY_PART;
            self.retry_interval.max(since).min(self.poll_interval)
        };
        let next = Instant::now() + jittered(interval, (self.random)());
        self.follower.hold_is_over_at().map_or(next, |over| over.min(next))
    }
}

fn jittered(interval: Duration, random: u64) -> Duration {
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    interval.saturating_mul(percent as u32) / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bloomsday, FilterConfig};

    #[test]
    fn a_poll_comes_within_a_tenth_of_its_interval_and_not_always_at_once() {
        let interval = Duration::from_secs(600);
        let pauses: Vec<Duration> = (0..1_000).map(|_| jittered(interval, random())).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= interval * 9 / 10 && *most <= interval * 11 / 10, "{least:?} {most:?}");
        assert!(*most - *least > interval / 10, "a fleet started at once polls at once");
        let ends = [0, 20].map(|random| jittered(interval, random));
        assert_eq!(ends, [interval * 9 / 10, interval * 11 / 10]);
        assert!(jittered(Duration::MAX, 20) > Duration::from_secs(1), "no overflow");
    }

    #[tokio::test]
    async fn a_server_whose_polling_thread_has_ended_is_not_ready_and_says_so() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::open(&folder.path().display().to_string()).unwrap();
        let filter = FilterConfig::new("rt".parse().unwrap());
        let slots = vec![Arc::new(Slot::new(&filter, true, Clock::system()))];
        let config = Config::new("", vec![filter]);
        let (clock, slow) = (Clock::system(), || panic!("a bug of ours"));
        let poller =
            Poller::start_with(config, store.clone(), slots.clone(), clock.clone(), slow).unwrap();
        poller.stopped().await;
        assert!(!poller.is_alive());
        assert!(matches!(poller.ready().await, Err(Error::Stopped)));
        assert!(matches!(poller.reload(Wish::default()).await, Err(Error::Stopped)));
        let bloomsday = Bloomsday::of(slots, poller, store, clock);
        bloomsday.stopped().await;
        assert!(!bloomsday.is_ready());
    }
}
