//! Filter ⇄ bytes: one filter of one day, serialized.
//!
//! The format, byte for byte, is in `docs/format.md` of the repository: enough to write a reader in
//! another language. It is frozen: another format gets another version.
//!
//! A blob depends only on the set of its IDs: two builds of the same set write the same bytes.

mod header;
mod kernel_check;
pub(crate) mod streamed;
mod summary;
pub(crate) mod sums;
mod test_vector;

use std::ops::Range;

pub(crate) use self::header::MAX_HEADER_BYTES;
pub use self::header::{Header, MAGIC, Origin, VERSION, version};
use self::header::{encode_header, parse_header};
use self::kernel_check::check_kernel;
pub use self::streamed::{BlobSizes, SUBTREE_BYTES, StreamedBlob, seal, subtree_chaining_value};
pub use self::summary::Summary;
use self::test_vector::TestVector;
pub use self::test_vector::test_vector_id;
use crate::digest::Digest;
use crate::error::Error;
use crate::filter::{self, Filter, classic};
use crate::key::BlobKey;
use crate::memory::Buffer;

/// A filter with its header before and its digest after it, ready to be written.
#[derive(Debug)]
pub struct EncodedBlob<'a> {
    key: BlobKey,
    header: Vec<u8>,
    filter: &'a Filter,
}

/// Encodes a filter as a blob.
///
/// Cost: one digest pass over the body; the body is not copied.
///
/// ```
/// use bloomsday_common::blob::{self, Header, Origin, RawBlob};
/// use bloomsday_common::filter::{FilterMut, Layout, Shape};
/// use bloomsday_common::hash::{IdHash, Xxh3};
/// use bloomsday_common::memory::Buffer;
///
/// let shape = Shape::for_ids(Layout::Blocked, 2, 0.01)?;
/// let mut filter = FilterMut::new(shape)?;
/// filter.insert(Xxh3::of(b"user-1"));
/// filter.insert(Xxh3::of(b"user-2"));
/// let filter = filter.freeze();
/// let header = Header {
///     filter: "rt".parse()?,
///     day: "2026-11-19".parse()?,
///     shape,
///     id_form: Default::default(),
///     origin: Origin::Built,
///     ids: 2,
///     fpp_target: 0.01,
///     fpp_hits: 0,
///     fpp_lookups: 0,
///     ones: filter.count_ones(),
/// };
/// let encoded = blob::encode(&header, &filter);
///
/// // Read again, as a server does.
/// let mut memory = Buffer::zeroed(encoded.len() as usize)?;
/// memory.copy_from_slice(&encoded.parts().concat());
/// let (read, filter) = blob::open(RawBlob::of(memory), encoded.key())?;
/// assert_eq!(read, header);
/// assert!(filter.contains(b"user-2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When the header is of a filter of another shape.
pub fn encode<'a>(header: &Header, filter: &'a Filter) -> EncodedBlob<'a> {
    assert_eq!(filter.shape(), header.shape, "a header describes its own filter");
    let header_bytes = encode_header(header);
    let digest = Digest::of(&header_bytes, filter.body());
    let key = BlobKey { filter: header.filter.clone(), day: header.day, digest };
    EncodedBlob { key, header: header_bytes, filter }
}

impl EncodedBlob<'_> {
    /// The blob's key.
    pub fn key(&self) -> &BlobKey {
        &self.key
    }

    /// Its bytes: header, body, digest.
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.header, self.filter.body(), self.key.digest.as_bytes()]
    }

    /// The number of its bytes.
    pub fn len(&self) -> u64 {
        self.parts().iter().map(|part| part.len() as u64).sum()
    }

    /// Always `false`: a blob has a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// All bytes of what should be a blob, and what was computed from them while they arrived. Nothing
/// is checked yet: [`open`] does that.
#[derive(Debug)]
pub struct RawBlob {
    /// The bytes, in memory that a filter can use.
    pub memory: Buffer,
    /// BLAKE3 of all bytes but the last 32 (see [`digest_of`]).
    pub digest: Digest,
    /// How many bits are set in all of them.
    pub ones: u64,
}

impl RawBlob {
    /// A blob that is in memory already. Cost: one pass to digest it, and one to count bits.
    pub fn of(memory: Buffer) -> RawBlob {
        let (digest, ones) = (digest_of(&memory), filter::count_ones(&memory));
        RawBlob { memory, digest, ones }
    }
}

/// A blob, every byte of which was checked.
#[derive(Debug)]
pub struct OpenedBlob {
    /// Its key.
    pub key: BlobKey,
    /// What it says of itself.
    pub header: Header,
    /// What answers lookups.
    pub filter: Filter,
}

/// Checks a fetched blob completely and views it as a filter.
///
/// Cost: no pass over the body and no copy, because its digest and bit count are in `fetched`.
///
/// # Errors
/// [`Error::Digest`]: fetch again; if it repeats, repoint.
/// [`Error::Version`]: upgrade this reader.
/// [`Error::Length`], [`Error::Malformed`]: rebuild the day.
pub fn open(fetched: RawBlob, key: &BlobKey) -> Result<(Header, Filter), Error> {
    let RawBlob { memory, digest, ones } = fetched;
    let (header, body) = check_all_but_bits(&memory, memory.len() as u64, &memory, digest, key)?;
    if !memory[body.clone()].starts_with(&classic::header(header.shape)) {
        let why = "its body is of another shape than its header".to_owned();
        return Err(Error::Malformed { key: key.to_string(), why });
    }
    // The other bytes are the header, what a classic layout puts before its bits, and the trailer.
    let first_bit_byte = body.end - (header.shape.bits() / 8) as usize;
    let outside = [&memory[..first_bit_byte], &memory[body.end..]];
    let ones = ones - outside.into_iter().map(filter::count_ones).sum::<u64>();
    check_ones(&header, ones, key)?;
    let filter = Filter::new(header.shape, memory, body).with_id_form(header.id_form);
    check_kernel(&filter).map_err(|why| Error::Malformed { key: key.to_string(), why })?;
    Ok((header, filter))
}

/// Checks everything about a blob but its bits: its digest, its header, and its length. `first` are
/// its first bytes with all of its header, and `last` its last ones. Returns its header, and where
/// its body is.
fn check_all_but_bits(
    first: &[u8],
    len: u64,
    last: &[u8],
    digest: Digest,
    key: &BlobKey,
) -> Result<(Header, Range<usize>), Error> {
    let unsound = |why: String| Error::Malformed { key: key.to_string(), why };
    let trailer = last.last_chunk::<{ Digest::BYTES }>().map(|bytes| Digest::new(*bytes));
    if digest != key.digest || trailer != Some(digest) {
        let got = if digest != key.digest { digest } else { trailer.unwrap_or(digest) };
        return Err(Error::Digest { key: key.to_string(), expected: key.digest, got });
    }
    let (header, record, start) = parse_header(first, key)?;
    if (&header.filter, header.day) != (&key.filter, key.day) {
        let (filter, day) = (&header.filter, header.day);
        return Err(unsound(format!("its header says it is `{filter}` of {day}")));
    }
    let end = start as u64 + header.shape.body_bytes();
    let expected = end + Digest::BYTES as u64;
    if len != expected {
        return Err(Error::Length { key: key.to_string(), expected, got: len });
    }
    let vector = TestVector::of(header.shape);
    if vector.hashes != record.probe_hashes || vector.positions != record.probe_positions {
        return Err(unsound("its test vector is not what this program computes".into()));
    }
    Ok((header, start..end as usize))
}

/// Checks that as many bits are set as the header says, and that this fits the number of IDs.
fn check_ones(header: &Header, ones: u64, key: &BlobKey) -> Result<(), Error> {
    let unsound = |why: String| Error::Malformed { key: key.to_string(), why };
    if ones != header.ones {
        let stated = header.ones;
        return Err(unsound(format!("{ones} bits are set where its header says {stated}")));
    }
    check_fill(header).map_err(unsound)
}

/// The key that a blob states itself: filter and day in its header, digest in its last 32 bytes.
/// For a file without its name; [`open`] then checks whether it is true.
///
/// # Errors
/// As [`open`]; `file` is what messages call it.
pub fn key_of(bytes: &[u8], file: &str) -> Result<BlobKey, Error> {
    let (header, _, _) = parse_header(bytes, &file)?;
    let last = bytes.last_chunk::<{ Digest::BYTES }>();
    let digest = Digest::new(*last.expect("a header is longer than a digest"));
    Ok(BlobKey { filter: header.filter, day: header.day, digest })
}

/// How long a blob is that begins with these bytes, by its header.
///
/// # Errors
/// As [`key_of`].
pub(crate) fn len_of(first: &[u8], file: &str) -> Result<u64, Error> {
    let (header, _, start) = parse_header(first, &file)?;
    Ok(start as u64 + header.shape.body_bytes() + Digest::BYTES as u64)
}

/// The header at the beginning of a blob, whose other bytes are not there.
///
/// # Errors
/// As [`open`].
pub(crate) fn read_header(bytes: &[u8], key: &BlobKey) -> Result<Header, Error> {
    Ok(parse_header(bytes, key)?.0)
}

/// BLAKE3 of all bytes but the last 32: the digest that a blob's name and its last 32 bytes must
/// state.
pub fn digest_of(blob: &[u8]) -> Digest {
    let content = &blob[..blob.len().saturating_sub(Digest::BYTES)];
    Digest::new(*blake3::hash(content).as_bytes())
}

/// Checks that the number of set bits fits the number of IDs. This detects a filter that is all
/// ones, all zeros or half filled, although its digest is right.
///
/// # Errors
/// A sentence with the numbers.
pub fn check_fill(header: &Header) -> Result<(), String> {
    let fill = header.fill();
    let (expected, tolerance) = header.shape.expected_fill(header.ids);
    if (fill - expected).abs() > tolerance {
        let ids = header.ids;
        return Err(format!(
            "{fill:.4} of its bits are set; {ids} IDs set {expected:.4} ± {tolerance:.4} of them"
        ));
    }
    Ok(())
}

/// Views a file that Guava's `BloomFilter.writeTo` wrote as a filter.
///
/// # Errors
/// A sentence: what is wrong with the file.
pub fn import_guava(file: Buffer) -> Result<Filter, String> {
    let shape = classic::guava_shape(&file)?;
    let body = 0..file.len();
    Ok(Filter::new(shape, file, body))
}

/// Views a file that Spark's `BloomFilter.writeTo` wrote as a filter, of version 1 or 2.
///
/// # Errors
/// A sentence: what is wrong with the file.
pub fn import_spark(file: Buffer) -> Result<Filter, String> {
    let shape = classic::spark_shape(&file)?;
    let body = 0..file.len();
    Ok(Filter::new(shape, file, body))
}

#[cfg(test)]
mod tests;
