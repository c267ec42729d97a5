//! [`Process`]: one simulated server. It runs the rounds of a real one, on a paused clock.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bloomsday_common::hash::SplitMix64;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;
use jiff::{SignedDuration, Timestamp};
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::flaky_store::FlakyStore;
use crate::clock::Clock;
use crate::config::{Config, FilterConfig};
use crate::error::Error;
use crate::generation::Generation;
use crate::handle::{FilterHandle, ServedFilter};
use crate::memory_check::MemoryCheck;
use crate::poller::{PollLoops, PollerHandle, ReloadRequest};
use crate::status::{FilterStatus, Reloaded};

thread_local! {
    /// The seed of the jitter in this thread's simulation.
    static JITTER: Cell<SplitMix64> = Cell::new(SplitMix64::new(0));
}

/// Sets the seed of this thread's jitter.
pub(crate) fn seed_jitter(seed: u64) {
    JITTER.set(SplitMix64::new(seed));
}

fn jitter() -> u64 {
    let mut sequence = JITTER.get();
    let random = sequence.draw();
    JITTER.set(sequence);
    random
}

/// Runs on a clock that advances only while every task waits: a month takes no time.
pub(crate) fn on_a_paused_clock(play: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, play);
}

/// The time of day of a simulated machine.
#[derive(Clone)]
pub(crate) struct FakeClock {
    start: (Instant, Timestamp),
    skew_seconds: Arc<AtomicI64>,
}

impl FakeClock {
    pub(crate) fn new(from: Timestamp) -> FakeClock {
        FakeClock { start: (Instant::now(), from), skew_seconds: Arc::default() }
    }

    /// The true time.
    pub(crate) fn truth(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.0.elapsed()).unwrap();
        self.start.1 + elapsed
    }

    /// The time of the machine's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.truth() + SignedDuration::from_secs(self.skew_seconds.load(Ordering::Relaxed))
    }

    /// Sets the machine's clock this far from the true time.
    pub(crate) fn step(&self, seconds: i64) {
        self.skew_seconds.store(seconds, Ordering::Relaxed);
    }
}

/// One server process. Its methods are about its first filter, unless they name another.
pub(crate) struct Process {
    served: Arc<ServedFilter>,
    handle: PollerHandle,
    running: JoinHandle<()>,
    /// The available memory, which a test may lower.
    pub(crate) memory: Arc<AtomicU64>,
    generations: Vec<Weak<Generation>>,
}

impl Process {
    /// Starts with this store; needs a `LocalSet`.
    pub(crate) fn start(store: &Arc<FlakyStore>, clock: &FakeClock, config: &Config) -> Process {
        let store = Store::over(store.clone(), "flaky");
        let fake = clock.clone();
        let clock = Clock::of(move || fake.now());
        let served =
            |filter: &FilterConfig| Arc::new(ServedFilter::new(filter, false, clock.clone()));
        let all_served: Vec<Arc<ServedFilter>> = config.filters.iter().map(served).collect();
        let served = all_served[0].clone();
        let memory = Arc::new(AtomicU64::new(u64::MAX));
        let left = memory.clone();
        let room = MemoryCheck::of(move || left.load(Ordering::Relaxed));
        let loops = PollLoops::new(config.clone(), store, all_served, clock, room, jitter);
        let (loops, handle) = loops.expect("the cache folder can be made");
        let running = tokio::task::spawn_local(loops.run());
        Process { served, handle, running, memory, generations: Vec::new() }
    }

    pub(crate) fn handle(&self) -> FilterHandle {
        FilterHandle::new(self.served.clone())
    }

    pub(crate) fn generation(&self) -> Option<Arc<Generation>> {
        self.served.swapped_in()
    }

    pub(crate) fn status(&self) -> FilterStatus {
        self.served.status()
    }

    /// Requests a reload at once; the caller need not wait for the result.
    pub(crate) fn request_reload(
        &self,
        force: bool,
    ) -> impl Future<Output = Result<Vec<Reloaded>, Error>> + 'static {
        self.request_reload_of(None, force)
    }

    /// [`Process::request_reload`] for one filter.
    pub(crate) fn request_reload_of(
        &self,
        filter: Option<FilterName>,
        force: bool,
    ) -> impl Future<Output = Result<Vec<Reloaded>, Error>> + 'static {
        self.handle.queues.enqueue(&ReloadRequest { filter, force }).expect("few wait").all()
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.running.is_finished()
    }

    /// Samples these lookups, as a bidder's are.
    pub(crate) fn sample_lookups<T: AsRef<[u8]>>(&self, ids: &[T]) {
        let sample = self.served.sample().expect("the guard is on");
        ids.iter().for_each(|id| sample.offer_one(id.as_ref()));
    }

    /// How many of the filters that were current during this test are still in memory.
    pub(crate) fn alive(&mut self) -> usize {
        if let Some(current) = self.served.swapped_in() {
            let known = self.generations.last().and_then(Weak::upgrade);
            if known.is_none_or(|known| !Arc::ptr_eq(&known, &current)) {
                self.generations.push(Arc::downgrade(&current));
            }
        }
        self.generations.retain(|generation| generation.strong_count() > 0);
        self.generations.len()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ends every task in the middle, as a kill does.
        self.running.abort();
    }
}
