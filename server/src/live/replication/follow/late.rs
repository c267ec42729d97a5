//! Deletions that are read after newer changes of other logs: whether their IDs were seen again is
//! looked up for all of them at once.

use std::pin::pin;

use bloomsday_common::day::Day;
use bloomsday_common::live::segment::{Frames, Op};
use futures::StreamExt;

use super::{FollowError, LogFollower, not_fetched, refused};
use crate::live::replication::segment_fetch::fetch_all;
use crate::live::replication::store_call::in_time;
use crate::live::set::{LateDeletions, drop_if_later};

/// How many segments are fetched at the same time: few, since the reading of a log may hold its
/// own.
const MAX_CONCURRENT_FETCHES: usize = 2;

impl LogFollower {
    /// Hides the IDs of late deletions, but for those that a server saw again. After an error they
    /// stay late.
    ///
    /// Cost: if there are any, a pass over the segments from the day of the oldest one on, and over
    /// the own log.
    pub(super) async fn settle_late_deletions(&self) -> Result<(), FollowError> {
        let mut late = self.set.late_deletions();
        let Some(oldest) = late.values().min().copied() else { return Ok(()) };
        self.drop_seen_later(Day::at_unix_ms(oldest), &mut late).await?;
        let set = self.set.clone();
        // The own log has what is not in the store yet.
        let own = move || set.drop_added_later(&mut late).map(|()| late);
        let late = tokio::task::spawn_blocking(own).await;
        let late = late.unwrap_or_else(|_| Err("a panic".into()));
        self.set.hide_late(&late.map_err(FollowError::OwnLog)?).map_err(refused)
    }

    /// Drops the deletions after which another server saw the ID again, as far as the store knows.
    async fn drop_seen_later(
        &self,
        oldest: Day,
        deleted: &mut LateDeletions,
    ) -> Result<(), FollowError> {
        let nodes: Vec<u64> = self.logs.keys().copied().collect();
        for day in oldest.through(*self.days().end()) {
            for node in &nodes {
                let listed =
                    in_time(self.store.segments_of(&self.filter, day, *node, None)).await?;
                let mut fetched = pin!(fetch_all(&self.store, listed, MAX_CONCURRENT_FETCHES));
                while let Some((key, bytes)) = in_time(async { Ok(fetched.next().await) }).await? {
                    let bytes = bytes.map_err(|error| not_fetched(&key, error))?;
                    // One that is damaged is named where it is read in its order.
                    let Ok((_, frames)) = Frames::of_named(&key, &bytes) else { continue };
                    let seen = frames.map_while(Result::ok).filter(|frame| frame.op == Op::Add);
                    for frame in seen {
                        for hash in frame.hashes() {
                            drop_if_later(deleted, hash, frame.ms);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
