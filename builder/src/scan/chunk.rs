//! [`ColumnChunk`], the ranges to fetch of it, and the pieces that it is split into. Values only.

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Compression;

/// One row group's part of the column.
pub(super) struct ColumnChunk {
    /// Where it lies in the file.
    pub(super) range: Range<u64>,
    /// The number of rows that the footer claims.
    pub(super) rows: u64,
    pub(super) codec: Compression,
}

/// The bytes of one piece in the file: first the dictionary, then pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchRange {
    pub(super) dictionary: Range<u64>,
    pub(super) pages: Range<u64>,
}

impl FetchRange {
    pub(super) fn bytes(&self) -> u64 {
        range_len(&self.dictionary) + range_len(&self.pages)
    }
}

pub(super) fn range_len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Complete pages of a column chunk, with the chunk's dictionary in front of them.
pub(super) struct ChunkPiece {
    pub(super) bytes: Bytes,
    /// The number of rows: the sum of the page headers, or in the last piece the rest of the
    /// footer's number.
    pub(super) rows: u64,
    /// Where its pages lie in the file, without the dictionary.
    pub(super) range: Range<u64>,
}

/// Why a chunk cannot be split further.
#[derive(Debug)]
pub(super) enum ChunkError {
    /// Its bytes contradict themselves or the footer.
    Damaged(String),
    /// A page unpacks to this many bytes, which is more than the budget.
    TooLarge(u64),
}
