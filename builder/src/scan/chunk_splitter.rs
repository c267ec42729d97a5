//! [`ChunkSplitter`]: a column chunk → pieces of complete pages. A writer may put a whole day into
//! one row group; its column may exceed a small budget, and one thread should not decode all of it.
//!
//! No I/O: the splitter says what to fetch next, and the caller supplies the bytes. Each piece
//! begins with the chunk's dictionary, which is fetched again. So a piece reads like a chunk of its
//! own, and nothing stays in memory between two pieces.

use std::ops::Range;

use bytes::Bytes;

use super::chunk::{ChunkError, ChunkPiece, ColumnChunk, FetchRange, range_len};
use super::limits::page_limits::{PartialPage, complete_pages};

/// The longest page header. A header that cannot be read in this many bytes is damaged.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Splits one chunk, from its first page to its last.
pub(super) struct ChunkSplitter<'a> {
    chunk: &'a ColumnChunk,
    /// The most bytes of a piece, unless one page, or twice the dictionary, is larger.
    max_piece_bytes: u64,
    /// The most bytes that a page may unpack to.
    max_page_bytes: u64,
    /// Where the next piece begins in the file.
    position: u64,
    /// The rows of the pieces so far.
    rows: u64,
    /// The fewest bytes to fetch, so that the page at `position` is complete.
    min_fetch_bytes: u64,
    /// Where the dictionary lies in the file.
    dictionary: Range<u64>,
    is_done: bool,
}

impl<'a> ChunkSplitter<'a> {
    /// Splits into even pieces of at most `max_piece_bytes`. A page may unpack to `max_page_bytes`.
    pub(super) fn new(
        chunk: &'a ColumnChunk,
        max_piece_bytes: u64,
        max_page_bytes: u64,
    ) -> ChunkSplitter<'a> {
        let position = chunk.range.start;
        ChunkSplitter {
            chunk,
            max_piece_bytes,
            max_page_bytes,
            position,
            rows: 0,
            min_fetch_bytes: 0,
            dictionary: position..position,
            is_done: false,
        }
    }

    /// What to fetch next, or `None` after the last piece.
    pub(super) fn next_range(&self) -> Option<FetchRange> {
        let dictionary = self.dictionary.clone();
        let dictionary_bytes = range_len(&dictionary);
        // At least as many bytes of pages as of the dictionary, which is fetched and unpacked
        // again.
        let max =
            self.max_piece_bytes.saturating_sub(dictionary_bytes).max(dictionary_bytes).max(1);
        let left = self.chunk.range.end - self.position;
        let even = left.div_ceil(left.div_ceil(max).max(1));
        let pages = self.position..self.position + even.max(self.min_fetch_bytes).min(left);
        (!self.is_done).then_some(FetchRange { dictionary, pages })
    }

    /// Splits the bytes of [`Self::next_range`] after their last complete page. `None` if no page
    /// is complete; the next range is then longer.
    ///
    /// # Errors
    /// The chunk has more rows than the footer promised, or a page that is not worth fetching.
    pub(super) fn split(&mut self, fetched: Bytes) -> Result<Option<ChunkPiece>, ChunkError> {
        let front = range_len(&self.dictionary) as usize;
        let own = &fetched[front..];
        let (start, own_bytes) = (self.position, own.len() as u64);
        let rows_left = self.chunk.rows.checked_sub(self.rows).ok_or_else(|| {
            let (rows, promised) = (self.rows, self.chunk.rows);
            let why = format!("its column has at least {rows} rows, and {promised} were promised");
            ChunkError::Damaged(why)
        })?;
        let range = start..start + own_bytes;
        self.is_done = range.end == self.chunk.range.end;
        if self.is_done {
            return Ok(Some(ChunkPiece { bytes: fetched, rows: rows_left, range }));
        }
        let complete = complete_pages(own);
        self.min_fetch_bytes = complete.next.map_or(Ok(0), |next| self.worth_fetching(next))?;
        if complete.bytes == 0 {
            if complete.next.is_none() {
                // More bytes would not help; the decoder reports what is wrong.
                self.is_done = own_bytes >= MAX_HEADER_BYTES;
                self.min_fetch_bytes = (2 * own_bytes).clamp(64, MAX_HEADER_BYTES);
            }
            return Ok(self.is_done.then_some(ChunkPiece {
                bytes: fetched,
                rows: rows_left,
                range,
            }));
        }
        if let Some(Range { start: from, end }) = complete.dictionary {
            self.dictionary = start + from as u64..start + end as u64;
        }
        self.rows = self.rows.saturating_add(complete.rows);
        self.position += complete.bytes as u64;
        let bytes = fetched.slice(..front + complete.bytes);
        Ok(Some(ChunkPiece { bytes, rows: complete.rows, range: start..self.position }))
    }

    /// How many bytes to fetch for a page, if its claims can be true and it fits the budget when it
    /// is unpacked. So the budget also bounds the bytes that are fetched for it.
    fn worth_fetching(&self, page: PartialPage) -> Result<u64, ChunkError> {
        let PartialPage { bytes, unpacked } = page;
        let damaged =
            |why| Err(ChunkError::Damaged(format!("a page of {bytes} bytes claims to {why}")));
        // No codec makes random bytes longer by so much.
        if bytes > MAX_HEADER_BYTES + unpacked + unpacked / 4 {
            return damaged(format!("unpack to {unpacked}, which is far less"));
        }
        if unpacked > self.max_page_bytes {
            return Err(ChunkError::TooLarge(unpacked));
        }
        Ok(bytes)
    }
}
