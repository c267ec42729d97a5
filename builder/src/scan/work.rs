//! [`Work`]: a fetched piece of a column, to be decoded.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::chunk::ChunkPiece;
use super::footer::FilePlan;
use crate::error::Error;

/// A fetched piece of a row group's column.
pub(super) struct Work {
    pub(super) plan: Arc<FilePlan>,
    /// The number of the row group.
    pub(super) group: usize,
    pub(super) piece: ChunkPiece,
    /// Its share of the bytes in flight.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Work {
    /// Its place in the file, for error messages.
    pub(super) fn place(&self) -> String {
        let (group, own) = (self.group, &self.piece.range);
        if *own == self.plan.chunks[group].range {
            return format!("row group {group}");
        }
        format!("row group {group}, from byte {} of the file on", own.start)
    }

    pub(super) fn corrupt(&self, why: impl std::fmt::Display) -> Error {
        self.plan.corrupt(self.place(), why)
    }
}
