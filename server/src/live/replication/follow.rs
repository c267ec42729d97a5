//! [`LogFollower`]: the segments of other servers' logs in the store → one set. A round reads the
//! heads that changed, and the segments that these say are new.
//!
//! A segment that is damaged or missing is named in the status and looked for again; what follows
//! it is read all the same, because adds are a union. The lag grows until nothing is missing.

mod ahead;
mod error;
mod frames;
mod gaps;
mod inbox;
mod late;
mod receive;
mod remote_log;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::segment::Frames;
use bloomsday_common::store::{HeadNow, Store};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::access::{LeaseEpoch, WriteAccess};
use super::role::LiveRole;
use super::segment_fetch::{MAX_CONCURRENT_FETCHES, fetch_all};
use super::store_call::{CallError, in_time};
use super::task_context::TaskContext;
use crate::backoff::Backoff;
use crate::clock::{Clock, ms_of};
use crate::live::set::{LateDeletions, LiveSet};
use crate::live::stream::FromEngine;
use ahead::{AheadFrames, MAX_AHEAD};
use error::{FollowError, damaged, gap_error, not_fetched, refused, too_many};
use inbox::EngineInbox;
use remote_log::RemoteLog;

/// How often the heads are read.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// How often new logs are looked for, and gaps are tried again.
const LIST_INTERVAL: Duration = Duration::from_secs(5);
/// The longest pause after failures; it doubles from [`FOLLOW_INTERVAL`].
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The most segments of a filter that cannot be used, or are missing, and are remembered; with
/// more, a log is not read on.
const MAX_PROBLEMS: usize = 64;

/// What is followed of one set.
pub(in crate::live) struct LogFollower {
    filter: FilterName,
    set: Arc<LiveSet>,
    access: Arc<WriteAccess>,
    store: Store,
    clock: Clock,
    /// The log of this process, which is not read.
    own: Option<u64>,
    /// For how many days before today segments are read.
    days: u32,
    /// Set when not all IDs came back at a rollback: the next round reads all logs from the
    /// beginning.
    is_incomplete: Arc<AtomicBool>,
    engine: Option<EngineInbox>,
    logs: BTreeMap<u64, RemoteLog>,
    /// What came by the engine and is not in the store yet.
    ahead: AheadFrames,
    /// Late deletions that wait until the store has that.
    late: Option<LateBatch>,
    list_due: Instant,
    /// The epoch of the last round.
    epoch: LeaseEpoch,
    epoch_since: Instant,
    /// Whether logs were read from the beginning, so that the day's filter may have what came.
    is_absorb_due: bool,
    /// Deletions from before this time are late: logs were read from the beginning a second time,
    /// and what one deleted may have been seen again, in what was here then.
    late_before_ms: u64,
}

/// Late deletions, and where the sightings after them may be.
struct LateBatch {
    deletions: LateDeletions,
    /// By log, the number of the last frame that had come by an engine then. Whose IDs these have,
    /// only the store can tell.
    ahead: BTreeMap<u64, u64>,
    /// When that was.
    since: Instant,
    /// Why it could not be settled, and when that is tried again.
    failure: Option<(String, Instant)>,
    backoff: Backoff,
}

impl LogFollower {
    pub(in crate::live) fn new(
        context: TaskContext,
        days: u32,
        is_incomplete: Arc<AtomicBool>,
        entries: Option<mpsc::Receiver<FromEngine>>,
    ) -> LogFollower {
        let TaskContext { filter, set, access, store, clock } = context;
        let own = set.log().map(|log| log.node());
        LogFollower {
            filter,
            set,
            access,
            store,
            clock,
            own,
            days,
            is_incomplete,
            engine: entries.map(EngineInbox::new),
            logs: BTreeMap::new(),
            ahead: AheadFrames::default(),
            late: None,
            list_due: Instant::now(),
            epoch: None,
            epoch_since: Instant::now(),
            is_absorb_due: true,
            late_before_ms: 0,
        }
    }

    /// Follows, round after round.
    pub(in crate::live) async fn run(mut self) {
        let mut backoff = Backoff::new(FOLLOW_INTERVAL, MAX_PAUSE);
        loop {
            let epoch = self.access.epoch();
            if epoch != self.epoch {
                // The decider before may have begun its log since the last listing.
                self.list_due = Instant::now();
                (self.epoch, self.epoch_since) = (epoch, Instant::now());
            }
            let round = self.round().await;
            self.receive_queued().await;
            // Also when a log cannot be read: what was read of others counts.
            let settled = self.settle_late_deletions().await;
            let pause = match round.and_then(|through_ms| settled.map(|()| through_ms)) {
                Ok(through_ms) => {
                    // Before this process may decide: what a server acknowledged just before its
                    // end may be in the engine only.
                    let epoch = epoch.filter(|_| self.has_read_engine());
                    self.access.round_succeeded(epoch, through_ms);
                    if std::mem::take(&mut self.is_absorb_due) {
                        self.set.absorb_again();
                    }
                    backoff.reset();
                    FOLLOW_INTERVAL
                }
                Err(error) => {
                    self.access.round_failed(error.to_string());
                    match error {
                        // The store answers: what others add goes on coming.
                        FollowError::Damaged { .. }
                        | FollowError::Incomplete(_)
                        | FollowError::Missing { .. } => FOLLOW_INTERVAL,
                        _ => backoff.after_failure(),
                    }
                }
            };
            let waits_for_engine = !self.has_read_engine();
            let due = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => break,
                    () = self.access.wait_for_lease() => break,
                    received = next_entry(&mut self.engine) => {
                        self.receive_next(received).await;
                        if waits_for_engine && self.has_read_engine() {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// What is dropped from memory must be in the store, to come back from there.
    fn note_what_is_stored(&self) {
        self.set.set_stored_before(self.ahead.stored_before_ms());
    }

    /// Reads all that is new. Returns the time before which everything is here.
    async fn round(&mut self) -> Result<u64, FollowError> {
        if self.list_due <= Instant::now() || self.is_incomplete.load(Ordering::Relaxed) {
            self.list_logs().await?;
            self.fill_gaps().await;
            self.list_due = Instant::now() + LIST_INTERVAL;
        }
        let nodes: Vec<u64> = self.logs.keys().copied().collect();
        // An error of the store is reported first.
        let (mut store_failed, mut log_failed) = (None, None);
        for node in nodes {
            // One log that cannot be read stops no other.
            let read = match self.read_head(node).await {
                Ok(()) => self.follow(node).await,
                // Each other head would be waited for as long.
                Err(slow @ FollowError::Store(CallError::Slow)) => return Err(slow),
                Err(error) => Err(error),
            };
            match read {
                Ok(()) => {}
                Err(error @ FollowError::Store(_)) => store_failed = Some(error),
                Err(error) => log_failed = Some(error),
            }
        }
        if store_failed.is_none() {
            self.access.note_logs_read();
        }
        let gap = || self.logs.iter().find_map(|(node, log)| log.first_gap(*node));
        let failed = store_failed.or(log_failed).or_else(gap);
        failed.map_or_else(|| Ok(self.through_ms()), Err)
    }

    /// Looks for new logs, forgets those that are gone, and notes who decides.
    async fn list_logs(&mut self) -> Result<(), FollowError> {
        self.ahead.forget_idle();
        self.note_what_is_stored();
        // Of a head that is older, no segment is read. A day more, for clocks that differ.
        let since = Day::of(self.clock.now()).minus(self.days + 1);
        let nodes = in_time(self.store.head_nodes(&self.filter, Some(since))).await?;
        if self.is_incomplete.swap(false, Ordering::Relaxed) {
            self.begin_anew();
        }
        // Logs of servers that are gone for longer are forgotten.
        let (ahead, listed) = (&self.ahead, BTreeSet::from_iter(nodes));
        self.logs.retain(|node, log| {
            log.is_listed = false;
            log.note_shipped();
            log.applied = log.applied.split_off(&since);
            listed.contains(node)
                || ahead.has(*node)
                || log.frames.problems(log.shipped) > 0
                || log.is_broken_in_engine
                || !log.applied.is_empty()
        });
        for node in listed.into_iter().filter(|node| Some(*node) != self.own) {
            self.logs.entry(node).or_default();
        }
        self.access.set_log_count(self.logs.len());
        if self.access.role() == LiveRole::Follow {
            let lease = in_time(self.store.lease(&self.filter)).await?;
            self.access.lease_observed(lease.state.found().cloned());
        }
        Ok(())
    }

    /// Lets all logs be read from the beginning.
    fn begin_anew(&mut self) {
        self.is_absorb_due = true;
        self.late_before_ms = self.clock.now_ms();
        for log in self.logs.values_mut() {
            let RemoteLog { head, shipped, newest_ms, applied, .. } = std::mem::take(log);
            self.late_before_ms = self.late_before_ms.max(newest_ms);
            *log = RemoteLog { head, shipped, newest_ms, applied, ..RemoteLog::default() };
        }
    }

    /// What others changed before this time is here, by the clock of the one that wrote last.
    fn through_ms(&self) -> u64 {
        let through = self.logs.values().filter_map(|log| log.head.as_ref());
        let through = through.map(|head| ms_of(head.through));
        through.max().unwrap_or(0)
    }

    /// Reads what is new of one log.
    async fn follow(&mut self, node: u64) -> Result<(), FollowError> {
        self.follow_head(node).await?;
        let epoch = self.epoch;
        if self.logs.get(&node).is_some_and(|log| log.read_beyond_head_in != epoch) {
            // The decider before may have been killed between a segment and the head.
            self.read_last_again(node).await?;
            while self.follow_listed(node).await? > 0 {}
        }
        if let Some(log) = self.logs.get_mut(&node) {
            log.read_beyond_head_in = epoch;
        }
        Ok(())
    }

    /// Reads the last segment once more: it may have been written again with more frames.
    async fn read_last_again(&mut self, node: u64) -> Result<(), FollowError> {
        let since = *self.days().start();
        let last = self.logs.get(&node).and_then(|log| log.last.clone());
        let Some(last) = last.filter(|last| last.day >= since) else { return Ok(()) };
        match self.fetch_and_apply(&last).await {
            Err(why) if !why.is_of_segment() => Err(why),
            // What it had was read, or is missed already.
            _ => Ok(()),
        }
    }

    /// Reads a log up to its head.
    async fn follow_head(&mut self, node: u64) -> Result<(), FollowError> {
        loop {
            let Some(log) = self.logs.get(&node) else { return Ok(()) };
            let last = log.shipped;
            if log.head.is_none() || log.frames.next().is_some_and(|next| next > last) {
                return Ok(());
            }
            let is_listed = log.is_listed;
            if self.follow_named(node).await?
                || (!is_listed
                    && (self.follow_listed(node).await? > 0 || self.follow_longer(node).await?))
            {
                continue;
            }
            let (since, until) = self.days().into_inner();
            let Some(log) = self.logs.get_mut(&node) else { return Ok(()) };
            log.is_listed = true;
            // A frame is not older than its segment: one of the days that were listed must have it.
            let made = log.head.as_ref().and_then(|head| head.created_ms).map(Day::at_unix_ms);
            let is_recent = made.is_some_and(|made| made > since && made <= until);
            if log.frames.next().is_none() && is_recent {
                return Err(FollowError::Missing { node, first: last, last });
            }
            // All that there is, is older than what is followed.
            log.frames.begin_at(last.saturating_add(1), until);
            let end = log.frames.end(last, until).filter(|_| !log.frames.is_end_unknown());
            return end.map_or(Ok(()), |gap| Err(gap_error(node, gap)));
        }
    }

    /// Reads how far a log is in the store.
    async fn read_head(&mut self, node: u64) -> Result<(), FollowError> {
        let Some(log) = self.logs.get_mut(&node) else { return Ok(()) };
        let known = log.tag.as_deref();
        let (head, tag) = match in_time(self.store.head_now(&self.filter, node, known)).await? {
            HeadNow::Found(head, tag) => (head, tag),
            HeadNow::Unreadable(why) => return Err(FollowError::Incomplete(why)),
            HeadNow::Same | HeadNow::Absent => return Ok(()),
        };
        self.ahead.note_head(node, &head);
        (log.head, log.tag, log.is_listed) = (Some(head), tag, false);
        log.note_shipped();
        self.note_what_is_stored();
        Ok(())
    }

    /// Reads the next segment by its name, which is known if it is of the same day and process as
    /// the last one: mostly it is. Returns whether there is such a segment.
    async fn follow_named(&mut self, node: u64) -> Result<bool, FollowError> {
        let log = &self.logs[&node];
        let (Some(first_seq), Some(last)) = (log.frames.next(), log.last.clone()) else {
            return Ok(false);
        };
        if log.frames.is_end_unknown() {
            return Ok(false);
        }
        let key = SegmentKey { first_seq, ..last };
        match fetch(&self.store, &key).await {
            Ok(bytes) => self.take(key, Ok(bytes)).await.map(|()| true),
            Err(FollowError::Store(CallError::Store(StoreError::NotFound { .. }))) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Reads the segments of a log that a listing has after the last one. Returns their number.
    async fn follow_listed(&mut self, node: u64) -> Result<usize, FollowError> {
        let last = self.logs[&node].last.clone();
        let since = *self.days().start();
        let first = last.as_ref().map_or(since, |last| last.day.max(since));
        // Also those far ahead: after one add with a clock ahead, all later adds are in that day's
        // folder.
        let days = in_time(self.store.segment_days(&self.filter)).await?;
        let mut many = 0;
        for day in days.into_iter().filter(|day| *day >= first) {
            let after = last.as_ref();
            let keys = in_time(self.store.segments_of(&self.filter, day, node, after)).await?;
            let keys = from_next(keys, self.logs[&node].frames.after_read().unwrap_or(0));
            many += keys.len();
            let mut fetched = pin!(fetch_all(&self.store, keys, MAX_CONCURRENT_FETCHES));
            while let Some((key, bytes)) = in_time(async { Ok(fetched.next().await) }).await? {
                let bytes = bytes.map_err(|error| not_fetched(&key, error));
                self.take(key, bytes).await?;
            }
        }
        Ok(many)
    }

    /// The days whose segments are read: the clock of another server may be ahead.
    fn days(&self) -> RangeInclusive<Day> {
        let today = Day::of(self.clock.now());
        today.minus(self.days)..=today.plus(1)
    }

    /// Applies the next segment of a log, or notes that it cannot be used.
    async fn take(
        &mut self,
        key: SegmentKey,
        bytes: Result<Bytes, FollowError>,
    ) -> Result<(), FollowError> {
        let known: usize = self.logs.values().map(|log| log.frames.problems(log.shipped)).sum();
        let log = self.logs.entry(key.node).or_default();
        let next = log.frames.next().filter(|next| *next < key.first_seq);
        let missing = next.filter(|_| !log.frames.is_end_unknown());
        let read = match bytes {
            _ if known >= MAX_PROBLEMS && missing.is_some() => Err(too_many(known)),
            Ok(bytes) => self.apply(&key, &bytes).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(_) => {}
            Err(why) if !why.is_of_segment() => return Err(why),
            Err(_) if known >= MAX_PROBLEMS => return Err(too_many(known)),
            Err(why) => self.note_unusable(&key, &why),
        }
        if let Some(first) = missing {
            let why = FollowError::Missing { node: key.node, first, last: key.first_seq - 1 };
            tracing::warn!(filter = %self.filter, "{why}");
        }
        if let Some(log) = self.logs.get_mut(&key.node) {
            log.last = Some(key);
        }
        self.bound_late_deletions().await
    }

    /// Applies the frames of a segment that were not read. Returns whether there were any.
    async fn apply(&mut self, key: &SegmentKey, bytes: &[u8]) -> Result<bool, FollowError> {
        let frames = Frames::of_named(key, bytes);
        let (header, frames) = frames.map_err(|bad| damaged(key, &bad))?;
        let others = self.logs.iter().filter(|(node, _)| **node != key.node);
        let newest = others.map(|(_, log)| log.newest_ms).max().unwrap_or(0);
        let (now, late_before) = (self.clock.now_ms(), newest.max(self.late_before_ms));
        let (mut last, mut is_any_new) = (header.first_seq, false);
        let log = self.logs.entry(key.node).or_default();
        let next = log.frames.next().unwrap_or(0);
        for frame in frames.map_while(Result::ok) {
            last = frame.seq;
            log.newest_ms = log.newest_ms.max(frame.ms);
            if !log.frames.has(frame.seq) {
                is_any_new = true;
                let first = log.applied.entry(Day::at_unix_ms(frame.ms)).or_insert(frame.seq);
                *first = frame.seq.min(*first);
                let is_late = frame.seq < next || frame.ms < late_before;
                self.set.apply(now, &frame, is_late).map_err(refused)?;
            }
        }
        log.frames.add(header.first_seq..=last, key.day);
        log.warn_if_clock_is_ahead(&self.filter, key.node, now);
        self.access.count_segment();
        Ok(is_any_new)
    }
}

/// The next entry of an engine; never without one.
async fn next_entry(engine: &mut Option<EngineInbox>) -> FromEngine {
    match engine {
        Some(inbox) => inbox.next().await,
        None => std::future::pending().await,
    }
}

/// Segments without those at the beginning whose frames are all before a number.
fn from_next(mut keys: Vec<(SegmentKey, u64)>, next: u64) -> Vec<(SegmentKey, u64)> {
    keys.sort_by_key(|(key, _)| (key.first_seq, key.epoch));
    let after = keys.partition_point(|(key, _)| key.first_seq <= next);
    keys.drain(..after.saturating_sub(1));
    keys
}

async fn fetch(store: &Store, key: &SegmentKey) -> Result<Bytes, FollowError> {
    match in_time(store.segment(key)).await {
        Err(CallError::Store(error)) => Err(not_fetched(key, error)),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
