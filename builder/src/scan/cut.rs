//! [`Cutter`]: a column chunk → pieces of whole pages. A writer may put a whole day into one row group, and
//! its column neither fits a small budget nor should be one thread's work.
//!
//! No I/O: what to fetch is asked, and what was fetched is given. A piece begins with the chunk's dictionary,
//! fetched again, so that it reads like a chunk of its own, and nothing is held between two pieces.

use std::ops::Range;

use bytes::Bytes;

use super::footer::Chunk;
use super::pages::{self, Next};

/// A page header is never so long: one that cannot be read in so many bytes is none.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Cuts one chunk, from its first page on.
pub(super) struct Cutter<'a> {
    chunk: &'a Chunk,
    /// The most bytes of a piece, unless a page, or twice the dictionary, has more.
    most: u64,
    /// What a page may unpack to.
    unpacked: u64,
    /// Where the next piece begins in the file.
    at: u64,
    /// Rows of the pieces before.
    rows: u64,
    /// How much to fetch at least, for the page at `at` to be whole.
    least: u64,
    /// Where the dictionary lies in the file.
    dictionary: Range<u64>,
    is_done: bool,
}

/// What a piece is made of, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) dictionary: Range<u64>,
    pub(super) pages: Range<u64>,
}

impl Wanted {
    pub(super) fn bytes(&self) -> u64 {
        length(&self.dictionary) + length(&self.pages)
    }
}

pub(super) fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Whole pages of a chunk.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// How many rows the chunk has there: as its pages say, and in the last piece those left of what the
    /// footer says.
    pub(super) rows: u64,
    /// Where its own pages lie in the file; the dictionary in front of them does not count.
    pub(super) range: Range<u64>,
}

/// Why a chunk is not cut any further.
#[derive(Debug)]
pub(super) enum Refused {
    /// Its bytes cannot be right.
    Damaged(String),
    /// A page unpacks to so many bytes, for which there is no room.
    TooLarge(u64),
}

impl<'a> Cutter<'a> {
    /// Cuts into even pieces of at most `most` bytes. Pages may unpack to at most `unpacked` bytes each.
    pub(super) fn new(chunk: &'a Chunk, most: u64, unpacked: u64) -> Cutter<'a> {
        let at = chunk.range.start;
        Cutter { chunk, most, unpacked, at, rows: 0, least: 0, dictionary: at..at, is_done: false }
    }

    /// What to fetch next, unless nothing is left.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let dictionary = self.dictionary.clone();
        let dictionary_bytes = length(&dictionary);
        // About as many bytes of pages as are fetched and unpacked for them once more.
        let most = self.most.saturating_sub(dictionary_bytes).max(dictionary_bytes).max(1);
        let left = self.chunk.range.end - self.at;
        let even = left.div_ceil(left.div_ceil(most).max(1));
        let pages = self.at..self.at + even.max(self.least).min(left);
        (!self.is_done).then_some(Wanted { dictionary, pages })
    }

    /// Cuts what was wanted after its last whole page. Nothing, when not one is in it: then more is wanted.
    ///
    /// # Errors
    /// More rows than the footer promised, or a page that is not worth fetching.
    pub(super) fn cut(&mut self, fetched: Bytes) -> Result<Option<Piece>, Refused> {
        let front = length(&self.dictionary) as usize;
        let own = &fetched[front..];
        let (at, own_bytes) = (self.at, own.len() as u64);
        let left = self.chunk.rows.checked_sub(self.rows).ok_or_else(|| {
            let (rows, promised) = (self.rows, self.chunk.rows);
            let why = format!("its column has at least {rows} rows, and {promised} were promised");
            Refused::Damaged(why)
        })?;
        let all = at..at + own_bytes;
        self.is_done = all.end == self.chunk.range.end;
        if self.is_done {
            return Ok(Some(Piece { bytes: fetched, rows: left, range: all }));
        }
        let whole = pages::whole(own);
        self.least = whole.next.map_or(Ok(0), |next| self.worth_fetching(next))?;
        if whole.bytes == 0 {
            if whole.next.is_none() {
                // Of no use, however much is fetched: the decoder says why.
                self.is_done = own_bytes >= MAX_HEADER_BYTES;
                self.least = (2 * own_bytes).clamp(64, MAX_HEADER_BYTES);
            }
            return Ok(self.is_done.then_some(Piece { bytes: fetched, rows: left, range: all }));
        }
        if let Some(Range { start, end }) = whole.dictionary {
            self.dictionary = at + start as u64..at + end as u64;
        }
        self.rows = self.rows.saturating_add(whole.rows);
        self.at += whole.bytes as u64;
        let bytes = fetched.slice(..front + whole.bytes);
        Ok(Some(Piece { bytes, rows: whole.rows, range: at..self.at }))
    }

    /// How much to fetch for a page, if what it claims can be true and there will be room for it unpacked. So
    /// what is fetched for it is bounded by that room, too.
    fn worth_fetching(&self, Next { bytes, unpacked }: Next) -> Result<u64, Refused> {
        let damaged =
            |why| Err(Refused::Damaged(format!("a page of {bytes} bytes claims to {why}")));
        // No codec makes noise longer by so much.
        if bytes > MAX_HEADER_BYTES + unpacked + unpacked / 4 {
            return damaged(format!("unpack to {unpacked}, which is far less"));
        }
        if unpacked > self.unpacked {
            return Err(Refused::TooLarge(unpacked));
        }
        Ok(bytes)
    }
}
