//! [`Sample`]: some of the recent questions, raw, for the guard. In memory only: it is never logged,
//! shown or written, and has no `Debug`.
//!
//! A question pays a comparison, through a handle a multiplication too, to learn that it is not
//! sampled. One in 128 is copied; readers and lanes copy into room of their own and hand over 32 at a time.
//! Batches, once the sample is full, offer as few as it can use. Nobody waits: whoever finds the sample
//! taken by another thread lets its questions go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// One of so many questions is sampled.
pub(crate) const ONE_IN: u64 = 128;
/// How many questions are kept: 256 KiB a filter. Those that wait in its lanes take half as much.
const KEPT: usize = 4096;
/// A longer ID is not sampled: IDs of devices have 16 to 36 bytes.
const MAX_ID_BYTES: usize = 63;
/// How many questions a reader or a lane gathers before it hands them over.
const STAGED: usize = 32;
/// Once the sample is full, a question is replaced no more often than this: so that it spans some
/// ten minutes, however many ask, and one burst cannot take it over.
const REPLACE_EVERY: Duration = Duration::from_millis(150);

/// Batches offer at least one question in so many times [`ONE_IN`], as a power of two.
const MOST_THINNED: u32 = 10;

/// 2^64 divided by the golden ratio: its multiples spread evenly and follow no caller's rhythm.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whether the `n`th question is sampled; one in [`ONE_IN`] is, without any period.
#[inline(always)]
pub(crate) fn is_due(n: u64) -> bool {
    n.wrapping_mul(GOLDEN) < u64::MAX / ONE_IN
}

/// How many questions after the `n`th, which is sampled, the next one is: 1 to 255, [`ONE_IN`] in the mean,
/// without any period either. A reader compares a number with that, which is less than [`is_due`] takes.
pub(crate) fn gap(n: u64) -> u64 {
    let mixed = (n ^ GOLDEN).wrapping_mul(GOLDEN);
    1 + ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) % (2 * ONE_IN - 1)
}

/// One question: an ID of at most [`MAX_ID_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    len: u8,
    bytes: [u8; MAX_ID_BYTES],
}

impl Question {
    fn of(id: &[u8]) -> Option<Question> {
        let mut bytes = [0; MAX_ID_BYTES];
        // An empty ID is no ID.
        bytes.get_mut(..id.len()).filter(|place| !place.is_empty())?.copy_from_slice(id);
        Some(Question { len: id.len() as u8, bytes })
    }

    pub(crate) fn id(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The recent questions of one filter, from all threads.
pub(crate) struct Sample {
    kept: Mutex<Kept>,
    /// How many times batches halve what they offer: a full sample takes few, and a lock and a look at
    /// the clock for each batch would cost more than its smallest questions.
    thinned: AtomicU32,
}

struct Kept {
    questions: Vec<Question>,
    replaced: Instant,
    random: u64,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        // All the room now: no question allocates.
        let questions = Vec::with_capacity(KEPT);
        let kept = Mutex::new(Kept { questions, replaced: Instant::now(), random: GOLDEN });
        Sample { kept, thinned: AtomicU32::new(0) }
    }

    /// Takes some of these questions in, unless another thread is at it.
    pub(crate) fn offer(&self, questions: impl Iterator<Item = Question>) {
        if let Some(mut kept) = self.try_lock() {
            kept.take_in(questions);
        }
    }

    /// Takes this question in, unless another thread is at it.
    pub(crate) fn offer_one(&self, id: &[u8]) {
        self.offer(Question::of(id).into_iter());
    }

    /// Samples a batch, of which `before` questions were asked through the same counter before.
    ///
    /// Cost: nothing for an ID that is not sampled, not even a look.
    pub(crate) fn offer_batch<T: AsRef<[u8]>>(&self, ids: &[T], before: u64) {
        let thinned = self.thinned.load(Ordering::Relaxed);
        let one_in = ONE_IN.ilog2() + thinned;
        let due = ((before + ids.len() as u64) >> one_in) - (before >> one_in);
        if due > 0 {
            self.offer_some(ids, before, due, thinned);
        }
    }

    #[cold]
    fn offer_some<T: AsRef<[u8]>>(&self, ids: &[T], before: u64, due: u64, thinned: u32) {
        let step = (ids.len() / due as usize).max(1);
        let first = before.wrapping_mul(GOLDEN) as usize % step;
        let ids = ids.iter().skip(first).step_by(step).take(KEPT);
        let questions = ids.filter_map(|id| Question::of(id.as_ref()));
        let Some(wanted) = self.try_lock().and_then(|mut kept| kept.take_in(questions)) else {
            return;
        };
        // Too early: the next comes later. Late: so many times sooner.
        let thinned = match wanted.checked_ilog2() {
            None => (thinned + 1).min(MOST_THINNED),
            Some(late) => thinned.saturating_sub(late),
        };
        self.thinned.store(thinned, Ordering::Relaxed);
    }

    /// Every distinct ID among the recent questions: a caller that asks the same one all day long
    /// counts once.
    pub(crate) fn distinct(&self) -> Vec<Question> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let questions = kept.questions.clone();
        // A question that comes meanwhile is not kept waiting, nor lost for long.
        drop(kept);
        questions.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Kept>> {
        match self.kept.try_lock() {
            Ok(kept) => Some(kept),
            // Whatever a panic left behind is still whole questions.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Kept {
    /// Gives how many it could use, once it is full.
    fn take_in(&mut self, mut questions: impl Iterator<Item = Question>) -> Option<usize> {
        let room = KEPT - self.questions.len();
        if room > 0 {
            self.questions.extend(questions.by_ref().take(room));
            return None;
        }
        let now = Instant::now();
        let waited = now.duration_since(self.replaced).as_nanos() / REPLACE_EVERY.as_nanos();
        let wanted = waited.min(KEPT as u128) as usize;
        for question in questions.take(wanted) {
            self.replaced = now;
            // Any of them, so that the sample fades instead of ending at a moment.
            self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(GOLDEN);
            self.questions[(self.random >> 33) as usize % KEPT] = question;
        }
        Some(wanted)
    }
}

/// Room of a reader's or a lane's own for questions, which are handed over when it is full.
pub(crate) struct Staged {
    questions: Box<[Question; STAGED]>,
    len: usize,
}

impl Staged {
    pub(crate) fn new() -> Staged {
        let none = Question { len: 0, bytes: [0; MAX_ID_BYTES] };
        Staged { questions: Box::new([none; STAGED]), len: 0 }
    }

    pub(crate) fn add(&mut self, id: &[u8], sample: &Sample) {
        let Some(question) = Question::of(id) else { return };
        self.questions[self.len] = question;
        self.len += 1;
        if self.len == STAGED {
            self.hand_over(sample);
        }
    }

    pub(crate) fn hand_over(&mut self, sample: &Sample) {
        sample.offer(self.questions[..self.len].iter().copied());
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::handle::Slot;
    use crate::{FilterConfig, FilterHandle};

    fn id(n: u64) -> [u8; 8] {
        n.to_le_bytes()
    }

    #[test]
    fn one_in_128_is_sampled_and_at_every_place_of_a_rhythm() {
        let due: Vec<u64> = (0..1_000_000).filter(|n| is_due(*n)).collect();
        assert!((7_800..7_830).contains(&due.len()), "{}", due.len());
        for rhythm in [2, 10, 64, 100, 128] {
            let places: BTreeSet<u64> = due.iter().map(|n| n % rhythm).collect();
            assert_eq!(places.len() as u64, rhythm, "some questions of {rhythm} are never sampled");
        }
    }

    #[test]
    fn gaps_are_128_in_the_mean_and_find_every_place_of_a_rhythm() {
        let next = |n: &u64| Some(n + gap(*n));
        let due: Vec<u64> = std::iter::successors(Some(1), next).take(10_000).collect();
        assert!(due.windows(2).all(|two| (1..=255).contains(&(two[1] - two[0]))));
        let mean = due[due.len() - 1] as f64 / due.len() as f64;
        // Gaps differ by 74 in the mean: four standard deviations of a mean of ten thousand.
        assert!((mean - 128.0).abs() < 3.0, "{mean}");
        for rhythm in [2, 10, 64, 100, 128] {
            let places: BTreeSet<u64> = due.iter().map(|n| n % rhythm).collect();
            assert_eq!(places.len() as u64, rhythm, "some questions of {rhythm} are never sampled");
        }
    }

    #[test]
    fn batches_of_any_size_are_sampled_at_the_same_rate() {
        for size in [1usize, 7, 100, 128, 1_000, 100_000] {
            let sample = Sample::new();
            let (mut asked, n) = (0u64, 400_000);
            while asked < n {
                let ids: Vec<[u8; 8]> = (asked..asked + size as u64).map(id).collect();
                sample.offer_batch(&ids, asked);
                asked += size as u64;
            }
            let expected = asked / ONE_IN;
            let kept = sample.distinct().len() as u64;
            assert!(kept.abs_diff(expected) <= expected / 100 + 10, "{size}: {kept}/{expected}");
        }
    }

    #[test]
    fn the_sample_is_bounded_keeps_ids_as_they_are_and_leaves_out_long_ones() {
        let sample = Sample::new();
        let ids: Vec<[u8; 8]> = (0..10_000).map(id).collect();
        ids.chunks(100).for_each(|ids| sample.offer(ids.iter().filter_map(|i| Question::of(i))));
        let kept = sample.distinct();
        assert!(kept.len() <= KEPT && kept.len() > KEPT / 2, "{}", kept.len());
        assert!(kept.iter().all(|question| question.id().len() == 8));
        assert!(Question::of(&[]).is_none());
        assert!(Question::of(&[7; MAX_ID_BYTES + 1]).is_none());
        assert_eq!(Question::of(&[7; MAX_ID_BYTES]).map(|q| q.id().to_vec()), Some(vec![7; 63]));
    }

    #[test]
    fn a_burst_cannot_take_a_full_sample_over() {
        let sample = Sample::new();
        let many = |from: u64| (from..from + 5_000).map(|n| Question::of(&id(n)).unwrap());
        sample.offer(many(0));
        for burst in 1..100 {
            sample.offer(many(burst * 1_000_000));
        }
        let kept = sample.distinct();
        let old = kept.iter().filter(|q| q.id() < &id(5_000)[..] || q.id()[3..] == [0; 5]).count();
        assert!(old > KEPT * 9 / 10, "only {old} of {} are left", kept.len());
    }

    #[test]
    fn batches_offer_a_full_sample_less_and_one_that_waits_more() {
        let sample = Sample::new();
        let ids: Vec<[u8; 8]> = (0..ONE_IN).map(id).collect();
        let mut asked = 0;
        let mut ask = |batches: u64| {
            for _ in 0..batches {
                sample.offer_batch(&ids, asked);
                asked += ONE_IN;
            }
            sample.thinned.load(Ordering::Relaxed)
        };
        assert_eq!(ask(KEPT as u64), 0, "until it is full it takes what it gets");
        assert_eq!(ask(1 << (MOST_THINNED + 1)), MOST_THINNED);
        sample.kept.lock().unwrap().replaced -= REPLACE_EVERY * (1 << MOST_THINNED);
        let least = (0..=1 << MOST_THINNED).map(|_| ask(1)).min();
        assert_eq!(least, Some(0), "halved ten times, given back at once");
    }

    #[test]
    fn a_full_sample_goes_on_taking_in_what_is_asked_one_at_a_time() {
        let filter = FilterConfig::new("rt".parse().unwrap());
        let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
        let sample = slot.sample().unwrap();
        (0..KEPT as u64).for_each(|n| sample.offer_one(&id(n)));
        sample.thinned.store(MOST_THINNED, Ordering::Relaxed);
        sample.kept.lock().unwrap().replaced -= REPLACE_EVERY;
        let handle = FilterHandle::new(slot.clone());
        (0..ONE_IN * 100).for_each(|_| _ = handle.contains(b"new"));
        assert!(sample.distinct().iter().any(|question| question.id() == b"new"));
    }

    #[test]
    fn the_guard_gets_what_waits_in_a_lane() {
        let filter = FilterConfig::new("rt".parse().unwrap());
        let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
        let handle = FilterHandle::new(slot.clone());
        for n in 0..ONE_IN * STAGED as u64 / 2 {
            handle.contains(&id(n));
        }
        assert_eq!(slot.sample().unwrap().distinct().len(), 0, "half a handful is kept back");
        let told = slot.recent_questions().unwrap().len();
        assert!(told.abs_diff(STAGED / 2) <= 1, "{told}");
        assert_eq!(slot.recent_questions().unwrap().len(), told, "and told once");
    }

    #[test]
    fn nobody_waits_for_the_sample() {
        let sample = Sample::new();
        let taken = sample.kept.lock().unwrap();
        // On this very thread: a lock that waits would hang here for ever.
        sample.offer([Question::of(b"x").unwrap()].into_iter());
        drop(taken);
        assert_eq!(sample.distinct().len(), 0);
    }
}
