//! Filter ⇄ bytes: one filter of one day, serialized. The only file that names bincode.
//!
//! The format, byte for byte, is in `docs/format.md` of the repository: enough to write a reader in
//! another language. It is frozen: another format gets another version.
//!
//! A blob depends only on the set of its IDs: two builds of the same set write the same bytes.

pub(crate) mod streamed;
pub(crate) mod sums;

use std::ops::Range;

use bincode::{Decode, Encode, config};

use crate::day::Day;
use crate::digest::Digest;
use crate::error::Error;
use crate::filter::{self, Filter, Kernel, Layout, Shape, blocked, classic};
use crate::hash::{IdHash, Murmur3, Spark, XXH3_SEED, Xxh3, splitmix64};
use crate::id_form::IdForm;
use crate::key::{BlobKey, FilterName};
use crate::memory::Buffer;
pub use streamed::{PART_BYTES, Places, StreamedBlob, part_value, seal};

/// The first bytes of every blob.
pub const MAGIC: [u8; 8] = *b"BLOOMSDY";
/// The format version that this program writes. It is frozen.
pub const VERSION: u16 = 1;
/// The oldest version that it reads. Version 0, of before the first release, differs in this number only.
const OLDEST_VERSION: u16 = 0;
/// The body begins at a multiple of this.
const ALIGNMENT: usize = 4096;
/// Magic, version and length of the record.
const FIXED_BYTES: usize = 14;
/// The longest record that is read.
const MAX_RECORD_BYTES: usize = 64 * 1024;
/// No blob has more bytes than this before its body.
pub(crate) const MAX_HEAD_BYTES: u64 =
    (FIXED_BYTES + MAX_RECORD_BYTES).next_multiple_of(ALIGNMENT) as u64;
/// How many fixed IDs the probe vector has.
const PROBE_IDS: usize = 64;

/// The format version of a blob that was opened, by its bytes.
///
/// ```
/// use bloomsday_common::blob;
///
/// assert_eq!(blob::version(b"BLOOMSDY\x01\0"), Some(blob::VERSION));
/// assert_eq!(blob::version(b"BLOOMSDY"), None);
/// ```
pub fn version(blob: &[u8]) -> Option<u16> {
    let bytes = blob.strip_prefix(&MAGIC)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

/// What a blob states about its filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The filter's name.
    pub filter: FilterName,
    /// The day whose IDs it contains.
    pub day: Day,
    /// Its layout, size and probes.
    pub shape: Shape,
    /// What is hashed of its IDs.
    pub id_form: IdForm,
    /// Where it came from.
    pub origin: Origin,
    /// How many distinct IDs it contains.
    pub ids: u64,
    /// The fpp it was sized for.
    pub fpp_target: f64,
    /// How many of the `fpp_lookups` were hits: false positives.
    pub fpp_hits: u64,
    /// How many IDs that are not in it were looked up to measure its fpp.
    pub fpp_lookups: u64,
    /// How many bits are set.
    pub ones: u64,
}

/// Where a filter came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built from IDs; their number is exact.
    Built,
    /// Imported from another system; the number of IDs is estimated from the fill.
    Imported,
}

impl Header {
    /// The measured false-positive probability.
    pub fn fpp_measured(&self) -> f64 {
        self.fpp_hits as f64 / self.fpp_lookups.max(1) as f64
    }

    /// The share of bits that are set.
    pub fn fill(&self) -> f64 {
        self.ones as f64 / self.shape.bits() as f64
    }
}

/// A filter with its header before and its digest after it, ready to be written.
#[derive(Debug)]
pub struct EncodedBlob<'a> {
    key: BlobKey,
    head: Vec<u8>,
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
    let head = encode_head(header);
    let digest = Digest::of(&head, filter.body());
    let key = BlobKey { filter: header.filter.clone(), day: header.day, digest };
    EncodedBlob { key, head, filter }
}

impl EncodedBlob<'_> {
    /// The blob's key.
    pub fn key(&self) -> &BlobKey {
        &self.key
    }

    /// Its bytes: header, body, digest.
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.head, self.filter.body(), self.key.digest.as_bytes()]
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

/// All bytes of what should be a blob, and what was computed from them while they arrived. Nothing is
/// checked yet: [`open`] does that.
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

/// Checks a fetched blob completely and views it as a filter.
///
/// Cost: no pass over the body and no copy, because its digest and bit count are in `fetched`.
///
/// # Errors
/// [`Error::Digest`]: fetch again; if it repeats, repoint.
/// [`Error::Version`]: upgrade this reader. [`Error::Length`], [`Error::Unsound`]: rebuild the day.
pub fn open(fetched: RawBlob, key: &BlobKey) -> Result<(Header, Filter), Error> {
    let RawBlob { memory, digest, ones } = fetched;
    let (header, body) = check_all_but_bits(&memory, memory.len() as u64, &memory, digest, key)?;
    if !memory[body.clone()].starts_with(&classic::header(header.shape)) {
        let why = "its body is of another shape than its header".to_owned();
        return Err(Error::Unsound { key: key.to_string(), why });
    }
    // The other bytes are the header, what a classic layout puts before its bits, and the trailer.
    let first_bit_byte = body.end - (header.shape.bits() / 8) as usize;
    let outside = [&memory[..first_bit_byte], &memory[body.end..]];
    let ones = ones - outside.into_iter().map(filter::count_ones).sum::<u64>();
    check_ones(&header, ones, key)?;
    let filter = Filter::new(header.shape, memory, body).with_id_form(header.id_form);
    check_kernel(&filter).map_err(|why| Error::Unsound { key: key.to_string(), why })?;
    Ok((header, filter))
}

/// Checks everything about a blob but its bits: its digest, its header, and its length. `first` are its first
/// bytes with all of its header, and `last` its last ones. Returns its header, and where its body is.
fn check_all_but_bits(
    first: &[u8],
    len: u64,
    last: &[u8],
    digest: Digest,
    key: &BlobKey,
) -> Result<(Header, Range<usize>), Error> {
    let unsound = |why: String| Error::Unsound { key: key.to_string(), why };
    let trailer = last.last_chunk::<{ Digest::BYTES }>().map(|bytes| Digest::new(*bytes));
    if digest != key.digest || trailer != Some(digest) {
        let got = if digest != key.digest { digest } else { trailer.unwrap_or(digest) };
        return Err(Error::Digest { key: key.to_string(), expected: key.digest, got });
    }
    let (header, record, start) = parse_head(first, key)?;
    if (&header.filter, header.day) != (&key.filter, key.day) {
        let (filter, day) = (&header.filter, header.day);
        return Err(unsound(format!("its header says it is `{filter}` of {day}")));
    }
    let end = start as u64 + header.shape.body_bytes();
    let expected = end + Digest::BYTES as u64;
    if len != expected {
        return Err(Error::Length { key: key.to_string(), expected, got: len });
    }
    let vector = ProbeVector::of(header.shape);
    if vector.hashes != record.probe_hashes || vector.positions != record.probe_positions {
        return Err(unsound("its probe vector is not what this program computes".into()));
    }
    Ok((header, start..end as usize))
}

/// Checks that as many bits are set as the header says, and that this fits the number of IDs.
fn check_ones(header: &Header, ones: u64, key: &BlobKey) -> Result<(), Error> {
    let unsound = |why: String| Error::Unsound { key: key.to_string(), why };
    if ones != header.ones {
        let stated = header.ones;
        return Err(unsound(format!("{ones} bits are set where its header says {stated}")));
    }
    check_fill(header).map_err(unsound)
}

/// The key that a blob states itself: filter and day in its header, digest in its last 32 bytes. For a
/// file without its name; [`open`] then checks whether it is true.
///
/// # Errors
/// As [`open`]; `file` is what messages call it.
pub fn key_of(bytes: &[u8], file: &str) -> Result<BlobKey, Error> {
    let (header, _, _) = parse_head(bytes, &file)?;
    let last = bytes.last_chunk::<{ Digest::BYTES }>();
    let digest = Digest::new(*last.expect("a header is longer than a digest"));
    Ok(BlobKey { filter: header.filter, day: header.day, digest })
}

/// The header at the beginning of a blob, whose other bytes are not there.
///
/// # Errors
/// As [`open`].
pub(crate) fn read_head(bytes: &[u8], key: &BlobKey) -> Result<Header, Error> {
    Ok(parse_head(bytes, key)?.0)
}

/// BLAKE3 of all bytes but the last 32: the digest that a blob's name and its last 32 bytes must state.
pub fn digest_of(blob: &[u8]) -> Digest {
    let content = &blob[..blob.len().saturating_sub(Digest::BYTES)];
    Digest::new(*blake3::hash(content).as_bytes())
}

/// Checks that the number of set bits fits the number of IDs. This detects a filter that is all ones, all
/// zeros or half filled, although its digest is right.
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

/// Looks up some hashes through the chosen kernel and through the scalar one, and compares.
///
/// Most random hashes miss at their first probe. So of some hashes in one block it takes the
/// one with the most probe bits set, which tests the other lanes, too.
fn check_kernel(filter: &Filter) -> Result<(), String> {
    if filter.shape().layout() != Layout::Blocked || filter.kernel() == Kernel::scalar() {
        return Ok(());
    }
    const STARTS: u64 = 1024;
    const CANDIDATES: u64 = 16;
    let (blocks, _) = filter.body().as_chunks::<{ blocked::BLOCK_BYTES }>();
    let probes = filter.shape().probes();
    let matched = |hash: u64| {
        let block = &blocks[blocked::block_of(hash, blocks.len() as u64)];
        let set = |i: &usize| {
            let bit = blocked::bit_of(hash, *i);
            block[(bit >> 3) as usize] >> (bit & 7) & 1 == 1
        };
        (0..probes as usize).take_while(set).count()
    };
    for start in 0..STARTS {
        let high = splitmix64(0, start) & !0xffff_ffff;
        let low = |i| splitmix64(0, start * CANDIDATES + i) & 0xffff_ffff;
        let candidates = (0..CANDIDATES).map(|i| high | low(i));
        let hash = candidates.max_by_key(|hash| matched(*hash)).expect("there are candidates");
        let expected = Kernel::scalar().contains(filter.body(), probes, hash);
        if filter.contains_hash(Xxh3(hash)) != expected {
            let kernel = filter.kernel();
            return Err(format!(
                "the {kernel:?} kernel and the scalar one disagree about hash {hash:#018x}"
            ));
        }
    }
    Ok(())
}

/// The record of the versions 0 and 1, which differ in that number only. Frozen: bincode is positional, so a changed
/// field is a new version with a struct of its own.
#[derive(Encode, Decode)]
struct RecordV1 {
    filter: String,
    day: String,
    layout: u8,
    units: u64,
    probes: u32,
    body_bytes: u64,
    hash: u8,
    hash_bits: u16,
    hash_seed: u64,
    key_id: u64,
    id_encoding: u8,
    origin: u8,
    ids: u64,
    fpp_target: f64,
    fpp_hits: u64,
    fpp_lookups: u64,
    ones: u64,
    probe_hashes: Vec<u64>,
    probe_positions: Vec<u64>,
}

/// Fixed-width little-endian integers; a hostile length prefix is cut off at the limit.
fn codec() -> impl config::Config {
    config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<MAX_RECORD_BYTES>()
}

/// The codes of layout and hash, the hash's bits and its seed, as the record has them.
fn codes(layout: Layout) -> (u8, u8, u16, u64) {
    match layout {
        Layout::Blocked => (0, 0, 64, XXH3_SEED),
        Layout::Guava => (1, 1, 128, 0),
        Layout::Spark1 => (2, 2, 64, 0),
        Layout::Spark2 => (3, 2, 64, 0),
    }
}

fn encode_head(header: &Header) -> Vec<u8> {
    let shape = header.shape;
    let (layout, hash, hash_bits, hash_seed) = codes(shape.layout());
    let vector = ProbeVector::of(shape);
    let record = RecordV1 {
        filter: header.filter.to_string(),
        day: header.day.to_string(),
        layout,
        units: shape.units(),
        probes: shape.probes(),
        body_bytes: shape.body_bytes(),
        hash,
        hash_bits,
        hash_seed,
        key_id: 0,
        id_encoding: match header.id_form {
            IdForm::Bytes => 0,
            // The tests of all readers have 1 as the encoding that none knows.
            IdForm::Url => 2,
        },
        origin: match header.origin {
            Origin::Built => 0,
            Origin::Imported => 1,
        },
        ids: header.ids,
        fpp_target: header.fpp_target,
        fpp_hits: header.fpp_hits,
        fpp_lookups: header.fpp_lookups,
        ones: header.ones,
        probe_hashes: vector.hashes,
        probe_positions: vector.positions,
    };
    let record = bincode::encode_to_vec(record, codec()).expect("at most 64 IDs × 255 probes fit");
    let mut head = Vec::with_capacity(FIXED_BYTES + record.len() + ALIGNMENT);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&(record.len() as u32).to_le_bytes());
    head.extend_from_slice(&record);
    head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
    head
}

/// Reads everything before the body. Returns header, record, and where the body begins.
fn parse_head(
    blob: &[u8],
    key: &dyn std::fmt::Display,
) -> Result<(Header, RecordV1, usize), Error> {
    let unsound = |why: &str| Error::Unsound { key: key.to_string(), why: why.to_owned() };
    let Some((fixed, rest)) = blob.split_first_chunk::<FIXED_BYTES>() else {
        return Err(unsound("it is shorter than a header"));
    };
    let [magic @ .., v0, v1, l0, l1, l2, l3] = *fixed;
    if magic != MAGIC {
        return Err(unsound("it does not begin with BLOOMSDY"));
    }
    let version = u16::from_le_bytes([v0, v1]);
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(Error::Version { key: key.to_string(), version, known: VERSION });
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MAX_RECORD_BYTES {
        return Err(unsound("its record is longer than 65,536 bytes"));
    }
    let start = (FIXED_BYTES + length).next_multiple_of(ALIGNMENT);
    let (Some(record), Some(zeros)) = (rest.get(..length), blob.get(FIXED_BYTES + length..start))
    else {
        return Err(unsound("it ends within its header"));
    };
    if zeros.iter().any(|byte| *byte != 0) {
        return Err(unsound("the space before its body is not zero"));
    }
    let decoded = bincode::decode_from_slice::<RecordV1, _>(record, codec());
    let Ok((record, consumed)) = decoded else {
        return Err(unsound("its record cannot be decoded"));
    };
    if consumed != length {
        return Err(unsound("its record is shorter than it says"));
    }
    let header = header_of(&record).map_err(|why| unsound(&why))?;
    Ok((header, record, start))
}

/// Turns a decoded record into a header. Refuses everything that this program does not know.
fn header_of(record: &RecordV1) -> Result<Header, String> {
    let known = Layout::ALL.into_iter().find(|layout| codes(*layout).0 == record.layout);
    let layout = known.ok_or_else(|| format!("layout {} is unknown", record.layout))?;
    let stated = (record.layout, record.hash, record.hash_bits, record.hash_seed);
    let id_form = match record.id_encoding {
        0 => Some(IdForm::Bytes),
        2 => Some(IdForm::Url),
        _ => None,
    };
    let (true, 0, Some(id_form)) = (stated == codes(layout), record.key_id, id_form) else {
        return Err("its hash or ID encoding is unknown".into());
    };
    let shape = Shape::new(layout, record.units, record.probes).map_err(|e| e.to_string())?;
    if record.body_bytes != shape.body_bytes() {
        return Err("its body's length does not fit its shape".into());
    }
    let rate = record.fpp_target;
    let ids = 1..=shape.bits();
    if !(rate > 0.0 && rate < 1.0)
        || record.fpp_hits > record.fpp_lookups
        || !ids.contains(&record.ids)
    {
        return Err("its counts or rates are impossible".into());
    }
    Ok(Header {
        filter: record.filter.parse().map_err(|e: Error| e.to_string())?,
        day: record.day.parse().map_err(|e: Error| e.to_string())?,
        shape,
        id_form,
        origin: match record.origin {
            0 => Origin::Built,
            1 => Origin::Imported,
            other => return Err(format!("origin {other} is unknown")),
        },
        ids: record.ids,
        fpp_target: record.fpp_target,
        fpp_hits: record.fpp_hits,
        fpp_lookups: record.fpp_lookups,
        ones: record.ones,
    })
}

/// The `i`th of the 64 fixed IDs of the probe vector: lengths 1 to 16, then every 21st up to 1,024, so
/// that each branch of a hash by length is covered; the letters a to z, starting at the `i`th.
pub fn test_vector_id(i: usize) -> Vec<u8> {
    const LETTERS: [u8; PROBE_IDS + 1024] = {
        let mut letters = [0; PROBE_IDS + 1024];
        let mut j = 0;
        while j < letters.len() {
            letters[j] = b'a' + (j % 26) as u8;
            j += 1;
        }
        letters
    };
    let length = if i < 16 { i + 1 } else { 16 + (i - 15) * 21 };
    LETTERS[i..i + length].to_vec()
}

struct ProbeVector {
    hashes: Vec<u64>,
    positions: Vec<u64>,
}

impl ProbeVector {
    fn of(shape: Shape) -> ProbeVector {
        let mut vector = ProbeVector { hashes: Vec::new(), positions: Vec::new() };
        for id in (0..PROBE_IDS).map(test_vector_id) {
            match shape.layout() {
                Layout::Blocked => {
                    let Xxh3(hash) = Xxh3::of(&id);
                    let block = blocked::block_of(hash, shape.units()) as u64;
                    let bits = (0..shape.probes() as usize)
                        .map(|i| block * blocked::BLOCK_BITS + u64::from(blocked::bit_of(hash, i)));
                    vector.hashes.push(hash);
                    vector.positions.extend(bits);
                }
                Layout::Guava => {
                    let hash = Murmur3::of(&id);
                    vector.hashes.extend([hash.0, hash.1]);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
                Layout::Spark1 => {
                    let hash = Spark::<1>::of(&id);
                    vector.hashes.push(hash.0);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
                Layout::Spark2 => {
                    let hash = Spark::<2>::of(&id);
                    vector.hashes.push(hash.0);
                    vector.positions.extend(classic::bits_of(hash, shape));
                }
            }
        }
        vector
    }
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
