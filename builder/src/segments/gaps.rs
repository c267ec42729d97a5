//! [`ReadFrames`]: which frames of each log a build read, and which ones are missing.
//!
//! The frames of a log have numbers without gaps, and a segment has those of one day. So a segment
//! that was deleted, or that a listing left out, shows: between two that were read, or between one
//! that was read and those of other days. What is missing between two segments of another day is
//! of that day, and no matter of this build.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::Frames;
use bloomsday_common::store::Store;
use futures::{StreamExt, TryStreamExt};

use crate::error::Error;

/// How many segments are fetched at the same time.
pub(super) const MAX_CONCURRENT_FETCHES: usize = 16;

/// The frames of each log that are known to be in the store.
#[derive(Default)]
pub(super) struct ReadFrames {
    /// By log and first number, runs of frames. They may meet and overlap.
    runs: BTreeMap<u64, BTreeMap<u64, Run>>,
}

/// Frames one after the other.
#[derive(Clone, Copy)]
struct Run {
    /// The number of the last one.
    last: u64,
    /// Whether they are of the days that are built.
    is_built: bool,
}

/// Frames that the store does not have, and that may be of the days that are built.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    node: u64,
    first: u64,
    last: u64,
}

impl Gap {
    /// The log, its server and the frames, for people.
    pub(super) fn named(&self, heads: &[(u64, Head)]) -> String {
        let Gap { node, first, last } = self;
        let head = heads.iter().find(|(of, _)| of == node);
        let server = head.map_or(String::new(), |(_, head)| format!(" of {}", head.server));
        format!("the changes {first} to {last} of the log {node:016x}{server}")
    }
}

impl ReadFrames {
    /// Adds frames of the days that are built. Segments come in order: mostly one goes on where the
    /// last run ends.
    pub(super) fn add(&mut self, node: u64, frames: RangeInclusive<u64>) {
        let (first, last) = frames.into_inner();
        let runs = self.runs.entry(node).or_default();
        match runs.range_mut(..=first).next_back() {
            Some((_, run)) if first <= run.last.saturating_add(1) => run.last = last.max(run.last),
            _ => {
                runs.insert(first, Run { last, is_built: true });
            }
        }
    }

    /// Adds frames of other days.
    fn add_other(&mut self, node: u64, frames: RangeInclusive<u64>) {
        let (first, last) = frames.into_inner();
        let run = self.runs.entry(node).or_default().entry(first);
        let run = run.or_insert(Run { last, is_built: false });
        run.last = last.max(run.last);
    }

    /// The last frame of a log that is known; 0 for none.
    fn last_of(&self, node: u64) -> u64 {
        let runs = self.runs.get(&node).into_iter().flat_map(BTreeMap::values);
        runs.map(|run| run.last).max().unwrap_or(0)
    }

    /// What is missing next to frames of the days that are built, or between the days before and
    /// after them. `before` has the last frame of each log in the day before.
    fn gaps(&self, before: &BTreeMap<u64, u64>) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (&node, runs) in &self.runs {
            let Some((&begin, first)) = runs.first_key_value() else { continue };
            let (mut next, mut is_built) = (begin, first.is_built);
            for (&first, run) in runs {
                let is_around =
                    before.get(&node).is_some_and(|last| next == last.saturating_add(1));
                if next < first && (is_built || run.is_built || is_around) {
                    gaps.push(Gap { node, first: next, last: first - 1 });
                }
                if next <= run.last {
                    (next, is_built) = (run.last.saturating_add(1), run.is_built);
                }
            }
        }
        gaps
    }

    /// What is missing of the frames of these days, of which all segments that were listed were
    /// read. `heads` were read before that listing.
    ///
    /// A log's first frame of the days is compared with its last one of the day before, if that day
    /// has any; its last frame with the first one of a later day, or with its head.
    ///
    /// Cost: two listings, and a read for each log. For a log that is idle on the day after, or
    /// lacks something, a listing of each later day; with a gap, its segments of these days.
    pub(super) async fn missing(
        mut self,
        store: &Store,
        filter: &FilterName,
        days: RangeInclusive<Day>,
        heads: &[(u64, Head)],
    ) -> Result<Vec<Gap>, Error> {
        let mut around = keys(store, filter, days.start().minus(1)).await?;
        let last_of_log: BTreeMap<u64, &SegmentKey> =
            around.iter().map(|key| (key.node, key)).collect();
        let mut before = self.read(store, last_of_log.into_values()).await?;
        let of_day_before = around.len();
        for node in before.keys() {
            // A log that the day before has did not begin after it, whatever its clock said.
            self.runs.entry(*node).or_default().retain(|_, run| run.last > 0);
        }

        // Each log that goes on has a segment of a later day, mostly the next one. A clock that was
        // ahead puts frames into a day that is far ahead.
        let mut open: BTreeSet<u64> = self.runs.keys().copied().collect();
        open.retain(|node| {
            let head = heads.iter().find(|(of, _)| of == node);
            // A head that is behind is of a log that is being written again.
            head.is_none_or(|(_, head)| head.seq != self.last_of(*node))
        });
        let mut later = store.segment_days(filter).await?;
        later.retain(|day| day > days.end());
        for day in later.iter().copied() {
            if open.is_empty() {
                break;
            }
            let found = keys(store, filter, day).await?;
            let last: BTreeMap<u64, u64> =
                open.iter().map(|node| (*node, self.last_of(*node))).collect();
            let mut firsts = BTreeMap::<u64, u64>::new();
            let goes_on =
                |key: &&SegmentKey| last.get(&key.node).is_some_and(|last| key.first_seq > *last);
            for key in found.iter().filter(goes_on) {
                let first = firsts.entry(key.node).or_insert(key.first_seq);
                *first = key.first_seq.min(*first);
            }
            for (node, first) in firsts {
                open.remove(&node);
                self.add_other(node, first..=first);
            }
            around.extend(found);
        }
        for (node, head) in heads.iter().filter(|(node, _)| open.contains(node)) {
            let next = head.seq.saturating_add(1);
            if next > self.last_of(*node) {
                self.add_other(*node, next..=next);
            }
        }
        let gaps = self.gaps(&before);
        if gaps.is_empty() {
            return Ok(gaps);
        }
        // A clock that was set back puts frames into the folder of the day before, and a log that
        // was written again may have them in an earlier segment.
        let last: BTreeMap<u64, u64> = gaps.iter().map(|gap| (gap.node, gap.last)).collect();
        let may_have =
            |key: &&SegmentKey| last.get(&key.node).is_some_and(|last| key.first_seq <= *last);
        let (day_before, later) = around.split_at(of_day_before);
        for (node, last) in self.read(store, day_before.iter().filter(may_have)).await? {
            let known = before.entry(node).or_insert(last);
            *known = last.max(*known);
        }
        self.read(store, later.iter().filter(may_have)).await?;
        Ok(self.gaps(&before))
    }

    /// Adds the frames of other days' segments. Returns the last frame of each log in them. A
    /// segment that is damaged has none: its day's build says so.
    async fn read(
        &mut self,
        store: &Store,
        keys: impl Iterator<Item = &SegmentKey>,
    ) -> Result<BTreeMap<u64, u64>, Error> {
        let mut read = BTreeMap::new();
        let fetched = keys.map(|key| async move {
            match store.segment(key).await {
                Ok(bytes) => Ok(frames_of(key, &bytes).map(|frames| (key.node, frames))),
                Err(StoreError::NotFound { .. } | StoreError::TooManyBytes { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let mut fetched = futures::stream::iter(fetched).buffer_unordered(MAX_CONCURRENT_FETCHES);
        while let Some(found) = fetched.try_next().await? {
            if let Some((node, frames)) = found {
                let last = read.entry(node).or_insert(*frames.end());
                *last = *frames.end().max(last);
                self.add_other(node, frames);
            }
        }
        Ok(read)
    }
}

async fn keys(store: &Store, filter: &FilterName, day: Day) -> Result<Vec<SegmentKey>, Error> {
    Ok(store.segments(filter, day).await?.into_iter().map(|(key, _)| key).collect())
}

/// The numbers of a segment's frames.
fn frames_of(key: &SegmentKey, bytes: &[u8]) -> Option<RangeInclusive<u64>> {
    let (header, frames) = Frames::of_named(key, bytes).ok()?;
    let last = frames.map_while(Result::ok).last()?.seq;
    Some(header.first_seq..=last)
}

#[cfg(test)]
mod tests {
    use bloomsday_common::live::segment::{Header, Op, append_hashes, closed, set_number};
    use proptest::prelude::*;

    use super::*;

    const NODE: u64 = 7;

    /// A store with one log: of each segment the day, and the frames.
    struct Log {
        store: Store,
        filter: FilterName,
        keys: Vec<SegmentKey>,
        folder: tempfile::TempDir,
    }

    fn day(number: u32) -> Day {
        "2026-11-18".parse::<Day>().unwrap().plus(number)
    }

    async fn log(segments: &[(u32, RangeInclusive<u64>)]) -> Log {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let filter: FilterName = "rt".parse().unwrap();
        let set = set_number(0, b"rt");
        let mut keys = Vec::new();
        for (number, frames) in segments {
            let first_seq = *frames.start();
            let mut bytes = Vec::new();
            for seq in frames.clone() {
                append_hashes(&mut bytes, seq, 0, Op::Add, &[seq]);
            }
            let header = Header { set, node: NODE, epoch: 1, first_seq, created_ms: 0 };
            let (filter, day) = (filter.clone(), day(*number));
            let key = SegmentKey { filter, day, node: NODE, epoch: 1, first_seq };
            store.put_segment(&key, closed(&header, &bytes).into()).await.unwrap();
            keys.push(key);
        }
        Log { store, filter, keys, folder }
    }

    impl Log {
        /// What a build of day 1 finds missing, when the head names this frame.
        async fn missing(&self, head: u64) -> Vec<(u64, u64)> {
            let mut read = ReadFrames::default();
            for key in keys(&self.store, &self.filter, day(1)).await.unwrap() {
                let bytes = self.store.segment(&key).await.unwrap();
                read.add(NODE, frames_of(&key, &bytes).unwrap());
            }
            let through = day(1).end();
            let head = Head { server: "vm".into(), seq: head, through, created_ms: None };
            let heads = [(NODE, head)];
            let gaps = read.missing(&self.store, &self.filter, day(1)..=day(1), &heads).await;
            gaps.unwrap().into_iter().map(|gap| (gap.first, gap.last)).collect()
        }

        fn remove(&self, number: usize) {
            let path = self.folder.path().join(self.keys[number].to_string());
            std::fs::remove_file(path).unwrap();
        }
    }

    #[tokio::test]
    async fn what_the_days_around_have_is_not_missing() {
        // The clock was set back at frame 21, and forward at frame 26.
        let all = [(0, 1..=10), (1, 11..=20), (0, 21..=25), (1, 26..=30), (2, 31..=40)];
        assert_eq!(log(&all).await.missing(40).await, []);
        // What was there before the log was written again, in fewer segments.
        let again = [(0, 1..=18), (0, 5..=7), (1, 19..=30)];
        assert_eq!(log(&again).await.missing(30).await, []);
        // The clock was ahead at frame 21: what follows has that time, and is of that day.
        assert_eq!(log(&[(1, 11..=20), (4, 21..=25)]).await.missing(25).await, []);
        // What another day lacks is no matter of this one.
        let others = [(0, 1..=5), (0, 8..=10), (1, 11..=20), (2, 21..=25), (2, 28..=30)];
        assert_eq!(log(&others).await.missing(30).await, []);
        // Nobody knows what the log had on days without any segment.
        assert_eq!(log(&[(1, 11..=20)]).await.missing(20).await, []);
    }

    #[tokio::test]
    async fn a_gap_shows_wherever_it_is() {
        let all = [(0, 1..=10), (1, 11..=15), (1, 16..=20), (1, 21..=25), (2, 26..=40)];
        for (number, gap) in [(1, (11, 15)), (2, (16, 20)), (3, (21, 25))] {
            let log = log(&all).await;
            log.remove(number);
            assert_eq!(log.missing(40).await, [gap]);
        }
        // The head names what no later segment does.
        let end = log(&all[..4]).await;
        assert_eq!((end.missing(25).await, end.missing(40).await), (vec![], vec![(26, 40)]));
        end.remove(3);
        assert_eq!(end.missing(25).await, [(21, 25)]);
        // All of the day, after one that was written again.
        let again = log(&[(0, 1..=18), (0, 5..=7), (2, 31..=40)]).await;
        assert_eq!(again.missing(40).await, [(19, 30)]);
        // All of the day.
        let log = log(&all).await;
        (1..4).for_each(|number| log.remove(number));
        assert_eq!(log.missing(40).await, [(11, 25)]);
    }

    proptest! {
        #[test]
        fn a_gap_is_what_lies_between_frames_that_were_read(
            segments in prop::collection::vec((1_u64..60, 0_u64..12), 1..20),
        ) {
            let (mut read, mut model) = (ReadFrames::default(), BTreeSet::new());
            for (first, more) in segments {
                read.add(7, first..=first + more);
                model.extend(first..=first + more);
            }
            let (first, last) = (*model.first().unwrap(), *model.last().unwrap());
            let gaps = read.gaps(&BTreeMap::new());
            for frame in 0..=last + 1 {
                let is_missing = (first..=last).contains(&frame) && !model.contains(&frame);
                let gap = gaps.iter().find(|gap| (gap.first..=gap.last).contains(&frame));
                prop_assert_eq!(gap.is_some(), is_missing, "{}", frame);
            }
        }
    }
}
