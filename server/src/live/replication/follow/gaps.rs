//! Frames of a log that could not be read: they are looked for again, and what follows them is read
//! all the same.

use std::ops::{Bound, RangeInclusive};

use bloomsday_common::day::Day;
use bloomsday_common::key::SegmentKey;

use super::{CallError, FollowError, Gap, LogFollower, RemoteLog, fetch, from_next, in_time};

impl RemoteLog {
    /// The frames between the last segment and this one, which are not in the store.
    pub(super) fn gap_before(&self, key: &SegmentKey) -> Option<Gap> {
        let first = self.next.filter(|next| !self.is_end_unknown && *next < key.first_seq)?;
        let last = key.first_seq - 1;
        let days = (self.last.as_ref().map_or(key.day, |last| last.day), key.day);
        let why = FollowError::Missing { node: key.node, first, last }.to_string();
        Some(Gap { first, last, missing_from: first, days, why })
    }

    /// Whether this is the gap of a damaged segment after which none was read, so that its last
    /// number is not known.
    fn is_at_end(&self, gap: &Gap) -> bool {
        let last = self.last.as_ref().filter(|_| self.is_end_unknown);
        last.is_some_and(|last| last.first_seq == gap.first)
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
            (gap.last, gap.days.1) = (next.first_seq.saturating_sub(1).max(gap.first), next.day);
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
            let (mut tried, mut filled) = (Vec::new(), Vec::new());
            for gap in std::mem::take(&mut log.gaps) {
                // Old segments may be pruned.
                if gap.days.1 < first_day {
                    continue;
                }
                let outcome = if is_slow {
                    Err(CallError::Slow.into())
                } else {
                    self.fill(node, &gap, &mut filled).await
                };
                is_slow |= matches!(outcome, Err(FollowError::Store(CallError::Slow)));
                tried.push((gap, outcome));
            }
            // A server that writes its log again may do so in longer segments, which begin in one
            // gap and have frames of the next.
            filled.sort_unstable();
            let Some(log) = self.logs.get_mut(&node) else { continue };
            for (mut gap, outcome) in tried {
                for (first, last) in &filled {
                    if *first <= gap.missing_from {
                        gap.missing_from = gap.missing_from.max(last.saturating_add(1));
                    }
                }
                let end = log.head.as_ref().map_or(u64::MAX, |head| head.seq);
                if log.is_at_end(&gap) {
                    // Without an error its segment was not found. Others have its frames, and the
                    // log has no more.
                    if outcome.is_ok() && gap.missing_from > end {
                        (log.next, log.is_end_unknown) = (Some(gap.missing_from), false);
                        continue;
                    }
                    gap.last = gap.last.max(gap.missing_from);
                }
                if gap.missing_from > gap.last {
                    continue;
                }
                let why = outcome.err().unwrap_or(FollowError::Missing {
                    node,
                    first: gap.missing_from,
                    last: gap.last,
                });
                log.gaps.push(Gap { why: why.to_string(), ..gap });
            }
        }
    }

    /// Applies the segments that begin in a gap, and the one before them, which may be longer than
    /// it was. Notes the first and the last frame of each.
    async fn fill(
        &mut self,
        node: u64,
        gap: &Gap,
        filled: &mut Vec<(u64, u64)>,
    ) -> Result<(), FollowError> {
        for day in gap.days.0.through(gap.days.1) {
            let listed = in_time(self.store.segments_of(&self.filter, day, node, None)).await?;
            let before = gap.first.saturating_sub(1);
            let keys = from_next(listed, before).into_iter().map(|(key, _)| key);
            for key in keys.take_while(|key| key.first_seq <= gap.last) {
                let last = match self.apply_again(&key, gap.missing_from, true).await {
                    Ok(last) => last,
                    // It has a gap of its own, if it was not read.
                    Err(_) if key.first_seq < gap.first => continue,
                    Err(error) => return Err(error),
                };
                filled.push((key.first_seq, last));
                if let Some(log) = self.logs.get_mut(&node)
                    && log.is_end_unknown
                    && log.last.as_ref() == Some(&key)
                {
                    (log.next, log.is_end_unknown) = (Some(last.saturating_add(1)), false);
                }
            }
        }
        Ok(())
    }

    /// Reads the next frames of a log from a segment that begins before them: a server that writes
    /// its log again may do so in longer segments. Returns whether there was one.
    pub(super) async fn follow_longer(&mut self, node: u64) -> Result<bool, FollowError> {
        let log = &self.logs[&node];
        let (Some(next), Some(last), false) = (log.next, &log.last, log.is_end_unknown) else {
            return Ok(false);
        };
        let days = self.days();
        for day in last.day.max(*days.start()).through(*days.end()) {
            let listed = in_time(self.store.segments_of(&self.filter, day, node, None)).await?;
            let key = from_next(listed, next).into_iter().map(|(key, _)| key).next();
            let Some(key) = key.filter(|key| key.first_seq < next) else { continue };
            // One that is damaged was named when it was read.
            let Ok(last) = self.apply_again(&key, next, false).await else { continue };
            if let Some(log) = self.logs.get_mut(&node).filter(|_| last >= next) {
                log.next = Some(last.saturating_add(1));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Applies a segment's frames from a number on. Returns the number of the last one.
    async fn apply_again(
        &mut self,
        key: &SegmentKey,
        from: u64,
        is_late: bool,
    ) -> Result<u64, FollowError> {
        let bytes = fetch(&self.store, key).await?;
        self.apply(key, &bytes, from, is_late).await
    }
}
