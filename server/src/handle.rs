//! The hot path: [`FilterHandle`], which all threads share, and [`Reader`], which belongs to one
//! thread.
//!
//! A lookup never waits and never logs, and it allocates at most once for each thread. It takes a
//! lock only if the lock is free: that of the thread's slot, and, when its buffer of sampled IDs is
//! full, that of the guard's sample. One comparison decides whether to sample, for a batch as for
//! one ID. Only the follower swaps.
//!
//! | module | contents |
//! |---|---|
//! | `served` | one filter of this process: generation, counters, sample, status |
//! | `current` | the current generation, and one that a thread keeps |
//! | `thread_slots` | what a shared handle lends to a thread for one lookup |
//! | `counters` | counts of lookups and hits |
//! | `live` | adds and deletions of live IDs |
//! | `live_lookup` | lookups in a day's filter and in the live IDs over it |
//! | `swap_signal` | how a reader learns of a swap |
//! | `atomic` | what counters and signals are made of |
//! | `orderings` | a test of their memory orderings, under loom |
//! | `step` | a hook for tests between the steps of a swap |

mod atomic;
mod counters;
mod current;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "live")]
mod live_lookup;
#[cfg(test)]
mod orderings;
mod readiness;
mod served;
mod step;
mod swap_signal;
mod thread_slots;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bloomsday_common::key::FilterName;

use self::counters::SingleCounters;
pub(crate) use self::current::KeptGeneration;
pub(crate) use self::readiness::Readiness;
use self::served::ReaderState;
pub(crate) use self::served::ServedFilter;
use self::step::step_done;
use self::thread_slots::SlotState;
use crate::guard::sample::{Intervals, SampleBuffer};
use crate::status::FilterStatus;

/// Looks IDs up in one filter, from any number of threads. Cheap to clone.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice", b"bob"]);
/// use bloomsday_server::{Config, FilterConfig, start};
///
/// let bloomsday = start(Config::new(&store, vec![FilterConfig::new("rt".parse()?)])).await?;
/// let rt = bloomsday.filter("rt")?;
/// assert!(rt.contains(b"alice"));
///
/// let mut answers = [false; 2];
/// rt.contains_batch(&[b"alice" as &[u8], b"bob"], &mut answers);
/// assert_eq!(answers, [true, true]);
/// assert_eq!(rt.status().hits, 3);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FilterHandle {
    served: Arc<ServedFilter>,
}

impl FilterHandle {
    pub(crate) fn new(served: Arc<ServedFilter>) -> FilterHandle {
        FilterHandle { served }
    }

    /// The name of the filter.
    pub fn name(&self) -> &FilterName {
        self.served.name()
    }

    /// Whether the current filter contains `id`. A miss is certain; a hit is a false positive with
    /// the probability of the filter's fpp.
    ///
    /// Cost: one hash, one cache miss, and one locked instruction. A [`Reader`] saves the locked
    /// instruction, and a batch needs one for all its IDs. Of more than 64 threads, two may use the
    /// same counters and then slow each other down. The first lookup of a thread allocates some 200
    /// bytes, once for all handles.
    #[inline]
    pub fn contains(&self, id: &[u8]) -> bool {
        let Some(mut slot) = self.served.thread_slots.take(&self.served.current) else {
            return self.contains_without_slot(id);
        };
        let before = slot.lookups();
        if slot.state.intervals.should_sample(before + 1) {
            self.sample(&mut slot.state, &[id], before);
        }
        let hit = self.served.contains(&mut slot.state.kept, id);
        slot.leave(before, 1, u64::from(hit));
        hit
    }

    #[cold]
    fn contains_without_slot(&self, id: &[u8]) -> bool {
        let hit = self.served.contains(&mut self.served.current.keep(), id);
        self.served.count_overflow(&[id], u64::from(hit));
        hit
    }

    /// Keeps some of the IDs for the guard. Called for one of 128 lookups.
    #[cold]
    fn sample<T: AsRef<[u8]>>(&self, state: &mut SlotState, ids: &[T], before: u64) {
        if let Some(sample) = self.served.sample() {
            state.buffer.add_some(ids, before, &mut state.intervals, sample);
        }
    }

    /// Looks many IDs up at once, all in the same filter: `answers[i]` is whether it contains
    /// `ids[i]`.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length.
    pub fn contains_batch<T: AsRef<[u8]>>(&self, ids: &[T], answers: &mut [bool]) {
        let served = &*self.served;
        let Some(mut slot) = served.thread_slots.take(&served.current) else {
            let hits = served.contains_batch(&mut served.current.keep(), ids, answers);
            return served.count_overflow(ids, hits as u64);
        };
        let hits = served.contains_batch(&mut slot.state.kept, ids, answers);
        let before = slot.lookups();
        if slot.state.intervals.should_sample(before + ids.len() as u64) {
            self.sample(&mut slot.state, ids, before);
        }
        slot.leave(before, ids.len() as u64, hits as u64);
    }

    /// A reader for the calling thread: the fastest way to look up one ID at a time.
    ///
    /// Cost: an allocation and a lock, and a lock when the reader is dropped, so keep it. A reader
    /// keeps its filter in memory, also after a swap, until its next lookup or until it is dropped:
    /// a thread that stops its lookups should drop its reader.
    pub fn reader(&self) -> Reader {
        let thread = std::thread::current();
        let thread = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        let state = Arc::new(ReaderState { thread, ..ReaderState::default() });
        self.served.register(&state);
        let served = self.served.clone();
        let kept = served.current.keep();
        state.epoch.store(kept.epoch, Ordering::Relaxed);
        let intervals = || Intervals::new(served.sample().is_some());
        let (singles, batched, buffer) = (intervals(), intervals(), SampleBuffer::new());
        let cache = ReaderLocal { served, kept, singles, batched, buffer };
        Reader { cache, state }
    }

    /// Whether a filter is loaded.
    pub fn is_loaded(&self) -> bool {
        self.served.is_loaded()
    }

    /// The status of the filter.
    pub fn status(&self) -> FilterStatus {
        self.served.status()
    }

    /// The current generation, for a caller that also reports which one it used.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn keep(&self) -> KeptGeneration {
        self.served.current.keep()
    }

    #[cfg(feature = "http")]
    pub(crate) fn readiness(&self) -> Readiness {
        self.served.readiness()
    }

    /// Looks a batch up in a kept generation, and in the live IDs over it. With live IDs, a swap in
    /// the middle keeps the new generation, which then answers for the batch. Returns the number of
    /// hits.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn contains_batch_in<T: AsRef<[u8]>>(
        &self,
        kept: &mut KeptGeneration,
        ids: &[T],
        answers: &mut [bool],
    ) -> usize {
        let hits = self.served.contains_batch(kept, ids, answers);
        self.served.count_overflow(ids, hits as u64);
        hits
    }
}

impl fmt::Debug for FilterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_loaded = self.is_loaded();
        f.debug_struct("FilterHandle")
            .field("name", self.name())
            .field("is_loaded", &is_loaded)
            .finish_non_exhaustive()
    }
}

/// Looks IDs up in one filter, from one thread. It keeps the current filter, and one
/// comparison for each lookup finds that there was a swap, or that this lookup is sampled.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::{Config, FilterConfig, start};
///
/// let bloomsday = start(Config::new(&store, vec![FilterConfig::new("rt".parse()?)])).await?;
/// let rt = bloomsday.filter("rt")?;
/// let bidder = std::thread::spawn(move || {
///     let mut reader = rt.reader();
///     reader.contains(b"alice")
/// });
/// assert!(bidder.join().unwrap());
/// # Ok(()) }
/// ```
pub struct Reader {
    cache: ReaderLocal,
    state: Arc<ReaderState>,
}

/// The part of a reader that only its thread uses. Apart from `state`, so that the compiler knows
/// that a change here does not move the state.
struct ReaderLocal {
    served: Arc<ServedFilter>,
    kept: KeptGeneration,
    /// Which of the single lookups are sampled, and which of those in batches.
    singles: Intervals,
    batched: Intervals,
    /// Sampled IDs on their way to the sample.
    buffer: SampleBuffer,
}

impl Reader {
    /// Whether the current filter contains `id`. A miss is certain; a hit is a false positive with
    /// the probability of the filter's fpp.
    ///
    /// Cost: one hash and one cache miss.
    #[inline]
    pub fn contains(&mut self, id: &[u8]) -> bool {
        let Reader { cache, state } = self;
        let state = &**state;
        let lookups = state.singles.lookups();
        if state.due.is_reached(lookups) {
            return cache.contains_slow(state, id);
        }
        let hit = cache.kept.filter.contains(id);
        state.singles.add_exclusive(lookups, hit);
        hit
    }

    /// Looks many IDs up at once, all in the same filter: `answers[i]` is whether it contains
    /// `ids[i]`.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length.
    #[inline]
    pub fn contains_batch<T: AsRef<[u8]>>(&mut self, ids: &[T], answers: &mut [bool]) {
        let Reader { cache, state } = self;
        cache.kept.update(&cache.served.current);
        let hits = cache.served.contains_batch(&mut cache.kept, ids, answers);
        state.epoch.store(cache.kept.epoch, Ordering::Relaxed);
        let before = state.batched.lookups();
        if cache.batched.should_sample(before + ids.len() as u64) {
            cache.sample_batch(ids, before);
        }
        state.batched.add_exclusive(before, ids.len() as u64, hits as u64);
    }
}

impl ReaderLocal {
    /// One lookup of 128, the first after a swap, one before the counters must carry, and all in a
    /// filter with live IDs, where `due` stays 0: so the others pay nothing for live IDs.
    #[cold]
    #[inline(never)]
    fn contains_slow(&mut self, state: &ReaderState, id: &[u8]) -> bool {
        let lookups = state.singles.lookups();
        if self.singles.should_sample(lookups + 1) {
            self.sample_single(id, lookups);
        }
        state.singles.carry();
        if !self.served.has_live_ids() {
            let last = lookups + <SingleCounters>::MAX_UNCARRIED;
            state.due.set(self.singles.next().min(last));
        }
        step_done();
        self.kept.update(&self.served.current);
        let hit = self.served.contains(&mut self.kept, id);
        state.epoch.store(self.kept.epoch, Ordering::Relaxed);
        state.singles.add_exclusive(lookups, hit);
        hit
    }

    /// Keeps the ID for the guard. Called for one of 128 lookups.
    fn sample_single(&mut self, id: &[u8], lookups: u64) {
        if let Some(sample) = self.served.sample() {
            self.buffer.add_some(&[id], lookups, &mut self.singles, sample);
        }
    }

    /// As `sample_single`, for a batch.
    #[cold]
    fn sample_batch<T: AsRef<[u8]>>(&mut self, ids: &[T], before: u64) {
        if let Some(sample) = self.served.sample() {
            self.buffer.add_some(ids, before, &mut self.batched, sample);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Reader { cache: ReaderLocal { served, buffer, .. }, state } = self;
        if let Some(sample) = served.sample() {
            buffer.flush(sample);
        }
        served.retire(state);
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.cache.served.name();
        f.debug_struct("Reader").field("name", name).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
