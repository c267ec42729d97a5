//! [`ReadFrames`]: which frames of a log were read, and which ones are missing.
//!
//! The segments of a log may overlap: a server that writes its log again may do so in longer ones.
//! So this is about frames, whose numbers have no gaps, and not about segments.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bloomsday_common::day::Day;

/// The frames of a log that were read.
#[derive(Default)]
pub(super) struct ReadFrames {
    /// The number of the first frame that is followed, and the day of its segment.
    begin: Option<(u64, Day)>,
    /// By its first number, each run of frames that were read.
    runs: BTreeMap<u64, Run>,
    /// By the number of its first frame, each segment that cannot be used.
    unusable: BTreeMap<u64, Unusable>,
    /// Set when the days of an unusable last segment are over, to the last frame that the store had
    /// then. Nobody knows where that segment ended, so what was not read up to there does not count
    /// as missing.
    expired: Option<u64>,
}

/// Frames that were read, one after the other.
struct Run {
    /// The number of the last one.
    last: u64,
    /// The days of the first segment and of the last one.
    days: (Day, Day),
}

/// A segment that cannot be used.
struct Unusable {
    day: Day,
    why: String,
}

/// Frames that could not be read.
#[derive(Debug, PartialEq)]
pub(super) struct Gap {
    /// The first number and the last one that is known.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The first and the last day in whose folder they may be.
    pub(super) days: (Day, Day),
    /// Why not, if the store has a segment of them that cannot be used.
    pub(super) why: Option<String>,
    /// The first number of the run before, whose segments may be longer when they are read again.
    run_before: u64,
}

impl Gap {
    fn is_of(&self, segment: u64) -> bool {
        (self.run_before..=self.last).contains(&segment)
    }
}

impl ReadFrames {
    /// The number after the last frame that was read; unknown before the first one.
    pub(super) fn after_read(&self) -> Option<u64> {
        let (begin, _) = self.begin?;
        Some(self.runs.last_key_value().map_or(begin, |(_, run)| run.last.saturating_add(1)))
    }

    /// The number of the next frame that is needed; unknown before the first one.
    pub(super) fn next(&self) -> Option<u64> {
        let expired = self.expired.map_or(0, |last| last.saturating_add(1));
        Some(self.after_read()?.max(expired))
    }

    /// The day of the last segment that was read.
    fn last_day(&self) -> Option<Day> {
        let (_, begin) = self.begin?;
        Some(self.runs.last_key_value().map_or(begin, |(_, run)| run.days.1))
    }

    /// Whether this frame was read, or is older than what is followed.
    pub(super) fn has(&self, frame: u64) -> bool {
        let is_old = self.begin.is_some_and(|(begin, _)| frame < begin);
        let run = self.runs.range(..=frame).next_back();
        is_old || run.is_some_and(|(_, run)| frame <= run.last)
    }

    /// Whether what follows the last frame that was read is in a segment that cannot be used, so
    /// that nobody knows where it ends.
    pub(super) fn is_end_unknown(&self) -> bool {
        let last = self.unusable.last_key_value().map(|(first, _)| *first);
        last.is_some() && last >= self.next()
    }

    /// Whether frames count as read or old that are after this one, the last in the store.
    pub(super) fn begins_after(&self, shipped: u64) -> bool {
        let before = self.begin.map(|(begin, _)| begin.saturating_sub(1));
        before.max(self.expired).is_some_and(|old| old > shipped)
    }

    /// Frames before this one are not followed, unless some were read already.
    pub(super) fn begin_at(&mut self, frame: u64, day: Day) {
        self.begin.get_or_insert((frame, day));
    }

    /// These frames of a segment of this day were read.
    pub(super) fn add(&mut self, frames: RangeInclusive<u64>, day: Day) {
        let (mut first, mut last) = frames.into_inner();
        self.unusable.remove(&first);
        let (begin, _) = *self.begin.get_or_insert((first, day));
        first = first.max(begin);
        if last < first {
            return;
        }
        if let (Some(expired), Some(next)) = (self.expired, self.after_read())
            && next <= last
        {
            self.expired = Some(expired).filter(|expired| last < *expired);
            if next < first {
                self.runs.insert(next, Run { last: expired.min(first - 1), days: (day, day) });
            }
        }
        let mut days = (day, day);
        // One run with those that it meets.
        while let Some((&other, run)) = self.runs.range(..=last.saturating_add(1)).next_back()
            && run.last.saturating_add(1) >= first
        {
            if other <= first {
                (first, days.0) = (other, run.days.0);
            }
            if run.last >= last {
                (last, days.1) = (run.last, run.days.1);
            }
            self.runs.remove(&other);
        }
        self.runs.insert(first, Run { last, days });
    }

    /// The segment that begins with this frame cannot be used. Returns whether that is new.
    pub(super) fn add_unusable(&mut self, first: u64, day: Day, why: String) -> bool {
        self.begin_at(first, day);
        self.unusable.insert(first, Unusable { day, why }).is_none()
    }

    /// Whether the segment that begins with this frame cannot be used.
    pub(super) fn is_unusable(&self, first: u64) -> bool {
        self.unusable.contains_key(&first)
    }

    /// Of a gap, only the segments that begin with these frames cannot be used.
    pub(super) fn keep_unusable(&mut self, gap: &Gap, found: &[u64]) {
        self.unusable.retain(|first, _| !gap.is_of(*first) || found.contains(first));
    }

    /// The frames that are missing before the last one that is known to be there. The store has the
    /// frames of the log up to `shipped`.
    pub(super) fn gaps(&self, shipped: u64) -> Vec<Gap> {
        let Some((begin, day)) = self.begin else { return Vec::new() };
        let (mut next, mut day, mut run_before) = (begin, day, begin);
        let mut gaps = Vec::new();
        for (first, run) in &self.runs {
            if next < *first {
                gaps.push(self.gap(next..=first - 1, (day, run.days.0), run_before));
            }
            (next, day, run_before) = (run.last.saturating_add(1), run.days.1, *first);
        }
        next = self.next().unwrap_or(next);
        // Other segments may have the frames of an unusable one. If it begins after the head,
        // nobody knows where it ends: it counts as a gap.
        let last = self.unusable.last_key_value().map(|(first, _)| *first);
        if let Some(last) = last.filter(|first| *first >= next || *first > shipped) {
            gaps.push(self.gap(next..=last.max(next), (day, day), run_before));
        }
        gaps
    }

    fn gap(&self, frames: RangeInclusive<u64>, days: (Day, Day), run_before: u64) -> Gap {
        let (first, last) = frames.into_inner();
        // The clock of the log's server may have gone back.
        let mut days = (days.0.min(days.1), days.0.max(days.1));
        let (mut before, mut inside) = (None, None);
        for (at, unusable) in self.unusable.range(run_before..=last) {
            if *at < first {
                before = Some(unusable);
            } else {
                inside = inside.or(Some(unusable));
                days = (days.0.min(unusable.day), days.1.max(unusable.day));
            }
        }
        let why = inside.or(before).map(|unusable| unusable.why.clone());
        Gap { first, last, days, why, run_before }
    }

    /// The frames after the last one that was read, up to `last`, in segments up to that day.
    pub(super) fn end(&self, last: u64, until: Day) -> Option<Gap> {
        let (first, day) = (self.next()?, self.last_day()?);
        let run_before = self.runs.last_key_value().map_or(first, |(first, _)| *first);
        (first <= last).then(|| self.gap(first..=last, (day.min(until), until), run_before))
    }

    /// Takes the frames of gaps that are older than a day for read: their segments may be pruned.
    /// Returns the other gaps.
    pub(super) fn expire_gaps(&mut self, since: Day, shipped: u64) -> Vec<Gap> {
        for gap in self.gaps(shipped) {
            if gap.days.1 < since {
                self.keep_unusable(&gap, &[]);
                if Some(gap.first) == self.next() {
                    self.expired = Some(gap.last.max(shipped));
                } else {
                    self.add(gap.first..=gap.last, gap.days.1);
                }
            }
        }
        let gaps = self.gaps(shipped);
        // Others have what was in it.
        self.unusable.retain(|first, _| gaps.iter().any(|gap| gap.is_of(*first)));
        gaps
    }

    /// How many segments cannot be used, with those that are missing.
    pub(super) fn problems(&self, shipped: u64) -> usize {
        let missing = self.gaps(shipped).into_iter().filter(|gap| gap.why.is_none());
        self.unusable.len() + missing.count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn day(number: u32) -> Day {
        "2026-11-01".parse::<Day>().unwrap().plus(number)
    }

    /// Frames that are in order by their days, ten a day.
    fn day_of(frame: u64) -> Day {
        day(frame as u32 / 10)
    }

    fn missing(frames: &ReadFrames, shipped: u64) -> Vec<(u64, u64)> {
        frames.gaps(shipped).into_iter().map(|gap| (gap.first, gap.last)).collect()
    }

    proptest! {
        #[test]
        fn what_is_missing_is_what_was_not_read(
            segments in prop::collection::vec((1_u64..100, 0_u64..20), 1..40),
        ) {
            let (mut frames, mut model) = (ReadFrames::default(), BTreeSet::new());
            let begin = segments[0].0;
            for (first, more) in segments {
                frames.add(first..=first + more, day_of(first));
                model.extend((first..=first + more).filter(|frame| *frame >= begin));
            }
            let end = *model.last().unwrap();
            prop_assert_eq!(frames.next(), Some(end + 1));
            let gaps = frames.gaps(end);
            for frame in 0..=end + 1 {
                let is_read = frame < begin || model.contains(&frame);
                prop_assert_eq!(frames.has(frame), is_read, "{}", frame);
                let gap = gaps.iter().find(|gap| (gap.first..=gap.last).contains(&frame));
                prop_assert_eq!(gap.is_some(), !is_read && frame <= end, "{}", frame);
            }
            for gap in gaps {
                // A frame may be in a segment that began two days before it.
                prop_assert!(gap.days.0 <= day_of(gap.first) && day_of(gap.last) <= gap.days.1.plus(2));
                frames.add(gap.first..=gap.last, gap.days.0);
            }
            prop_assert_eq!(missing(&frames, end), []);
        }
    }

    #[test]
    fn where_an_unusable_segment_ends_is_known_when_the_next_one_is_read() {
        let mut frames = ReadFrames::default();
        frames.add(1..=9, day(0));
        frames.add_unusable(10, day(1), "torn".into());
        assert!(frames.is_end_unknown());
        assert_eq!((frames.next(), missing(&frames, 9)), (Some(10), vec![(10, 10)]));
        frames.add(31..=40, day(2));
        assert!(!frames.is_end_unknown());
        let gap = &frames.gaps(40)[0];
        assert_eq!((gap.first, gap.last, gap.days), (10, 30, (day(0), day(2))));
        assert_eq!(gap.why.as_deref(), Some("torn"));

        // A longer one has some of its frames, and then all.
        frames.add(1..=20, day(0));
        let gap = &frames.gaps(40)[0];
        assert_eq!((gap.first, gap.last, gap.why.as_deref()), (21, 30, Some("torn")));
        frames.add(5..=30, day(0));
        assert_eq!(frames.expire_gaps(day(0), 40), []);
        assert_eq!(frames.problems(40), 0, "nobody needs it");
    }

    #[test]
    fn an_unusable_segment_beyond_the_head_is_a_gap_until_it_is_gone() {
        let mut frames = ReadFrames::default();
        frames.add_unusable(10, day(1), "torn".into());
        frames.add(9..=20, day(1));
        assert_eq!(missing(&frames, 9), [(21, 21)], "nobody knows whether it had more");
        assert_eq!(missing(&frames, 20), [], "what the head says is all that there was");
        let gap = &frames.gaps(9)[0];
        assert_eq!(gap.why.as_deref(), Some("torn"));
        frames.keep_unusable(gap, &[]);
        assert_eq!(missing(&frames, 9), []);
    }

    #[test]
    fn a_gap_is_forgotten_when_its_days_are_over() {
        let mut frames = ReadFrames::default();
        frames.add_unusable(1, day(0), "torn".into());
        frames.add(11..=20, day(1));
        frames.add(31..=40, day(3));
        frames.add_unusable(41, day(4), "torn".into());
        // The last segment had two frames.
        let since = |frames: &mut ReadFrames, number| {
            let gaps = frames.expire_gaps(day(number), 42);
            Vec::from_iter(gaps.into_iter().map(|gap| gap.first))
        };
        assert_eq!(since(&mut frames, 1), [1, 21, 41]);
        assert_eq!(since(&mut frames, 2), [21, 41]);
        assert_eq!(since(&mut frames, 4), [41]);
        assert_eq!(since(&mut frames, 5), [0; 0]);
        assert_eq!((frames.after_read(), frames.next()), (Some(41), Some(43)));
        assert_eq!((frames.problems(42), frames.is_end_unknown()), (0, false));
        // What the log had after that is needed.
        frames.add_unusable(43, day(6), "torn".into());
        assert_eq!((missing(&frames, 60), frames.is_end_unknown()), (vec![(43, 43)], true));
        frames.add(51..=60, day(6));
        assert_eq!((frames.next(), missing(&frames, 60)), (Some(61), vec![(43, 50)]));
        frames.add(43..=50, day(6));
        assert_eq!(missing(&frames, 60), []);
        assert!(frames.has(42));
    }

    #[test]
    fn what_was_not_read_of_an_expired_end_is_read_if_it_is_there() {
        let mut frames = ReadFrames::default();
        frames.add(1..=10, day(0));
        frames.add_unusable(11, day(0), "torn".into());
        assert_eq!(frames.expire_gaps(day(1), 30), []);
        assert!(frames.next() == Some(31) && !frames.has(15));
        frames.add(15..=20, day(1));
        assert!(frames.has(11) && frames.has(14), "in the expired one");
        assert!(frames.next() == Some(31) && !frames.has(21));
        frames.add(31..=40, day(1));
        assert!(frames.has(30) && frames.next() == Some(41) && missing(&frames, 40).is_empty());
    }

    #[test]
    fn a_log_of_which_nothing_is_followed_begins_after_what_it_has() {
        let mut frames = ReadFrames::default();
        assert_eq!((frames.next(), frames.end(7, day(1))), (None, None));
        frames.begin_at(8, day(0));
        frames.add(5..=7, day(0));
        assert_eq!((frames.next(), missing(&frames, 7)), (Some(8), vec![]));
        assert!(frames.has(7) && !frames.has(8));
        frames.add(5..=9, day(0));
        assert_eq!(frames.next(), Some(10));
        let end = frames.end(12, day(2)).unwrap();
        assert_eq!((end.first, end.last, end.days), (10, 12, (day(0), day(2))));
        assert_eq!(frames.end(9, day(2)), None);
        frames.add(10..=u64::MAX, day(0));
        assert!(frames.has(u64::MAX) && missing(&frames, u64::MAX).is_empty());
    }
}
