//! [`summary`]: what a delta states, for people.

use super::section::Section;
use super::{DeltaHead, VERSION, entropy_bytes};
use crate::digest::{Digest, DigestTree};
use crate::error::Error;

/// What a sound delta states.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its format version.
    pub version: u16,
    /// The digests of its two blobs, the smaller first.
    pub digests: [Digest; 2],
    /// The length of each of the two blobs.
    pub blob_bytes: u64,
    /// How many subtrees of the blob have a section of their own.
    pub sections: u64,
    /// How many bits differ.
    pub flips: u64,
}

impl Summary {
    /// The entropy of the XOR in bytes, when each bit flips on its own: what no code can go below
    /// by much.
    pub fn entropy_bytes(&self) -> f64 {
        let bits = 8.0 * self.blob_bytes.saturating_sub(Digest::BYTES as u64) as f64;
        entropy_bytes(bits, self.flips as f64)
    }
}

/// Checks all bytes of a delta that can be checked without its blobs, and reads what it states.
/// `file` is what messages call it.
///
/// # Errors
/// [`Error::Delta`]: what is wrong.
pub fn summary(bytes: &[u8], file: &str) -> Result<Summary, Error> {
    let wrong = |why: String| Error::Delta { key: file.to_owned(), why };
    let cut = || wrong("it is cut short".into());
    let (head, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let head = DeltaHead::parse(head).map_err(wrong)?;
    let (mut rest, digest) = rest.split_last_chunk::<{ Digest::BYTES }>().ok_or_else(cut)?;
    let (mut sections, mut flips, mut start) = (0, 0, 0);
    while start < head.content {
        let subtree = (DigestTree::SUBTREE_BYTES as u64).min(head.content - start);
        let parsed = Section::parse(rest, subtree as usize).map_err(|why| wrong(why.into()))?;
        let (section, length) = parsed.ok_or_else(cut)?;
        rest = &rest[length..];
        (sections, flips, start) =
            (sections + 1, flips + u64::from(section.flips), start + subtree);
    }
    if !rest.is_empty() {
        return Err(wrong("it goes on after its end".into()));
    }
    if blake3::hash(&bytes[..bytes.len() - Digest::BYTES]) != *digest {
        return Err(wrong("its own digest is wrong".into()));
    }
    let blob_bytes = head.content.saturating_add(Digest::BYTES as u64);
    Ok(Summary { version: VERSION, digests: head.digests, blob_bytes, sections, flips })
}
