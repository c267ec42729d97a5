//! Deletions that are read after newer changes of other logs: whether their IDs were seen again is
//! looked up for all of them at once.

use std::pin::pin;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::SegmentKey;
use bloomsday_common::live::segment::{Frames, Op};
use bytes::Bytes;
use futures::StreamExt;
use tokio::time::Instant;

use super::{
    FOLLOW_INTERVAL, FollowError, LateBatch, LogFollower, MAX_AHEAD, MAX_PAUSE, damaged,
    not_fetched, refused,
};
use crate::backoff::Backoff;
use crate::live::replication::segment_fetch::fetch_all;
use crate::live::replication::store_call::in_time;
use crate::live::set::{LateDeletions, drop_if_later};

/// How many late deletions are collected before they are settled: at the end of a round, if there
/// are fewer.
const MAX_LATE_DELETIONS: usize = 1 << 20;
/// The longest pause after a pass that found a segment damaged or missing.
const MAX_PASS_PAUSE: Duration = Duration::from_secs(10 * 60);
/// How many segments are fetched at the same time: few, since the reading of a log may hold its
/// own.
const MAX_PASS_FETCHES: usize = 2;

impl LogFollower {
    /// Hides the IDs of late deletions, but for those that a server saw again. They stay late after
    /// an error, and until the store has what came by an engine before them.
    ///
    /// Cost: if there are any, a pass over the segments from the day of the oldest one on, and over
    /// the own log.
    pub(super) async fn settle_late_deletions(&mut self) -> Result<(), FollowError> {
        let mut batch = self.late.take().unwrap_or_else(|| LateBatch {
            deletions: self.set.late_deletions(),
            ahead: self.ahead.last_frames(),
            since: Instant::now(),
            failure: None,
            backoff: Backoff::new(FOLLOW_INTERVAL, MAX_PAUSE),
        });
        let Some(oldest) = batch.deletions.values().min().copied() else { return Ok(()) };
        let is_stored = || batch.ahead.iter().all(|(node, last)| self.is_stored(*node, *last));
        // A server may write to the engine for hours and not to the store.
        if batch.since.elapsed() < MAX_AHEAD && !is_stored() {
            self.late = Some(batch);
            return Ok(());
        }
        let settled = match &batch.failure {
            Some((why, due)) if Instant::now() < *due => Err(FollowError::Incomplete(why.clone())),
            _ => {
                let begin = Instant::now();
                let settled = self.settle(&batch.deletions, Day::at_unix_ms(oldest)).await;
                let pause = match &settled {
                    Err(FollowError::Store(_)) | Ok(()) => batch.backoff.after_failure(),
                    // It may stay so: most of the time is for what others change now.
                    Err(_) => (10 * begin.elapsed()).clamp(FOLLOW_INTERVAL, MAX_PASS_PAUSE),
                };
                let due = Instant::now() + pause;
                batch.failure = settled.as_ref().err().map(|error| (error.to_string(), due));
                settled
            }
        };
        if settled.is_err() {
            self.late = Some(batch);
        }
        settled
    }

    async fn settle(&self, deletions: &LateDeletions, oldest: Day) -> Result<(), FollowError> {
        let mut left = deletions.clone();
        self.drop_seen_later(oldest, &mut left).await?;
        let set = self.set.clone();
        // The own log has what is not in the store yet.
        let own = move || set.drop_added_later(&mut left).map(|()| left);
        let left = tokio::task::spawn_blocking(own).await;
        let left = left.unwrap_or_else(|_| Err("a panic".into()));
        let left = left.map_err(FollowError::OwnLog)?;
        self.set.end_late(deletions, &left).map_err(refused)
    }

    /// Settles late deletions when there are many.
    ///
    /// # Errors
    /// [`FollowError::Incomplete`] when they have to wait: of each log one segment is read a round.
    pub(super) async fn bound_late_deletions(&mut self) -> Result<(), FollowError> {
        while self.set.late_count() >= MAX_LATE_DELETIONS {
            let settled = self.settle_late_deletions().await;
            let why = match settled {
                Err(why) => why.to_string(),
                Ok(()) if self.late.is_some() => "the store lacks what came by the engine".into(),
                Ok(()) => continue,
            };
            let many = self.set.late_count();
            return Err(FollowError::Incomplete(format!("{many} deletions wait: {why}")));
        }
        Ok(())
    }

    /// Whether the store has this frame of a log, or nobody knows when it will.
    fn is_stored(&self, node: u64, seq: u64) -> bool {
        let head = self.logs.get(&node).and_then(|log| log.head.as_ref());
        !self.ahead.has(node) || head.is_some_and(|head| head.seq >= seq)
    }

    /// Drops the deletions after which another server saw the ID again, as far as the store knows.
    ///
    /// # Errors
    /// Also when a segment is damaged or not there, and no other one has its frames: it may have a
    /// later sighting, and although it was read before, nobody knows of which IDs.
    async fn drop_seen_later(
        &self,
        oldest: Day,
        deleted: &mut LateDeletions,
    ) -> Result<(), FollowError> {
        // Older segments may be pruned.
        let (since, until) = (oldest.max(*self.days().start()), *self.days().end());
        for (node, log) in &self.logs {
            let (mut found, mut unusable) = (Vec::new(), None);
            for day in since.through(until) {
                let listed =
                    in_time(self.store.segments_of(&self.filter, day, *node, None)).await?;
                let mut fetched = pin!(fetch_all(&self.store, listed, MAX_PASS_FETCHES));
                while let Some((key, bytes)) = in_time(async { Ok(fetched.next().await) }).await? {
                    match seen_later(&key, bytes, deleted) {
                        Ok(last) => found.push((key.first_seq, last)),
                        // Others may have its frames, if the head says where they end.
                        Err(why) if why.is_of_segment() && key.first_seq <= log.shipped => {
                            unusable.get_or_insert(why);
                        }
                        Err(why) => return Err(why),
                    }
                }
            }
            let checked = log.check_all(*node, since..=until, found);
            checked.map_err(|missing| unusable.unwrap_or(missing))?;
        }
        Ok(())
    }
}

/// Drops the deletions after which a segment saw the ID again. Returns the number of its last
/// frame.
fn seen_later(
    key: &SegmentKey,
    bytes: Result<Bytes, StoreError>,
    deleted: &mut LateDeletions,
) -> Result<u64, FollowError> {
    let bytes = bytes.map_err(|error| not_fetched(key, error))?;
    let (header, frames) = Frames::of_named(key, &bytes).map_err(|bad| damaged(key, &bad))?;
    let mut last = header.first_seq;
    for frame in frames {
        let frame = frame.map_err(|bad| damaged(key, &bad))?;
        last = frame.seq;
        if frame.op == Op::Add {
            frame.hashes().for_each(|hash| drop_if_later(deleted, hash, frame.ms));
        }
    }
    Ok(last)
}
