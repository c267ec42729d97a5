//! [`Cutter`]: a column chunk → pieces of whole pages. A writer may put a whole day into one row group, and
//! its column neither fits a small budget nor should be one thread's work.
//!
//! No I/O: what to fetch is asked, and what was fetched is given. A piece begins with the chunk's dictionary,
//! so that it reads like a chunk of its own.

use std::ops::Range;

use bytes::Bytes;

use super::footer::Chunk;
use super::pages::{self, MAX_PAGE_BYTES};

/// A page header is never so long: one that cannot be read in so many bytes is none.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Cuts one chunk, from its first page on.
pub(super) struct Cutter<'a> {
    chunk: &'a Chunk,
    /// The most bytes of a piece, unless a page has more.
    most: u64,
    /// Where the next piece begins in the file.
    at: u64,
    /// Up to where the file is in pieces: short of `at` where there is only a dictionary in between.
    covered: u64,
    /// Rows of the pieces before.
    rows: u64,
    /// What the page at `at` is known to take.
    least: u64,
    dictionary: Bytes,
    is_done: bool,
}

/// Whole pages of a chunk.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// How many rows the chunk has there: as its pages say, and in the last piece those left of what the
    /// footer says.
    pub(super) rows: u64,
    /// Where it begins in the file, but for the dictionary in front.
    pub(super) at: u64,
    /// How many of the file's bytes it has that no piece before it had.
    pub(super) covers: u64,
}

impl<'a> Cutter<'a> {
    /// Cuts into even pieces of at most `most` bytes.
    pub(super) fn new(chunk: &'a Chunk, most: u64) -> Cutter<'a> {
        let (at, most) = (chunk.range.start, most.max(1));
        Cutter {
            chunk,
            most,
            at,
            covered: at,
            rows: 0,
            least: 0,
            dictionary: Bytes::new(),
            is_done: false,
        }
    }

    /// What to fetch next, unless nothing is left.
    pub(super) fn wanted(&self) -> Option<Range<u64>> {
        let left = self.chunk.range.end - self.at;
        // A piece is no less than the dictionary that is copied and unpacked for it once more.
        let most = self.most.max(self.dictionary.len() as u64);
        let even = left.div_ceil(left.div_ceil(most).max(1));
        (!self.is_done).then(|| self.at..self.at + even.max(self.least).min(left))
    }

    /// What must be in front of what is fetched.
    pub(super) fn dictionary(&self) -> &Bytes {
        &self.dictionary
    }

    /// Cuts what was wanted after its last whole page. Nothing, when not one with rows is in it: then more is
    /// wanted.
    ///
    /// # Errors
    /// More rows than the footer promised.
    pub(super) fn cut(&mut self, fetched: Bytes) -> Result<Option<Piece>, String> {
        let front = self.dictionary.len();
        let own = &fetched[front..];
        let (at, length) = (self.at, own.len() as u64);
        let left = self.chunk.rows.checked_sub(self.rows).ok_or_else(|| {
            let (rows, promised) = (self.rows, self.chunk.rows);
            format!("its column has at least {rows} rows, and {promised} were promised")
        })?;
        let covers = at + length - self.covered;
        let rest = Piece { bytes: fetched.clone(), rows: left, at, covers };
        self.is_done = at + length == self.chunk.range.end;
        if self.is_done {
            return Ok(Some(rest));
        }
        let whole = pages::whole(own);
        if whole.bytes == 0 {
            self.least = whole.next.unwrap_or((2 * length).clamp(64, MAX_HEADER_BYTES));
            // Of no use, however much is fetched: the decoder says why.
            self.is_done = self.least <= length || self.least > MAX_PAGE_BYTES + MAX_HEADER_BYTES;
            return Ok(self.is_done.then_some(rest));
        }
        self.at += whole.bytes as u64;
        self.least = 0;
        if let Some(dictionary) = whole.dictionary.filter(|_| front == 0) {
            // A copy: the memory that it is in is for the next piece.
            self.dictionary = Bytes::copy_from_slice(&own[dictionary]);
        }
        self.rows = self.rows.saturating_add(whole.rows);
        if whole.rows == 0 {
            return Ok(None);
        }
        let covers = self.at - self.covered;
        self.covered = self.at;
        let bytes = fetched.slice(..front + whole.bytes);
        Ok(Some(Piece { bytes, rows: whole.rows, at, covers }))
    }
}
