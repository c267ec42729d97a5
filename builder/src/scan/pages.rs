//! Page headers, read before anything is unpacked, so that what a piece may claim is bounded.
//!
//! No page is unpacked here.

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Encoding;

use super::header::{Header, Kind};
use super::source::Layout;
use super::unpack::Codec;

/// The bytes that the rows of one batch may have together.
const MAX_BATCH_BYTES: u64 = 256 << 20;

/// The most rows of a batch: few enough that its views stay in the cache of a core.
const MAX_BATCH_ROWS: u64 = 8192;

/// What a decoder keeps of each value in a dictionary, beside its bytes: a view.
const BYTES_A_VIEW: u64 = 16;

/// What a decoder keeps of each value of a page that begins with lists of lengths: two, and what it had
/// before it made its list larger.
const BYTES_A_LENGTH: u64 = 12;

/// What the headers of a piece's pages add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// Values and nulls of all data pages.
    pub(super) values: u64,
    /// How many rows a batch may have.
    pub(super) batch_rows: usize,
    /// How many bytes of it are in memory at once.
    pub(super) unpacked: u64,
    /// Where the last pages begin that all are PLAIN, and how many rows are before them.
    pub(super) plain_from: usize,
    pub(super) rows_before_plain: u64,
}

/// Walks the page headers of a piece of a column chunk.
///
/// Once this has passed, decoding batches of `batch_rows` holds `unpacked` bytes: the dictionary page,
/// the page at each end of a batch, and the rows between them, of which a quarter of `room` is enough.
///
/// Cost: a few hundred nanoseconds a page.
///
/// # Errors
/// What is wrong with which page, as text.
pub(super) fn check(chunk: &Bytes, layout: &Layout, room: u64) -> Result<Pages, String> {
    let (mut at, mut number, mut values) = (0, 0_u64, 0_u64);
    // Of a fixed size each row has as many bytes, null or not.
    let mut worst = 1 + layout.values.width as u64;
    let (mut dictionary, mut largest, mut lists, mut scratch) = (0, 0, 0, 0);
    let (mut plain_from, mut rows_before_plain) = (0, 0);
    while at < chunk.len() {
        let named = |why: String| format!("page {number} {why}");
        let (header, length) = Header::read(&chunk[at..]).map_err(named)?;
        at += length;
        let left = chunk.len() - at;
        if header.compressed as usize > left {
            let claims = header.compressed;
            return Err(named(format!("claims {claims} bytes of the {left} that are left")));
        }
        at += header.compressed as usize;
        let bytes = u64::from(header.uncompressed);
        match header.page {
            Kind::Data { values: rows, encoding, .. } => {
                values += u64::from(rows);
                worst = worst.max(bytes_per_row(bytes, rows, encoding));
                largest = largest.max(bytes);
                let has_lists = matches!(
                    encoding,
                    Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
                );
                lists = lists.max(if has_lists { BYTES_A_LENGTH * u64::from(rows) } else { 0 });
            }
            Kind::Dictionary { values, .. } => {
                // Each value has a byte, or its length.
                if u64::from(values) > bytes {
                    let why = format!("claims a dictionary of {values} values in {bytes} bytes");
                    return Err(named(why));
                }
                dictionary = dictionary.max(bytes + BYTES_A_VIEW * u64::from(values));
            }
            Kind::Index => {}
        }
        scratch = scratch.max(Codec::scratch(layout.codec, bytes));
        number += 1;
        if !is_plain(&header) {
            (plain_from, rows_before_plain) = (at, values);
        }
    }
    let batch_rows = (MAX_BATCH_BYTES.min(room / 4) / worst).clamp(1, MAX_BATCH_ROWS);
    let unpacked = dictionary + 2 * largest + lists + scratch + batch_rows * worst;
    let batch_rows = batch_rows as usize;
    Ok(Pages { values, batch_rows, unpacked, plain_from, rows_before_plain })
}

/// Whether this is a data page of values as they are.
fn is_plain(header: &Header) -> bool {
    matches!(header.page, Kind::Data { encoding: Encoding::PLAIN, .. })
}

/// The most memory that one row of the page can need, on average over a batch of them.
fn bytes_per_row(bytes: u64, rows: u32, encoding: Encoding) -> u64 {
    match encoding {
        // Each value may repeat the one before it, whose bytes are then copied.
        Encoding::DELTA_BYTE_ARRAY => bytes,
        _ => bytes / u64::from(rows.max(1)),
    }
}

/// The whole pages at the front of a column chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) bytes: usize,
    /// Values and nulls of the data pages, as claimed.
    pub(super) rows: u64,
    /// Where the dictionary lies, with its header.
    pub(super) dictionary: Option<Range<usize>>,
    /// The page behind them, if its header is there.
    pub(super) next: Option<Next>,
}

/// A page that is not whole yet. Both are as claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// How many bytes it has in the file, with its header.
    pub(super) bytes: u64,
    /// How many it unpacks to.
    pub(super) unpacked: u64,
}

/// Finds the whole pages at the front of a chunk, of which not all is there. Nothing is checked.
pub(super) fn whole(front: &[u8]) -> Whole {
    let mut whole = Whole { bytes: 0, rows: 0, dictionary: None, next: None };
    while let Ok((header, length)) = Header::read(&front[whole.bytes..]) {
        let bytes = u64::from(header.compressed) + length as u64;
        if bytes > (front.len() - whole.bytes) as u64 {
            whole.next = Some(Next { bytes, unpacked: u64::from(header.uncompressed) });
            break;
        }
        let page = whole.bytes..whole.bytes + bytes as usize;
        whole.bytes = page.end;
        match header.page {
            Kind::Dictionary { .. } => whole.dictionary = Some(page),
            Kind::Index => {}
            Kind::Data { values, .. } => whole.rows += u64::from(values),
        }
    }
    whole
}

/// What the first page of a chunk claims.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) uncompressed: i64,
    pub(super) compressed: i64,
    pub(super) length: usize,
}

#[cfg(test)]
pub(super) fn claims(chunk: &[u8]) -> Claims {
    let (Header { uncompressed, compressed, .. }, length) = Header::read(chunk).unwrap();
    Claims { uncompressed: i64::from(uncompressed), compressed: i64::from(compressed), length }
}

#[cfg(test)]
pub(super) mod tests {
    use parquet::basic::{Compression, Type as Physical};

    use super::super::header::tests::header;
    use super::super::values::Values;
    use super::*;

    /// A column of byte arrays in no codec.
    pub(in super::super) const PLAIN: Layout = Layout {
        codec: Compression::UNCOMPRESSED,
        max_level: 0,
        values: Values { physical: Physical::BYTE_ARRAY, width: 0, none: false },
    };

    fn check_plain(chunk: &[u8]) -> Result<Pages, String> {
        check(&Bytes::copy_from_slice(chunk), &PLAIN, 1 << 30)
    }

    #[test]
    fn headers_give_sizes_and_counts() {
        let two = [header(20, 4, 0), vec![1, 2], header(20, 2, 0), vec![1]].concat();
        let expected = Pages {
            values: 8,
            batch_rows: 8192,
            unpacked: 20 + 2 * 8192,
            plain_from: 0,
            rows_before_plain: 0,
        };
        assert_eq!(check_plain(&two), Ok(expected));
        // A page of another encoding, and what comes before it, is for others.
        let three = [&two[..], &header(20, 2, 8), &[1], &header(20, 0, 0)].concat();
        let checked = check_plain(&three).unwrap();
        assert_eq!((checked.plain_from, checked.rows_before_plain), (two.len() + 18, 12));
        let past_the_end = check_plain(&header(20, 10, 0)).unwrap_err();
        assert!(past_the_end.contains("page 0 claims 5 bytes of the 0"), "{past_the_end}");
    }

    #[test]
    fn batches_shrink_where_rows_are_large_or_may_grow() {
        assert_eq!(bytes_per_row(1 << 20, 1 << 10, Encoding::PLAIN), 1 << 10);
        assert_eq!(bytes_per_row(1 << 20, 1 << 10, Encoding::DELTA_BYTE_ARRAY), 1 << 20);
        assert_eq!(bytes_per_row(1 << 20, 0, Encoding::PLAIN), 1 << 20);
    }

    #[test]
    fn what_decoders_keep_beside_the_bytes_counts_too() {
        let dictionary =
            |values: u8| [0x15, 4, 0x15, 20, 0x15, 0, 0x4c, 0x15, values, 0x15, 0, 0, 0];
        assert_eq!(check_plain(&dictionary(8)).unwrap().unpacked, 10 + 4 * 16 + 2 * 8192 - 8192);
        assert!(
            check_plain(&dictionary(22)).unwrap_err().contains("dictionary of 11 values in 10")
        );
        assert_eq!(check_plain(&header(20, 0, 6)).unwrap().unpacked, 20 + 4 * 12 + 2 * 8192);
    }
}
