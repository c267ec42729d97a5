//! Fetching a blob: ranged reads, a few at a time. Each is digested and counted while others
//! arrive.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::blobs::{MAX_BLOB_BYTES, MAX_CONCURRENT_TRANSFERS, TRANSFER_BYTES};
use super::{Store, local};
use crate::blob::streamed::{self, Passed};
use crate::blob::sums::{PIECE_BYTES, SubtreeSums};
use crate::blob::{self, Header, OpenedBlob, RawBlob};
use crate::digest::{ChainingValue, Digest, DigestTree};
use crate::error::Error;
use crate::filter::Filter;
use crate::key::BlobKey;
use crate::memory::Buffer;

/// The chaining values of some subtrees, each with its offset.
type SubtreeValues = Vec<(usize, ChainingValue)>;

impl Store {
    /// Fetches a blob, checks it, and views it as a filter. What may be a cache's fault is fetched
    /// once more, past caches.
    ///
    /// Cost: [`Store::fetch`] and [`blob::open`].
    ///
    /// # Errors
    /// Those of both. The largest size is [`MAX_BLOB_BYTES`].
    pub async fn open_blob(&self, blob: &BlobKey) -> Result<(Header, Filter), Error> {
        let fetched = self.fetch(blob, MAX_BLOB_BYTES).await;
        match fetched.and_then(|raw| blob::open(raw, blob)) {
            Err(error) if error.may_be_of_a_cache() && self.objects.may_be_cached() => {
                blob::open(self.fetch_uncached(blob, MAX_BLOB_BYTES, None).await?, blob)
            }
            opened => opened,
        }
    }

    /// What a blob states about itself, from its first bytes alone: unchecked but for its form.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Malformed`], or the store's.
    pub async fn blob_header(&self, blob: &BlobKey) -> Result<Header, Error> {
        match self.blob_bytes(blob, 0..blob::MAX_HEADER_BYTES).await {
            Ok(bytes) => blob::read_header(&bytes, blob),
            // Of an empty object no range can be read.
            Err(error @ Error::Store { .. }) => match self.objects.head(&blob.to_string()).await {
                Ok(head) if head.size == 0 => blob::read_header(&[], blob),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Fetches a blob into memory that a filter can use, and digests it and counts its bits on the
    /// way.
    ///
    /// `limit` is the largest size that is fetched.
    ///
    /// # Errors
    /// As [`Store::fetch_into`].
    pub async fn fetch(&self, blob: &BlobKey, limit: u64) -> Result<RawBlob, Error> {
        self.fetch_into(blob, limit, None).await
    }

    /// As [`Store::fetch`], into the memory `reused`, which no filter uses any more, if it fits.
    ///
    /// Cost: ranged reads, a few at a time; no byte past the object's stated size is read. A local
    /// file is read by up to four threads, directly into the memory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyBytes`] past `limit`, [`Error::Memory`], or the
    /// store's; an object that is replaced while it is read is an error.
    pub async fn fetch_into(
        &self,
        blob: &BlobKey,
        limit: u64,
        reused: Option<Buffer>,
    ) -> Result<RawBlob, Error> {
        self.fetch_from(self.objects.backend(), blob, limit, reused).await
    }

    /// As [`Store::fetch_into`], for a blob that did not arrive sound: past caches on the way.
    ///
    /// Over plain HTTP the requests say `Cache-Control: no-cache`, so that a relay that stored
    /// damaged bytes, or parts with the tag of an earlier upload, gets them again. Any other store
    /// has no caches, and nothing differs.
    ///
    /// # Errors
    /// As [`Store::fetch_into`].
    pub async fn fetch_uncached(
        &self,
        blob: &BlobKey,
        limit: u64,
        reused: Option<Buffer>,
    ) -> Result<RawBlob, Error> {
        self.fetch_from(self.objects.uncached_backend(), blob, limit, reused).await
    }

    async fn fetch_from(
        &self,
        backend: &dyn ObjectStore,
        blob: &BlobKey,
        limit: u64,
        reused: Option<Buffer>,
    ) -> Result<RawBlob, Error> {
        let key = blob.to_string();
        let path = self.readable_path(&key)?;
        let head = backend.head(&path).await;
        let head = head.map_err(|e| self.objects.error("read", &key, e))?;
        check_size(&key, head.size, limit.min(MAX_BLOB_BYTES))?;
        let no_memory = |source| Error::Memory { bytes: head.size, source };
        let bytes =
            usize::try_from(head.size).map_err(|_| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let mut memory = Buffer::reuse(reused, bytes).map_err(no_memory)?;
        if let Some(folder) = &self.folder {
            let file = folder.join(&key);
            let read = move || {
                let sums = File::open(file).and_then(|file| read_file(&file, &mut memory));
                (memory, sums)
            };
            let done = tokio::task::spawn_blocking(read).await;
            let (returned, sums) = done.expect("reading a file does not panic");
            memory = returned;
            if let Ok((digest, ones)) = sums {
                return Ok(RawBlob { memory, digest, ones });
            }
            // Reading it as an object fails too, with the same messages as every store.
        }
        let place = &mut |at: usize, bytes: &[u8]| {
            memory[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let (digest, ones) = self.read_ranges(backend, &path, &head, &key, place).await?;
        Ok(RawBlob { memory, digest, ones })
    }

    /// Fetches a `blocked` blob and checks it, but keeps none of it: digest, header, length and set
    /// bits.
    ///
    /// Memory: a few ranges of 8 MiB. Cost: as [`Store::fetch`].
    ///
    /// # Errors
    /// Those of [`Store::fetch`] and [`blob::open`].
    pub async fn check_blob(&self, blob: &BlobKey) -> Result<Header, Error> {
        let key = blob.to_string();
        let path = self.readable_path(&key)?;
        let head = self.objects.head(&key).await?;
        check_size(&key, head.size, MAX_BLOB_BYTES)?;
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let keep = &mut |_: usize, bytes: &[u8]| {
            let missing = (blob::MAX_HEADER_BYTES as usize).saturating_sub(first.len());
            first.extend_from_slice(&bytes[..missing.min(bytes.len())]);
            // The last range may be shorter than the digest.
            last.extend_from_slice(&bytes[bytes.len().saturating_sub(Digest::BYTES)..]);
            let excess = last.len().saturating_sub(Digest::BYTES);
            last.drain(..excess);
        };
        let backend = self.objects.backend();
        let (digest, ones) = self.read_ranges(backend, &path, &head, &key, keep).await?;
        let passed = Passed { first: &first, last: &last, len: head.size, digest, ones };
        streamed::check(&passed, blob)
    }

    /// Some bytes of a blob, as they are in the store: nothing about them is checked.
    ///
    /// # Errors
    /// The store's.
    pub async fn blob_bytes(&self, blob: &BlobKey, range: Range<u64>) -> Result<Bytes, Error> {
        let key = blob.to_string();
        let path = self.readable_path(&key)?;
        let failed = |error| self.objects.error("read", &key, error);
        let got = self.objects.backend().get_opts(&path, range_of(range, None)).await;
        got.map_err(failed)?.bytes().await.map_err(failed)
    }

    /// Which upload of a blob is in the store: equal texts are of the same one.
    ///
    /// Cost: one request, past caches on the way.
    ///
    /// # Errors
    /// [`Error::NotFound`], or the store's.
    pub async fn upload_of(&self, blob: &BlobKey) -> Result<String, Error> {
        let key = blob.to_string();
        let path = self.readable_path(&key)?;
        let head = self.objects.uncached_backend().head(&path).await;
        let head = head.map_err(|e| self.objects.error("look at", &key, e))?;
        let ObjectMeta { size, last_modified, e_tag, .. } = head;
        Ok(format!("{size} {last_modified} {}", e_tag.unwrap_or_default()))
    }

    /// The path of an object that is about to be read. In a local folder it must lie in the store.
    pub(super) fn readable_path(&self, key: &str) -> Result<Path, Error> {
        if let Some(folder) = &self.folder {
            local::check_inside_store(folder, key)?;
        }
        Ok(self.objects.path(key))
    }

    async fn read_ranges(
        &self,
        backend: &dyn ObjectStore,
        path: &Path,
        head: &ObjectMeta,
        key: &str,
        take: &mut (dyn FnMut(usize, &[u8]) + Send),
    ) -> Result<(Digest, u64), Error> {
        let length = |got| Error::Length { key: key.to_owned(), expected: head.size, got };
        // The size is checked to be one that fits.
        let size = head.size as usize;
        let content = size.saturating_sub(Digest::BYTES);
        let mut digests = DigestTree::new(content);
        let ranges = (0..head.size).step_by(TRANSFER_BYTES);
        let mut arriving = futures::stream::iter(ranges)
            .map(|start| {
                let end = head.size.min(start + TRANSFER_BYTES as u64);
                let options = range_of(start..end, head.e_tag.clone());
                async move {
                    let range = backend.get_opts(path, options).await?.bytes().await?;
                    // On a thread of its own: digesting takes as long as the bytes take to arrive.
                    let task = move || (sum_range(&range, start as usize, content), range);
                    let done = tokio::task::spawn_blocking(task).await;
                    Ok(done.expect("digesting does not panic"))
                }
            })
            .buffered(MAX_CONCURRENT_TRANSFERS);
        let (mut filled, mut ones) = (0, 0);
        while let Some(range) = arriving.next().await {
            let ((values, more_ones), range) =
                range.map_err(|e| self.objects.error("read", key, e))?;
            let end = filled + range.len();
            if end > size || (end < size && range.len() != TRANSFER_BYTES) {
                return Err(length(end as u64));
            }
            take(filled, &range);
            values.into_iter().for_each(|(offset, value)| digests.set(offset, value));
            ones += more_ones;
            filled = end;
        }
        if filled != size {
            return Err(length(filled as u64));
        }
        Ok((digests.finish(), ones))
    }
}

/// A request for a range of an object; with `tag`, only of the one that has it.
pub(super) fn range_of(range: Range<u64>, tag: Option<String>) -> GetOptions {
    GetOptions { range: Some(GetRange::Bounded(range)), if_match: tag, ..GetOptions::default() }
}

/// Refuses an object of more than `limit` bytes.
pub(super) fn check_size(key: &str, bytes: u64, limit: u64) -> Result<(), Error> {
    if bytes > limit {
        return Err(Error::TooManyBytes { key: key.to_owned(), bytes, limit });
    }
    Ok(())
}

/// The chaining values of the subtrees in a range of a download, each with its offset, and the
/// range's ones.
fn sum_range(range: &[u8], start: usize, content: usize) -> (SubtreeValues, u64) {
    let (mut values, mut ones) = (Vec::new(), 0);
    for (start, subtree) in
        (start..).step_by(DigestTree::SUBTREE_BYTES).zip(range.chunks(DigestTree::SUBTREE_BYTES))
    {
        let mut sums = SubtreeSums::begin(content, start);
        let pieces = (start..).step_by(PIECE_BYTES).zip(subtree.chunks(PIECE_BYTES));
        pieces.for_each(|(offset, piece)| sums.take(offset, piece));
        ones += sums.ones();
        if start < content {
            values.push((start, sums.chaining_value()));
        }
    }
    (values, ones)
}

/// Reads what should be a blob from an open file that fills `memory` exactly, and digests and
/// counts it on the way, on up to four threads.
///
/// # Errors
/// The system's, and for a file of another size or one that is written to at the same time.
pub fn read_copy(file: &File, mut memory: Buffer) -> io::Result<RawBlob> {
    let (digest, ones) = read_file(file, &mut memory)?;
    Ok(RawBlob { memory, digest, ones })
}

/// Opens a blob file and checks every byte of it. A file that is no blob, or not of the length that
/// its header says, is refused by its first bytes.
///
/// # Errors
/// [`Error::NotFound`], [`Error::TooManyBytes`], [`Error::Memory`], the system's, also for what is
/// no regular file, or what is wrong with the blob.
pub fn open_file(path: &std::path::Path) -> Result<OpenedBlob, Error> {
    let name = if path.as_os_str().is_empty() {
        "file with an empty name".to_owned()
    } else {
        path.display().to_string()
    };
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => {
            Error::NotFound { key: name.clone(), store: "the file system".into() }
        }
        _ => Error::File { doing: "read", path: name.clone(), source },
    };
    // To open a pipe would wait for somebody who writes.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    check_size(&name, bytes, MAX_BLOB_BYTES)?;
    let mut first = vec![0; bytes.min(blob::MAX_HEADER_BYTES) as usize];
    file.read_exact_at(&mut first, 0).map_err(failed)?;
    let expected = blob::len_of(&first, &name)?;
    if bytes != expected {
        return Err(Error::Length { key: name, expected, got: bytes });
    }
    let memory = usize::try_from(bytes).map_err(io::Error::other).and_then(Buffer::zeroed);
    let memory = memory.map_err(|source| Error::Memory { bytes, source })?;
    let raw = read_copy(&file, memory).map_err(failed)?;
    let key = blob::key_of(&raw.memory, &name)?;
    let (header, filter) = blob::open(raw, &key).map_err(|error| error.of_file(&name))?;
    Ok(OpenedBlob { key, header, filter })
}

/// Fetches the blob with this URL, `STORE/FILTER/blobs/NAME`, and checks every byte of it.
///
/// # Errors
/// Those of [`BlobKey::of_url`], [`Store::open`] and [`Store::open_blob`].
pub async fn open_url(url: &str) -> Result<OpenedBlob, Error> {
    let (store, key) = BlobKey::of_url(url)?;
    let (header, filter) = Store::open(store)?.open_blob(&key).await?;
    Ok(OpenedBlob { key, header, filter })
}

/// Reads a file that fills `memory` exactly: the digest of all but its last 32 bytes, and how many
/// bits are set.
fn read_file(file: &File, memory: &mut [u8]) -> io::Result<(Digest, u64)> {
    let before = file.metadata()?;
    if before.len() != memory.len() as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let content = memory.len().saturating_sub(Digest::BYTES);
    let ones = AtomicU64::new(0);
    let subtrees = memory.chunks_mut(DigestTree::SUBTREE_BYTES).enumerate();
    let digest = DigestTree::new(content).complete(subtrees, |i, subtree| -> io::Result<_> {
        let start = i * DigestTree::SUBTREE_BYTES;
        let mut sums = SubtreeSums::begin(content, start);
        for (offset, piece) in (start..).step_by(PIECE_BYTES).zip(subtree.chunks_mut(PIECE_BYTES)) {
            file.read_exact_at(piece, offset as u64)?;
            sums.take(offset, piece);
        }
        ones.fetch_add(sums.ones(), Ordering::Relaxed);
        Ok((start < content).then(|| (start, sums.chaining_value())))
    })?;
    let after = file.metadata()?;
    if (after.len(), after.modified()?) != (before.len(), before.modified()?) {
        return Err(io::Error::other("it was written to while it was read"));
    }
    Ok((digest, ones.into_inner()))
}
