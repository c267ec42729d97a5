//! [`Applier`]: a base and a delta, whose bytes arrive in any pieces, give the other blob.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::section::Section;
use super::{DeltaHead, sections};
use crate::blob::RawBlob;
use crate::blob::sums::{PIECE_BYTES, SubtreeSums};
use crate::digest::{Digest, DigestTree};
use crate::filter::count_ones;
use crate::memory::Buffer;

/// The blob that a delta is applied to: in memory, or a file.
pub trait Base: Send + Sync {
    /// How many bytes it has, its digest included.
    ///
    /// # Errors
    /// The system's.
    fn bytes(&self) -> io::Result<u64>;

    /// Copies its bytes from `offset` on.
    ///
    /// # Errors
    /// The system's, and for bytes past its end.
    fn copy(&self, offset: usize, to: &mut [u8]) -> io::Result<()>;
}

impl Base for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn copy(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(to, offset as u64)
    }
}

impl<T: AsRef<[u8]> + Send + Sync> Base for std::sync::Arc<T> {
    fn bytes(&self) -> io::Result<u64> {
        Ok((**self).as_ref().len() as u64)
    }

    fn copy(&self, offset: usize, to: &mut [u8]) -> io::Result<()> {
        let bytes = (**self).as_ref().get(offset..offset + to.len());
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Applies a delta while it arrives, on up to four threads.
///
/// Memory: the new blob, and what was pushed and is not applied yet.
pub struct Applier<B> {
    base: B,
    /// The digests of base and result.
    from: Digest,
    to: Digest,
    /// The new blob.
    memory: Buffer,
    /// How many of its bytes are before its digest.
    content: usize,
    tree: DigestTree,
    ones: u64,
    has_head: bool,
    /// The next section.
    next: usize,
    /// What was pushed and is not applied yet.
    pending: Vec<u8>,
    /// The digest of what was.
    file: blake3::Hasher,
}

impl<B> fmt::Debug for Applier<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Applier({:?} to {:?}, section {})", self.from, self.to, self.next)
    }
}

impl<B: Base> Applier<B> {
    /// From the base with the digest `from` to the blob with the digest `to`, into memory that
    /// `memory` returns for a number of bytes.
    ///
    /// # Errors
    /// A sentence: the base cannot be read, or there is no memory.
    pub fn new(
        base: B,
        from: Digest,
        to: Digest,
        memory: impl FnOnce(usize) -> io::Result<Buffer>,
    ) -> Result<Applier<B>, String> {
        let failed = |error| format!("the blob that it begins from cannot be read: {error}");
        let bytes = base.bytes().map_err(failed)?;
        let Some(content) = usize::try_from(bytes).ok().and_then(|b| b.checked_sub(Digest::BYTES))
        else {
            return Err("the blob that it begins from is no blob".into());
        };
        let memory = memory(content + Digest::BYTES)
            .map_err(|error| format!("there is no memory for {bytes} bytes: {error}"))?;
        Ok(Applier {
            base,
            from,
            to,
            memory,
            content,
            tree: DigestTree::new(content),
            ones: 0,
            has_head: false,
            next: 0,
            pending: Vec::new(),
            file: blake3::Hasher::new(),
        })
    }

    /// Applies all sections that are complete with these bytes.
    ///
    /// # Errors
    /// A sentence: the delta is damaged, or of other blobs; or the base cannot be read.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let done = self.take(&pending)?;
        pending.drain(..done);
        self.pending = pending;
        let is_complete = self.has_head && self.next as u64 == sections(self.content as u64);
        if is_complete && self.pending.len() > Digest::BYTES {
            Err("it goes on after its end".into())
        } else {
            Ok(())
        }
    }

    /// Applies all complete sections of `pending`, and returns how many bytes that were.
    fn take(&mut self, pending: &[u8]) -> Result<usize, String> {
        let mut done = 0;
        if !self.has_head {
            let Some(head) = pending.first_chunk() else { return Ok(0) };
            let head = DeltaHead::parse(head)?;
            if head.digests != DeltaHead::order(self.from, self.to) {
                return Err("it belongs to other blobs".into());
            }
            if head.content != self.content as u64 {
                return Err("its blobs have another length".into());
            }
            self.has_head = true;
            done = DeltaHead::BYTES;
        }
        let mut found = Vec::new();
        let mut start = self.next * DigestTree::SUBTREE_BYTES;
        while start < self.content {
            let subtree = DigestTree::SUBTREE_BYTES.min(self.content - start);
            let Some((section, bytes)) = Section::parse(&pending[done..], subtree)? else { break };
            found.push(section);
            done += bytes;
            start += subtree;
        }
        self.apply(self.next, &found)?;
        self.next += found.len();
        self.file.update(&pending[..done]);
        Ok(done)
    }

    fn apply(&mut self, first: usize, found: &[Section<'_>]) -> Result<(), String> {
        let Applier { base, memory, content, tree, .. } = self;
        let (base, content) = (&*base, *content);
        let start = (first * DigestTree::SUBTREE_BYTES).min(content);
        let end = (start + found.len() * DigestTree::SUBTREE_BYTES).min(content);
        let places = memory[start..end].chunks_mut(DigestTree::SUBTREE_BYTES).zip(found);
        let places = (start..).step_by(DigestTree::SUBTREE_BYTES).zip(places).enumerate();
        let places: Vec<_> = places.map(|(i, place)| (first + i, place)).collect();
        let ones = AtomicU64::new(0);
        tree.set_all(places.into_iter(), |_, (start, (subtree, section))| {
            let mut sums = SubtreeSums::begin(content, start);
            let copy = |offset, piece: &mut [u8]| {
                let copied = base.copy(start + offset, piece);
                copied.map_err(|error| {
                    format!("the blob that it begins from cannot be read: {error}")
                })
            };
            let sum = |offset, piece: &[u8]| sums.take(start + offset, piece);
            section.apply(subtree, PIECE_BYTES, copy, sum)?;
            ones.fetch_add(sums.ones(), Ordering::Relaxed);
            Ok::<_, String>(Some((start, sums.chaining_value())))
        })?;
        self.ones += ones.into_inner();
        Ok(())
    }

    /// The other blob, when all bytes of the delta were pushed.
    ///
    /// # Errors
    /// A sentence: the delta is cut short or damaged, or the base is not what the delta was made
    /// from.
    pub fn finish(mut self) -> Result<RawBlob, String> {
        if !self.has_head || self.next as u64 != sections(self.content as u64) {
            return Err("it is cut short".into());
        }
        if *self.pending != *self.file.finalize().as_bytes() {
            return Err("its own digest is wrong".into());
        }
        let digest = self.tree.finish();
        if digest != self.to {
            return Err(format!("it gives a blob with the digest {digest}"));
        }
        let trailer = digest.as_bytes();
        self.memory[self.content..].copy_from_slice(trailer);
        Ok(RawBlob { memory: self.memory, digest, ones: self.ones + count_ones(trailer) })
    }
}
