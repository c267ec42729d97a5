//! [`FaultyStore`]: a store that at the `n`th call fails, delays, cuts a body short, stores half an
//! upload, or does the call and reports an error.
//!
//! The only place outside `common/src/store` that names object_store, so that tests need not.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};

/// How long a late response takes.
const RESPONSE_DELAY: Duration = Duration::from_millis(20);

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and an error is reported: a 503, a reset connection.
    Down,
    /// Nothing is written, and an error is reported; reads succeed: a quota, a full disk.
    Full,
    /// Nothing is done for lack of rights: a 403.
    Forbidden,
    /// "There is nothing there", though there is: a 404.
    Missing,
    /// The call succeeds, but late.
    Late,
    /// No response at all.
    Silent,
    /// The body ends half-way, without an error.
    Short,
    /// The body breaks off half-way with an error.
    Broken,
    /// The call is done, and an error is reported: a time-out, a lost response.
    Unsaid,
    /// A write is done, and a failed condition is reported: as a client's own retry receives it.
    Conflict,
    /// A write is not done, and a failed condition is reported, though the condition holds: as a
    /// status 409 of S3.
    Refused,
    /// Half of a blob is stored, and success is reported.
    Torn,
    /// Somebody uploads a blob again while it is read.
    Replaced,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 13] = [
        Fault::Down,
        Fault::Full,
        Fault::Forbidden,
        Fault::Missing,
        Fault::Late,
        Fault::Silent,
        Fault::Short,
        Fault::Broken,
        Fault::Unsaid,
        Fault::Conflict,
        Fault::Refused,
        Fault::Torn,
        Fault::Replaced,
    ];

    /// Whether the fault applies to such a call; other calls are not counted.
    fn applies_to(self, call: Call, path: &Path) -> bool {
        match self {
            Fault::Down | Fault::Forbidden | Fault::Late | Fault::Silent => true,
            Fault::Full => !matches!(call, Call::Get | Call::Head | Call::List),
            Fault::Missing => matches!(call, Call::Get | Call::Head),
            Fault::Short | Fault::Broken => call == Call::Get,
            Fault::Replaced => call == Call::Get && path.as_ref().contains("/blobs/"),
            Fault::Unsaid => {
                matches!(call, Call::Put | Call::Part | Call::Complete | Call::Delete)
            }
            Fault::Conflict | Fault::Refused => call == Call::Put,
            Fault::Torn => {
                matches!(call, Call::Put | Call::Part) && path.as_ref().contains("/blobs/")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Get,
    Head,
    Put,
    Open,
    Part,
    Complete,
    List,
    Delete,
    Copy,
}

/// A store in memory with faults that a test sets.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<InMemory>,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    fault: Option<Fault>,
    /// The first call that fails, and how many do.
    at: u64,
    times: u64,
    /// Only calls on a key that contains this.
    only: &'static str,
    calls: u64,
    failed: Vec<String>,
}

impl Default for FaultyStore {
    fn default() -> FaultyStore {
        FaultyStore::over(InMemory::new())
    }
}

impl FaultyStore {
    fn over(inner: InMemory) -> FaultyStore {
        FaultyStore { inner: Arc::new(inner), plan: Arc::default() }
    }

    /// A copy of everything stored, without a fault.
    pub fn fork(&self) -> FaultyStore {
        FaultyStore::over(self.inner.fork())
    }

    /// From now on `times` calls fail: those with the numbers `at`, `at + 1`, … of the calls to
    /// which the fault applies.
    pub fn set_fault(&self, fault: Fault, at: u64, times: u64) {
        self.set_fault_of("", fault, at, times);
    }

    /// [`FaultyStore::set_fault`], but only calls on keys that contain `only` count.
    pub fn set_fault_of(&self, only: &'static str, fault: Fault, at: u64, times: u64) {
        let mut plan = self.plan.lock().expect("no test panics while it holds the plan");
        *plan = Plan { fault: Some(fault), at, times, only, ..Plan::default() };
    }

    /// Removes the fault. Returns the calls that failed.
    pub fn clear_fault(&self) -> Vec<String> {
        let mut plan = self.plan.lock().expect("no test panics while it holds the plan");
        std::mem::take(&mut *plan).failed
    }

    /// The store as the code under test sees it.
    pub fn store(&self) -> Store {
        Store::over(Arc::new(self.clone()), "faulty://store")
    }

    /// What is stored at a key, whatever the plan.
    pub async fn stored(&self, key: &str) -> Option<Bytes> {
        let got = self.inner.get(&Path::from(key)).await.ok()?;
        Some(got.bytes().await.expect("memory is readable"))
    }

    /// Stores an object, whatever the plan.
    pub async fn place(&self, key: &str, bytes: Bytes) {
        self.inner.put(&Path::from(key), bytes.into()).await.expect("memory takes it");
    }

    /// The fault of this call, if it has one.
    fn strikes(&self, call: Call, path: &Path) -> Option<Fault> {
        let mut plan = self.plan.lock().expect("no test panics while it holds the plan");
        let fault = plan.fault?;
        if !fault.applies_to(call, path) || !path.as_ref().contains(plan.only) {
            return None;
        }
        let turn = plan.calls;
        plan.calls += 1;
        if turn < plan.at || turn - plan.at >= plan.times {
            return None;
        }
        plan.failed.push(format!("{call:?} {path}"));
        Some(fault)
    }

    /// What happens before the call is done: an error, a delay, or nothing.
    async fn before(fault: Option<Fault>, path: &Path) -> Result<()> {
        match fault {
            Some(Fault::Late) => tokio::time::sleep(RESPONSE_DELAY).await,
            Some(Fault::Silent) => std::future::pending().await,
            Some(fault) => return refusal(fault, path).map_or(Ok(()), Err),
            None => {}
        }
        Ok(())
    }
}

/// The error of a call that is not done.
fn refusal(fault: Fault, path: &Path) -> Option<Error> {
    let (path, source) = (path.to_string(), "the store fails".into());
    match fault {
        Fault::Down | Fault::Full => Some(down()),
        Fault::Forbidden => Some(Error::PermissionDenied { path, source }),
        Fault::Missing => Some(Error::NotFound { path, source }),
        Fault::Refused | Fault::Replaced => Some(Error::Precondition { path, source }),
        _ => None,
    }
}

fn down() -> Error {
    Error::Generic { store: "faulty", source: "the store fails".into() }
}

/// What a write that was done reports.
fn after<T>(fault: Option<Fault>, path: &Path, mode: Option<&PutMode>, done: T) -> Result<T> {
    let (path, source) = (path.to_string(), "the store fails".into());
    match fault {
        Some(Fault::Unsaid) => Err(down()),
        Some(Fault::Conflict) if mode == Some(&PutMode::Create) => {
            Err(Error::AlreadyExists { path, source })
        }
        Some(Fault::Conflict) => Err(Error::Precondition { path, source }),
        _ => Ok(done),
    }
}

fn half(payload: PutPayload) -> PutPayload {
    let bytes = Bytes::from(payload);
    bytes.slice(..bytes.len() / 2).into()
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        path: &Path,
        mut payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.strikes(Call::Put, path);
        FaultyStore::before(fault, path).await?;
        if fault == Some(Fault::Torn) {
            payload = half(payload);
        }
        let mode = options.mode.clone();
        let done = self.inner.put_opts(path, payload, options).await?;
        after(fault, path, Some(&mode), done)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        FaultyStore::before(self.strikes(Call::Open, path), path).await?;
        let upload = self.inner.put_multipart_opts(path, options).await?;
        Ok(Box::new(FaultyUpload { upload, path: path.clone(), faulty: self.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let call = if options.head { Call::Head } else { Call::Get };
        let fault = self.strikes(call, path);
        FaultyStore::before(fault, path).await?;
        let got = self.inner.get_opts(path, options).await?;
        if !matches!(fault, Some(Fault::Short | Fault::Broken)) {
            return Ok(got);
        }
        let GetResult { meta, range, attributes, extensions, .. } = &got;
        let (meta, range) = (meta.clone(), range.clone());
        let (attributes, extensions) = (attributes.clone(), extensions.clone());
        let full = got.bytes().await?;
        let mut body = vec![Ok(full.slice(..full.len() / 2))];
        if fault == Some(Fault::Broken) {
            body.push(Err(down()));
        }
        let payload = GetResultPayload::Stream(stream::iter(body).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let faulty = self.clone();
        let delete = move |path: Result<Path>| {
            let faulty = faulty.clone();
            async move {
                let path = path?;
                let fault = faulty.strikes(Call::Delete, &path);
                FaultyStore::before(fault, &path).await?;
                faulty.inner.delete(&path).await?;
                after(fault, &path, None, path.clone())
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        let fault = self.strikes(Call::List, &path);
        let listed = self.inner.list(prefix);
        let begin = async move {
            match FaultyStore::before(fault, &path).await {
                Ok(()) => listed,
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        };
        begin.into_stream().flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        FaultyStore::before(self.strikes(Call::List, &path), &path).await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        FaultyStore::before(self.strikes(Call::Copy, to), to).await?;
        self.inner.copy_opts(from, to, options).await
    }
}

/// An upload in parts, through the same plan.
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    path: Path,
    faulty: FaultyStore,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, mut data: PutPayload) -> UploadPart {
        let fault = self.faulty.strikes(Call::Part, &self.path);
        if fault == Some(Fault::Torn) {
            data = half(data);
        }
        let (part, path) = (self.upload.put_part(data), self.path.clone());
        let call = async move {
            FaultyStore::before(fault, &path).await?;
            part.await?;
            after(fault, &path, None, ())
        };
        call.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.faulty.strikes(Call::Complete, &self.path);
        FaultyStore::before(fault, &self.path).await?;
        let done = self.upload.complete().await?;
        after(fault, &self.path, None, done)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

impl fmt::Debug for FaultyUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an upload to {}", self.path)
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}
