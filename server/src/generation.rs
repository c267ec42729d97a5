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
}
