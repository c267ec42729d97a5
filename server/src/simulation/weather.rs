//! [`Weather`]: an object store in memory that is as well or as ill as a test wants.

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

/// What the store does to those who read from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sky {
    Fine,
    /// 5xx, refused connections, and the like.
    Fails,
    /// 403.
    Forbids,
    /// No answer ever comes.
    Hangs,
    /// An answer comes after so long.
    Slow(Duration),
    /// The body ends in the middle as if that were its end.
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

/// A store under a sky.
#[derive(Debug)]
pub(crate) struct Weather {
    objects: InMemory,
    sky: Mutex<Sky>,
    /// The filters that have a sky of their own.
    own: Mutex<BTreeMap<String, Sky>>,
    reads: AtomicU64,
    /// How often each filter's pin was looked for.
    pins: Mutex<BTreeMap<String, u64>>,
}

impl Weather {
    pub(crate) fn new() -> Weather {
        let (own, reads, pins) = Default::default();
        Weather { objects: InMemory::new(), sky: Mutex::new(Sky::Fine), own, reads, pins }
    }

    /// From now on all others' weather is not this filter's.
    pub(crate) fn turn_only(&self, filter: &str, sky: Sky) {
        self.own.lock().unwrap().insert(filter.to_owned(), sky);
    }

    pub(crate) fn turn(&self, sky: Sky) {
        *self.sky.lock().unwrap() = sky;
    }

    pub(crate) fn sky(&self) -> Sky {
        *self.sky.lock().unwrap()
    }

    /// How often a blob, or a part of one, was asked for.
    pub(crate) fn blob_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How often a pin was looked for, which each look does once.
    pub(crate) fn looks(&self) -> u64 {
        self.pins.lock().unwrap().values().sum()
    }

    pub(crate) fn looks_of(&self, filter: &str) -> u64 {
        self.pins.lock().unwrap().get(filter).copied().unwrap_or_default()
    }

    /// Writes past the weather: what others do to the store.
    pub(crate) async fn write(&self, key: &str, bytes: impl Into<Bytes>) {
        self.objects.put(&Path::from(key), bytes.into().into()).await.unwrap();
    }

    pub(crate) async fn remove(&self, key: &str) {
        // What is not there need not go.
        let _ = self.objects.delete(&Path::from(key)).await;
    }
}

fn failure(what: &str) -> Error {
    Error::Generic { store: "weather", source: what.into() }
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("weather")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Weather {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_blob = location.as_ref().contains("/blobs/");
        let (filter, rest) = location.as_ref().split_once('/').unwrap_or_default();
        if rest == "pin" {
            *self.pins.lock().unwrap().entry(filter.to_owned()).or_default() += 1;
        }
        let nth = match is_blob && !options.head {
            true => self.reads.fetch_add(1, Ordering::Relaxed),
            false => self.looks(),
        };
        let own = self.own.lock().unwrap().get(filter).copied();
        let sky = own.unwrap_or_else(|| self.sky());
        match sky {
            Sky::Fails => return Err(failure("503 Slow Down")),
            Sky::HidesBlobs if is_blob => return Err(failure("503 Slow Down")),
            Sky::Flaky if nth % 2 == 0 => return Err(failure("connection refused")),
            Sky::Forbids => {
                let (path, source) = (location.to_string(), "403 Forbidden".into());
                return Err(Error::PermissionDenied { path, source });
            }
            Sky::Hangs => std::future::pending().await,
            Sky::Slow(by) => tokio::time::sleep(by).await,
            Sky::Panics if is_blob => panic!("the store's client has a bug"),
            _ => {}
        }
        let head = options.head;
        let mut got = self.objects.get_opts(location, options).await?;
        if head || !matches!(sky, Sky::Cuts | Sky::Resets) {
            return Ok(got);
        }
        let GetResultPayload::Stream(mut body) = got.payload else { unreachable!("in memory") };
        let whole = body.next().await.expect("one piece")?;
        let mut pieces = vec![Ok(whole.slice(..whole.len() / 2))];
        if sky == Sky::Resets {
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
