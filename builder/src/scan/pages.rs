//! Page headers, read before anything is decompressed, so that what a page may claim is bounded.
//!
//! No page is decoded here. The decoder of the parquet crate believes every size a page claims,
//! and its gzip and LZ4 frame decoders do not even stop at it.

use std::io::Read;
use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Compression;

use super::thrift::Thrift;

/// The most bytes that one page may unpack to.
pub(super) const MAX_PAGE_BYTES: u64 = 1 << 30;

/// The bytes that the rows of one batch may have together.
const MAX_BATCH_BYTES: u64 = 256 << 20;

/// The most rows of a batch: few enough that its views stay in the cache of a core.
const MAX_BATCH_ROWS: u64 = 8192;

/// Deflate gives at most 1032 bytes for one, and LZ4 at most 255.
const SAFE_GZIP_BYTES: usize = (MAX_PAGE_BYTES / 1032) as usize;
const SAFE_LZ4_BYTES: usize = (MAX_PAGE_BYTES / 255) as usize;

/// What the headers of a piece's pages add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// Values and nulls of all data pages.
    pub(super) values: u64,
    /// How many rows a batch may have.
    pub(super) batch_rows: usize,
    /// How many bytes of it are in memory at once.
    pub(super) unpacked: u64,
    /// Whether a page begins with a list of lengths, for `delta` to check.
    pub(super) lengths: bool,
    /// Where the last pages begin that all are PLAIN, and how many rows are before them.
    pub(super) plain_from: usize,
    pub(super) rows_before_plain: u64,
}

/// Walks the page headers of a piece of a column chunk.
///
/// Once this has passed, decoding batches of `batch_rows` holds `unpacked` bytes: the dictionary page,
/// the page at each end of a batch, and the rows between them, of which a quarter of `room` is enough.
/// Each page has at most [`MAX_PAGE_BYTES`]. Counts inside the compressed part of a page are for `delta`
/// to check.
///
/// Cost: a few hundred nanoseconds a page; a gzip page of more than 1 MB is unpacked once more.
///
/// # Errors
/// What is wrong with which page, as text.
pub(super) fn check(chunk: &Bytes, codec: Compression, room: u64) -> Result<Pages, String> {
    let (mut at, mut number, mut values, mut worst) = (0, 0_u64, 0_u64, 1_u64);
    let (mut dictionary, mut largest) = (0, 0);
    let mut lengths = false;
    let (mut plain_from, mut rows_before_plain, mut some_empty) = (0, 0, false);
    while at < chunk.len() {
        let named = |why: String| format!("page {number} {why}");
        let (header, length) = Header::read(&chunk[at..]).map_err(named)?;
        at += length;
        let rest = &chunk[at..];
        let body = usize::try_from(header.compressed).ok().and_then(|n| rest.get(..n));
        let body = body.ok_or_else(|| {
            named(format!("claims {} bytes of the {} that are left", header.compressed, rest.len()))
        })?;
        header.check(body, codec).map_err(named)?;
        if header.kind != Header::DICTIONARY && header.kind != Header::INDEX {
            values += header.values as u64;
            some_empty |= header.values == 0;
            worst = worst.max(header.bytes_per_row());
            let encodings = [Header::DELTA_LENGTH_BYTE_ARRAY, Header::DELTA_BYTE_ARRAY];
            lengths |= encodings.contains(&header.encoding);
            largest = largest.max(header.uncompressed as u64);
        } else {
            dictionary = dictionary.max(header.uncompressed as u64);
        }
        at += body.len();
        number += 1;
        if !header.is_plain() {
            (plain_from, rows_before_plain) = (at, values);
        }
    }
    if some_empty && rows_before_plain > 0 {
        // Arrow, told to stop after some rows, would do so at a page without any.
        (plain_from, rows_before_plain) = (at, values);
    }
    let batch_rows = (MAX_BATCH_BYTES.min(room / 4) / worst).clamp(1, MAX_BATCH_ROWS);
    let unpacked = dictionary + 2 * largest + batch_rows * worst;
    let batch_rows = batch_rows as usize;
    Ok(Pages { values, batch_rows, unpacked, lengths, plain_from, rows_before_plain })
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
        let Ok(body) = u64::try_from(header.compressed) else { break };
        let bytes = body.saturating_add(length as u64);
        if bytes > (front.len() - whole.bytes) as u64 {
            let unpacked = u64::try_from(header.uncompressed).unwrap_or(0);
            whole.next = Some(Next { bytes, unpacked });
            break;
        }
        let page = whole.bytes..whole.bytes + bytes as usize;
        whole.bytes = page.end;
        match header.kind {
            Header::DICTIONARY => whole.dictionary = Some(page),
            Header::INDEX => {}
            _ => whole.rows = whole.rows.saturating_add(u64::try_from(header.values).unwrap_or(0)),
        }
    }
    whole
}

/// Of a page header what says how much memory the page needs. All of it is as claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    kind: i64,
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
    /// Of levels, in version 1 of a data page; version 2 has but one.
    levels_encoding: i64,
    /// Bytes in front of what is compressed; only version 2 of a data page has them.
    levels: i64,
}

impl Header {
    const DATA: i64 = 0;
    const INDEX: i64 = 1;
    const DICTIONARY: i64 = 2;
    const DATA_V2: i64 = 3;
    const PLAIN: i64 = 0;
    const RLE: i64 = 3;
    const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
    const DELTA_BYTE_ARRAY: i64 = 7;

    /// Reads the header at the front of `bytes`, and how long it is.
    fn read(bytes: &[u8]) -> Result<(Header, usize), String> {
        let mut thrift = Thrift { bytes, at: 0 };
        let mut header = Header::default();
        let seen = thrift.fields(&mut |thrift, field, kind| {
            match (field, kind) {
                (1, Thrift::I32) => header.kind = thrift.zigzag()?,
                (2, Thrift::I32) => header.uncompressed = thrift.zigzag()?,
                (3, Thrift::I32) => header.compressed = thrift.zigzag()?,
                // Data page, dictionary page, data page v2: the count first, the encoding after.
                (5 | 7 | 8, Thrift::STRUCT) => {
                    let encoding = if field == 8 { 4 } else { 2 };
                    thrift.fields(&mut |thrift, inner, kind| {
                        match (inner, kind) {
                            (1, Thrift::I32) => header.values = thrift.zigzag()?,
                            (n, Thrift::I32) if n == encoding => {
                                header.encoding = thrift.zigzag()?;
                            }
                            (3, Thrift::I32) if field == 5 => {
                                header.levels_encoding = thrift.zigzag()?;
                            }
                            (5 | 6, Thrift::I32) if field == 8 => {
                                let length = thrift.zigzag()?;
                                header.levels = header.levels.checked_add(length)?;
                            }
                            _ => thrift.skip(kind, Thrift::DEPTH)?,
                        }
                        Some(())
                    })?;
                }
                _ => thrift.skip(kind, Thrift::DEPTH)?,
            }
            Some(())
        });
        seen.ok_or("has a header that cannot be read")?;
        Ok((header, thrift.at))
    }

    /// Whether this is a data page of values as they are, with levels as all writers of today have them.
    fn is_plain(&self) -> bool {
        let levels = match self.kind {
            Header::DATA => self.levels_encoding,
            Header::DATA_V2 => Header::RLE,
            _ => return false,
        };
        self.encoding == Header::PLAIN && levels == Header::RLE
    }

    fn check(&self, body: &[u8], codec: Compression) -> Result<(), String> {
        let claims = u64::try_from(self.uncompressed)
            .map_err(|_| format!("claims to unpack to {} bytes", self.uncompressed))?;
        if claims > MAX_PAGE_BYTES {
            return Err(format!(
                "claims to unpack to {claims} bytes, and at most {MAX_PAGE_BYTES} are allowed"
            ));
        }
        let values = u64::try_from(self.values)
            .map_err(|_| format!("claims to hold {} values", self.values))?;
        if self.kind == Header::DICTIONARY && values > claims {
            return Err(format!("claims a dictionary of {values} values in {claims} bytes"));
        }
        let levels = usize::try_from(self.levels).ok();
        let split = levels.and_then(|n| Some((body.get(n..)?, claims.checked_sub(n as u64)?)));
        let (packed, claims) =
            split.ok_or_else(|| format!("claims levels of {} bytes", self.levels))?;
        match codec {
            Compression::GZIP(_) if packed.len() > SAFE_GZIP_BYTES => {
                gunzips_within(packed, claims)
            }
            Compression::LZ4 if packed.len() > SAFE_LZ4_BYTES && is_lz4_frame(packed) => {
                Err(format!(
                    "is an LZ4 frame of {} bytes, and at most {SAFE_LZ4_BYTES} are allowed",
                    packed.len()
                ))
            }
            _ => Ok(()),
        }
    }

    /// The most memory that one row of the page can need, on average over a batch of them.
    fn bytes_per_row(&self) -> u64 {
        let bytes = self.uncompressed.max(0) as u64;
        match self.encoding {
            // Each value may repeat the one before it, whose bytes are then copied.
            Header::DELTA_BYTE_ARRAY => bytes,
            _ => bytes / self.values.max(1) as u64,
        }
    }
}

/// Counts what a gzip stream unpacks to, without keeping it.
fn gunzips_within(packed: &[u8], claims: u64) -> Result<(), String> {
    let mut stream = flate2::read::MultiGzDecoder::new(packed).take(claims + 1);
    match std::io::copy(&mut stream, &mut std::io::sink()) {
        Ok(bytes) if bytes > claims => {
            Err(format!("unpacks to more than the {claims} bytes that it claims"))
        }
        // A damaged stream ends here as it will end in the real decoder, which then says why.
        _ => Ok(()),
    }
}

fn is_lz4_frame(body: &[u8]) -> bool {
    // The frame format and the one before it, which the same decoder reads.
    body.starts_with(&[0x04, 0x22, 0x4d, 0x18]) || body.starts_with(&[0x02, 0x21, 0x4c, 0x18])
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
    Claims { uncompressed, compressed, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A v1 data page header of 4 values with an encoding, and its levels' encodings.
    fn header(uncompressed: u8, compressed: u8, encoding: u8) -> Vec<u8> {
        let outer = [0x15, 0, 0x15, uncompressed, 0x15, compressed, 0x2c];
        let inner = [0x15, 8, 0x15, encoding * 2, 0x15, 6, 0x15, 6, 0];
        [&outer[..], &inner, &[0]].concat()
    }

    fn check_plain(chunk: &[u8]) -> Result<Pages, String> {
        check(&Bytes::copy_from_slice(chunk), Compression::UNCOMPRESSED, 1 << 30)
    }

    #[test]
    fn headers_give_sizes_counts_and_encodings() {
        let (read, length) = Header::read(&header(20, 10, 7)).unwrap();
        assert_eq!((read.kind, read.uncompressed, read.compressed), (0, 10, 5));
        assert_eq!((read.values, read.encoding, length), (4, 7, 17));
        let two = [header(20, 4, 0), vec![1, 2], header(20, 2, 0), vec![1]].concat();
        let expected = Pages {
            values: 8,
            batch_rows: 8192,
            unpacked: 20 + 2 * 8192,
            lengths: false,
            plain_from: 0,
            rows_before_plain: 0,
        };
        assert_eq!(check_plain(&two), Ok(expected));
        // A page of another encoding, and what comes before it, is for others.
        let three = [&two[..], &header(20, 2, 8), &[1], &header(20, 0, 0)].concat();
        let checked = check_plain(&three).unwrap();
        assert_eq!((checked.plain_from, checked.rows_before_plain), (two.len() + 18, 12));
        let mut empty = header(20, 0, 0);
        empty[8] = 0;
        let four = [&three[..], &empty].concat();
        let checked = check_plain(&four).unwrap();
        assert_eq!((checked.plain_from, checked.rows_before_plain), (four.len(), 16));
    }

    #[test]
    fn levels_of_a_version_2_page_are_not_part_of_what_is_packed() {
        use std::io::Write;
        let mut noise = 1_u64;
        let bytes: Vec<u8> = (0..2 * SAFE_GZIP_BYTES)
            .map(|_| {
                noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1);
                (noise >> 56) as u8
            })
            .collect();
        let mut gzip = flate2::write::GzEncoder::new(vec![9; 5], flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        let body = gzip.finish().unwrap();
        let mut v2 = vec![0x15, 6, 0x7c, 0x15, 8, 0x15, 0, 0x15, 8, 0x15, 0, 0x15, 4, 0x15, 6];
        v2.extend_from_slice(&[0, 0]);
        let (header, length) = Header::read(&v2).unwrap();
        assert_eq!((header.kind, header.values, header.levels, length), (3, 4, 5, v2.len()));
        let check = |uncompressed: usize| {
            let header = Header { uncompressed: uncompressed as i64, levels: 5, ..header };
            header.check(&body, Compression::GZIP(Default::default()))
        };
        assert_eq!(check(bytes.len() + 5), Ok(()));
        assert!(check(bytes.len() + 4).unwrap_err().contains("unpacks to more than"));
        let beyond = Header { uncompressed: 9, levels: 6, ..Header::default() };
        assert!(beyond.check(&[0; 5], Compression::SNAPPY).is_err());
    }

    #[test]
    fn fields_of_every_type_are_passed_over() {
        let kinds: [&[u8]; 9] = [
            &[0x11],
            &[0x12],
            &[0x13, 9],
            &[0x16, 0x81, 0x01],
            &[0x17, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x18, 3, b'a', b'b', b'c'],
            &[0x19, 0x21, 1, 2],
            &[0x1b, 2, 0x53, 2, 7, 4, 8],
            &[0x1c, 0x15, 2, 0],
        ];
        // Fields far beyond those known, by a number of their own.
        let mut bytes = vec![0x05, 0xc8, 0x01, 2];
        kinds.iter().for_each(|kind| bytes.extend_from_slice(kind));
        bytes.push(0);
        let (read, length) = Header::read(&bytes).unwrap();
        assert_eq!((read, length), (Header::default(), bytes.len()));
    }

    #[test]
    fn what_is_no_header_is_an_error_and_never_more() {
        let whole = header(20, 10, 0);
        for cut in 0..whole.len() {
            assert!(Header::read(&whole[..cut]).is_err(), "{cut}");
        }
        for wrong in
            [vec![0xff; 64], vec![0x1c; 64], vec![0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x0f]]
        {
            assert!(check_plain(&wrong).is_err(), "{wrong:x?}");
        }
        let past_the_end = check_plain(&header(20, 10, 0)).unwrap_err();
        assert!(past_the_end.contains("claims 5 bytes of the 0"), "{past_the_end}");
    }

    #[test]
    fn batches_shrink_where_rows_are_large_or_may_grow() {
        let page = |encoding, uncompressed: i64, values| {
            Header { encoding, uncompressed, values, ..Header::default() }.bytes_per_row()
        };
        assert_eq!(page(0, 1 << 20, 1 << 10), 1 << 10);
        assert_eq!(page(Header::DELTA_BYTE_ARRAY, 1 << 20, 1 << 10), 1 << 20);
        assert_eq!(page(0, 1 << 20, 0), 1 << 20);
    }

    #[test]
    fn claims_beyond_the_limits_are_refused() {
        let page = |kind, uncompressed: u64, values| Header {
            kind,
            uncompressed: uncompressed as i64,
            values,
            ..Header::default()
        };
        let check = |header: Header| header.check(&[], Compression::SNAPPY);
        assert_eq!(check(page(0, MAX_PAGE_BYTES, 1)), Ok(()));
        for wrong in [
            page(0, MAX_PAGE_BYTES + 1, 1),
            page(0, u64::MAX, 1),
            page(0, 9, -1),
            page(Header::DICTIONARY, 9, 10),
        ] {
            assert!(check(wrong).is_err());
        }
        let mut frame = vec![0; SAFE_LZ4_BYTES + 1];
        assert_eq!(page(0, 9, 1).check(&frame, Compression::LZ4), Ok(()));
        frame[..4].copy_from_slice(&[0x04, 0x22, 0x4d, 0x18]);
        assert!(page(0, 9, 1).check(&frame, Compression::LZ4).is_err());
        assert_eq!(page(0, 9, 1).check(&frame[..100], Compression::LZ4), Ok(()));
    }
}
