//! Loads a blob by its delta from the one that this server has: the current filter, or the copy in
//! the cache. Any trouble means the full blob, in the same round, and is never an error of the
//! load.

use std::fs::File;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::blob::RawBlob;
use bloomsday_common::delta::{self, Base};
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
pub(crate) struct LocalBlob {
    key: BlobKey,
    bytes: u64,
    content: LocalContent,
}

/// What a delta is applied to. Other threads read it, so it has its own reference.
enum LocalContent {
    Current(Arc<Generation>),
    Copy(File),
}

impl LocalBlob {
    /// The current filter, else the copy in the cache.
    pub(crate) async fn find(
        current: Option<Arc<Generation>>,
        cache: Option<&Cache>,
        want: &BlobKey,
    ) -> Option<LocalBlob> {
        if let Some(current) = current {
            let (key, bytes) = (current.key.clone(), current.bytes);
            return Some(LocalBlob { key, bytes, content: LocalContent::Current(current) });
        }
        let cache = cache?;
        let key = cache.followed(&want.filter).await?.blob;
        let (file, bytes) = cache.copy(&key).await?;
        Some(LocalBlob { key, bytes, content: LocalContent::Copy(file) })
    }
}

impl Base for LocalContent {
    fn bytes(&self) -> io::Result<u64> {
        match self {
            LocalContent::Current(current) => current.bytes(),
            LocalContent::Copy(file) => file.bytes(),
        }
    }

    fn copy(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        match self {
            LocalContent::Current(current) => current.copy(offset, to),
            LocalContent::Copy(file) => file.copy(offset, to),
        }
    }
}

/// Fetches the delta from `have` to the followed blob, if there is one, and applies it. Returns the
/// blob's bytes, with their digest already right, and how many bytes were fetched.
///
/// `fit` is called only if there is a delta. It checks that there is memory for that many bytes,
/// and returns the spare buffer; an error means the full blob.
pub(crate) async fn load(
    store: &Store,
    have: LocalBlob,
    followed: &Followed,
    deadline: Duration,
    deltas: &mut Deltas,
    fit: impl FnOnce(u64) -> Result<Option<Buffer>, String>,
) -> Option<(RawBlob, u64)> {
    let LocalBlob { key, bytes, content: base } = have;
    let want = &followed.blob;
    let Route::Delta(delta) = protocol::route(Some(&key), want, deltas.failed.as_ref()) else {
        return None;
    };
    let fetching = async {
        let arriving = store.open_delta(&delta, delta::max_bytes(bytes)).await?;
        let way = DeltaRequest { base, from: key.digest, to: want.digest };
        // The full blob is as large: its load is refused for the same reason, and reports it.
        let Ok(spare) = fit(bytes) else { return Ok(None) };
        arriving.apply(way, move |bytes| Buffer::reuse(spare, bytes)).await.map(Some)
    };
    // A panic must not look like a damaged blob.
    let fetching = AssertUnwindSafe(fetching).catch_unwind();
    match tokio::time::timeout(deadline, fetching).await {
        Ok(Ok(Ok(fetched))) => return fetched,
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
