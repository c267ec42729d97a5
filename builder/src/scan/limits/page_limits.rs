//! Security boundary: bounds the memory that the pages of a piece may need, from their headers.
//!
//! Nothing is unpacked here.

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Encoding;

use super::decompress::Codec;
use super::page_header::{Header, PageKind};
use super::page_source::ColumnFormat;

/// The most bytes of one batch of rows.
const MAX_BATCH_BYTES: u64 = 256 << 20;

/// The most rows of one batch: few enough that its views stay in a core's cache.
const MAX_BATCH_ROWS: u64 = 8192;

/// What a decoder keeps of each value in a dictionary besides its bytes: a view.
const BYTES_PER_VIEW: u64 = 16;

/// What a decoder keeps of each value of a page that begins with lists of lengths: two lengths, and
/// the old list while it makes its list larger.
const BYTES_PER_LENGTH: u64 = 12;

/// The sums of the page headers of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) struct Pages {
    /// The values and nulls of all data pages.
    pub(in crate::scan) values: u64,
    /// The most rows of a batch.
    pub(in crate::scan) batch_rows: usize,
    /// The most bytes that are unpacked at the same time.
    pub(in crate::scan) unpacked: u64,
    /// Where the PLAIN pages at the end begin, and how many rows come before them.
    pub(in crate::scan) plain_from: usize,
    pub(in crate::scan) rows_before_plain: u64,
}

/// Walks the page headers of a piece of a column chunk.
///
/// After this check, decoding batches of `batch_rows` takes at most `unpacked` bytes: the
/// dictionary page, the page at each end of a batch, and the rows between them, which take at most
/// a quarter of `budget`.
///
/// Cost: one header per page.
///
/// # Errors
/// What is wrong with which page, as text.
pub(in crate::scan) fn check(
    chunk: &Bytes,
    format: &ColumnFormat,
    budget: u64,
) -> Result<Pages, String> {
    let (mut at, mut number, mut values) = (0, 0_u64, 0_u64);
    // In a column of a fixed width even a null row takes these bytes.
    let mut worst = 1 + format.values.width as u64;
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
            PageKind::Data { values: rows, encoding, .. } => {
                values += u64::from(rows);
                worst = worst.max(bytes_per_row(bytes, rows, encoding));
                largest = largest.max(bytes);
                let has_lists = matches!(
                    encoding,
                    Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
                );
                lists = lists.max(if has_lists { BYTES_PER_LENGTH * u64::from(rows) } else { 0 });
            }
            PageKind::Dictionary { values, .. } => {
                // Each value has a byte, or its length.
                if u64::from(values) > bytes {
                    let why = format!("claims a dictionary of {values} values in {bytes} bytes");
                    return Err(named(why));
                }
                dictionary = dictionary.max(bytes + BYTES_PER_VIEW * u64::from(values));
            }
            PageKind::Index => {}
        }
        scratch = scratch.max(Codec::scratch(format.codec, bytes));
        number += 1;
        if !is_plain(&header) {
            (plain_from, rows_before_plain) = (at, values);
        }
    }
    let batch_rows = (MAX_BATCH_BYTES.min(budget / 4) / worst).clamp(1, MAX_BATCH_ROWS);
    let unpacked = dictionary + 2 * largest + lists + scratch + batch_rows * worst;
    let batch_rows = batch_rows as usize;
    Ok(Pages { values, batch_rows, unpacked, plain_from, rows_before_plain })
}

/// Whether this is a data page of values as they are.
fn is_plain(header: &Header) -> bool {
    matches!(header.page, PageKind::Data { encoding: Encoding::PLAIN, .. })
}

/// The most memory that one row of the page can need, on average over a batch.
fn bytes_per_row(bytes: u64, rows: u32, encoding: Encoding) -> u64 {
    match encoding {
        // Each value may share all bytes with the value before it, and the decoder copies them.
        Encoding::DELTA_BYTE_ARRAY => bytes,
        _ => bytes / u64::from(rows.max(1)),
    }
}

/// The complete pages at the front of a column chunk.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::scan) struct CompletePages {
    pub(in crate::scan) bytes: usize,
    /// The values and nulls that the data pages claim.
    pub(in crate::scan) rows: u64,
    /// Where the dictionary lies, with its header.
    pub(in crate::scan) dictionary: Option<Range<usize>>,
    /// The page after them, if its header is complete.
    pub(in crate::scan) next: Option<PartialPage>,
}

/// A page of which only the first bytes are fetched. Both numbers are its header's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) struct PartialPage {
    /// Its bytes in the file, with its header.
    pub(in crate::scan) bytes: u64,
    /// The bytes that it unpacks to.
    pub(in crate::scan) unpacked: u64,
}

/// Finds the complete pages at the front of a chunk of which only the first bytes are fetched.
/// Checks nothing.
pub(in crate::scan) fn complete_pages(front: &[u8]) -> CompletePages {
    let mut complete = CompletePages { bytes: 0, rows: 0, dictionary: None, next: None };
    while let Ok((header, length)) = Header::read(&front[complete.bytes..]) {
        let bytes = u64::from(header.compressed) + length as u64;
        if bytes > (front.len() - complete.bytes) as u64 {
            complete.next = Some(PartialPage { bytes, unpacked: u64::from(header.uncompressed) });
            break;
        }
        let page = complete.bytes..complete.bytes + bytes as usize;
        complete.bytes = page.end;
        match header.page {
            PageKind::Dictionary { .. } => complete.dictionary = Some(page),
            PageKind::Index => {}
            PageKind::Data { values, .. } => complete.rows += u64::from(values),
        }
    }
    complete
}

/// What the first page of a chunk claims.
#[cfg(test)]
#[derive(Debug)]
pub(in crate::scan) struct Claims {
    pub(in crate::scan) uncompressed: i64,
    pub(in crate::scan) compressed: i64,
    pub(in crate::scan) length: usize,
}

#[cfg(test)]
pub(in crate::scan) fn claims(chunk: &[u8]) -> Claims {
    let (Header { uncompressed, compressed, .. }, length) = Header::read(chunk).unwrap();
    Claims { uncompressed: i64::from(uncompressed), compressed: i64::from(compressed), length }
}

#[cfg(test)]
pub(in crate::scan) mod tests {
    use parquet::basic::{Compression, Type as Physical};

    use super::super::page_header::tests::header;
    use super::super::values::Values;
    use super::*;

    /// A column of byte arrays in no codec.
    pub(in crate::scan) const PLAIN: ColumnFormat = ColumnFormat {
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
    fn the_memory_of_decoders_besides_the_bytes_counts_too() {
        let dictionary =
            |values: u8| [0x15, 4, 0x15, 20, 0x15, 0, 0x4c, 0x15, values, 0x15, 0, 0, 0];
        assert_eq!(check_plain(&dictionary(8)).unwrap().unpacked, 10 + 4 * 16 + 2 * 8192 - 8192);
        assert!(
            check_plain(&dictionary(22)).unwrap_err().contains("dictionary of 11 values in 10")
        );
        assert_eq!(check_plain(&header(20, 0, 6)).unwrap().unpacked, 20 + 4 * 12 + 2 * 8192);
    }
}
