//! [`Sample`]: IDs of some recent lookups, for the guard. They are in memory only, never logged,
//! printed or written, and have no `Debug`.
//!
//! Each lookup, alone or in a batch of any size, is sampled with a probability of 1 in 128,
//! independent of all others. `intervals` chooses: one comparison finds that a lookup is not
//! sampled, or that none of a batch is. Sampled IDs are copied; readers and thread slots copy into
//! a buffer of their own and flush 32 at a time. Nobody waits: a thread that finds the sample
//! locked by another drops its IDs.
//!
//! A full sample takes 32 IDs in 4.8 seconds, each of those offered in this window with the same
//! probability. So it covers some ten minutes, whatever the rate of lookups, and one burst cannot
//! fill it.

mod intervals;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bloomsday_common::hash::SplitMix64;
use bloomsday_common::random::random;

pub(crate) use self::intervals::{Intervals, SharedIntervals};

/// The size of a sample: 256 KiB for a filter. The buffers of its thread slots take half as much.
const MAX_SAMPLED: usize = 4096;
/// A longer ID is not sampled: IDs of devices have 16 to 36 bytes.
const MAX_ID_BYTES: usize = 63;
/// The size of the buffer of a reader or a thread slot.
const MAX_BUFFERED: usize = 32;
/// The number of IDs that a full sample takes in a [`WINDOW`]. If there are too few, it may take
/// more later, up to its size.
const REPLACED_PER_WINDOW: usize = 32;
const WINDOW: Duration = Duration::from_millis(4_800);

/// The ID of one lookup, of at most [`MAX_ID_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(align(64))]
pub(crate) struct SampledId {
    bytes: [u8; MAX_ID_BYTES],
    len: u8,
}

impl SampledId {
    const EMPTY: SampledId = SampledId { bytes: [0; MAX_ID_BYTES], len: 0 };

    /// Copies `id` into this place, or returns `false` for an ID that is not sampled.
    fn set(&mut self, id: &[u8]) -> bool {
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return false;
        }
        *self = SampledId { len: id.len() as u8, ..SampledId::EMPTY };
        self.bytes[..id.len()].copy_from_slice(id);
        true
    }

    fn of(id: &[u8]) -> Option<SampledId> {
        let mut sampled = SampledId::EMPTY;
        sampled.set(id).then_some(sampled)
    }

    pub(crate) fn id(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The sampled IDs of one filter, from all threads.
pub(crate) struct Sample {
    reservoir: Mutex<Reservoir>,
}

struct Reservoir {
    ids: Vec<SampledId>,
    /// The places that were replaced in this window.
    replaced: Vec<u16>,
    /// When the window began.
    began: Instant,
    /// How many places may be replaced in the window.
    max_replaced: usize,
    /// How many IDs were offered in it.
    offered: u64,
    random: SplitMix64,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        // All memory now: no lookup allocates.
        let (ids, replaced) = (Vec::with_capacity(MAX_SAMPLED), Vec::with_capacity(MAX_SAMPLED));
        let (began, random) = (Instant::now(), SplitMix64::new(random()));
        Sample {
            reservoir: Mutex::new(Reservoir {
                ids,
                replaced,
                began,
                max_replaced: REPLACED_PER_WINDOW,
                offered: 0,
                random,
            }),
        }
    }

    /// Inserts some of these IDs, unless another thread has the lock.
    pub(crate) fn offer(&self, ids: impl Iterator<Item = SampledId>) {
        if let Some(mut reservoir) = self.try_lock() {
            reservoir.insert(ids);
        }
    }

    /// Inserts this ID, unless another thread has the lock.
    #[cfg(test)]
    pub(crate) fn offer_one(&self, id: &[u8]) {
        self.offer(SampledId::of(id).into_iter());
    }

    /// Inserts the sampled IDs of a batch, unless another thread has the lock. `before` is the
    /// number of lookups before the batch, in the count that `intervals` uses.
    #[cold]
    pub(crate) fn offer_some<T: AsRef<[u8]>>(
        &self,
        ids: &[T],
        before: u64,
        intervals: &SharedIntervals,
    ) {
        let mut intervals = intervals.claim(before, before + ids.len() as u64);
        let chosen = std::iter::from_fn(|| intervals.take());
        let ids = chosen.filter_map(|at| SampledId::of(ids[(at - before) as usize].as_ref()));
        self.offer(ids);
    }

    /// The distinct IDs: one that is looked up all day counts once.
    pub(crate) fn distinct(&self) -> Vec<SampledId> {
        let reservoir = self.reservoir.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = reservoir.ids.clone();
        // Lookups need the lock: release it before the work.
        drop(reservoir);
        ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Reservoir>> {
        match self.reservoir.try_lock() {
            Ok(reservoir) => Some(reservoir),
            // A panic leaves complete IDs behind.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Reservoir {
    fn insert(&mut self, mut ids: impl Iterator<Item = SampledId>) {
        let free = MAX_SAMPLED - self.ids.len();
        if free > 0 {
            self.ids.extend(ids.by_ref().take(free));
            self.began = Instant::now();
            return;
        }
        self.advance_window(Instant::now());
        for id in ids {
            self.offered += 1;
            let random = self.random.draw() >> 32;
            // Vitter 1985, Algorithm R: each ID of the window has the same probability.
            if self.replaced.len() < self.max_replaced {
                // Any place, so that old IDs fade out instead of ending at a moment.
                let place = random as usize % MAX_SAMPLED;
                self.replaced.push(place as u16);
                self.ids[place] = id;
            } else if let Some(place) = self.replaced.get(((random * self.offered) >> 32) as usize)
            {
                self.ids[usize::from(*place)] = id;
            }
        }
    }

    /// Begins another window when this one has ended.
    fn advance_window(&mut self, now: Instant) {
        let age = now.duration_since(self.began);
        if age >= WINDOW {
            let over = age.as_nanos() / WINDOW.as_nanos();
            let left = self.max_replaced - self.replaced.len();
            self.max_replaced = (over.min(MAX_SAMPLED as u128) as usize * REPLACED_PER_WINDOW
                + left)
                .min(MAX_SAMPLED);
            (self.began, self.offered) = (now, 0);
            self.replaced.clear();
        }
    }
}

/// The buffer of a reader or a thread slot. It is flushed to the sample when it is full.
pub(crate) struct SampleBuffer {
    ids: Box<[SampledId; MAX_BUFFERED]>,
    len: usize,
}

impl SampleBuffer {
    pub(crate) fn new() -> SampleBuffer {
        SampleBuffer { ids: Box::new([SampledId::EMPTY; MAX_BUFFERED]), len: 0 }
    }

    /// Adds the sampled IDs of a batch. `before` is the number of lookups before the batch, in the
    /// count that `intervals` uses.
    #[cold]
    pub(crate) fn add_some<T: AsRef<[u8]>>(
        &mut self,
        ids: &[T],
        before: u64,
        intervals: &mut Intervals,
        sample: &Sample,
    ) {
        while let Some(at) = intervals.take(before + ids.len() as u64) {
            // A lookup that another counter counted is not in this batch.
            let place = at.checked_sub(before).and_then(|place| ids.get(place as usize));
            if let Some(id) = place {
                self.add(id.as_ref(), sample);
            }
        }
    }

    fn add(&mut self, id: &[u8], sample: &Sample) {
        // In its place: a copy from place to place would wait until all its bytes are stored.
        self.len += usize::from(self.ids[self.len].set(id));
        if self.len == MAX_BUFFERED {
            self.flush(sample);
        }
    }

    pub(crate) fn flush(&mut self, sample: &Sample) {
        sample.offer(self.ids[..self.len].iter().copied());
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
