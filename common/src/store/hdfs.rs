//! [`open`]: HDFS by its own protocol, as an object store whose errors are those of the others.
//!
//! HDFS creates a new object atomically, by a rename, and never overwrites one then, but it has no
//! conditional replacement. So pointers must live in another place.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use hdfs_native_object_store::{HdfsObjectStore, HdfsObjectStoreBuilder};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, RenameTargetMode, Result, UploadPart,
};

use crate::random::random;

/// How a NameNode refuses for lack of rights.
const FORBIDDEN: &str = "org.apache.hadoop.security.AccessControlException";

/// The HDFS at an address without a path. Name services and Kerberos come from the Hadoop
/// configuration that `HADOOP_CONF_DIR` names, the user from `HADOOP_USER_NAME`.
pub(super) fn open(address: &str, max_retries: usize) -> Result<Arc<dyn ObjectStore>> {
    // Its own default is 15, with pauses of up to 15 s: minutes until a dead NameNode is an error.
    let limits = [("dfs.client.failover.max.attempts", max_retries.to_string())];
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
    if text.contains(FORBIDDEN) {
        return Error::PermissionDenied { path: path.to_string(), source: text.into() };
    }
    Error::Generic { store: "HDFS", source: text.into() }
}

/// A name under which a file is written that will be `path`: another one at each try. The client's
/// own names are the same again, and the NameNode refuses one of a file that a killed upload has
/// open, for as long as one of its DataNodes is away.
fn staging(path: &Path) -> Path {
    let number = random();
    let mut parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    if let Some(name) = parts.last_mut() {
        *name = format!(".{name}.tmp.{number}");
    }
    parts.into_iter().collect()
}

impl Hdfs {
    /// Gives a complete file its name.
    async fn rename_staged(
        &self,
        staged: &Path,
        path: &Path,
        target: RenameTargetMode,
    ) -> Result<()> {
        let options = RenameOptions::new().with_target_mode(target);
        let renamed = self.0.rename_opts(staged, path, options).await;
        if renamed.is_err() {
            // If it stays, prune deletes it after a day.
            let _ = self.0.delete(staged).await;
        }
        renamed.map_err(|e| classify(path, e))
    }
}

/// An upload in parts to a staging name.
#[derive(Debug)]
struct StagedUpload {
    hdfs: Hdfs,
    upload: Box<dyn MultipartUpload>,
    staged: Path,
    path: Path,
}

#[async_trait]
impl MultipartUpload for StagedUpload {
    fn put_part(&mut self, bytes: PutPayload) -> UploadPart {
        let (part, path) = (self.upload.put_part(bytes), self.path.clone());
        async move { part.await.map_err(|e| classify(&path, e)) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let put = self.upload.complete().await.map_err(|e| classify(&self.path, e))?;
        self.hdfs.rename_staged(&self.staged, &self.path, RenameTargetMode::Overwrite).await?;
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await.map_err(|e| classify(&self.path, e))
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
        let put = self.0.put_opts(&staged, bytes, options).await.map_err(|e| classify(path, e))?;
        self.rename_staged(&staged, path, target).await?;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let staged = staging(path);
        let upload = self.0.put_multipart_opts(&staged, options).await;
        let upload = upload.map_err(|e| classify(path, e))?;
        Ok(Box::new(StagedUpload { hdfs: self.clone(), upload, staged, path: path.clone() }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // The client panics when it finds fewer bytes than a moment before: in a file that is
        // replaced, or that somebody still writes.
        let got = AssertUnwindSafe(self.0.get_opts(path, options)).catch_unwind().await;
        let got = got.unwrap_or_else(|_| {
            let source = "it is being written or replaced".into();
            Err(Error::Generic { store: "HDFS", source })
        });
        got.map_err(|e| classify(path, e))
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deleted = self.0.delete_stream(paths);
        deleted.map(|deleted| deleted.map_err(|e| classify(&Path::default(), e))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        self.0.list(prefix).map(move |object| object.map_err(|e| classify(&path, e))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.0.list_with_delimiter(prefix).await.map_err(|e| classify(&path, e))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await.map_err(|e| classify(to, e))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await.map_err(|e| classify(to, e))
    }
}
