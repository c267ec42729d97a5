//! [`Header`]: what a blob states about its filter, and its bytes. The only file that names
//! bincode.

use bincode::{Decode, Encode, config};

use super::test_vector::TestVector;
use crate::day::Day;
use crate::error::Error;
use crate::filter::{Layout, Shape};
use crate::hash::XXH3_SEED;
use crate::id_form::IdForm;
use crate::key::FilterName;

/// The first bytes of every blob.
pub const MAGIC: [u8; 8] = *b"BLOOMSDY";

/// The format version that this program writes. It is frozen.
pub const VERSION: u16 = 1;

/// The oldest version that it reads. Version 0, of before the first release, differs in this number
/// only.
const OLDEST_VERSION: u16 = 0;

/// The body begins at a multiple of this.
const ALIGNMENT: usize = 4096;

/// Magic, version and length of the record.
const FIXED_BYTES: usize = 14;

/// The longest record that is read.
const MAX_RECORD_BYTES: usize = 64 * 1024;

/// No blob has more bytes than this before its body.
pub(crate) const MAX_HEADER_BYTES: u64 =
    (FIXED_BYTES + MAX_RECORD_BYTES).next_multiple_of(ALIGNMENT) as u64;

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

/// The record of the versions 0 and 1, which differ in that number only. Frozen: bincode is
/// positional, so a changed field is a new version with a struct of its own.
#[derive(Encode, Decode)]
pub(super) struct RecordV1 {
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
    pub(super) probe_hashes: Vec<u64>,
    pub(super) probe_positions: Vec<u64>,
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

pub(super) fn encode_header(header: &Header) -> Vec<u8> {
    let shape = header.shape;
    let (layout, hash, hash_bits, hash_seed) = codes(shape.layout());
    let vector = TestVector::of(shape);
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
    let record = bincode::encode_to_vec(record, codec()).expect("at most 64 IDs × 125 probes fit");
    let mut bytes = Vec::with_capacity(FIXED_BYTES + record.len() + ALIGNMENT);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&record);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

/// Reads everything before the body. Returns header, record, and where the body begins.
pub(super) fn parse_header(
    blob: &[u8],
    key: &dyn std::fmt::Display,
) -> Result<(Header, RecordV1, usize), Error> {
    let unsound = |why: &str| Error::Malformed { key: key.to_string(), why: why.to_owned() };
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
