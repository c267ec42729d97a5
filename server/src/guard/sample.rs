//! [`Sample`]: some of the recent questions, raw, for the guard. In memory only: it is never
//! logged, shown or written, and has no `Debug`.
//!
//! One law for every question, alone or in a batch of any size: it is sampled with a chance of one
//! in 128 that depends on no other. `gaps` chooses; a question pays a comparison to learn that it
//! is not chosen, a batch pays one for all of its questions. What is chosen is copied; readers and
//! lanes copy into room of their own and hand over 32 at a time. Nobody waits: whoever finds the
//! sample taken by another thread lets its questions go.
//!
//! A full sample takes 32 in 4.8 seconds, each of those offered meanwhile with the same chance:
//! so that it spans some ten minutes, however many ask, and one burst cannot take it over.

mod intervals;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub(crate) use self::intervals::{Intervals, SharedIntervals};
use crate::random::{Sequence, random};

/// How many questions are kept: 256 KiB a filter. Those that wait in its lanes take half as much.
const MAX_SAMPLED: usize = 4096;
/// A longer ID is not sampled: IDs of devices have 16 to 36 bytes.
const MAX_ID_BYTES: usize = 63;
/// How many questions a reader or a lane gathers before it hands them over.
const MAX_BUFFERED: usize = 32;
/// How many questions a full sample takes in a [`WINDOW`]. What it could not take for lack of
/// questions it may take later, up to all that it keeps.
const REPLACED_PER_WINDOW: usize = 32;
const WINDOW: Duration = Duration::from_millis(4_800);

/// One question: an ID of at most [`MAX_ID_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SampledId {
    len: u8,
    bytes: [u8; MAX_ID_BYTES],
}

impl SampledId {
    fn of(id: &[u8]) -> Option<SampledId> {
        let mut bytes = [0; MAX_ID_BYTES];
        // An empty ID is no ID.
        bytes.get_mut(..id.len()).filter(|place| !place.is_empty())?.copy_from_slice(id);
        Some(SampledId { len: id.len() as u8, bytes })
    }

    pub(crate) fn id(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The recent questions of one filter, from all threads.
pub(crate) struct Sample {
    reservoir: Mutex<Reservoir>,
}

struct Reservoir {
    questions: Vec<SampledId>,
    /// The places that were taken anew in this window.
    replaced: Vec<u16>,
    /// When the window began, how many may be picked in it, and how many were offered.
    began: Instant,
    room: usize,
    offered: u64,
    random: Sequence,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        // All the room now: no question allocates.
        let (questions, replaced) =
            (Vec::with_capacity(MAX_SAMPLED), Vec::with_capacity(MAX_SAMPLED));
        let (began, random) = (Instant::now(), Sequence::from(random()));
        Sample {
            reservoir: Mutex::new(Reservoir {
                questions,
                replaced,
                began,
                room: REPLACED_PER_WINDOW,
                offered: 0,
                random,
            }),
        }
    }

    /// Takes some of these questions in, unless another thread is at it.
    pub(crate) fn offer(&self, questions: impl Iterator<Item = SampledId>) {
        if let Some(mut reservoir) = self.try_lock() {
            reservoir.insert(questions);
        }
    }

    /// Takes this question in, unless another thread is at it.
    #[cfg(test)]
    pub(crate) fn offer_one(&self, id: &[u8]) {
        self.offer(SampledId::of(id).into_iter());
    }

    /// Takes those of a batch in that are chosen, unless another thread is at it. `before`
    /// questions were asked through the counter that `gaps` goes by.
    #[cold]
    pub(crate) fn offer_some<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        before: u64,
        intervals: &SharedIntervals,
    ) {
        let mut intervals = intervals.claim(before, before + ids.len() as u64);
        let chosen = std::iter::from_fn(|| intervals.take());
        let questions = chosen.filter_map(|at| SampledId::of(ids[(at - before) as usize].as_ref()));
        self.offer(questions);
    }

    /// Every distinct ID among the recent questions: a caller that asks the same one all day long
    /// counts once.
    pub(crate) fn distinct(&self) -> Vec<SampledId> {
        let reservoir = self.reservoir.lock().unwrap_or_else(PoisonError::into_inner);
        let questions = reservoir.questions.clone();
        // A question that comes meanwhile is not kept waiting, nor lost for long.
        drop(reservoir);
        questions.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Reservoir>> {
        match self.reservoir.try_lock() {
            Ok(reservoir) => Some(reservoir),
            // Whatever a panic left behind is still whole questions.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Reservoir {
    fn insert(&mut self, mut questions: impl Iterator<Item = SampledId>) {
        let room = MAX_SAMPLED - self.questions.len();
        if room > 0 {
            self.questions.extend(questions.by_ref().take(room));
            self.began = Instant::now();
            return;
        }
        self.turn(Instant::now());
        for question in questions {
            self.offered += 1;
            let random = self.random.next() >> 32;
            // Vitter 1985, Algorithm R: whoever comes later has no smaller chance, and no larger
            // one.
            if self.replaced.len() < self.room {
                // Any of them, so that the sample fades instead of ending at a moment.
                let place = random as usize % MAX_SAMPLED;
                self.replaced.push(place as u16);
                self.questions[place] = question;
            } else if let Some(place) = self.replaced.get((random % self.offered) as usize) {
                self.questions[usize::from(*place)] = question;
            }
        }
    }

    /// Begins another window when this one is over.
    fn turn(&mut self, now: Instant) {
        let over = now.duration_since(self.began).as_nanos() / WINDOW.as_nanos();
        if over > 0 {
            let left = self.room - self.replaced.len();
            self.room = (over.min(MAX_SAMPLED as u128) as usize * REPLACED_PER_WINDOW + left)
                .min(MAX_SAMPLED);
            (self.began, self.offered) = (now, 0);
            self.replaced.clear();
        }
    }
}

/// Room of a reader's or a lane's own for questions, which are handed over when it is full.
pub(crate) struct SampleBuffer {
    questions: Box<[SampledId; MAX_BUFFERED]>,
    len: usize,
}

impl SampleBuffer {
    pub(crate) fn new() -> SampleBuffer {
        let none = SampledId { len: 0, bytes: [0; MAX_ID_BYTES] };
        SampleBuffer { questions: Box::new([none; MAX_BUFFERED]), len: 0 }
    }

    /// Adds those of a batch that are chosen; `before` questions were asked through the counter
    /// that `gaps` goes by.
    #[cold]
    pub(crate) fn add_some<T: AsRef<[u8]>>(
        &mut self,
        ids: &[T],
        before: u64,
        intervals: &mut Intervals,
        sample: &Sample,
    ) {
        while let Some(at) = intervals.take(before + ids.len() as u64) {
            // What was asked through another counter meanwhile is not here.
            let place = at.checked_sub(before).and_then(|place| ids.get(place as usize));
            if let Some(id) = place {
                self.add(id.as_ref(), sample);
            }
        }
    }

    fn add(&mut self, id: &[u8], sample: &Sample) {
        let Some(question) = SampledId::of(id) else { return };
        self.questions[self.len] = question;
        self.len += 1;
        if self.len == MAX_BUFFERED {
            self.flush(sample);
        }
    }

    pub(crate) fn flush(&mut self, sample: &Sample) {
        sample.offer(self.questions[..self.len].iter().copied());
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
