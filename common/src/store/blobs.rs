//! Blobs of a [`Store`]: listed, looked up, and uploaded in parts.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use object_store::{ObjectMeta, WriteMultipart};

use super::Store;
use super::objects::{Objects, uploaded};
use crate::blob::{EncodedBlob, StreamedBlob};
use crate::crash_point::crash_point;
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, BlobKey, FilterName};

/// The size of one upload part and of one ranged download. S3 wants equal parts of at least 5 MiB.
pub(super) const TRANSFER_BYTES: usize = 8 << 20;
/// The most parts that an upload may have on S3: a larger blob has larger parts.
const MAX_PARTS: u64 = 10_000;
/// How many parts are transferred at the same time.
pub(super) const MAX_CONCURRENT_TRANSFERS: usize = 4;
/// A blob larger than this is not loaded: 2^32 blocks of 64 bytes and a header.
pub const MAX_BLOB_BYTES: u64 = (1 << 38) + (1 << 20);

/// What a store says of a blob.
#[derive(Clone, Copy, Debug)]
pub struct BlobInfo {
    /// Its size.
    pub bytes: u64,
    /// When it was uploaded, by the store's clock.
    pub uploaded: Timestamp,
}

impl Store {
    /// The blobs of a filter, or of one of its days, oldest day first. Cost: a listing.
    ///
    /// # Errors
    /// The store's.
    pub async fn blobs(
        &self,
        filter: &FilterName,
        day: Option<Day>,
    ) -> Result<Vec<BlobKey>, Error> {
        let names = self.objects.names(&key::blobs(filter)).await?;
        let keys = names.iter().filter_map(|name| BlobKey::from_name(filter, name).ok());
        let mut keys: Vec<BlobKey> =
            keys.filter(|key| day.is_none_or(|day| key.day == day)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// What the store says of a blob, without a look at its bytes. Cost: one request.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is not there; the store's.
    pub async fn blob_info(&self, blob: &BlobKey) -> Result<BlobInfo, Error> {
        let head = self.objects.head(&blob.to_string()).await?;
        Ok(BlobInfo { bytes: head.size, uploaded: uploaded(&head) })
    }

    /// Uploads a blob under its own name, over whatever is there.
    ///
    /// `progress` is called with the number of bytes sent so far.
    ///
    /// # Errors
    /// The store's; then nothing, or a blob that will not verify, may be there.
    pub async fn put_blob(
        &self,
        blob: &EncodedBlob<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<(), Error> {
        self.put_parts(&blob.key().to_string(), &blob.parts(), progress).await
    }

    /// Uploads an object whose bytes are in several pieces, in parts when it is large.
    pub(super) async fn put_parts(
        &self,
        key: &str,
        pieces: &[&[u8]],
        progress: &dyn Fn(u64),
    ) -> Result<(), Error> {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut upload = self.begin_upload(key, bytes).await?;
        for piece in pieces {
            if let Err(error) = upload.write(piece, progress).await {
                upload.abort().await;
                return Err(error);
            }
        }
        upload.finish().await?;
        if bytes <= TRANSFER_BYTES as u64 {
            progress(bytes);
        }
        Ok(())
    }

    /// Begins to upload a blob whose bytes arrive in order, over whatever is there.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin_blob(&self, blob: &StreamedBlob) -> Result<Upload, Error> {
        self.begin_upload(&blob.key().to_string(), blob.len()).await
    }

    async fn begin_upload(&self, key: &str, bytes: u64) -> Result<Upload, Error> {
        let way = if bytes <= TRANSFER_BYTES as u64 {
            UploadKind::Whole(Vec::with_capacity(bytes as usize))
        } else {
            let before = match self.objects.head(key).await {
                Err(Error::NotFound { .. }) => None,
                there => Some(version_of(&there?)),
            };
            let upload = self.objects.put_multipart(key).await?;
            let parts = WriteMultipart::new_with_chunk_size(upload, upload_part_bytes(bytes));
            UploadKind::Parts { parts, before }
        };
        Ok(Upload { objects: self.objects.clone(), key: key.to_owned(), bytes, sent: 0, way })
    }
}

/// An upload under way. If it is dropped before it is finished, there is no object, but a store may
/// keep its parts for a while.
pub struct Upload {
    objects: Objects,
    key: String,
    bytes: u64,
    sent: u64,
    way: UploadKind,
}

enum UploadKind {
    /// A small object, which is uploaded at the end.
    Whole(Vec<u8>),
    Parts {
        parts: WriteMultipart,
        /// The object that was there before, if there was one.
        before: Option<Version>,
    },
}

/// What tells an upload of an object from another one.
type Version = (Timestamp, Option<String>);

fn version_of(object: &ObjectMeta) -> Version {
    (uploaded(object), object.e_tag.clone())
}

impl Upload {
    /// Sends the next bytes. Waits while too many parts are under way. Calls `progress` with the
    /// number of bytes sent so far.
    ///
    /// # Errors
    /// The store's; then [`Upload::abort`] removes what was sent.
    pub async fn write(&mut self, bytes: &[u8], progress: &dyn Fn(u64)) -> Result<(), Error> {
        for chunk in bytes.chunks(TRANSFER_BYTES) {
            match &mut self.way {
                UploadKind::Whole(whole) => whole.extend_from_slice(chunk),
                UploadKind::Parts { parts, .. } => {
                    let capacity = parts.wait_for_capacity(MAX_CONCURRENT_TRANSFERS).await;
                    capacity.map_err(|e| self.objects.error("write", &self.key, e))?;
                    parts.write(chunk);
                    crash_point("part-uploaded");
                }
            }
            self.sent += chunk.len() as u64;
            if let UploadKind::Parts { .. } = self.way {
                progress(self.sent);
            }
        }
        Ok(())
    }

    /// Completes the object.
    ///
    /// # Errors
    /// The store's.
    ///
    /// # Panics
    /// When there are not as many bytes as was said at the beginning.
    pub async fn finish(self) -> Result<(), Error> {
        let Upload { objects, key, bytes, sent, way } = self;
        assert_eq!(sent, bytes, "an upload is complete");
        match way {
            UploadKind::Whole(whole) => objects.put(&key, Bytes::from(whole)).await,
            UploadKind::Parts { parts, before } => {
                let Err(error) = parts.finish().await else { return Ok(()) };
                // The answer to a request that completed it may be lost: the client's own retry
                // then finds no upload.
                match objects.head(&key).await {
                    Ok(there) if there.size == bytes && before != Some(version_of(&there)) => {
                        Ok(())
                    }
                    _ => Err(objects.error("write", &key, error)),
                }
            }
        }
    }

    /// Gives up, and removes what was sent. An error of that is not worth more than the one before.
    pub async fn abort(self) {
        if let UploadKind::Parts { parts, .. } = self.way {
            let _ = parts.abort().await;
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({}, {} of {} bytes)", self.key, self.sent, self.bytes)
    }
}

/// The size of the parts in which a blob of this many bytes is uploaded: a multiple of 1 MiB, so
/// large that no store refuses their number.
fn upload_part_bytes(blob: u64) -> usize {
    let needed = blob.div_ceil(MAX_PARTS).next_multiple_of(1 << 20);
    usize::try_from(needed).unwrap_or(usize::MAX).max(TRANSFER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_of_any_size_is_uploaded_in_few_enough_parts() {
        for bytes in [TRANSFER_BYTES as u64 + 1, 80 << 30, 100 << 30, MAX_BLOB_BYTES] {
            let part = upload_part_bytes(bytes) as u64;
            assert!(bytes.div_ceil(part) <= MAX_PARTS, "{bytes} bytes in parts of {part}");
            // Four of them at once are still little compared with the filter itself.
            assert!(part <= 32 << 20, "{part}");
        }
        assert_eq!(upload_part_bytes(1 << 30), TRANSFER_BYTES);
    }
}
