//! Frames of a log that could not be read: they are looked for again, and what follows them is read
//! all the same.

use std::ops::{Bound, RangeInclusive};

use bloomsday_common::day::Day;
use bloomsday_common::key::SegmentKey;

use super::{CallError, FollowError, Gap, LogFollower, RemoteLog, fetch, in_time};

impl RemoteLog {
    /// The frames between the last segment and this one, which are not in the store.
    pub(super) fn gap_before(&self, key: &SegmentKey) -> Option<Gap> {
        let first = self.next.filter(|next| !self.is_end_unknown && *next < key.first_seq)?;
        let last = key.first_seq - 1;
        let days = (self.last.as_ref().map_or(key.day, |last| last.day), key.day);
        let why = FollowError::Missing { node: key.node, first, last }.to_string();
        Some(Gap { first, last, days, why })
    }

    /// Checks that these segments, of each the number of its first and its last frame, are all that
    /// the log has in the store of these days, as far as is known.
    pub(super) fn check_all(
        &self,
        node: u64,
        days: RangeInclusive<Day>,
        mut segments: Vec<(u64, u64)>,
    ) -> Result<(), FollowError> {
        if let Some(gap) = self.gaps.iter().find(|gap| gap.days.1 >= *days.start()) {
            return Err(FollowError::Incomplete(gap.why.clone()));
        }
        // What came by an engine need not be there yet.
        let Some(head) = &self.head else { return Ok(()) };
        segments.sort_unstable();
        let found = segments.first().map(|(first, _)| *first);
        let later = self.applied.range((Bound::Excluded(*days.end()), Bound::Unbounded));
        let later = later.map(|(_, first)| first.saturating_sub(1));
        let mut end = later.chain([head.seq]).min().unwrap_or(head.seq);
        let applied = self.applied.range(days).next().map(|(_, first)| *first);
        let Some(mut next) = found.into_iter().chain(applied).min() else { return Ok(()) };
        for (first, last) in segments {
            if first > next {
                end = end.min(first - 1);
                break;
            }
            next = next.max(last.saturating_add(1));
        }
        if next > end {
            return Ok(());
        }
        Err(FollowError::Missing { node, first: next, last: end })
    }
}

impl LogFollower {
    /// Where the gap of a damaged segment ends is known when the next segment is.
    pub(super) fn end_gap(&mut self, next: &SegmentKey) {
        let Some(log) = self.logs.get_mut(&next.node).filter(|log| log.is_end_unknown) else {
            return;
        };
        let first = log.last.as_ref().map(|last| last.first_seq);
        if let Some(gap) = log.gaps.iter_mut().find(|gap| Some(gap.first) == first) {
            (gap.last, gap.days.1) = (next.first_seq.saturating_sub(1).max(gap.last), next.day);
        }
    }

    /// Looks again for what could not be read. Whatever waits for a gap, late deletions too, ends
    /// when it is filled; so nothing stops this.
    pub(super) async fn fill_gaps(&mut self) {
        let first_day = *self.days().start();
        let nodes: Vec<u64> = self.logs.keys().copied().collect();
        // Each other gap would wait as long.
        let mut is_slow = false;
        for node in nodes {
            let Some(log) = self.logs.get_mut(&node) else { continue };
            for gap in std::mem::take(&mut log.gaps) {
                // Old segments may be pruned.
                if gap.days.1 < first_day {
                    continue;
                }
                let filled =
                    if is_slow { Err(CallError::Slow.into()) } else { self.fill(node, &gap).await };
                let left = match filled {
                    Ok(next) if next > gap.last => continue,
                    Ok(first) => {
                        let why = FollowError::Missing { node, first, last: gap.last }.to_string();
                        Gap { first, why, ..gap }
                    }
                    Err(error) => {
                        is_slow = matches!(error, FollowError::Store(CallError::Slow));
                        Gap { why: error.to_string(), ..gap }
                    }
                };
                if let Some(log) = self.logs.get_mut(&node) {
                    log.gaps.push(left);
                }
            }
        }
    }

    /// Applies the segments that are in a gap. Returns the first number that is missing, or is
    /// after it.
    async fn fill(&mut self, node: u64, gap: &Gap) -> Result<u64, FollowError> {
        let is_last = |log: &RemoteLog, key: &SegmentKey| {
            log.is_end_unknown && log.last.as_ref() == Some(key)
        };
        let mut next = gap.first;
        for day in gap.days.0.through(gap.days.1) {
            let listed = in_time(self.store.segments_of(&self.filter, day, node, None)).await?;
            let inside = |key: &SegmentKey| (gap.first..=gap.last).contains(&key.first_seq);
            for (key, _) in listed.into_iter().filter(|(key, _)| inside(key)) {
                let bytes = fetch(&self.store, &key).await?;
                let last = self.apply(&key, &bytes, 0, true).await?;
                if key.first_seq <= next {
                    next = next.max(last.saturating_add(1));
                }
                if let Some(log) = self.logs.get_mut(&node).filter(|log| is_last(log, &key)) {
                    (log.next, log.is_end_unknown) = (Some(last.saturating_add(1)), false);
                }
            }
        }
        Ok(next)
    }
}
