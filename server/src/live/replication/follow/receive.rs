//! What comes by an engine: entries with the segments of other servers, sooner than they are in the
//! store.

use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::key::SegmentKey;
use bloomsday_common::live::segment::{Frames, Header};
use tokio::time::Instant;

use super::super::access::StreamTask;
use super::inbox::{EngineInbox, OutOfOrder};
use super::{FOLLOW_INTERVAL, FollowError, LogFollower};
use crate::live::stream::{Entry, FromEngine};

/// For how many rounds an entry of an engine that is out of order is kept. The frames before it are
/// in the store by then, or are lost.
const MAX_ROUNDS_OUT_OF_ORDER: u32 = 5;
/// How long a new decider waits for an engine that it cannot read.
const MAX_ENGINE_WAIT: Duration = Duration::from_secs(10);

/// What became of an entry.
enum Received {
    Applied,
    /// Frames of this log before it are not here yet.
    OutOfOrder(u64),
}

impl LogFollower {
    /// Receives the entries that are out of order, and those in the queue.
    pub(super) async fn receive_queued(&mut self) {
        let early = self.engine.as_mut().map_or_else(Vec::new, EngineInbox::take_out_of_order);
        for OutOfOrder { entry, rounds } in early {
            self.receive_or_keep(entry, rounds + 1).await;
        }
        let end = Instant::now() + FOLLOW_INTERVAL;
        while Instant::now() < end {
            let received = self.engine.as_mut().and_then(EngineInbox::try_next);
            let Some(received) = received else { break };
            self.receive_next(received).await;
        }
    }

    /// Takes what was read of the engine.
    pub(super) async fn receive_next(&mut self, received: FromEngine) {
        match received {
            FromEngine::Entry(entry) => self.receive_or_keep(entry, 0).await,
            FromEngine::End(at) => self.engine.iter_mut().for_each(|inbox| inbox.note_end(at)),
        }
    }

    /// Whether all that was in the engine when this epoch began is here. An engine that cannot be
    /// read is waited for only so long.
    pub(super) fn has_read_engine(&self) -> bool {
        let since = self.epoch_since;
        self.engine.as_ref().is_none_or(|inbox| inbox.is_read_since(since))
            || (self.access.has_stream_error(StreamTask::Read)
                && since.elapsed() >= MAX_ENGINE_WAIT)
    }

    /// Applies an entry of the engine. One that is out of order is kept for the next rounds, and
    /// dropped in the end: if its frames come to the store, they are read from there.
    async fn receive_or_keep(&mut self, entry: Entry, rounds: u32) {
        match self.receive(&entry).await {
            Ok(Received::Applied) => {}
            Ok(Received::OutOfOrder(node)) => {
                let log = self.logs.entry(node).or_default();
                match &mut self.engine {
                    Some(inbox) if rounds < MAX_ROUNDS_OUT_OF_ORDER && !log.is_broken_in_engine => {
                        inbox.keep(OutOfOrder { entry, rounds })
                    }
                    // Later segments of this log are not waited for either.
                    _ => log.is_broken_in_engine = true,
                }
            }
            Err(error) => {
                tracing::warn!(filter = %self.filter, "{error}");
            }
        }
    }

    /// Applies a segment that came by an engine, unless frames before it are not here yet.
    async fn receive(&mut self, bytes: &[u8]) -> Result<Received, FollowError> {
        let engine = || format!("bloomsday:{}", self.filter);
        let damaged = |why: String| FollowError::Entry { engine: engine(), why };
        let (header, frames) = Frames::of_closed(bytes).map_err(|bad| damaged(bad.to_string()))?;
        if Some(header.node) == self.own {
            return Ok(Received::Applied);
        }
        if header.set != self.set.number() {
            return Err(damaged("it is of another filter".into()));
        }
        let log = self.logs.entry(header.node).or_default();
        if log.frames.is_end_unknown() {
            return Ok(Received::Applied);
        }
        // The first frame of a log is its first sight: nothing was before it.
        let begin = (header.first_seq == 1 && log.head.is_none()).then_some(1);
        let Some(next) = log.frames.next().or(begin).filter(|next| header.first_seq <= *next)
        else {
            return Ok(Received::OutOfOrder(header.node));
        };
        log.is_broken_in_engine = false;
        let first_ms = frames.clone().find_map(Result::ok).map(|frame| frame.ms);
        let day = first_ms.map_or_else(|| Day::of(self.clock.now()), Day::at_unix_ms);
        let Header { node, epoch, first_seq, .. } = header;
        let key = SegmentKey { filter: self.filter.clone(), day, node, epoch, first_seq };
        let mut new = frames.map_while(Result::ok).skip_while(|frame| frame.seq < next);
        if let Some(first) = new.next() {
            let last = new.last().map_or(first.seq, |frame| frame.seq);
            self.ahead.add(node, last, first.ms);
            self.note_what_is_stored();
        }
        self.apply(&key, bytes).await?;
        // This entry is applied. If they cannot be settled now, the end of a round says why.
        let _ = self.bound_late_deletions().await;
        Ok(Received::Applied)
    }
}
