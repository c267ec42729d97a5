//! [`ReadFrames`]: which frames of each log a build read, and which ones are missing.
//!
//! The frames of a log have numbers without gaps, and a segment has those of one day. So a segment
//! that was deleted, or that a listing left out, shows: between two that were read, or between one
//! that was read and the days before and after.

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
    /// By log and first number, the last number of runs that may meet and overlap.
    runs: BTreeMap<u64, BTreeMap<u64, u64>>,
}

/// Frames that the store does not have.
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
        format!("the log {node:016x}{server} lacks its changes {first} to {last}")
    }
}

impl ReadFrames {
    pub(super) fn add(&mut self, node: u64, frames: RangeInclusive<u64>) {
        let (first, last) = frames.into_inner();
        let runs = self.runs.entry(node).or_default();
        // Segments come in order: mostly this one goes on where the last run ends.
        match runs.range_mut(..=first).next_back() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => {
                runs.insert(first, last);
            }
        }
    }

    fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (&node, runs) in &self.runs {
            let mut next = runs.first_key_value().map_or(0, |(first, _)| *first);
            for (&first, &last) in runs {
                if next < first {
                    gaps.push(Gap { node, first: next, last: first - 1 });
                }
                next = next.max(last.saturating_add(1));
            }
        }
        gaps
    }

    /// What is missing of the frames of these days, of which all segments that were listed were
    /// read. `heads` were read before that listing.
    ///
    /// A log's first frame of the days is compared with its last one of the day before, if that day
    /// has any.
    ///
    /// Cost: two listings, and a read for each log; with a gap, its log of these two days.
    pub(super) async fn missing(
        mut self,
        store: &Store,
        filter: &FilterName,
        days: RangeInclusive<Day>,
        heads: &[(u64, Head)],
    ) -> Result<Vec<Gap>, Error> {
        let (day_before, day_after) = (days.start().minus(1), days.end().plus(1));
        let before = keys(store, filter, day_before).await?;
        let after = keys(store, filter, day_after).await?;
        let last_of_log: BTreeMap<u64, &SegmentKey> =
            before.iter().map(|key| (key.node, key)).collect();
        self.read(store, last_of_log.into_values()).await?;
        for key in &after {
            self.add(key.node, key.first_seq..=key.first_seq);
        }
        // The frames after these are not missing. A later head may be of later days.
        for (node, head) in heads.iter().filter(|(_, head)| head.through <= day_after.end()) {
            let next = head.seq.saturating_add(1);
            self.add(*node, next..=next);
        }
        let gaps = self.gaps();
        if gaps.is_empty() {
            return Ok(gaps);
        }
        // A clock that was set back puts frames into the folder of the day before, and a log that
        // was written again may have them in an earlier segment.
        let nodes: BTreeSet<u64> = gaps.iter().map(|gap| gap.node).collect();
        let around = before.iter().chain(&after).filter(|key| nodes.contains(&key.node));
        self.read(store, around).await?;
        Ok(self.gaps())
    }

    /// Adds the frames of other days' segments. One that is damaged has none: its day's build says
    /// so.
    async fn read(
        &mut self,
        store: &Store,
        keys: impl Iterator<Item = &SegmentKey>,
    ) -> Result<(), Error> {
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
                self.add(node, frames);
            }
        }
        Ok(())
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
    use jiff::Timestamp;
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
            let through: Timestamp = day(1).end();
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
            let gaps = read.gaps();
            for frame in 0..=last + 1 {
                let is_missing = (first..=last).contains(&frame) && !model.contains(&frame);
                let gap = gaps.iter().find(|gap| (gap.first..=gap.last).contains(&frame));
                prop_assert_eq!(gap.is_some(), is_missing, "{}", frame);
            }
        }
    }
}
