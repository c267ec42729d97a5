//! Whether a log and what the store has of it agree. They do not if the log's folder was restored
//! from an older copy: the store has frames that are not here, and new ones would get their
//! numbers.

use std::io;
use std::sync::atomic::Ordering;

use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::{Frames, Header};

use super::Log;
use super::tail::Tail;

impl Log {
    /// Whether the store has more of this log than was here when it was opened, or other frames,
    /// according to its head in the store.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(in crate::live) fn is_older_than(&self, head: &Head) -> io::Result<bool> {
        // What this process adds does not count: the numbers would be those of other frames. Unless
        // this process has written the head.
        if head.seq > self.opened_seq {
            return Ok(head.created_ms != Some(self.identity.created_ms));
        }
        let (Some(created_ms), 1..) = (head.created_ms, head.seq) else { return Ok(false) };
        let last = Tail::new(&self.folder).read(head.seq, head.seq)?;
        Ok(last.is_some_and(|piece| piece.header.created_ms != created_ms))
    }

    /// Whether this frame was here when the log was opened.
    pub(in crate::live) fn was_opened_with(&self, seq: u64) -> bool {
        seq <= self.opened_seq
    }

    /// The epoch of the process that wrote a frame; `None` if it is not here.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(in crate::live) fn epoch_of(&self, seq: u64) -> io::Result<Option<u32>> {
        let piece = Tail::new(&self.folder).read(seq, seq)?;
        Ok(piece.map(|piece| piece.header.epoch))
    }

    /// The number of the last frame of a sound segment in the store, if all its frames are synced
    /// here. A process that was killed may have shipped more than its head says, in segments that
    /// end at other frames.
    ///
    /// Cost: a pass over the file with these frames.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(in crate::live) fn last_of_same(
        &self,
        header: &Header,
        frames: Frames<'_>,
    ) -> io::Result<Option<u64>> {
        let theirs: Vec<_> = frames.map_while(Result::ok).collect();
        let Some(last) = theirs.last().map(|frame| frame.seq) else { return Ok(None) };
        if last > self.synced_seq() {
            return Ok(None);
        }
        let (mut tail, mut left) = (Tail::new(&self.folder), &theirs[..]);
        while let Some(next) = left.first().map(|frame| frame.seq) {
            let Some(piece) = tail.read(next, last)? else {
                return Err(io::Error::other(format!("frame {next} is not there")));
            };
            if (Header { first_seq: header.first_seq, ..piece.header }) != *header {
                return Ok(None);
            }
            let ours = piece.frames().map_while(Result::ok).skip_while(|frame| frame.seq < next);
            for frame in ours {
                match left.split_first() {
                    Some((first, rest)) if first.bytes() == frame.bytes() => left = rest,
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(last))
    }

    /// Refuses changes for good: what this process would acknowledge, the remedy would lose.
    /// Returns the remedy.
    pub(in crate::live) fn refuse_as_older(&self) -> String {
        let folder = self.folder.display();
        let remedy = format!(
            "if {folder} was restored from an older copy, move it away and restart this server, as a standby if \
             another one decides by now: it begins a new log, and what was shipped stays in the store"
        );
        let why =
            format!("the store has frames of the log in {folder} that are not there: {remedy}");
        self.is_older_copy.store(true, Ordering::Relaxed);
        self.refuse(why.into(), true);
        remedy
    }

    /// Whether [`Log::refuse_as_older`] was called.
    pub(in crate::live) fn is_older_copy(&self) -> bool {
        self.is_older_copy.load(Ordering::Relaxed)
    }
}
