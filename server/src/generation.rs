//! [`Generation`]: one loaded filter, with the header and the key of its blob.

use bloomsday_common::blob::Header;
use bloomsday_common::filter::Filter;
use bloomsday_common::key::BlobKey;
use jiff::Timestamp;

/// One loaded filter in one process.
pub(crate) struct Generation {
    pub(crate) key: BlobKey,
    pub(crate) header: Header,
    pub(crate) filter: Filter,
    pub(crate) bytes: u64,
    /// How many of its bytes are in huge pages, where the kernel reports it.
    pub(crate) huge_bytes: Option<u64>,
    pub(crate) loaded_at: Timestamp,
    /// How it came.
    pub(crate) via: Via,
    /// How many bytes were fetched from the store for it.
    pub(crate) bytes_fetched: u64,
}

impl AsRef<[u8]> for Generation {
    /// All bytes of its blob.
    fn as_ref(&self) -> &[u8] {
        self.filter.memory()
    }
}

/// How a filter came to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// As a full blob of the store.
    Full,
    /// As a delta of the store.
    Delta,
    /// From the local cache alone.
    Cache,
}

impl Via {
    /// The name in JSON and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Via::Full => "full",
            Via::Delta => "delta",
            Via::Cache => "cache",
        }
    }
}
