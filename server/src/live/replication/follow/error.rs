//! [`FollowError`]: why something of another server's log was not read.

use std::fmt::Display;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::SegmentKey;

use super::frames::Gap;
use crate::live::replication::store_call::CallError;
use crate::live::set::SetError;

/// Why something was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error("{0}")]
    Store(#[from] CallError),
    #[error("{segment} cannot be used: {why}; put back a sound copy; it is read again until then")]
    Damaged { segment: String, why: String },
    #[error("`{engine}` has an entry that cannot be used: {why}; its IDs are read from the store")]
    Entry { engine: String, why: String },
    #[error("{0}")]
    Incomplete(String),
    #[error(
        "the frames {first} to {last} of the log {node:016x} are not in the store; it is read again"
    )]
    Missing { node: u64, first: u64, last: u64 },
    #[error("{}", SetError::Memory)]
    Memory,
    #[error("cannot read the log of this server: {0}")]
    OwnLog(String),
}

impl FollowError {
    /// Whether a segment cannot be used, which stops no other.
    pub(super) fn is_of_segment(&self) -> bool {
        let is_gone = |error: &_| matches!(error, CallError::Store(StoreError::NotFound { .. }));
        match self {
            FollowError::Damaged { .. } => true,
            FollowError::Store(error) => is_gone(error),
            _ => false,
        }
    }
}

pub(super) fn refused(refusal: SetError) -> FollowError {
    match refusal {
        SetError::Memory => FollowError::Memory,
        other => FollowError::Incomplete(other.to_string()),
    }
}

/// The error of a segment that did not come: one that is too large is as good as damaged.
pub(super) fn not_fetched(key: &SegmentKey, error: StoreError) -> FollowError {
    match error {
        StoreError::TooManyBytes { .. } => damaged(key, &error),
        other => FollowError::Store(other.into()),
    }
}

pub(super) fn gap_error(node: u64, gap: Gap) -> FollowError {
    let Gap { first, last, why, .. } = gap;
    why.map_or(FollowError::Missing { node, first, last }, FollowError::Incomplete)
}

pub(super) fn too_many(known: usize) -> FollowError {
    FollowError::Incomplete(format!("{known} segments cannot be used: see the log"))
}

/// The error of a segment that cannot be used.
pub(super) fn damaged(key: &SegmentKey, why: &dyn Display) -> FollowError {
    FollowError::Damaged { segment: key.to_string(), why: why.to_string() }
}
