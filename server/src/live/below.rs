//! [`Below`]: the day's filter that lies below a set of live IDs; [`DayAnswers`]: what it says of
//! some hashes.

use std::sync::Arc;

/// What answers for an ID that a set does not know: the day's filter.
pub(crate) trait Below: Send + Sync {
    /// The number of swaps so far.
    fn epoch(&self) -> u64;

    /// Whether no swap has come since this epoch that could have changed anything the caller has
    /// read. A swap changes live IDs only after it has raised the epoch.
    fn is_still(&self, epoch: u64) -> bool;

    /// Looks hashes up.
    fn contains_each(&self, hashes: &[u64], answers: &mut [bool]) -> Result<(), NoAnswer>;

    /// Counts lookups that were answered, and samples them for the guard.
    fn count_lookups(&self, ids: &[&[u8]], hits: u64);
}

/// Why the day's filter says nothing of any hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// It is not loaded yet.
    NotLoaded,
    /// It has a layout that cannot be looked up by the hashes of live IDs.
    OtherLayout,
}

/// What the day's filter says of some hashes.
pub(crate) struct DayAnswers {
    below: Arc<dyn Below>,
    /// Of before the lookup.
    epoch: u64,
    pub(crate) hits: Vec<bool>,
}

impl DayAnswers {
    /// Looks hashes up in the day's filter.
    pub(crate) fn of(below: Arc<dyn Below>, hashes: &[u64]) -> Result<DayAnswers, NoAnswer> {
        let mut answers = DayAnswers { below, epoch: 0, hits: vec![false; hashes.len()] };
        answers.look_up(hashes)?;
        Ok(answers)
    }

    fn look_up(&mut self, hashes: &[u64]) -> Result<(), NoAnswer> {
        self.epoch = self.below.epoch();
        self.below.contains_each(hashes, &mut self.hits)
    }

    /// Looks them up again if there was a swap since, whose day may have taken IDs over from the
    /// table. Returns whether there was one.
    pub(crate) fn refresh_after_swap(&mut self, hashes: &[u64]) -> Result<bool, NoAnswer> {
        let was_swapped = !self.below.is_still(self.epoch);
        if was_swapped {
            self.look_up(hashes)?;
        }
        Ok(was_swapped)
    }
}
