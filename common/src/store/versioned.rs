//! A record as it was read: its content, and what a conditional write is conditioned on.

use bytes::Bytes;
use object_store::UpdateVersion;

use crate::protocol::RecordState;

/// A record as it was read, and what a conditional write is conditioned on.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    /// What was there.
    pub state: RecordState<T>,
    /// Exactly what was read.
    pub version: SeenVersion,
}

/// Exactly what a read of a record found. Two are equal when nothing changed in between.
#[derive(Clone, Debug)]
pub struct SeenVersion(Option<Snapshot>);

#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) bytes: Bytes,
    pub(super) tag: UpdateVersion,
}

impl SeenVersion {
    pub(super) fn absent() -> SeenVersion {
        SeenVersion(None)
    }

    pub(super) fn of(snapshot: Snapshot) -> SeenVersion {
        SeenVersion(Some(snapshot))
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.0.as_ref()
    }

    /// The bytes that were there.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        self.0.as_ref().map(|snapshot| &snapshot.bytes)
    }
}

impl PartialEq for SeenVersion {
    /// By content: a backend may give a new tag to the same bytes, which changes nothing.
    fn eq(&self, other: &SeenVersion) -> bool {
        self.bytes() == other.bytes()
    }
}
