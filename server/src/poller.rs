//! [`Poller`]: a thread of its own that looks at the pointers in rounds, one at a time. Everybody else
//! sends it a wish.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;
use futures::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};

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

/// A wish, and who waits for what it does.
pub(crate) struct Request {
    wish: Wish,
    reply: oneshot::Sender<Vec<Reloaded>>,
}

impl Poller {
    pub(crate) fn start(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
        clock: Clock,
    ) -> Result<Poller, Error> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |source| Error::System { doing, source }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start the polling runtime"))?;
        let (rounds, outlet) = Rounds::new(config, store, slots, clock, Room::system(), random)?;
        let thread = std::thread::Builder::new()
            .name("bloomsday-poller".into())
            .spawn(move || {
                give_way();
                runtime.block_on(rounds.run());
            })
            .map_err(system("start the polling thread"))?;
        let (requests, thread) = (Mutex::new(Some(outlet.requests)), Mutex::new(Some(thread)));
        Ok(Poller { requests, ready: outlet.ready, thread })
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
    pub(crate) async fn reload(&self, wish: Wish) -> Result<Vec<Reloaded>, Error> {
        let requests = {
            let requests = self.requests.lock().expect("cloning a sender does not panic");
            requests.clone().ok_or(Error::Stopped)?
        };
        let answer = request(&requests, wish)?;
        answer.await.map_err(|_| Error::Stopped)
    }
}

/// Puts a wish into the queue.
pub(crate) fn request(
    requests: &mpsc::Sender<Request>,
    wish: Wish,
) -> Result<oneshot::Receiver<Vec<Reloaded>>, Error> {
    let (reply, answer) = oneshot::channel();
    requests.try_send(Request { wish, reply }).map_err(|e| match e {
        mpsc::error::TrySendError::Full(_) => Error::Busy,
        mpsc::error::TrySendError::Closed(_) => Error::Stopped,
    })?;
    Ok(answer)
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

/// Tells whoever waits that every filter answers.
pub(crate) struct Announce {
    slots: Vec<Arc<Slot>>,
    ready: watch::Sender<bool>,
}

impl Announce {
    /// A filter was loaded; perhaps it was the last that was missing.
    pub(crate) fn loaded(&self) {
        self.ready.send_replace(self.is_ready());
    }

    fn is_ready(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_loaded())
    }
}

/// What the thread works with.
pub(crate) struct Rounds {
    poll_interval: Duration,
    retry_interval: Duration,
    loader: Loader,
    followers: Vec<Follower>,
    inbox: mpsc::Receiver<Request>,
    announce: Arc<Announce>,
    /// Not for secrets: only spreads polls.
    random: fn() -> u64,
}

/// What others keep of the rounds.
pub(crate) struct Outlet {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) ready: watch::Receiver<bool>,
}

impl Rounds {
    pub(crate) fn new(
        config: Config,
        store: Store,
        slots: Vec<Arc<Slot>>,
        clock: Clock,
        room: Room,
        random: fn() -> u64,
    ) -> Result<(Rounds, Outlet), Error> {
        let cache = config.cache_dir.as_deref().map(Cache::open).transpose()?;
        let loader = Loader {
            store,
            cache: cache.map(Arc::new),
            deadline: config.load_deadline,
            max_blob_bytes: config.max_blob_bytes,
            clock,
            room,
        };
        let (requests, inbox) = mpsc::channel(MAX_WAITING);
        let (sender, ready) = watch::channel(false);
        let announce = Arc::new(Announce { slots: slots.clone(), ready: sender });
        let follower = |(slot, filter)| Follower::new(slot, filter, &config, announce.clone());
        let followers = slots.into_iter().zip(&config.filters).map(follower).collect();
        let (poll_interval, retry_interval) = (config.poll_interval, config.retry_interval);
        let rounds =
            Rounds { poll_interval, retry_interval, loader, followers, inbox, announce, random };
        Ok((rounds, Outlet { requests, ready }))
    }

    /// Rounds for ever: until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        let mut waiting: Vec<Request> = Vec::new();
        let mut first = true;
        loop {
            // Whoever asked while the last round ran is in `waiting`; whoever asks from now on gets
            // the next round.
            let asked = |name: &FilterName| {
                let mut wishes = waiting.iter().map(|r| &r.wish).filter(|wish| wish.is_for(name));
                Asked { now: wishes.clone().next().is_some(), force: wishes.any(|w| w.force) }
            };
            let loader = &self.loader;
            // A round that nobody asked for is for all.
            let all = waiting.is_empty();
            let rounds = self.followers.iter_mut().filter_map(|follower| {
                let asked = asked(follower.slot().name());
                (all || asked.now).then(|| follower.round(loader, asked, first))
            });
            let reloaded = join_all(rounds).await;
            first = false;
            for Request { wish, reply } in waiting.drain(..) {
                let mine = reloaded.iter().filter(|reloaded| wish.is_for(&reloaded.filter));
                // Whoever asked may have gone away.
                let _ = reply.send(mine.cloned().collect());
            }
            for follower in &mut self.followers {
                follower.keep_in_cache(loader).await;
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => {}
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

    /// How long until the next look.
    fn pause(&self) -> Duration {
        let interval = if self.announce.is_ready() {
            self.poll_interval
        } else {
            self.retry_interval.min(self.poll_interval)
        };
        jittered(interval, (self.random)())
    }
}

fn jittered(interval: Duration, random: u64) -> Duration {
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    interval * percent as u32 / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_comes_within_a_tenth_of_its_interval_and_not_always_at_once() {
        let interval = Duration::from_secs(600);
        let pauses: Vec<Duration> = (0..1_000).map(|_| jittered(interval, random())).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= interval * 9 / 10 && *most <= interval * 11 / 10, "{least:?} {most:?}");
        assert!(*most - *least > interval / 10, "a fleet started at once polls at once");
        let ends = [0, 20].map(|random| jittered(interval, random));
        assert_eq!(ends, [interval * 9 / 10, interval * 11 / 10]);
        assert!(jittered(Duration::MAX / 200, 20) > Duration::from_secs(1), "no overflow");
    }
}
