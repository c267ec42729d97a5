//! [`SubtreeSums`]: digest and bit count of one subtree of a blob, while its bytes are still in a
//! core's own cache.

use crate::digest::{ChainingValue, SubtreeHasher};
use crate::filter::count_ones;

/// How much is read, digested and counted at once: it fits into a core's own cache.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Digest and bit count of one subtree, computed piece by piece.
pub(crate) struct SubtreeSums {
    /// How many bytes of the blob the digest covers.
    content: usize,
    hasher: SubtreeHasher,
    ones: u64,
}

impl SubtreeSums {
    /// For the subtree that begins at `start`, of a blob whose digest covers `content` bytes.
    pub(crate) fn begin(content: usize, start: usize) -> SubtreeSums {
        SubtreeSums { content, hasher: SubtreeHasher::begin(content, start), ones: 0 }
    }

    /// Adds the piece at `offset`. Bytes past the content are only counted.
    pub(crate) fn take(&mut self, offset: usize, piece: &[u8]) {
        let inside = piece.len().min(self.content.saturating_sub(offset));
        self.hasher.update(&piece[..inside]);
        self.ones += count_ones(piece);
    }

    /// How many bits are set in the subtree.
    pub(crate) fn ones(&self) -> u64 {
        self.ones
    }

    /// The subtree's chaining value in the digest.
    pub(crate) fn chaining_value(&self) -> ChainingValue {
        self.hasher.finish()
    }
}
