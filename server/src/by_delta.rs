//! Loads a blob by its delta from the one that this server has: the current filter, or the copy in the cache. Any
//! trouble means the full blob, in the same round, and is never an error of the load.

use std::fs::File;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::blob::RawBlob;
use bloomsday_common::delta::{self, Base};
use bloomsday_common::digest::Digest;
use bloomsday_common::error::Error;
use bloomsday_common::key::{BlobKey, DeltaKey};
use bloomsday_common::memory::Buffer;
use bloomsday_common::protocol::{self, Followed, Route};
use bloomsday_common::store::{DeltaRequest, Store};
use futures::FutureExt;

use crate::cache::Cache;
use crate::generation::Generation;

/// The deltas of one filter.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    /// One that could not be used since the last load: it is not fetched again.
    failed: Option<DeltaKey>,
    /// How many could not be used although they were there.
    pub(crate) failures: u64,
}

impl Deltas {
    /// A filter was loaded: a delta that failed may be tried again.
    pub(crate) fn loaded(&mut self) {
        self.failed = None;
    }

    /// The delta to the followed blob cannot be used, and why.
    fn fail(&mut self, delta: &DeltaKey, why: &str) {
        self.failed = Some(delta.clone());
        self.failures += 1;
        tracing::warn!("{why}");
    }
}

/// The blob that this server has.
pub(crate) enum Have {
    Current(Arc<Generation>),
    Copy(BlobKey, File, u64),
}

impl Have {
    /// The current filter, else the copy in the cache.
    pub(crate) async fn find(
        current: Option<Arc<Generation>>,
        cache: Option<&Cache>,
        want: &BlobKey,
    ) -> Option<Have> {
        if let Some(current) = current {
            return Some(Have::Current(current));
        }
        let cache = cache?;
        let key = cache.followed(&want.filter).await?;
        let (file, bytes) = cache.copy(&key).await?;
        Some(Have::Copy(key, file, bytes))
    }

    fn key(&self) -> &BlobKey {
        match self {
            Have::Current(current) => &current.key,
            Have::Copy(key, ..) => key,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Have::Current(current) => current.bytes,
            Have::Copy(.., bytes) => *bytes,
        }
    }
}

/// The current filter or the copy, as a base. It is read on other threads, so it has its own reference.
enum BaseOf {
    Current(Arc<Generation>),
    Copy(File),
}

impl Base for BaseOf {
    fn bytes(&self) -> io::Result<u64> {
        match self {
            BaseOf::Current(current) => current.bytes(),
            BaseOf::Copy(file) => file.bytes(),
        }
    }

    fn copy(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        match self {
            BaseOf::Current(current) => current.copy(offset, to),
            BaseOf::Copy(file) => file.copy(offset, to),
        }
    }
}

/// Fetches and applies the delta from `have` to the followed blob, if there is one. Returns the blob's bytes,
/// with their digest already right, and how many bytes were fetched.
///
/// `fit` checks that there is memory for so many bytes, and returns the spare buffer.
pub(crate) async fn load(
    store: &Store,
    have: Have,
    followed: &Followed,
    deadline: Duration,
    deltas: &mut Deltas,
    fit: impl FnOnce(u64) -> Result<Option<Buffer>, String>,
) -> Option<(RawBlob, u64)> {
    let want = &followed.blob;
    let Route::Delta(delta) = protocol::route(Some(have.key()), want, deltas.failed.as_ref())
    else {
        return None;
    };
    let (from, bytes): (Digest, u64) = (have.key().digest, have.bytes());
    let spare = match fit(bytes) {
        Ok(spare) => spare,
        // The full blob may be smaller; it is refused with this reason otherwise.
        Err(_) => return None,
    };
    let base = match have {
        Have::Current(current) => BaseOf::Current(current),
        Have::Copy(_, file, _) => BaseOf::Copy(file),
    };
    let memory = |bytes| match spare {
        Some(spare) => spare.reuse(bytes),
        None => Buffer::zeroed(bytes),
    };
    let way = DeltaRequest { base, from, to: want.digest };
    let fetching = store.fetch_by_delta(&delta, way, delta::max_bytes(bytes), memory);
    // A panic must not look like a damaged blob.
    let fetching = AssertUnwindSafe(fetching).catch_unwind();
    match tokio::time::timeout(deadline, fetching).await {
        Ok(Ok(Ok(fetched))) => return Some(fetched),
        // Most stores without deltas, and S3 without the right to list.
        Ok(Ok(Err(Error::NotFound { .. } | Error::Forbidden { .. }))) => {}
        Ok(Ok(Err(error))) => deltas.fail(&delta, &error.to_string()),
        Ok(Err(_)) => deltas
            .fail(&delta, &format!("applying {delta} panicked; the full blob takes its place")),
        Err(_) => deltas.fail(
            &delta,
            &format!("{delta} did not arrive in time; the full blob takes its place"),
        ),
    }
    None
}
