//! Fetching a blob: ranged reads, a few at a time, digested side by side while others arrive.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};

use super::{MAX_BLOB_BYTES, PART_BYTES, PARTS_AT_ONCE, Store, local};
use crate::digest::{Digest, Parts};
use crate::error::Error;
use crate::key::BlobKey;
use crate::memory::Buffer;

/// What a fetch of a blob brought: its bytes and their digest, not yet checked.
pub struct Fetched {
    /// All bytes, in memory ready for a filter.
    pub memory: Buffer,
    /// BLAKE3 of all but the last 32, computed while they arrived.
    pub digest: Digest,
}

impl Store {
    /// Fetches a blob into memory that a filter can use as it is, and digests it on the way.
    ///
    /// # Errors
    /// As [`Store::fetch_into`].
    pub async fn fetch(&self, blob: &BlobKey, limit: u64) -> Result<Fetched, Error> {
        self.fetch_into(blob, limit, None).await
    }

    /// [`Store::fetch`] into memory that a filter no longer needs, if it is large enough.
    ///
    /// Cost: ranged reads, a few at a time; no byte past the object's stated size is read. A local file
    /// is read by up to four threads, straight to its place.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyBytes`] past `limit`, [`Error::Memory`], or the store's;
    /// an object replaced while it is read is an error, not a mixture.
    pub async fn fetch_into(
        &self,
        blob: &BlobKey,
        limit: u64,
        spare: Option<Buffer>,
    ) -> Result<Fetched, Error> {
        let key = blob.to_string();
        let path = self.path(&key);
        if let Some(folder) = &self.folder {
            local::refuse_to_leave(folder, &key)?;
        }
        let head = self.objects.head(&path).await.map_err(|e| self.error("read", &key, e))?;
        let limit = limit.min(MAX_BLOB_BYTES);
        if head.size > limit {
            return Err(Error::TooManyBytes { key, bytes: head.size, limit });
        }
        let no_memory = |source| Error::Memory { bytes: head.size, source };
        let bytes =
            usize::try_from(head.size).map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let memory = match spare {
            Some(spare) => spare.reuse(bytes),
            None => Buffer::zeroed(bytes),
        };
        let mut memory = memory.map_err(no_memory)?;
        if let Some(folder) = &self.folder {
            let file = folder.join(&key);
            let read = move || {
                let digest = read_file(&file, &mut memory);
                (memory, digest)
            };
            let done = tokio::task::spawn_blocking(read).await;
            let (given_back, digest) = done.expect("reading a file does not panic");
            memory = given_back;
            if let Ok(digest) = digest {
                return Ok(Fetched { memory, digest });
            }
            // The general way fails too, and says why as for every store.
        }
        let digest = self.read_ranges(&key, &path, &head, &mut memory).await?;
        Ok(Fetched { memory, digest })
    }

    async fn read_ranges(
        &self,
        key: &str,
        path: &Path,
        head: &ObjectMeta,
        memory: &mut [u8],
    ) -> Result<Digest, Error> {
        let length = |got| Error::Length { key: key.to_owned(), expected: head.size, got };
        let content = memory.len().saturating_sub(Digest::BYTES);
        let mut digests = Parts::new(content);
        let ranges = (0..head.size).step_by(PART_BYTES);
        let mut parts = futures::stream::iter(ranges)
            .map(|start| {
                let end = head.size.min(start + PART_BYTES as u64);
                let options = GetOptions {
                    range: Some(GetRange::Bounded(start..end)),
                    if_match: head.e_tag.clone(),
                    ..GetOptions::default()
                };
                async move {
                    let part = self.objects.get_opts(path, options).await?.bytes().await?;
                    // On a thread of its own: digesting takes as long as the bytes take to arrive.
                    let task = move || (digest_part(&part, start as usize, content), part);
                    let done = tokio::task::spawn_blocking(task).await;
                    Ok(done.expect("digesting does not panic"))
                }
            })
            .buffered(PARTS_AT_ONCE);
        let mut filled = 0;
        while let Some(part) = parts.next().await {
            let (values, part): (_, Bytes) = part.map_err(|e| self.error("read", key, e))?;
            let end = filled + part.len();
            let Some(place) = memory.get_mut(filled..end) else { return Err(length(end as u64)) };
            place.copy_from_slice(&part);
            if end < memory.len() && part.len() != PART_BYTES {
                return Err(length(end as u64));
            }
            values.into_iter().for_each(|(offset, value)| digests.set(offset, value));
            filled = end;
        }
        if filled != memory.len() {
            return Err(length(filled as u64));
        }
        Ok(digests.finish())
    }
}

/// The digests of a download's parts, each with its offset; what lies past the content has none.
fn digest_part(part: &[u8], start: usize, content: usize) -> Vec<(usize, [u8; Digest::BYTES])> {
    let inside = &part[..part.len().min(content.saturating_sub(start))];
    let parts = inside.chunks(Parts::BYTES).enumerate();
    parts
        .map(|(i, bytes)| {
            let offset = start + i * Parts::BYTES;
            (offset, Parts::value(content, offset, bytes))
        })
        .collect()
}

/// Reads a file that fills `memory` exactly, and digests all but its last 32 bytes.
fn read_file(path: &std::path::Path, memory: &mut [u8]) -> io::Result<Digest> {
    let file = File::open(path)?;
    let before = file.metadata()?;
    if before.len() != memory.len() as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let content = memory.len().saturating_sub(Digest::BYTES);
    let pieces = memory.chunks_mut(Parts::BYTES).enumerate();
    let digest = Parts::new(content).complete(pieces, |i, place| -> io::Result<_> {
        let offset = i * Parts::BYTES;
        file.read_exact_at(place, offset as u64)?;
        let inside = place.len().min(content.saturating_sub(offset));
        Ok((inside > 0).then(|| (offset, Parts::value(content, offset, &place[..inside]))))
    })?;
    let after = file.metadata()?;
    if (after.len(), after.modified()?) != (before.len(), before.modified()?) {
        return Err(io::Error::other("it was written to while it was read"));
    }
    Ok(digest)
}
