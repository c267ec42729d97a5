//! The hot path: [`FilterHandle`], shared by all threads, and [`Reader`], one thread's own.
//!
//! A question here never waits or logs, and allocates at most once a thread. Only the poller swaps. Locks are
//! taken only if they are free: that of a thread's lane, and by one question in 128 at most that of the
//! guard's sample. Whether a question is sampled takes a comparison, for a whole batch as for one.
//!
//! | module | holds |
//! |---|---|
//! | `lane` | what a shared handle lends a thread for one question |
//! | `tally` | counts of questions and answers |

mod lane;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use bloomsday_common::blob::Header;
use bloomsday_common::filter::{Filter, PinnedFilter};
use bloomsday_common::key::{BlobKey, FilterName};
use jiff::Timestamp;

use self::lane::Lanes;
use self::tally::Tally;
use crate::FilterConfig;
use crate::Guard;
use crate::clock::Clock;
use crate::sample::{Gaps, Question, Sample, SharedGaps, Staged};
use crate::status::{Core, FilterStatus};

/// One loaded filter in one process.
pub(crate) struct Generation {
    pub(crate) key: BlobKey,
    pub(crate) header: Header,
    pub(crate) filter: Filter,
    pub(crate) bytes: u64,
    /// How many of them really lie in huge pages, where the kernel tells.
    pub(crate) huge_bytes: Option<u64>,
    pub(crate) loaded_at: Timestamp,
}

/// Where one filter's current generation lives, and what is known about it.
pub(crate) struct Slot {
    name: FilterName,
    /// What questions are put to.
    current: ArcSwapOption<Generation>,
    /// What is told of it: never one that questions are not put to yet.
    shown: ArcSwapOption<Generation>,
    /// Grows with every swap, after it; readers and lanes compare it with that of what they hold.
    epoch: AtomicU64,
    /// The answer before anything is loaded.
    meanwhile: bool,
    lanes: Lanes,
    /// Counts of questions that found their lane taken, or were put to the generation itself.
    beside: Tally,
    /// Which of those are sampled.
    beside_gaps: SharedGaps,
    readers: Mutex<Vec<Weak<ReaderState>>>,
    /// Counts of readers that are gone.
    departed: Tally,
    /// The most answers "no" that were told.
    absent_told: AtomicU64,
    /// Recent questions, for the guard; without one, none are kept.
    sample: Option<Sample>,
    clock: Clock,
    core: ArcSwap<Core>,
}

/// Where a test looks in, between two steps that others may come between.
#[inline(always)]
fn step_done() {
    #[cfg(test)]
    tests::at_the_worst_moment();
}

/// What others may know of a reader, and tell it.
#[derive(Default)]
struct ReaderState {
    singles: Tally,
    batched: Tally,
    /// How many single questions come before the next that the reader attends to: to sample it. 0 is news of
    /// a swap.
    due: AtomicU64,
    /// The epoch whose generation it holds.
    epoch: AtomicU64,
    thread: String,
}

impl Slot {
    pub(crate) fn new(filter: &FilterConfig, meanwhile: bool, clock: Clock) -> Slot {
        let is_sampled = filter.guard != Guard::Off;
        Slot {
            core: ArcSwap::from_pointee(Core::new(filter.guard)),
            name: filter.name.clone(),
            sample: is_sampled.then(Sample::new),
            clock,
            current: ArcSwapOption::empty(),
            shown: ArcSwapOption::empty(),
            epoch: AtomicU64::new(0),
            meanwhile,
            lanes: Lanes::new(meanwhile, is_sampled),
            beside: Tally::default(),
            beside_gaps: SharedGaps::new(is_sampled),
            readers: Mutex::new(Vec::new()),
            departed: Tally::default(),
            absent_told: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &FilterName {
        &self.name
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.shown.load().is_some()
    }

    /// The generation that answers whatever is asked from now on, or an older one than that.
    pub(crate) fn shown(&self) -> Option<Arc<Generation>> {
        self.shown.load_full()
    }

    /// Answers a batch, also before anything is loaded. Gives how many answers are "yes".
    #[inline]
    fn answer_batch<T: AsRef<[u8]>>(
        &self,
        generation: Option<&Generation>,
        ids: &[T],
        answers: &mut [bool],
    ) -> usize {
        if let Some(generation) = generation {
            return generation.filter.contains_batch(ids, answers);
        }
        assert_eq!(ids.len(), answers.len(), "one answer a question");
        answers.fill(self.meanwhile);
        if self.meanwhile { answers.len() } else { 0 }
    }

    /// Counts questions that were put to the generation itself, and samples them.
    fn count_beside<T: AsRef<[u8]>>(&self, ids: &[T], seen: u64) {
        let before = self.beside.add(ids.len() as u64, seen);
        if self.beside_gaps.is_due(before + ids.len() as u64)
            && let Some(sample) = &self.sample
        {
            sample.offer_some(ids, before, &self.beside_gaps);
        }
    }

    /// Makes a generation the one that answers; gives back the one before, which the caller must keep
    /// until it is its sole holder, so that no bidder's thread frees it.
    pub(crate) fn swap(&self, next: Arc<Generation>) -> Option<Arc<Generation>> {
        let before = self.current.swap(Some(next.clone()));
        step_done();
        // After the swap: a reader that sees the new epoch finds the new generation.
        self.epoch.fetch_add(1, Ordering::Release);
        step_done();
        for reader in self.readers() {
            // After the epoch: a reader that sees this sees that too.
            reader.due.store(0, Ordering::Release);
        }
        step_done();
        self.catch_up();
        step_done();
        self.shown.store(Some(next));
        before
    }

    /// Lets lanes that nobody asks through now go of older generations.
    pub(crate) fn catch_up(&self) {
        self.lanes.catch_up(self);
    }

    /// All there are now. The lock is held no longer: bidders' threads make and drop readers under it.
    fn readers(&self) -> Vec<Arc<ReaderState>> {
        let readers = self.readers.lock().expect("no thread panics while it holds the readers");
        readers.iter().filter_map(Weak::upgrade).collect()
    }

    /// The threads whose readers have not asked since the last swap and still hold an older filter.
    pub(crate) fn idle_readers(&self) -> Vec<String> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let readers = self.readers().into_iter();
        let behind = readers.filter(|reader| reader.epoch.load(Ordering::Relaxed) != epoch);
        behind.map(|reader| reader.thread.clone()).collect()
    }

    /// Questions answered "yes" and "no" since the start: never fewer than were told before.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        let readers = self.readers.lock().expect("no thread panics while it holds the readers");
        let states: Vec<_> = readers.iter().filter_map(Weak::upgrade).collect();
        let own = states.iter().flat_map(|state| [&state.singles, &state.batched]);
        let tallies =
            own.chain(self.lanes.tallies()).chain([&self.beside, &self.departed]).map(Tally::read);
        let (seen, absent) = tallies.fold((0, 0), |(seen, absent), (s, a)| (seen + s, absent + a));
        // Answers that came while the tallies were read make those "no" fewer.
        (seen, self.absent_told.fetch_max(absent, Ordering::Relaxed).max(absent))
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        self.core.load_full()
    }

    pub(crate) fn set_core(&self, core: Core) {
        self.core.store(Arc::new(core));
    }

    pub(crate) fn status(&self) -> FilterStatus {
        FilterStatus::of(self, self.clock.now())
    }

    /// Every distinct ID among recent questions, unless the guard is off: also those that waited in idle lanes
    /// to be sampled, and are now.
    pub(crate) fn recent_questions(&self) -> Option<Vec<Question>> {
        let sample = self.sample.as_ref()?;
        self.lanes.hand_over(sample);
        Some(sample.distinct())
    }

    #[cfg(test)]
    pub(crate) fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }
}

/// One filter's answers, for any number of threads. Cheap to clone.
#[derive(Clone)]
pub struct FilterHandle {
    slot: Arc<Slot>,
}

impl FilterHandle {
    pub(crate) fn new(slot: Arc<Slot>) -> FilterHandle {
        FilterHandle { slot }
    }

    /// The filter's name.
    pub fn name(&self) -> &FilterName {
        &self.slot.name
    }

    /// Whether `id` is in the filter that answers now: "no" is certain, "yes" is wrong with its fpp.
    ///
    /// Cost: one hash, one cache miss, and some 13 ns for a locked instruction; a [`Reader`] saves those, and
    /// a batch pays them once. Of more than 64 threads that ever asked two may share a place: some 40 ns, when the
    /// other is there. A thread's first question allocates some 200 bytes, once for all handles.
    #[inline]
    pub fn contains(&self, id: &[u8]) -> bool {
        let Some(mut lane) = self.slot.lanes.take(&self.slot) else {
            return self.contains_beside(id);
        };
        let before = lane.asked();
        if lane.inside.gaps.is_due(before + 1) {
            self.stage(&mut lane.inside, &[id], before);
        }
        let seen = lane.inside.holding.held.contains(id);
        lane.leave(before, 1, u64::from(seen));
        seen
    }

    /// The same without a lane.
    #[cold]
    fn contains_beside(&self, id: &[u8]) -> bool {
        let seen = match &*self.slot.current.load() {
            Some(generation) => generation.filter.contains(id),
            None => self.slot.meanwhile,
        };
        self.slot.count_beside(&[id], u64::from(seen));
        seen
    }

    /// For one question in 128.
    #[cold]
    fn stage<T: AsRef<[u8]>>(&self, lane: &mut lane::Inside, ids: &[T], before: u64) {
        if let Some(sample) = &self.slot.sample {
            lane.staged.add_some(ids, before, &mut lane.gaps, sample);
        }
    }

    /// Answers many IDs at once, all from the same generation: `answers[i]` belongs to `ids[i]`.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length.
    pub fn contains_batch<T: AsRef<[u8]>>(&self, ids: &[T], answers: &mut [bool]) {
        let slot = &*self.slot;
        let Some(mut lane) = slot.lanes.take(slot) else {
            let seen = slot.answer_batch(slot.current.load().as_deref(), ids, answers);
            return slot.count_beside(ids, seen as u64);
        };
        let seen = slot.answer_batch(lane.inside.holding.held.owner(), ids, answers);
        let before = lane.asked();
        if lane.inside.gaps.is_due(before + ids.len() as u64) {
            self.stage(&mut lane.inside, ids, before);
        }
        lane.leave(before, ids.len() as u64, seen as u64);
    }

    /// A reader for the calling thread: the fastest way to ask one ID at a time.
    ///
    /// Cost: an allocation and a lock, and a lock when it is dropped, so keep it. It holds its filter until
    /// it is asked again or dropped, also past a swap: a thread that stops asking keeps an old filter in
    /// memory.
    pub fn reader(&self) -> Reader {
        let thread = std::thread::current();
        let thread = thread.name().map_or_else(|| format!("{:?}", thread.id()), str::to_owned);
        let state = Arc::new(ReaderState { thread, ..ReaderState::default() });
        let mut readers =
            self.slot.readers.lock().expect("no thread panics while it holds the readers");
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&state));
        drop(readers);
        let (slot, holding) = (self.slot.clone(), Holding::none(self.slot.meanwhile));
        let gaps = || Gaps::new(slot.sample.is_some());
        let (singles, batched) = (gaps(), gaps());
        let mut own = Own { slot, holding, singles, batched, staged: Staged::new() };
        own.refresh(&state);
        Reader { own, state }
    }

    /// Whether a filter is loaded.
    pub fn is_loaded(&self) -> bool {
        self.slot.is_loaded()
    }

    /// What is live and why.
    pub fn status(&self) -> FilterStatus {
        self.slot.status()
    }

    /// The generation that answers now, for a caller that also wants to say which one it was.
    #[cfg(feature = "http")]
    pub(crate) fn generation(&self) -> Option<Arc<Generation>> {
        self.slot.shown()
    }

    /// Counts and samples questions that were put to [`FilterHandle::generation`] directly, of which `seen`
    /// were answered "yes".
    #[cfg(any(feature = "http", test))]
    pub(crate) fn count<T: AsRef<[u8]>>(&self, ids: &[T], seen: u64) {
        self.slot.count_beside(ids, seen);
    }
}

/// One thread's own way to ask: it holds the current generation, and one comparison tells it that there is
/// news of a swap, or a question to sample.
pub struct Reader {
    own: Own,
    state: Arc<ReaderState>,
}

/// What a reader keeps to itself. Apart from its state, so that the compiler knows that whatever changes
/// here, the state stays where it is.
struct Own {
    slot: Arc<Slot>,
    holding: Holding,
    /// Which of the single questions are sampled, and which of those in batches.
    singles: Gaps,
    batched: Gaps,
    /// Questions on their way to the sample.
    staged: Staged,
}

impl Reader {
    /// Whether `id` is in the filter that answers now: "no" is certain, "yes" is wrong with its fpp.
    ///
    /// Cost: one hash and one cache miss.
    #[inline]
    pub fn contains(&mut self, id: &[u8]) -> bool {
        let state = &*self.state;
        let asked = state.singles.asked();
        // Before the question, so that nothing but its answer must outlast it.
        if asked >= state.due.load(Ordering::Relaxed) {
            self.own.attend(state, id, asked);
        }
        let seen = self.own.holding.held.contains(id);
        state.singles.add_alone(asked, 1, u64::from(seen));
        seen
    }

    /// Answers many IDs at once, all from the same generation: `answers[i]` belongs to `ids[i]`.
    ///
    /// # Panics
    /// When `ids` and `answers` differ in length.
    #[inline]
    pub fn contains_batch<T: AsRef<[u8]>>(&mut self, ids: &[T], answers: &mut [bool]) {
        let Reader { own, state } = self;
        own.follow(state);
        let seen = own.slot.answer_batch(own.holding.held.owner(), ids, answers);
        let before = state.batched.asked();
        if own.batched.is_due(before + ids.len() as u64) {
            own.stage_batch(ids, before);
        }
        state.batched.add_alone(before, ids.len() as u64, seen as u64);
    }
}

/// A generation that a reader or a lane holds.
struct Holding {
    held: PinnedFilter<Generation>,
    /// The epoch it came with.
    epoch: u64,
}

impl Holding {
    /// None yet.
    fn none(meanwhile: bool) -> Holding {
        Holding { held: PinnedFilter::none(meanwhile), epoch: 0 }
    }

    /// Whether there was a swap.
    #[inline(always)]
    fn is_behind(&self, slot: &Slot) -> bool {
        slot.epoch.load(Ordering::Acquire) != self.epoch
    }

    /// Follows a swap, if there was one.
    #[inline(always)]
    fn follow(&mut self, slot: &Slot) {
        if self.is_behind(slot) {
            self.refresh(slot);
        }
    }

    #[cold]
    fn refresh(&mut self, slot: &Slot) {
        // The epoch first: a swap in between is then noticed at the next question.
        self.epoch = slot.epoch.load(Ordering::Acquire);
        // The old generation is also held by the poller, so this never frees it.
        self.held = match slot.current.load_full() {
            Some(generation) => PinnedFilter::of(generation, |generation| &generation.filter),
            None => PinnedFilter::none(slot.meanwhile),
        };
    }
}

impl Own {
    /// Samples, once in 128 questions, and follows a swap.
    #[cold]
    fn attend(&mut self, state: &ReaderState, id: &[u8], asked: u64) {
        if let Some(sample) = &self.slot.sample {
            self.staged.add_some(&[id], asked, &mut self.singles, sample);
        }
        // No swap is missed: news of it that this overwrites is acquired, so that its epoch is seen below,
        // and news that comes later stays.
        state.due.swap(self.singles.next(), Ordering::AcqRel);
        step_done();
        self.follow(state);
    }

    /// For one question in 128.
    #[cold]
    fn stage_batch<T: AsRef<[u8]>>(&mut self, ids: &[T], before: u64) {
        if let Some(sample) = &self.slot.sample {
            self.staged.add_some(ids, before, &mut self.batched, sample);
        }
    }

    #[inline]
    fn follow(&mut self, state: &ReaderState) {
        if self.holding.is_behind(&self.slot) {
            self.refresh(state);
        }
    }

    #[cold]
    fn refresh(&mut self, state: &ReaderState) {
        self.holding.refresh(&self.slot);
        state.epoch.store(self.holding.epoch, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Reader { own: Own { slot, staged, .. }, state } = self;
        if let Some(sample) = &slot.sample {
            staged.hand_over(sample);
        }
        // Under the lock: whoever looks meanwhile would count them twice, or not at all.
        let _readers = slot.readers.lock().unwrap_or_else(PoisonError::into_inner);
        for tally in [&state.singles, &state.batched] {
            let (seen, absent) = tally.take();
            slot.departed.add(seen + absent, seen);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
