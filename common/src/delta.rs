//! What changed between two blobs of one filter and one shape: the bits in which they differ.
//!
//! An XOR is its own inverse, so that one delta serves both directions: tonight's update, and the
//! rollback from it. A delta is made and checked by [`make`], and applied by [`Applier`], which
//! returns what a fetch of the full blob would return: its bytes with their digest, for
//! [`crate::blob::open`]. So a damaged delta cannot do more than cost a full download.
//!
//! The format, byte for byte, is in `docs/format.md` of the repository.

mod apply;
mod expected;
mod golomb;
mod make;
mod section;
mod summary;

use crate::digest::{Digest, DigestTree};
pub use apply::{Applier, Base};
pub use expected::expected_bytes;
pub use make::{Content, Made, make};
pub use summary::{Summary, summary};

/// The first bytes of every delta.
pub const MAGIC: [u8; 8] = *b"BLOOMDLT";
/// The format version that this program writes, and the only one that it reads.
pub const VERSION: u16 = 1;

/// The largest delta that is published or fetched for a blob of `blob_bytes`: a larger one saves
/// too little.
pub fn max_bytes(blob_bytes: u64) -> u64 {
    blob_bytes / 2
}

/// What is before the sections.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DeltaHead {
    /// How many bytes each of the two blobs has before its digest.
    content: u64,
    /// The digests of the two blobs, the smaller first.
    digests: [Digest; 2],
}

impl DeltaHead {
    /// Magic, version, six zeros, content, two digests.
    const BYTES: usize = 88;

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&u64::from(VERSION).to_le_bytes());
        bytes.extend_from_slice(&self.content.to_le_bytes());
        self.digests.iter().for_each(|digest| bytes.extend_from_slice(digest.as_bytes()));
        bytes
    }

    fn parse(bytes: &[u8; DeltaHead::BYTES]) -> Result<DeltaHead, String> {
        let (numbers, digests) = bytes.split_at(24);
        let (magic, numbers) = numbers.split_at(8);
        if magic != MAGIC {
            return Err("it does not begin with BLOOMDLT".into());
        }
        let (numbers, _) = numbers.as_chunks::<8>();
        let [version, content] = [numbers[0], numbers[1]].map(u64::from_le_bytes);
        if version != u64::from(VERSION) {
            return Err(format!(
                "its format version is {version}, and this program reads {VERSION}"
            ));
        }
        let (digests, _) = digests.as_chunks::<{ Digest::BYTES }>();
        let digests = [Digest::new(digests[0]), Digest::new(digests[1])];
        if digests[0] >= digests[1] {
            return Err("its digests are not in order".into());
        }
        Ok(DeltaHead { content, digests })
    }

    /// The two digests of a delta between these blobs.
    fn order(a: Digest, b: Digest) -> [Digest; 2] {
        [a.min(b), a.max(b)]
    }
}

/// How many sections a blob has, with this many bytes before its digest.
fn sections(content: u64) -> u64 {
    content.div_ceil(DigestTree::SUBTREE_BYTES as u64)
}

/// The entropy, in bytes, of `bits` independent bits of which `ones` are set.
fn entropy_bytes(bits: f64, ones: f64) -> f64 {
    let p = ones / bits.max(1.0);
    let term = |p: f64| if p > 0.0 { -p * libm::log2(p) } else { 0.0 };
    bits * (term(p) + term(1.0 - p)) / 8.0
}

#[cfg(test)]
mod tests;
