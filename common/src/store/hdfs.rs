//! [`open`]: HDFS by its own protocol, as an object store whose errors are those of the others.
//!
//! HDFS creates a new object atomically, by a rename, and never overwrites one then, but it has no
//! conditional replacement. So pointers must live in another place.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use hdfs_native_object_store::{HdfsObjectStore, HdfsObjectStoreBuilder};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, UploadPart,
};

use crate::random::random;

/// How a NameNode refuses for lack of rights.
const FORBIDDEN: &str = "org.apache.hadoop.security.AccessControlException";

/// How long a NameNode may take for an answer. The client itself waits for ever when one takes the
/// connection and does not answer. It goes on to the other NameNode when a connection fails, which
/// takes two minutes where nothing refuses it.
const MAX_WAIT: Duration = Duration::from_secs(150);
/// How long a write may take, in which the client looks for other DataNodes for two minutes.
const MAX_WRITE: Duration = Duration::from_secs(300);
/// How long what is left of a failed write is deleted at most: the NameNode may be away.
const MAX_DISCARD: Duration = Duration::from_secs(5);

/// The most retries: half a minute, since the pauses grow from 1 to 15 s. With the 15 of the client
/// itself it takes minutes until a dead NameNode is an error.
const MAX_RETRIES: usize = 6;

/// The HDFS at an address without a path. Name services and Kerberos come from the Hadoop
/// configuration that `HADOOP_CONF_DIR` names, the user from `HADOOP_USER_NAME`.
pub(super) fn open(address: &str, max_retries: usize) -> Result<Arc<dyn ObjectStore>> {
    let limits = [("dfs.client.failover.max.attempts", max_retries.min(MAX_RETRIES).to_string())];
    let builder = HdfsObjectStoreBuilder::new().with_url(address).with_config(limits);
    Ok(Arc::new(Hdfs(builder.build()?)))
}

#[derive(Clone, Debug)]
struct Hdfs(HdfsObjectStore);

impl fmt::Display for Hdfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a lack of rights, which the client does not distinguish, and any other without the
/// stack of the NameNode that the client appends.
fn classify(path: &Path, error: Error) -> Error {
    let Error::Generic { source, .. } = error else { return error };
    let text = source.to_string();
    let text = text.split("\n\tat ").next().unwrap_or_default().replace('\n', " ");
    // All that is known of each of them, over pages.
    let text = text.split(": [DatanodeInfoProto").next().unwrap_or_default().to_owned();
    if text.contains(FORBIDDEN) {
        return Error::PermissionDenied { path: path.to_string(), source: text.into() };
    }
    Error::Generic { store: "HDFS", source: text.into() }
}

/// Waits for a call, whose errors are then those of other stores.
async fn limited<T>(
    path: &Path,
    limit: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(done) => done.map_err(|e| classify(path, e)),
        Err(_) => {
            let source = format!("no answer within {} s", limit.as_secs()).into();
            Err(Error::Generic { store: "HDFS", source })
        }
    }
}

/// As [`limited`], for each item of a stream.
fn limited_items<T: Send + 'static>(
    path: Path,
    items: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let next = |(path, mut items): (Path, BoxStream<'static, Result<T>>)| async move {
        let item = limited(&path, MAX_WAIT, async { items.next().await.transpose() }).await;
        item.transpose().map(|item| (item, (path, items)))
    };
    stream::unfold((path, items), next).boxed()
}

/// A name under which a file is written that will be `path`: another one at each try. The client's
/// own names are the same again, and the NameNode refuses one of a file that a killed upload has
/// open, for as long as one of its DataNodes is away.
fn staging(path: &Path) -> Path {
    hidden(path, random())
}

/// The client's own name for a file that will have this new name.
fn client_staging(staged: &Path) -> Path {
    hidden(staged, 1)
}

/// A path in the same folder, with a name that listings leave out.
fn hidden(path: &Path, number: u64) -> Path {
    let mut parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    if let Some(name) = parts.last_mut() {
        *name = format!(".{name}.tmp.{number}");
    }
    parts.into_iter().collect()
}

impl Hdfs {
    /// Deletes what a write may have left if it failed. If that stays, prune deletes it after a day
    /// where blobs and segments are.
    async fn or_discard<T>(&self, staged: &Path, written: Result<T>) -> Result<T> {
        if written.is_err() {
            let (client_staged, client) = (client_staging(staged), &self.0);
            let delete = |path| async move { drop(client.delete(path).await) };
            let both = futures::future::join(delete(staged), delete(&client_staged));
            let _ = tokio::time::timeout(MAX_DISCARD, both).await;
        }
        written
    }

    /// Gives a complete file its name.
    async fn rename_staged(
        &self,
        staged: &Path,
        path: &Path,
        target: RenameTargetMode,
    ) -> Result<()> {
        let options = RenameOptions::new().with_target_mode(target);
        let renamed = limited(path, MAX_WAIT, self.0.rename_opts(staged, path, options)).await;
        self.or_discard(staged, renamed).await
    }
}

/// An upload in parts to a staging name.
#[derive(Debug)]
struct StagedUpload {
    hdfs: Hdfs,
    upload: Box<dyn MultipartUpload>,
    staged: Path,
    path: Path,
    /// Whether it was completed, or that failed: then the client refuses to abort it.
    is_ended: bool,
}

#[async_trait]
impl MultipartUpload for StagedUpload {
    fn put_part(&mut self, bytes: PutPayload) -> UploadPart {
        let (part, path) = (self.upload.put_part(bytes), self.path.clone());
        async move { limited(&path, MAX_WRITE, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.is_ended = true;
        let completed = limited(&self.path, MAX_WRITE, self.upload.complete()).await;
        let put = self.hdfs.or_discard(&self.staged, completed).await?;
        self.hdfs.rename_staged(&self.staged, &self.path, RenameTargetMode::Overwrite).await?;
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        if self.is_ended {
            return Ok(());
        }
        limited(&self.path, MAX_WAIT, self.upload.abort()).await
    }
}

#[async_trait]
impl ObjectStore for Hdfs {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let target = match options.mode {
            PutMode::Create => RenameTargetMode::Create,
            PutMode::Overwrite => RenameTargetMode::Overwrite,
            PutMode::Update(_) => {
                let source =
                    "HDFS cannot replace a record only if it is still the one that was read";
                return Err(Error::NotSupported { source: source.into() });
            }
        };
        let staged = staging(path);
        let options = PutOptions { mode: PutMode::Overwrite, ..options };
        let put = limited(path, MAX_WRITE, self.0.put_opts(&staged, bytes, options)).await;
        let put = self.or_discard(&staged, put).await?;
        self.rename_staged(&staged, path, target).await?;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let staged = staging(path);
        let upload = limited(path, MAX_WAIT, self.0.put_multipart_opts(&staged, options)).await;
        let upload = self.or_discard(&staged, upload).await?;
        let (hdfs, path) = (self.clone(), path.clone());
        Ok(Box::new(StagedUpload { hdfs, upload, staged, path, is_ended: false }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // The client panics when it finds fewer bytes than a moment before: in a file that is
        // replaced, or that somebody still writes.
        let got = AssertUnwindSafe(self.0.get_opts(path, options)).catch_unwind().map(|got| {
            got.unwrap_or_else(|_| {
                let source = "it is being written or replaced".into();
                Err(Error::Generic { store: "HDFS", source })
            })
        });
        let mut got = limited(path, MAX_WAIT, got).await?;
        if let GetResultPayload::Stream(body) = got.payload {
            got.payload = GetResultPayload::Stream(limited_items(path.clone(), body));
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        limited_items(Path::default(), self.0.delete_stream(paths))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        limited_items(prefix.cloned().unwrap_or_default(), self.0.list(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        limited(&path, MAX_WAIT, self.0.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        limited(to, MAX_WRITE, self.0.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        limited(to, MAX_WAIT, self.0.rename_opts(from, to, options)).await
    }
}
