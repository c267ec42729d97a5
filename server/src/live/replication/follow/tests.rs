//! A follower of a log whose segments are damaged, deleted, put back, and written again in longer
//! ones.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bloomsday_common::hash::mix64;
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::{Header, Op, append_hashes, closed, set_number};
use jiff::Timestamp;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::live::options::{Kind, Options};
use crate::live::{Key, Live, LiveConfig};

const NODE: u64 = 7;
const FRAMES_PER_SEGMENT: u64 = 3;
const SEGMENTS: u64 = 8;

#[derive(Clone, Debug)]
enum Event {
    /// The next segment is written, and then the head.
    Ship,
    /// The next segment is written. Its server is killed before it writes the head.
    ShipWithoutHead,
    /// The last segment is written again with the next one's frames. Its server is killed before it
    /// writes the head.
    ShipInLonger,
    /// The head says that the store has fewer segments: the log is written again from its
    /// beginning.
    MoveHeadBack(u64),
    Damage(u64, u32),
    Delete(u64, u32),
    PutBack(u64),
    /// A segment is written again with the frames of so many that follow it, by the process that
    /// wrote it or by a later one.
    WriteLonger(u64, u64, u32),
    /// Every segment is put back.
    PutAllBack,
    /// The frames from the first segment on that is damaged or gone are written as one segment.
    WriteFromFirstBad,
    Round,
    /// The follower gets the lease, and reads.
    TakeOver,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (segment, epoch) = (0..SEGMENTS, 1_u32..3);
    let written = (segment.clone(), epoch.clone());
    let event = prop_oneof![
        3 => Just(Event::Ship),
        1 => Just(Event::ShipWithoutHead),
        1 => segment.clone().prop_map(Event::MoveHeadBack),
        3 => written.clone().prop_map(|(at, epoch)| Event::Damage(at, epoch)),
        3 => written.prop_map(|(at, epoch)| Event::Delete(at, epoch)),
        2 => segment.clone().prop_map(Event::PutBack),
        1 => (segment, 1..SEGMENTS, epoch)
            .prop_map(|(at, more, epoch)| Event::WriteLonger(at, more, epoch)),
        4 => Just(Event::Round),
    ];
    prop::collection::vec(event, 1..40)
}

/// A log in a store.
struct Log {
    store: Store,
    folder: PathBuf,
    filter: FilterName,
    now: Timestamp,
    segments: u64,
    /// The last frame that the head names.
    head: u64,
    /// Those that are damaged or gone.
    bad: BTreeSet<u64>,
}

impl Log {
    fn first_of(segment: u64) -> u64 {
        segment * FRAMES_PER_SEGMENT + 1
    }

    fn key(&self, segment: u64, epoch: u32) -> SegmentKey {
        let (filter, day) = (self.filter.clone(), Day::of(self.now));
        SegmentKey { filter, day, node: NODE, epoch, first_seq: Log::first_of(segment) }
    }

    async fn write(&mut self, segment: u64, count: u64, epoch: u32) {
        if epoch == 1 {
            self.bad.remove(&segment);
        }
        let (key, now) = (self.key(segment, epoch), ms_of(self.now));
        let set = set_number(0, self.filter.as_str().as_bytes());
        let SegmentKey { node, first_seq, .. } = key;
        let header = Header { set, node, epoch, first_seq, created_ms: now };
        let mut frames = Vec::new();
        for seq in first_seq..Log::first_of(segment + count) {
            append_hashes(&mut frames, seq, now, Op::Add, &[mix64(seq)]);
        }
        self.replace(&key, closed(&header, &frames).into()).await;
    }

    async fn replace(&self, key: &SegmentKey, bytes: Bytes) {
        self.delete(key);
        self.store.put_segment(key, bytes).await.unwrap();
    }

    fn delete(&self, key: &SegmentKey) {
        // It need not be there.
        let _ = std::fs::remove_file(self.folder.join(key.to_string()));
    }

    async fn ship(&mut self) {
        if self.segments < SEGMENTS {
            self.write(self.segments, 1, 1).await;
            self.segments += 1;
        }
    }

    async fn write_head(&mut self) {
        self.write_head_of(self.last()).await;
    }

    async fn write_head_of(&mut self, seq: u64) {
        self.head = seq;
        let head = Head { server: "vm".into(), seq, through: self.now, created_ms: None };
        self.store.put_head(&self.filter, NODE, &head).await.unwrap();
    }

    /// The last frame that was shipped.
    fn last(&self) -> u64 {
        Log::first_of(self.segments) - 1
    }

    fn note_bad(&mut self, segment: u64, epoch: u32) {
        if epoch == 1 && segment < self.segments {
            self.bad.insert(segment);
        }
    }

    async fn change(&mut self, event: &Event) {
        match *event {
            Event::Ship => {
                self.ship().await;
                self.write_head().await;
            }
            Event::ShipWithoutHead => self.ship().await,
            Event::ShipInLonger if (1..SEGMENTS).contains(&self.segments) => {
                self.write(self.segments - 1, 2, 1).await;
                self.segments += 1;
            }
            Event::MoveHeadBack(segments) => {
                let seq = Log::first_of(segments) - 1;
                self.write_head_of(seq.min(self.last())).await;
            }
            Event::Damage(segment, epoch) => {
                let key = self.key(segment, epoch);
                if let Ok(bytes) = self.store.segment(&key).await {
                    self.replace(&key, bytes.slice(1..)).await;
                    self.note_bad(segment, epoch);
                }
            }
            Event::Delete(segment, epoch) => {
                self.delete(&self.key(segment, epoch));
                self.note_bad(segment, epoch);
            }
            Event::PutAllBack => {
                for segment in 0..self.segments {
                    self.write(segment, 1, 1).await;
                }
                self.write_head().await;
            }
            Event::WriteFromFirstBad => {
                if let Some(first) = self.bad.first().copied() {
                    self.write(first, self.segments - first, 1).await;
                }
                self.write_head().await;
            }
            Event::PutBack(segment) if segment < self.segments => self.write(segment, 1, 1).await,
            Event::WriteLonger(segment, more, epoch) if segment < self.segments => {
                let count = (more + 1).min(self.segments - segment);
                self.write(segment, count, epoch).await;
            }
            _ => {}
        }
    }
}

/// The frames up to `last` that a follower's set lacks.
fn lost(follower: &LogFollower, last: u64) -> Vec<u64> {
    let now = follower.clock.now_ms();
    let is_lost = |seq: &u64| follower.set.seen_at(now, mix64(*seq)).is_none();
    (1..=last).filter(is_lost).collect()
}

/// A log in a store in this folder, and who follows it.
fn log_and_follower(folder: &TempDir) -> (Log, LogFollower) {
    let filter: FilterName = "rt".parse().unwrap();
    let store = Store::open(&folder.path().display().to_string()).unwrap();
    let live = Live::open(LiveConfig::new(None)).unwrap();
    let follower = follower_of(&live, store.clone(), &filter);
    let (folder, now) = (folder.path().to_owned(), follower.clock.now());
    let log = Log { store, folder, filter, now, segments: 0, head: 0, bad: BTreeSet::new() };
    (log, follower)
}

/// A follower of the filter in a store.
fn follower_of(live: &Live, store: Store, filter: &FilterName) -> LogFollower {
    let clock = Clock::system();
    let key = Key { database: 0, name: filter.as_str().as_bytes().into() };
    let set = live.make(&key, Options::of(Kind::Set), live.now()).unwrap();
    let access = Arc::new(WriteAccess::new(filter.clone(), LiveRole::Follow, true));
    let context = TaskContext { filter: filter.clone(), set, access, store, clock };
    LogFollower::new(context, 1, Arc::default(), None)
}

#[tokio::test]
async fn a_head_that_was_wrong_once_stops_a_follower_for_a_while_only() {
    let folder = TempDir::new().unwrap();
    let (mut log, mut follower) = log_and_follower(&folder);
    log.change(&Event::Ship).await;
    let round = async |follower: &mut LogFollower| {
        follower.list_due = Instant::now();
        follower.round().await.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(round(&mut follower).await, Ok(()));
    log.write_head_of(1_000_000_000_000).await;
    assert!(round(&mut follower).await.is_err());
    log.change(&Event::Ship).await;
    let why = round(&mut follower).await.unwrap_err();
    assert!(why.contains("7 to 1000000000000"), "{why}");
    assert_eq!(lost(&follower, log.last()), [0; 0]);
    tokio::time::pause();
    tokio::time::advance(remote_log::MAX_BACK).await;
    tokio::time::resume();
    assert_eq!(round(&mut follower).await, Ok(()));

    // It was wrong before anything of the log was read.
    let live = Live::open(LiveConfig::new(None)).unwrap();
    let filter = log.filter.clone();
    let mut follower = follower_of(&live, log.store.clone(), &filter);
    for segment in 0..log.segments {
        log.change(&Event::Delete(segment, 1)).await;
    }
    log.write_head_of(1_000_000_000_000).await;
    assert_eq!(round(&mut follower).await, Ok(()), "all of it may be pruned");
    log.change(&Event::PutAllBack).await;
    round(&mut follower).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(remote_log::MAX_BACK).await;
    tokio::time::resume();
    assert_eq!(round(&mut follower).await, Ok(()));
    assert_eq!(lost(&follower, log.last()), [0; 0]);
}

#[tokio::test]
async fn a_listing_without_a_segment_that_the_head_speaks_of_is_no_end_of_the_log() {
    let folder = TempDir::new().unwrap();
    let (mut log, mut follower) = log_and_follower(&folder);
    log.ship().await;
    let (last, made) = (log.last(), ms_of(log.now));
    let head = Head { server: "vm".into(), seq: last, through: log.now, created_ms: Some(made) };
    log.store.put_head(&log.filter, NODE, &head).await.unwrap();
    log.delete(&log.key(0, 1));
    let why = follower.round().await.map(drop).unwrap_err().to_string();
    assert!(why.contains(&format!("frames {last} to {last}")), "{why}");
    log.write(0, 1, 1).await;
    follower.list_due = Instant::now();
    assert!(follower.round().await.is_ok());
    assert_eq!(lost(&follower, last), [0; 0]);
}

#[tokio::test]
async fn what_a_clock_far_ahead_put_into_a_later_day_is_read() {
    let folder = TempDir::new().unwrap();
    let (mut log, mut follower) = log_and_follower(&folder);
    log.change(&Event::Ship).await;
    log.now += jiff::SignedDuration::from_hours(50);
    log.change(&Event::Ship).await;
    assert_eq!(follower.round().await.map(drop).map_err(|error| error.to_string()), Ok(()));
    assert_eq!(lost(&follower, log.last()), [0; 0]);
}

proptest! {
    #[test]
    fn a_round_that_succeeds_has_all_and_one_after_the_log_is_whole_again_succeeds(
        events in events(),
        mend in prop_oneof![Just(Event::PutAllBack), Just(Event::WriteFromFirstBad)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = TempDir::new().unwrap();
        let (mut log, mut follower) = log_and_follower(&folder);
        let whole = [mend, Event::Round, Event::Round];
        // What is older than the first segment that a follower finds may be pruned.
        let all = [Event::Ship, Event::Round].into_iter().chain(events).chain(whole);
        let (mut shipped, mut last) = (0, Ok(0));
        for event in all {
            runtime.block_on(log.change(&event));
            if let Event::Round = event {
                shipped = shipped.max(log.head);
                follower.list_due = Instant::now();
                last = runtime.block_on(follower.round());
                let lost = lost(&follower, shipped);
                prop_assert!(last.is_err() || lost.is_empty(), "it lacks {:?}", lost);
            }
        }
        // A longer one may still be damaged: nobody needs it.
        prop_assert!(last.is_ok(), "{:?}", last);
    }

    /// A decider is killed at any moment, also between a segment and the head.
    #[test]
    fn who_takes_over_has_all_that_was_shipped(
        events in prop::collection::vec(prop_oneof![
            Just(Event::Ship),
            Just(Event::ShipWithoutHead),
            Just(Event::ShipInLonger),
            Just(Event::Round),
            Just(Event::TakeOver),
        ], 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = TempDir::new().unwrap();
        let (mut log, mut follower) = log_and_follower(&folder);
        for event in [Event::Ship].into_iter().chain(events).chain([Event::TakeOver]) {
            runtime.block_on(log.change(&event));
            if let Event::TakeOver = event {
                follower.epoch = Some(follower.epoch.map_or(1, |epoch| epoch + 1));
                follower.epoch_since = Instant::now();
            }
            if let Event::Round | Event::TakeOver = event {
                // One round finds a gap, and the next one fills it.
                let is_complete = (0..2).any(|_| {
                    follower.list_due = Instant::now();
                    runtime.block_on(follower.round()).is_ok()
                });
                prop_assert!(is_complete);
                let last = if let Event::Round = event { log.head } else { log.last() };
                prop_assert_eq!(lost(&follower, last), [0; 0]);
            }
        }
    }
}
