//! Whether the folder of a log was restored from an older copy: then the store has frames of this
//! log that are not here, and new frames would get their numbers.

use std::io;

use bloomsday_common::live::head::Head;

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

    /// Refuses changes for good: what this process would acknowledge, the remedy would lose.
    pub(in crate::live) fn refuse_as_older(&self) {
        let folder = self.folder.display();
        let why = format!(
            "the store has frames of the log in {folder} that are not there: if that folder was restored from an \
             older copy, move it away and restart this server, which begins a new log; what was shipped stays in \
             the store"
        );
        self.refuse(why.into(), true);
    }
}
