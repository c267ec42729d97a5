//! [`RangeTotals`]: sums of what all ranges counted and filled, and whether each step got what the
//! one before sent.

use std::collections::BTreeMap;

use bloomsday_common::filter::OnesHistogram;

use super::count::Counted;
use super::fill::Filled;
use crate::error::Error;

/// The numbers of all ranges.
#[derive(Debug, Default)]
pub struct RangeTotals {
    /// The distinct hashes of each range, and their sum.
    of_each: BTreeMap<u32, (u64, u64)>,
    counted: Counted,
    filled: Filled,
    /// How many ranges were filled.
    n_filled: usize,
}

impl RangeTotals {
    /// Adds the numbers of a range that was counted.
    ///
    /// # Errors
    /// [`Error::Changed`]: the range was counted before.
    pub fn add_counted(&mut self, range: u32, more: &Counted) -> Result<(), Error> {
        if self.of_each.insert(range, (more.ids, more.sum)).is_some() {
            return Err(Error::Changed { written: "that were gathered", read: "of a range" });
        }
        let sums = &mut self.counted;
        sums.ids = sums.ids.saturating_add(more.ids);
        sums.sum = sums.sum.wrapping_add(more.sum);
        sums.received = sums.received.saturating_add(more.received);
        sums.received_sum = sums.received_sum.wrapping_add(more.received_sum);
        let (sums, more) = (&mut sums.gathered, more.gathered);
        sums.rows = sums.rows.saturating_add(more.rows);
        sums.nulls = sums.nulls.saturating_add(more.nulls);
        sums.invalid = sums.invalid.saturating_add(more.invalid);
        sums.sent = sums.sent.saturating_add(more.sent);
        sums.sent_sum = sums.sent_sum.wrapping_add(more.sent_sum);
        Ok(())
    }

    /// The sums of all ranges, once each was counted.
    ///
    /// # Errors
    /// [`Error::Changed`]: the hashes that arrived are not those that were sent.
    pub fn counted(&self) -> Result<&Counted, Error> {
        let Counted { received, received_sum, gathered, .. } = &self.counted;
        if (*received, *received_sum) != (gathered.sent, gathered.sent_sum) {
            return Err(Error::Changed { written: "that were gathered", read: "that arrived" });
        }
        Ok(&self.counted)
    }

    /// The distinct hashes of each range with any, in order.
    pub fn ids_of_each(&self) -> impl Iterator<Item = (u32, u64)> {
        self.of_each.iter().map(|(range, (ids, _))| (*range, *ids))
    }

    /// Adds the numbers of a range that was filled.
    ///
    /// # Errors
    /// [`Error::Changed`]: these are not the hashes that were counted.
    pub fn add_filled(&mut self, range: u32, more: &Filled) -> Result<(), Error> {
        // A range that comes twice is found in the end: the sums of all differ.
        if self.of_each.get(&range) != Some(&(more.ids, more.sum)) {
            return Err(Error::Changed { written: "that were counted", read: "to be filled in" });
        }
        let sums = &mut self.filled;
        sums.ids = sums.ids.saturating_add(more.ids);
        sums.sum = sums.sum.wrapping_add(more.sum);
        sums.lost = sums.lost.saturating_add(more.lost);
        sums.sampled = sums.sampled.saturating_add(more.sampled);
        sums.lost_samples = sums.lost_samples.saturating_add(more.lost_samples);
        sums.hits = sums.hits.saturating_add(more.hits);
        sums.blocks.merge(&more.blocks);
        self.n_filled += 1;
        Ok(())
    }

    /// The sums of all ranges, once each was filled.
    ///
    /// # Errors
    /// [`Error::Changed`]: a range is missing or came twice. [`Error::Lost`]: an ID was not found.
    pub fn filled(&self) -> Result<&Filled, Error> {
        let Filled { ids, sum, lost, lost_samples, .. } = self.filled;
        let complete = self.n_filled == self.of_each.len();
        if !complete || (ids, sum) != (self.counted.ids, self.counted.sum) {
            return Err(Error::Changed { written: "that were counted", read: "to be filled in" });
        }
        if lost > 0 || lost_samples > 0 {
            return Err(Error::Lost { lost, of: ids, lost_samples });
        }
        Ok(&self.filled)
    }

    /// How full the blocks are that belong to one range.
    pub(super) fn blocks(&self) -> &OnesHistogram {
        &self.filled.blocks
    }
}
