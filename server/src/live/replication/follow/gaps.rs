//! Frames of a log that could not be read: they are looked for again, and what follows them is read
//! all the same.

use std::ops::{Bound, RangeInclusive};

use bloomsday_common::day::Day;
use bloomsday_common::key::SegmentKey;

use super::frames::Gap;
use super::{CallError, FollowError, LogFollower, RemoteLog, fetch, from_next, gap_error, in_time};

impl RemoteLog {
    /// Checks that these segments, of each the number of its first and its last frame, are all that
    /// the log has in the store of these days, as far as is known.
    pub(super) fn check_all(
        &self,
        node: u64,
        days: RangeInclusive<Day>,
        mut segments: Vec<(u64, u64)>,
    ) -> Result<(), FollowError> {
        let mut gaps = self.frames.gaps(self.shipped()).into_iter();
        if let Some(gap) = gaps.find(|gap| gap.days.1 >= *days.start()) {
            return Err(gap_error(node, gap));
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
    /// Looks again for what could not be read. Whatever waits for a gap, late deletions too, ends
    /// when it is filled; so nothing stops this.
    pub(super) async fn fill_gaps(&mut self) {
        let since = *self.days().start();
        let gaps_of = |(node, log): (&u64, &mut RemoteLog)| {
            let gaps = log.frames.gaps_since(since, log.shipped());
            gaps.into_iter().map(|gap| (*node, gap)).collect::<Vec<_>>()
        };
        let gaps: Vec<(u64, Gap)> = self.logs.iter_mut().flat_map(gaps_of).collect();
        for (node, gap) in gaps {
            // Each other gap would wait as long.
            if let Err(FollowError::Store(CallError::Slow)) = self.fill(node, &gap).await {
                return;
            }
        }
    }

    /// Reads the frames after the last one from a segment that begins before them: a server that
    /// writes its log again may do so in longer segments. Returns whether there was one.
    pub(super) async fn follow_longer(&mut self, node: u64) -> Result<bool, FollowError> {
        let log = &self.logs[&node];
        let end = log.frames.end(log.shipped(), *self.days().end());
        match end.filter(|_| !log.frames.is_end_unknown()) {
            Some(gap) => self.fill(node, &gap).await,
            None => Ok(false),
        }
    }

    /// Applies the segments that begin in a gap, and the one before them, which may be longer than
    /// it was. Returns whether they had a frame that was not read.
    async fn fill(&mut self, node: u64, gap: &Gap) -> Result<bool, FollowError> {
        let (mut is_any_new, mut unusable) = (false, Vec::new());
        for day in gap.days.0.through(gap.days.1) {
            let listed = in_time(self.store.segments_of(&self.filter, day, node, None)).await?;
            let keys = from_next(listed, gap.first.saturating_sub(1)).into_iter();
            let keys = keys.map(|(key, _)| key).take_while(|key| key.first_seq <= gap.last);
            for key in keys {
                match self.fetch_and_apply(&key).await {
                    Ok(is_new) => is_any_new |= is_new,
                    Err(slow @ FollowError::Store(CallError::Slow)) => return Err(slow),
                    Err(why) => {
                        unusable.push(key.first_seq);
                        self.note_unusable(&key, &why);
                    }
                }
            }
        }
        if let Some(log) = self.logs.get_mut(&node) {
            log.frames.keep_unusable(gap, &unusable);
        }
        Ok(is_any_new)
    }

    async fn fetch_and_apply(&mut self, key: &SegmentKey) -> Result<bool, FollowError> {
        let bytes = fetch(&self.store, key).await?;
        self.apply(key, &bytes).await
    }

    /// Remembers that a segment cannot be used, and logs it the first time.
    pub(super) fn note_unusable(&mut self, key: &SegmentKey, why: &FollowError) {
        let log = self.logs.entry(key.node).or_default();
        if log.frames.add_unusable(key.first_seq, key.day, why.to_string()) {
            tracing::warn!(filter = %self.filter, "{why}");
        }
    }
}
