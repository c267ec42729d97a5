//! Blobs of a [`Store`]: listed, looked up, and uploaded in parts.

use bytes::Bytes;
use jiff::Timestamp;
use object_store::WriteMultipart;

use super::Store;
use super::objects::uploaded;
use crate::blob::EncodedBlob;
use crate::crash_point::crash_point;
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, BlobKey, FilterName};

/// The size of one upload part and of one ranged download. S3 wants equal parts of at least 5 MiB.
pub(super) const PART_BYTES: usize = 8 << 20;
/// The most parts that an upload may have on S3: a larger blob has larger parts.
const MAX_PARTS: u64 = 10_000;
/// How many parts are transferred at the same time.
pub(super) const MAX_CONCURRENT_PARTS: usize = 4;
/// A blob larger than this is not loaded: 2^32 blocks of 64 bytes and a header.
pub const MAX_BLOB_BYTES: u64 = (1 << 38) + (1 << 20);

impl Store {
    /// The blobs of a filter, or of one of its days, oldest day first.
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

    /// The size of a blob, and when it was uploaded by the store's clock.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is not there; the store's.
    pub async fn head_blob(&self, blob: &BlobKey) -> Result<(u64, Timestamp), Error> {
        let head = self.objects.head(&blob.to_string()).await?;
        Ok((head.size, uploaded(&head)))
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
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if bytes <= PART_BYTES as u64 {
            self.objects.put(key, Bytes::from(pieces.concat())).await?;
            progress(bytes);
            return Ok(());
        }
        let failed = |e| self.objects.error("write", key, e);
        let upload = self.objects.put_multipart(key).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, upload_part_bytes(bytes));
        let mut sent = 0;
        for chunk in pieces.iter().flat_map(|piece| piece.chunks(PART_BYTES)) {
            if let Err(e) = upload.wait_for_capacity(MAX_CONCURRENT_PARTS).await {
                // The upload's own error says more than that of a failed clean-up.
                let _ = upload.abort().await;
                return Err(failed(e));
            }
            upload.write(chunk);
            sent += chunk.len() as u64;
            crash_point("part-uploaded");
            progress(sent);
        }
        upload.finish().await.map(drop).map_err(failed)
    }
}

/// The size of the parts in which a blob of this many bytes is uploaded: a multiple of 1 MiB, so
/// large that no store refuses their number.
fn upload_part_bytes(blob: u64) -> usize {
    let needed = blob.div_ceil(MAX_PARTS).next_multiple_of(1 << 20);
    usize::try_from(needed).unwrap_or(usize::MAX).max(PART_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_of_any_size_is_uploaded_in_few_enough_parts() {
        for bytes in [PART_BYTES as u64 + 1, 80 << 30, 100 << 30, MAX_BLOB_BYTES] {
            let part = upload_part_bytes(bytes) as u64;
            assert!(bytes.div_ceil(part) <= MAX_PARTS, "{bytes} bytes in parts of {part}");
            // Four of them at once are still little compared with the filter itself.
            assert!(part <= 32 << 20, "{part}");
        }
        assert_eq!(upload_part_bytes(1 << 30), PART_BYTES);
    }
}
