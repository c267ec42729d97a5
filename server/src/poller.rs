//! [`Poller`]: a background thread. Each filter has its own loop there: its polls, its retries, its
//! reloads, the end of its hold. No filter waits for another. Other threads send reload requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::random::random;
use bloomsday_common::store::Store;
use futures::future::{join_all, try_join_all};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::all_loaded::AllLoaded;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::follower::{Follower, ReloadFlags};
use crate::handle::ServedFilter;
use crate::loader::Loader;
use crate::memory_check::MemoryCheck;
use crate::random::random_fraction;
use crate::status::Reloaded;

/// How many reloads of a filter may wait for its next round; they all get the result of the same
/// one.
const MAX_WAITING: usize = 1024;
/// The largest change of a poll interval, up or down. The first pause is anything up to the whole
/// interval: a fleet that started at once is spread from its second poll on.
const JITTER_PERCENT: u64 = 10;
/// While a filter is not loaded, the time to its next poll is the time waited so far divided by
/// this, between the retry interval and the poll interval. So a filter that is an hour late is
/// found within minutes, and one that never comes costs no more polls than another.
const RETRY_FRACTION: u32 = 10;

/// The polling thread. After a drop, it ends when no round runs.
pub(crate) struct Poller {
    queues: Mutex<Option<ReloadQueues>>,
    ready: watch::Receiver<bool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Gives this thread, and the threads that a load starts from it, the lowest priority. A load keeps
/// every core busy for a moment, and lookups in the threads of a bidder must not wait for it.
fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
        tracing::warn!("loads run at the priority of lookups: {error}");
    }
}

/// An operator's request to poll now: one filter or all, past the guard or not.
#[derive(Clone, Default)]
pub(crate) struct ReloadRequest {
    pub(crate) filter: Option<FilterName>,
    pub(crate) force: bool,
}

impl ReloadRequest {
    fn is_for(&self, name: &FilterName) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter == name)
    }
}

/// A caller that waits for a round.
struct Waiter {
    force: bool,
    reply: oneshot::Sender<Reloaded>,
}

/// The queue of reload requests of each filter.
pub(crate) struct ReloadQueues(Vec<(FilterName, mpsc::Sender<Waiter>)>);

/// The results of requested rounds, to be waited for.
pub(crate) struct PendingReloads(Vec<oneshot::Receiver<Reloaded>>);

impl ReloadQueues {
    /// Queues a request with every filter that it is for, or with none.
    ///
    /// # Errors
    /// [`Error::Busy`] when a queue is full; [`Error::Stopped`].
    pub(crate) fn enqueue(&self, request: &ReloadRequest) -> Result<PendingReloads, Error> {
        let queues = self.0.iter().filter(|(name, _)| request.is_for(name));
        let permits = queues.map(|(_, queue)| queue.try_reserve());
        let permits: Vec<_> = permits.collect::<Result<_, _>>().map_err(|e| match e {
            mpsc::error::TrySendError::Full(()) => Error::Busy,
            mpsc::error::TrySendError::Closed(()) => Error::Stopped,
        })?;
        let results = permits.into_iter().map(|permit| {
            let (reply, result) = oneshot::channel();
            permit.send(Waiter { force: request.force, reply });
            result
        });
        Ok(PendingReloads(results.collect()))
    }
}

impl PendingReloads {
    pub(crate) async fn all(self) -> Result<Vec<Reloaded>, Error> {
        try_join_all(self.0).await.map_err(|_| Error::Stopped)
    }
}

impl Poller {
    pub(crate) fn start(
        config: Config,
        store: Store,
        served: Vec<Arc<ServedFilter>>,
        clock: Clock,
    ) -> Result<Poller, Error> {
        Poller::start_with(config, store, served, clock, random)
    }

    pub(crate) fn start_with(
        config: Config,
        store: Store,
        served: Vec<Arc<ServedFilter>>,
        clock: Clock,
        random: fn() -> u64,
    ) -> Result<Poller, Error> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |source| Error::System { doing, source }
        };
        let memory_check = MemoryCheck::system();
        let (loops, handle) = PollLoops::new(config, store, served, clock, memory_check, random)?;
        // Last: no runtime can be dropped within another.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start the polling runtime"))?;
        let thread = std::thread::Builder::new()
            .name("bloomsday-poller".into())
            .spawn(move || {
                lower_thread_priority();
                runtime.block_on(loops.run());
            })
            .map_err(system("start the polling thread"))?;
        let (queues, thread) = (Mutex::new(Some(handle.queues)), Mutex::new(Some(thread)));
        Ok(Poller { queues, ready: handle.ready, thread })
    }

    /// Returns when every filter is loaded.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended: nothing will be loaded any more.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut ready = self.ready.clone();
        ready.wait_for(|ready| *ready).await.map(drop).map_err(|_| Error::Stopped)
    }

    /// Whether the thread runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.ready.has_changed().is_ok()
    }

    /// Returns when the thread has ended.
    pub(crate) async fn stopped(&self) {
        let mut ready = self.ready.clone();
        while ready.changed().await.is_ok() {}
    }

    /// Requests a round that starts after this call, and returns its results.
    pub(crate) async fn reload(&self, request: ReloadRequest) -> Result<Vec<Reloaded>, Error> {
        let results = {
            let queues = self.queues.lock().expect("queueing a request does not panic");
            queues.as_ref().ok_or(Error::Stopped)?.enqueue(&request)?
        };
        results.all().await
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Closing the queues ends the loops. Nothing waits for the thread: a round may take
        // minutes, and a bidder that shuts down must not.
        if let Ok(mut queues) = self.queues.lock() {
            queues.take();
        }
        if let Ok(mut thread) = self.thread.lock() {
            drop(thread.take());
        }
    }
}

/// What the thread runs: the loop of every filter.
pub(crate) struct PollLoops(Vec<PollLoop>);

/// What other threads keep of the loops.
pub(crate) struct PollerHandle {
    pub(crate) queues: ReloadQueues,
    pub(crate) ready: watch::Receiver<bool>,
}

/// The rounds of one filter: one runs, and at most one waits.
struct PollLoop {
    poll_interval: Duration,
    retry_interval: Duration,
    began: Instant,
    loader: Arc<Loader>,
    follower: Follower,
    requests: mpsc::Receiver<Waiter>,
    /// Whether the pause after the first load has begun, which spreads the polls of a fleet.
    is_spread: bool,
    /// For the jitter of polls; not for secrets.
    random: fn() -> u64,
}

impl PollLoops {
    pub(crate) fn new(
        config: Config,
        store: Store,
        served: Vec<Arc<ServedFilter>>,
        clock: Clock,
        memory_check: MemoryCheck,
        random: fn() -> u64,
    ) -> Result<(PollLoops, PollerHandle), Error> {
        let cache = config.cache_dir.as_deref().map(|folder| Cache::open(folder, &store));
        let cache = cache.transpose()?;
        let (deadline, max_blob_bytes) = (config.load_deadline, config.max_blob_bytes);
        let remedy_words = config.remedy_words;
        let forms = config.filters.iter().map(|filter| (filter.name.clone(), filter.id_form));
        let loader = Loader {
            store,
            cache,
            deadline,
            max_blob_bytes,
            clock,
            memory_check,
            remedy_words,
            id_forms: forms.collect(),
        };
        let loader = Arc::new(loader);
        let (all_loaded, ready) = AllLoaded::of(served.clone());
        let all_loaded = Arc::new(all_loaded);
        let (mut loops, mut queues) = (Vec::new(), Vec::new());
        for (served, filter) in served.into_iter().zip(&config.filters) {
            let (queue, requests) = mpsc::channel(MAX_WAITING);
            queues.push((filter.name.clone(), queue));
            loops.push(PollLoop {
                poll_interval: config.poll_interval,
                retry_interval: config.retry_interval,
                began: Instant::now(),
                loader: loader.clone(),
                follower: Follower::new(served, filter, &config, all_loaded.clone()),
                requests,
                is_spread: false,
                random,
            });
        }
        Ok((PollLoops(loops), PollerHandle { queues: ReloadQueues(queues), ready }))
    }

    /// Runs rounds until every handle to the queues is dropped.
    pub(crate) async fn run(self) {
        join_all(self.0.into_iter().map(PollLoop::run)).await;
    }
}

impl PollLoop {
    async fn run(mut self) {
        let mut waiting: Vec<Waiter> = Vec::new();
        let mut first = true;
        loop {
            // `waiting` has the requests that came during the last round; later ones get the next
            // round.
            let force = waiting.iter().any(|waiter| waiter.force);
            let flags = ReloadFlags { requested: !waiting.is_empty(), force };
            let reloaded = self.follower.round(&self.loader, flags, first).await;
            first = false;
            #[cfg(feature = "live")]
            self.follower.absorb().await;
            for Waiter { reply, .. } in waiting.drain(..) {
                // The caller may be gone.
                let _ = reply.send(reloaded.clone());
            }
            self.follower.write_cache(&self.loader).await;
            tokio::select! {
                () = tokio::time::sleep_until(self.next_poll()) => {}
                request = self.requests.recv() => match request {
                    Some(request) => waiting.push(request),
                    None => return,
                }
            }
            while let Ok(request) = self.requests.try_recv() {
                waiting.push(request);
            }
        }
    }

    /// The time of the next poll if no request comes. At the end of a hold there is a poll before
    /// the held filter becomes the current one.
    fn next_poll(&mut self) -> Instant {
        let random = (self.random)();
        let pause = if !self.follower.served().is_loaded() {
            let waited = self.began.elapsed() / RETRY_FRACTION;
            jittered(self.retry_interval.max(waited).min(self.poll_interval), random)
        } else if std::mem::replace(&mut self.is_spread, true) {
            jittered(self.poll_interval, random)
        } else {
            random_fraction(self.poll_interval, random)
        };
        let next = Instant::now() + pause;
        self.follower.hold_ends_at().map_or(next, |end| end.min(next))
    }
}

fn jittered(interval: Duration, random: u64) -> Duration {
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    interval.saturating_mul(percent as u32) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_polls_of_a_fleet_are_spread_over_the_whole_interval() {
        let interval = Duration::from_secs(600);
        let mut in_minute = [0; 10];
        for _ in 0..10_000 {
            let pause = random_fraction(interval, random());
            assert!(pause < interval, "{pause:?}");
            in_minute[pause.as_secs() as usize / 60] += 1;
        }
        // 1,000 each; a tenth more or less is three standard deviations.
        assert!(in_minute.iter().all(|n| (850..1_150).contains(n)), "{in_minute:?}");
        assert!(random_fraction(Duration::MAX / 2, u64::MAX) < Duration::MAX / 2, "no overflow");
    }

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
}
