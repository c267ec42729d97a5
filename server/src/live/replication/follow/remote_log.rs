//! [`RemoteLog`]: what is known of the log of another server.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::head::Head;
use tokio::time::Instant;

use super::error::{FollowError, gap_error};
use super::frames::ReadFrames;
use crate::live::replication::access::LeaseEpoch;
use crate::live::set::MAX_CLOCK_SKEW_MS;

/// How long frames that only an earlier head named count as missing.
pub(super) const MAX_BACK: Duration = Duration::from_secs(10 * 60);

/// One log.
#[derive(Default)]
pub(super) struct RemoteLog {
    pub(super) head: Option<Head>,
    /// The last frame that a head named.
    pub(super) shipped: u64,
    /// Since when the head names an earlier one: its server writes the log again from its
    /// beginning, or the head was wrong.
    pub(super) went_back: Option<Instant>,
    /// The tag of that head in the store.
    pub(super) tag: Option<String>,
    pub(super) frames: ReadFrames,
    /// The last segment that was read or named as damaged.
    pub(super) last: Option<SegmentKey>,
    /// While something is missing: the segments before it that were read again, and of those that
    /// have nothing more, their sizes.
    pub(super) looked_back: BTreeMap<SegmentKey, Option<u64>>,
    /// The time of its newest frame.
    pub(super) newest_ms: u64,
    /// By day, the number of the first frame that was applied.
    pub(super) applied: BTreeMap<Day, u64>,
    /// Whether it was said that its server's clock is ahead.
    pub(super) is_clock_ahead: bool,
    /// Whether the engine lacks frames of it that are not in the store, either.
    pub(super) is_broken_in_engine: bool,
    /// The epoch in which it was read beyond its head.
    pub(super) read_beyond_head_in: LeaseEpoch,
    /// Whether a listing since the last change of the head had nothing more.
    pub(super) is_listed: bool,
}

impl RemoteLog {
    /// Notes up to where the head says that the log is in the store. For a while what an earlier
    /// head named counts, too: it is missing until it is there again.
    pub(super) fn note_shipped(&mut self) {
        let seq = self.head.as_ref().map_or(0, |head| head.seq);
        if seq < self.shipped {
            let since = self.went_back.get_or_insert_with(Instant::now);
            if since.elapsed() < MAX_BACK {
                return;
            }
        }
        (self.shipped, self.went_back) = (seq, None);
        if self.frames.begins_after(seq) {
            // What was taken for read, by a head that was wrong, is not.
            let (frames, last) = (ReadFrames::default(), None);
            (self.frames, self.last, self.read_beyond_head_in) =
                (frames, last, LeaseEpoch::default());
        }
    }

    /// What is missing of it: the first of the gaps.
    pub(super) fn first_gap(&self, node: u64) -> Option<FollowError> {
        self.frames.gaps(self.shipped).into_iter().next().map(|gap| gap_error(node, gap))
    }

    /// Says once that its times are too far ahead for a server that takes over: of one ID the later
    /// change counts.
    pub(super) fn warn_if_clock_is_ahead(&mut self, filter: &FilterName, node: u64, now: u64) {
        let ahead = self.newest_ms.saturating_sub(now);
        if ahead > MAX_CLOCK_SKEW_MS && !std::mem::replace(&mut self.is_clock_ahead, true) {
            let seconds = ahead / 1000;
            tracing::error!(
                %filter,
                "the log {node:016x} has changes from {seconds} s in the future by this clock: later changes by servers with \
                 other clocks do not count until then; set the clocks"
            );
        }
    }

    /// Checks that these segments, of each the number of its first and its last frame, are all that
    /// the log has in the store of these days, as far as is known.
    pub(super) fn check_all(
        &self,
        node: u64,
        days: RangeInclusive<Day>,
        mut segments: Vec<(u64, u64)>,
    ) -> Result<(), FollowError> {
        let mut gaps = self.frames.gaps(self.shipped).into_iter();
        if let Some(gap) = gaps.find(|gap| gap.days.1 >= *days.start()) {
            return Err(gap_error(node, gap));
        }
        // What came by an engine need not be there yet.
        if self.head.is_none() {
            return Ok(());
        }
        segments.sort_unstable();
        let found = segments.first().map(|(first, _)| *first);
        let later = self.applied.range((Bound::Excluded(*days.end()), Bound::Unbounded));
        let later = later.map(|(_, first)| first.saturating_sub(1));
        let mut end = later.chain([self.shipped]).min().unwrap_or(self.shipped);
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
