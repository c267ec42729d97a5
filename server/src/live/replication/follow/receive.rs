//! What comes by an engine: entries with the segments of other servers, sooner than they are in the store.

use bloomsday_common::key::SegmentKey;
use bloomsday_common::live::segment::{Frames, Header};
use tokio::time::Instant;

use super::{Ahead, FOLLOW_INTERVAL, FollowError, LogFollower};
use crate::live::stream::Entry;

/// For how many rounds an entry of an engine that is out of order is kept. The frames before it are in the store
/// by then, or are lost.
const MAX_ROUNDS_OUT_OF_ORDER: u32 = 5;

impl LogFollower {
    /// Receives the entries that are in the queue, up to one that is out of order.
    pub(super) async fn receive_queued(&mut self) {
        if let Some((entry, rounds)) = self.out_of_order.take() {
            self.receive_or_keep(entry, rounds + 1).await;
        }
        let end = Instant::now() + FOLLOW_INTERVAL;
        while self.out_of_order.is_none() && Instant::now() < end {
            let entry = self.entries.as_mut().and_then(|entries| entries.try_recv().ok());
            let Some(entry) = entry else { break };
            self.receive_or_keep(entry, 0).await;
        }
    }

    /// Applies an entry of the engine. One that is out of order is kept for the next round, and dropped in the end:
    /// its frames come by the store, too.
    pub(super) async fn receive_or_keep(&mut self, entry: Entry, rounds: u32) {
        match self.receive(&entry).await {
            Ok(true) => {}
            Ok(false) if rounds < MAX_ROUNDS_OUT_OF_ORDER => {
                self.out_of_order = Some((entry, rounds))
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(filter = %self.filter, "an entry of the engine: {error}");
            }
        }
    }

    /// Applies a segment that came by an engine. Returns `false` when frames before it are not here yet.
    async fn receive(&mut self, bytes: &[u8]) -> Result<bool, FollowError> {
        let name = || format!("bloomsday:{}", self.filter);
        let damaged = |why: String| FollowError::Damaged(name(), why);
        let (header, frames) = Frames::of_closed(bytes).map_err(|bad| damaged(bad.to_string()))?;
        if Some(header.node) == self.own {
            return Ok(true);
        }
        if header.set != self.set.number() {
            return Err(damaged("it is of another filter".into()));
        }
        let log = self.logs.entry(header.node).or_default();
        // The first frame of a log is its first sight: nothing was before it.
        let next = log.next.or((header.first_seq == 1 && log.head.is_none()).then_some(1));
        if log.is_end_unknown {
            return Ok(true);
        }
        let Some(next) = next.filter(|next| header.first_seq <= *next) else { return Ok(false) };
        let day = self.days().1;
        let Header { node, epoch, first_seq, .. } = header;
        let key = SegmentKey { filter: self.filter.clone(), day, node, epoch, first_seq };
        if let Some(first) = frames.map_while(Result::ok).find(|frame| frame.seq >= next) {
            let ahead = Ahead { last: first.seq, from_ms: first.ms };
            self.ahead.entry(node).or_insert(ahead);
            self.note_what_is_stored();
        }
        let (last, newest_ms) = self.apply(&key, bytes, next, false).await?;
        if let Some(ahead) = self.ahead.get_mut(&node) {
            ahead.last = ahead.last.max(last);
        }
        if let Some(log) = self.logs.get_mut(&header.node) {
            log.next = Some(next.max(last + 1));
            log.newest_ms = log.newest_ms.max(newest_ms);
        }
        Ok(true)
    }
}
