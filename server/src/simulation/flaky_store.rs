//! [`FlakyStore`]: an object store in memory, with the faults that a test sets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

/// How the store fails reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// 5xx, refused connections, and the like.
    Fails,
    /// 403.
    Forbids,
    /// No response ever comes.
    Hangs,
    /// The response comes after this time.
    Slow(Duration),
    /// The body ends in the middle, without an error.
    Cuts,
    /// The connection breaks in the middle of the body.
    Resets,
    /// Every other call fails.
    Flaky,
    /// Records are read, blobs fail.
    HidesBlobs,
    /// Reading a blob panics.
    Panics,
}

/// A store with a fault, or with none.
#[derive(Debug)]
pub(crate) struct FlakyStore {
    objects: InMemory,
    fault: Mutex<Fault>,
    /// Faults of single filters.
    own: Mutex<BTreeMap<String, Fault>>,
    reads: AtomicU64,
    /// How often each filter's pin was read.
    pins: Mutex<BTreeMap<String, u64>>,
}

impl FlakyStore {
    pub(crate) fn new() -> FlakyStore {
        let (own, reads, pins) = Default::default();
        FlakyStore { objects: InMemory::new(), fault: Mutex::new(Fault::None), own, reads, pins }
    }

    /// Sets the fault of one filter. It overrides that of the store.
    pub(crate) fn set_fault_of(&self, filter: &str, fault: Fault) {
        self.own.lock().unwrap().insert(filter.to_owned(), fault);
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub(crate) fn fault(&self) -> Fault {
        *self.fault.lock().unwrap()
    }

    /// How often a blob, or a part of one, was read.
    pub(crate) fn blob_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How often a pin was read, which each poll does once.
    pub(crate) fn polls(&self) -> u64 {
        self.pins.lock().unwrap().values().sum()
    }

    pub(crate) fn polls_of(&self, filter: &str) -> u64 {
        self.pins.lock().unwrap().get(filter).copied().unwrap_or_default()
    }

    /// Writes without a fault, as another process does.
    pub(crate) async fn write(&self, key: &str, bytes: impl Into<Bytes>) {
        self.objects.put(&Path::from(key), bytes.into().into()).await.unwrap();
    }

    pub(crate) async fn remove(&self, key: &str) {
        // The object may be missing already.
        let _ = self.objects.delete(&Path::from(key)).await;
    }
}

fn failure(what: &str) -> Error {
    Error::Generic { store: "flaky", source: what.into() }
}

impl fmt::Display for FlakyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flaky")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FlakyStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_blob = location.as_ref().contains("/blobs/");
        let (filter, rest) = location.as_ref().split_once('/').unwrap_or_default();
        if rest == "pin" {
            *self.pins.lock().unwrap().entry(filter.to_owned()).or_default() += 1;
        }
        let nth = if is_blob && !options.head {
            self.reads.fetch_add(1, Ordering::Relaxed)
        } else {
            self.polls()
        };
        let own = self.own.lock().unwrap().get(filter).copied();
        let fault = own.unwrap_or_else(|| self.fault());
        match fault {
            Fault::Fails => return Err(failure("503 Slow Down")),
            Fault::HidesBlobs if is_blob => return Err(failure("503 Slow Down")),
            Fault::Flaky if nth % 2 == 0 => return Err(failure("connection refused")),
            Fault::Forbids => {
                let (path, source) = (location.to_string(), "403 Forbidden".into());
                return Err(Error::PermissionDenied { path, source });
            }
            Fault::Hangs => std::future::pending().await,
            Fault::Slow(by) => tokio::time::sleep(by).await,
            Fault::Panics if is_blob => panic!("the store's client has a bug"),
            _ => {}
        }
        let head = options.head;
        let mut got = self.objects.get_opts(location, options).await?;
        if head || !matches!(fault, Fault::Cuts | Fault::Resets) {
            return Ok(got);
        }
        let GetResultPayload::Stream(mut body) = got.payload else { unreachable!("in memory") };
        let all = body.next().await.expect("one piece")?;
        let mut pieces = vec![Ok(all.slice(..all.len() / 2))];
        if fault == Fault::Resets {
            pieces.push(Err(failure("connection reset by peer")));
        }
        got.payload = GetResultPayload::Stream(futures::stream::iter(pieces).boxed());
        Ok(got)
    }

    async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(to, bytes, how).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(to, how).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, how).await
    }
}
