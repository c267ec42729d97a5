//! [`ServedFilter`]: one filter of this process, with its current generation, its counters, its
//! sample of recent lookups and its status. Only the follower swaps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(feature = "live")]
use bloomsday_common::hash::Xxh3;
use bloomsday_common::key::FilterName;

use super::counters::{LookupCounters, SingleCounters};
use super::current::{Current, KeptGeneration};
#[cfg(feature = "live")]
use super::live_lookup;
use super::readiness::Readiness;
use super::step::step_done;
use super::swap_signal::Due;
use super::thread_slots::ThreadSlots;
use crate::clock::Clock;
use crate::config::FilterConfig;
use crate::generation::Generation;
use crate::guard::Guard;
use crate::guard::sample::{Sample, SampledId, SharedIntervals};
#[cfg(feature = "live")]
use crate::live::{Below, NoAnswer};
use crate::status::{FilterStatus, PollStatus, Snapshot};

/// One filter, shared by its handles, its readers and the poller.
pub(crate) struct ServedFilter {
    name: FilterName,
    /// The generation that lookups use.
    pub(super) current: Current,
    /// The generation that the status reports: lookups use it already, or use a newer one.
    swapped_in: ArcSwapOption<Generation>,
    pub(super) thread_slots: ThreadSlots,
    /// Counts lookups without a thread slot: the slot was locked, or the caller used the generation
    /// itself.
    pub(super) overflow_counts: LookupCounters,
    /// Which of those are sampled.
    overflow_intervals: SharedIntervals,
    readers: Mutex<Vec<Weak<ReaderState>>>,
    /// Counts of readers that were dropped.
    retired_counts: LookupCounters,
    /// The highest number of misses that was reported.
    misses_reported: AtomicU64,
    /// IDs of recent lookups, for the guard; none while the guard is off.
    sample: Option<Sample>,
    clock: Clock,
    poll_status: ArcSwap<PollStatus>,
    /// The IDs that count since they were added.
    #[cfg(feature = "live")]
    live: std::sync::OnceLock<Arc<crate::live::LiveSet>>,
    /// Whether no day is published, so that live IDs alone answer.
    #[cfg(feature = "live")]
    has_no_day: std::sync::atomic::AtomicBool,
}

/// The part of a reader that other threads may read, and may signal through.
#[derive(Default)]
pub(super) struct ReaderState {
    pub(super) singles: SingleCounters,
    pub(super) batched: LookupCounters,
    /// When the reader takes the slow path of a single lookup. In a filter with live IDs: always.
    pub(super) due: Due,
    /// The epoch of the generation that the reader keeps.
    pub(super) epoch: AtomicU64,
    pub(super) thread: String,
}

impl ServedFilter {
    pub(crate) fn new(
        filter: &FilterConfig,
        answer_until_loaded: bool,
        clock: Clock,
    ) -> ServedFilter {
        let is_sampled = filter.guard != Guard::Off;
        ServedFilter {
            poll_status: ArcSwap::from_pointee(PollStatus::new(filter.guard)),
            name: filter.name.clone(),
            sample: is_sampled.then(Sample::new),
            #[cfg(feature = "live")]
            live: std::sync::OnceLock::new(),
            #[cfg(feature = "live")]
            has_no_day: std::sync::atomic::AtomicBool::new(false),
            clock,
            current: Current::new(answer_until_loaded),
            swapped_in: ArcSwapOption::empty(),
            thread_slots: ThreadSlots::new(answer_until_loaded, is_sampled),
            overflow_counts: LookupCounters::default(),
            overflow_intervals: SharedIntervals::new(is_sampled),
            readers: Mutex::new(Vec::new()),
            retired_counts: LookupCounters::default(),
            misses_reported: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &FilterName {
        &self.name
    }

    /// Says whether the store was read and no day of this filter is published: then live IDs alone
    /// answer.
    #[cfg(feature = "live")]
    pub(crate) fn set_has_no_day(&self, has_no_day: bool) {
        self.has_no_day.store(has_no_day, Ordering::Relaxed);
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.swapped_in.load().is_some()
    }

    /// The generation that the status reports. Every lookup from now on uses it or a newer one.
    pub(crate) fn swapped_in(&self) -> Option<Arc<Generation>> {
        self.swapped_in.load_full()
    }

    /// Counts and samples lookups that were made without a thread slot.
    pub(super) fn count_overflow<T: AsRef<[u8]>>(&self, ids: &[T], hits: u64) {
        let before = self.overflow_counts.add(ids.len() as u64, hits);
        if self.overflow_intervals.should_sample(before + ids.len() as u64)
            && let Some(sample) = &self.sample
        {
            sample.offer_some(ids, before, &self.overflow_intervals);
        }
    }

    /// Makes `next` the current generation and returns the one before. The caller keeps that until
    /// it is its only owner, so that no thread of a bidder frees it.
    pub(crate) fn swap(&self, next: Arc<Generation>) -> Option<Arc<Generation>> {
        let before = self.current.generation.swap(Some(next.clone()));
        step_done();
        // After the swap: a reader that sees the new epoch finds the new generation.
        self.current.epoch.raise();
        step_done();
        for reader in self.registered_readers() {
            // After the epoch: a reader that sees this sees the epoch, too.
            reader.due.signal();
        }
        step_done();
        self.refresh_idle();
        step_done();
        self.swapped_in.store(Some(next));
        before
    }

    /// Drops older generations from thread slots that no thread uses now.
    pub(crate) fn refresh_idle(&self) {
        self.thread_slots.refresh_idle(&self.current);
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Weak<ReaderState>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All readers there are now. The lock is free again when this returns: threads of bidders make
    /// and drop readers under it.
    fn registered_readers(&self) -> Vec<Arc<ReaderState>> {
        self.readers().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn register(&self, reader: &Arc<ReaderState>) {
        let mut readers = self.readers();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(reader));
    }

    /// Moves the counts of a reader that is being dropped to [`ServedFilter::retired_counts`].
    pub(super) fn retire(&self, reader: &ReaderState) {
        // Under the lock: a concurrent sum would otherwise count them twice, or not at all.
        let _readers = self.readers();
        for (hits, misses) in [reader.singles.take(), reader.batched.take()] {
            self.retired_counts.add(hits + misses, hits);
        }
    }

    /// The threads whose readers made no lookup since the last swap, and so keep an older filter.
    pub(crate) fn idle_readers(&self) -> Vec<String> {
        let epoch = self.current.epoch.load();
        let readers = self.registered_readers().into_iter();
        let behind = readers.filter(|reader| reader.epoch.load(Ordering::Relaxed) != epoch);
        behind.map(|reader| reader.thread.clone()).collect()
    }

    /// Hits and misses since the start. Neither number ever falls.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        let readers = self.readers();
        let states: Vec<_> = readers.iter().filter_map(Weak::upgrade).collect();
        let others = [&self.overflow_counts, &self.retired_counts];
        let (hits, misses) = (states.iter())
            .flat_map(|state| [state.singles.read(), state.batched.read()])
            .chain(self.thread_slots.counters().chain(others).map(LookupCounters::read))
            .fold((0, 0), |(hits, misses), (h, m)| (hits + h, misses + m));
        // Hits that came while the counters were read make this sum of misses too low.
        (hits, self.misses_reported.fetch_max(misses, Ordering::Relaxed).max(misses))
    }

    pub(crate) fn poll_status(&self) -> Arc<PollStatus> {
        self.poll_status.load_full()
    }

    pub(crate) fn set_poll_status(&self, status: PollStatus) {
        self.poll_status.store(Arc::new(status));
    }

    pub(crate) fn status(&self) -> FilterStatus {
        // The poll status first: whoever reads a state then finds the filter that belongs to it.
        let (name, polls) = (&self.name, self.poll_status());
        let (generation, lookups) = (self.swapped_in(), self.lookups());
        let snapshot = Snapshot { name, polls: &polls, generation: generation.as_deref(), lookups };
        let status = FilterStatus::of(snapshot, self.clock.now());
        #[cfg(feature = "live")]
        let live = self.live.get().map(|live| live.status(self.now_ms()));
        #[cfg(feature = "live")]
        let status = FilterStatus { live, ..status };
        status
    }

    /// The distinct IDs of recent lookups, unless the guard is off; also those that idle thread
    /// slots have buffered.
    pub(crate) fn recent_lookups(&self) -> Option<Vec<SampledId>> {
        let sample = self.sample.as_ref()?;
        self.thread_slots.flush(sample);
        Some(sample.distinct())
    }

    /// Looks an ID up in a kept generation of this filter, and in its live IDs.
    #[inline(always)]
    pub(super) fn contains(&self, kept: &mut KeptGeneration, id: &[u8]) -> bool {
        #[cfg(feature = "live")]
        if let Some(live) = self.live.get() {
            return live_lookup::contains(live, &self.current, kept, id);
        }
        kept.filter.contains(id)
    }

    /// As [`ServedFilter::contains`], for many IDs. Returns the number of hits.
    #[inline(always)]
    pub(super) fn contains_batch<T: AsRef<[u8]>>(
        &self,
        kept: &mut KeptGeneration,
        ids: &[T],
        answers: &mut [bool],
    ) -> usize {
        assert_eq!(ids.len(), answers.len(), "one answer for each ID");
        #[cfg(feature = "live")]
        if let Some(live) = self.live.get() {
            return live_lookup::contains_batch(live, &self.current, kept, ids, answers);
        }
        match kept.generation() {
            Some(generation) => generation.filter.contains_batch(ids, answers),
            None => self.current.fill_until_loaded(answers),
        }
    }

    #[cfg(feature = "live")]
    pub(super) fn live(&self) -> Option<&Arc<crate::live::LiveSet>> {
        self.live.get()
    }

    /// Puts live IDs over this filter. Before the first lookup.
    #[cfg(feature = "live")]
    pub(crate) fn put_live(&self, set: Arc<crate::live::LiveSet>) {
        // A filter is declared once.
        let _ = self.live.set(set);
    }

    /// Brings live IDs back that this filter, which becomes current next, lacks.
    #[cfg(feature = "live")]
    pub(crate) fn bring_back(&self, next: &Generation) {
        if let Some(live) = self.live.get() {
            live.bring_back(self.now_ms(), day_filter(next));
        }
    }

    /// Whether live IDs came that the filter may have, although it was compared with them before.
    #[cfg(feature = "live")]
    pub(crate) fn takes_absorb_again(&self) -> bool {
        self.live.get().is_some_and(|live| live.takes_absorb_again())
    }

    /// Drops live IDs that `current` has, the filter that answers now.
    #[cfg(feature = "live")]
    pub(crate) fn absorb(&self, current: &Generation) {
        if let Some(set) = self.live.get() {
            set.absorb(self.now_ms(), day_filter(current));
        }
    }

    /// Whether a lookup has an answer now: the day's filter is loaded, or the store has no day and
    /// live IDs are all there is; and the live IDs of others are here.
    pub(crate) fn readiness(&self) -> Readiness {
        if !self.is_loaded() && !self.needs_no_day() {
            Readiness::NotLoaded
        } else if !self.has_others_live_ids() {
            Readiness::WithoutOthersLiveIds
        } else {
            Readiness::Ready
        }
    }

    /// Whether this filter answers without a day: the store has none, and there are live IDs.
    pub(crate) fn needs_no_day(&self) -> bool {
        #[cfg(feature = "live")]
        return self.has_no_day.load(Ordering::Relaxed)
            && self.live.get().is_some_and(|live| live.is_known());
        #[cfg(not(feature = "live"))]
        false
    }

    /// Waits until the live IDs that others added before the start are here, or cannot be read.
    pub(crate) async fn wait_for_others_live_ids(&self) {
        #[cfg(feature = "live")]
        if let Some(live) = self.live.get() {
            live.wait_for_others_ids().await;
        }
    }

    /// Whether the live IDs that others added before the start are here, or cannot be read now.
    fn has_others_live_ids(&self) -> bool {
        #[cfg(feature = "live")]
        return self.live.get().is_none_or(|live| live.has_others_ids());
        #[cfg(not(feature = "live"))]
        true
    }

    /// Whether there are live IDs over the filter: from the first lookup, or never.
    pub(crate) fn has_live_ids(&self) -> bool {
        #[cfg(feature = "live")]
        return self.live.get().is_some();
        #[cfg(not(feature = "live"))]
        false
    }

    #[cfg(feature = "live")]
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }
}

#[cfg(feature = "live")]
fn day_filter(generation: &Generation) -> crate::live::DayFilter<'_> {
    let Generation { key, header, filter, .. } = generation;
    crate::live::DayFilter { digest: key.digest, header, filter }
}

#[cfg(feature = "live")]
impl Below for ServedFilter {
    fn epoch(&self) -> u64 {
        self.current.epoch.load()
    }

    fn is_still(&self, epoch: u64) -> bool {
        self.current.epoch.is_still(epoch)
    }

    fn contains_each(&self, hashes: &[u64], answers: &mut [bool]) -> Result<(), NoAnswer> {
        let generation = self.current.generation.load();
        let Some(generation) = &*generation else {
            // Without a day there is nothing but the live IDs. A day that is not loaded would be
            // taken for that.
            if !self.needs_no_day() {
                return Err(NoAnswer::NotLoaded);
            }
            answers.fill(false);
            return Ok(());
        };
        if generation.filter.shape().layout() != bloomsday_common::filter::Layout::Blocked {
            return Err(NoAnswer::OtherLayout);
        }
        generation.filter.contains_hashes(Xxh3::from_words(hashes), answers);
        Ok(())
    }

    fn count_lookups(&self, ids: &[&[u8]], hits: u64) {
        self.count_overflow(ids, hits);
    }
}
