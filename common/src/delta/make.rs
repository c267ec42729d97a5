//! [`make`]: two blobs give their delta, which is then applied and compared.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::section::{self, Section};
use super::{DeltaHead, sections};
use crate::blob::EncodedBlob;
use crate::digest::{Digest, DigestTree, parallel};

/// The bytes of a blob before its digest, in one piece or two.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    head: &'a [u8],
    body: &'a [u8],
    digest: Digest,
}

impl<'a> Content<'a> {
    /// Those of a verified blob with this digest.
    ///
    /// # Panics
    /// When it is shorter than a digest: then it was not verified.
    pub fn of(blob: &'a [u8], digest: Digest) -> Content<'a> {
        let (body, _) = blob.split_last_chunk::<{ Digest::BYTES }>().expect("a verified blob");
        Content { head: &[], body, digest }
    }

    fn len(self) -> usize {
        self.head.len() + self.body.len()
    }

    /// The bytes of the subtree that begins at `start`.
    fn subtree(self, start: usize) -> Cow<'a, [u8]> {
        let end = self.len().min(start + DigestTree::SUBTREE_BYTES);
        match start.checked_sub(self.head.len()) {
            Some(start) => Cow::Borrowed(&self.body[start..end - self.head.len()]),
            // The head of a blob is far shorter than a subtree.
            None => Cow::Owned([self.head, &self.body[..end - self.head.len()]].concat()),
        }
    }
}

impl<'a> From<&'a EncodedBlob<'_>> for Content<'a> {
    fn from(blob: &'a EncodedBlob<'_>) -> Content<'a> {
        let [head, body, _] = blob.parts();
        Content { head, body, digest: blob.key().digest }
    }
}

/// A delta that was applied to its base and gave its blob.
#[derive(Debug)]
pub struct Made {
    /// All bytes of the file to publish.
    pub bytes: Vec<u8>,
    /// How many bits differ.
    pub flips: u64,
}

/// Makes the delta between two blobs, applies it to `base` and compares the result with `new`.
/// Returns `None` as soon as it has more than `max_bytes` bytes.
///
/// Cost: three passes over both blobs, on up to four threads. Memory: twice the delta.
///
/// # Errors
/// A sentence: why there is none. The blobs differ in length, or are the same; or the memory of
/// this machine cannot be trusted.
pub fn make(base: Content<'_>, new: Content<'_>, max_bytes: u64) -> Result<Option<Made>, String> {
    if base.len() != new.len() {
        let (before, after) = (base.len(), new.len());
        return Err(format!("the shape changed: {before} bytes before and {after} now"));
    }
    if base.digest == new.digest {
        return Err("both are one blob".into());
    }
    let starts = || (0..new.len()).step_by(DigestTree::SUBTREE_BYTES).enumerate();
    let found = Mutex::new(vec![Vec::new(); sections(new.len() as u64) as usize]);
    let flips = Mutex::new(0);
    let encoded = AtomicU64::new((DeltaHead::BYTES + Digest::BYTES) as u64);
    let is_too_large = || encoded.load(Relaxed) > max_bytes;
    parallel(starts(), |(i, start)| {
        if is_too_large() {
            return Ok(());
        }
        let (section, more) = section::encode(&base.subtree(start), &new.subtree(start));
        encoded.fetch_add(section.len() as u64, Relaxed);
        found.lock().expect("setting a section does not panic")[i] = section;
        *flips.lock().expect("adding does not panic") += more;
        Ok::<(), String>(())
    })?;
    if is_too_large() {
        return Ok(None);
    }
    let (found, flips) = (found.into_inner(), flips.into_inner());
    let (found, flips) = (found.expect("no thread panicked"), flips.expect("no thread panicked"));
    let digests = DeltaHead::order(base.digest, new.digest);
    let mut bytes = DeltaHead { content: new.len() as u64, digests }.to_bytes();
    bytes.reserve(found.iter().map(Vec::len).sum::<usize>() + Digest::BYTES);
    found.into_iter().for_each(|section| bytes.extend(section));
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    check(&bytes, base, new)?;
    Ok(Some(Made { bytes, flips }))
}

/// Applies a finished file to `base`, a subtree at a time, and compares each with that of `new`.
fn check(file: &[u8], base: Content<'_>, new: Content<'_>) -> Result<(), String> {
    let mut rest = file.get(DeltaHead::BYTES..).unwrap_or_default();
    let mut found = Vec::new();
    for start in (0..new.len()).step_by(DigestTree::SUBTREE_BYTES) {
        let subtree = DigestTree::SUBTREE_BYTES.min(new.len() - start);
        let (section, bytes) = Section::parse(rest, subtree)?.ok_or("a section is not complete")?;
        found.push((start, section));
        rest = &rest[bytes..];
    }
    parallel(found.into_iter(), |(start, section)| {
        let mut subtree = base.subtree(start).into_owned();
        let length = subtree.len();
        section.apply(&mut subtree, length.max(1), |_, _| Ok(()), |_, _| ())?;
        if *subtree == *new.subtree(start) {
            Ok(())
        } else {
            Err(format!("it does not give the bytes of the blob from {start} on"))
        }
    })
}
