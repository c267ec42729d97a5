//! A segment: the log of one live set in append-only files. Frames to bytes and back; no I/O here.
//!
//! All numbers are little-endian. A segment begins with a header of 64 bytes:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `bloomlog` |
//! | 8 | 2 | the version of the format: 0 |
//! | 10 | 1 | the hash: 1 for XXH3-64 |
//! | 11 | 1 | the kind: 1 for hashes alone |
//! | 12 | 4 | the epoch: increased by each process that writes |
//! | 16 | 8 | the seed of the hash |
//! | 24 | 8 | the set: the first 8 bytes of BLAKE3 of its database's number, one byte, and its name |
//! | 32 | 8 | the node: a number that only this log has, in all its segments |
//! | 40 | 8 | the number of the first frame |
//! | 48 | 8 | when its writer opened the log, in milliseconds since 1970 |
//! | 56 | 8 | check: XXH3-64 with the hash's seed of bytes 0 to 55 |
//!
//! Frames follow, each with a header of 40 bytes:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | check: XXH3-64 of all that follows in this frame |
//! | 8 | 4 | the length of what follows the frame's header |
//! | 12 | 4 | how many hashes; 0 for a record |
//! | 16 | 8 | the number of the frame, one more than that of the frame before |
//! | 24 | 8 | the time of the change, in milliseconds since 1970 |
//! | 32 | 1 | 1 add, 2 delete, 3 reserve, 4 drop, 5 expire |
//! | 33 | 7 | zero |
//! | 40 | | 8 bytes for each hash, or the record |
//!
//! A closed segment ends with 32 bytes: BLAKE3 of everything before.
//!
//! Adding is a union: a frame that is read twice, or out of order, adds nothing wrong; but in a set
//! that counts copies each hash of an *add* frame is one copy, so that a frame is read once. An
//! open segment may end in the middle of a frame that was being written; a closed one is complete
//! or corrupt.

use std::fmt;

use crate::hash::{IdHash, XXH3_SEED, Xxh3};
use crate::key::SegmentKey;

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"bloomlog";
/// The version of the format.
pub const VERSION: u16 = 0;
/// The length of a segment's header.
pub const HEADER_BYTES: usize = 64;
/// The length of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 40;
/// The length of the digest at the end of a closed segment.
pub const DIGEST_BYTES: usize = 32;
/// The most hashes of a frame; more are written as several.
pub const MAX_FRAME_HASHES: usize = 1 << 16;
/// The longest record.
pub const MAX_RECORD_BYTES: usize = 4096;

const XXH3: u8 = 1;
const HASHES: u8 = 1;

/// The number of a set, from its name and its database: the first 8 bytes of BLAKE3, never 0.
pub fn set_number(database: u8, name: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[database]);
    hasher.update(name);
    u64_at(hasher.finalize().as_bytes(), 0).max(1)
}

/// What a segment states about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose log it is.
    pub set: u64,
    /// Who writes it.
    pub node: u64,
    /// Increased by each process that writes.
    pub epoch: u32,
    /// The number of its first frame.
    pub first_seq: u64,
    /// When its writer opened the log, in milliseconds since 1970.
    pub created_ms: u64,
}

/// The place of a frame in the order of all logs of a filter: of two changes of an ID the greater
/// one counts. The order of the fields is the order of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeOrder {
    /// When it was made, in milliseconds since 1970.
    pub ms: u64,
    /// Who wrote it.
    pub node: u64,
    /// The process that wrote it.
    pub epoch: u32,
    /// Its number in its log.
    pub seq: u64,
}

impl ChangeOrder {
    /// The place of a frame of the segment with this header.
    pub fn of(header: &Header, frame: &Frame<'_>) -> ChangeOrder {
        ChangeOrder { ms: frame.ms, node: header.node, epoch: header.epoch, seq: frame.seq }
    }
}

/// What a frame changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The hashes were added, or seen again.
    Add = 1,
    /// The hashes were deleted.
    Delete = 2,
    /// The set begins, with the options in the record.
    Reserve = 3,
    /// The set ends.
    Drop = 4,
    /// The record has the time at which the set ends.
    Expire = 5,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its number.
    pub seq: u64,
    /// When it was made, in milliseconds since 1970.
    pub ms: u64,
    /// What it is.
    pub op: Op,
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The hashes, of a frame that has hashes.
    pub fn hashes(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let is_hashes = matches!(self.op, Op::Add | Op::Delete);
        let payload = if is_hashes { self.payload() } else { &[] };
        payload.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// The record, of a frame that has one.
    pub fn record(&self) -> &'a [u8] {
        if matches!(self.op, Op::Add | Op::Delete) { &[] } else { self.payload() }
    }

    /// All its bytes, as they are in every segment that has it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn payload(&self) -> &'a [u8] {
        &self.bytes[FRAME_HEADER_BYTES..]
    }
}

/// What is wrong with the bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// They do not begin with a header of a segment.
    Header,
    /// They are of a later version of the format.
    Version(u16),
    /// They contain other hashes than those of this program.
    Hash,
    /// A frame begins here that is incomplete, or not what was written.
    Frame {
        /// The place of the frame.
        at: usize,
    },
    /// The digest at the end is not that of what is before.
    Digest,
    /// The header says that it is another segment than its name says.
    Name,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Header => f.write_str("it does not begin with the header of a segment"),
            SegmentError::Version(got) => {
                write!(f, "it has version {got}, and this program reads version {VERSION}")
            }
            SegmentError::Hash => f.write_str("it has other hashes than those of this program"),
            SegmentError::Frame { at } => {
                write!(f, "the frame at byte {at} is damaged or incomplete")
            }
            SegmentError::Digest => f.write_str("its digest is not that of its bytes"),
            SegmentError::Name => f.write_str("its header does not say what its name says"),
        }
    }
}

impl Header {
    /// The bytes of a header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([XXH3, HASHES]);
        bytes.extend(self.epoch.to_le_bytes());
        for number in [XXH3_SEED, self.set, self.node, self.first_seq, self.created_ms] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(Xxh3::of(&bytes).0.to_le_bytes());
        bytes.try_into().expect("the fields have 64 bytes")
    }

    /// Reads the header at the beginning of a segment.
    ///
    /// # Errors
    /// [`SegmentError::Header`], [`SegmentError::Version`], [`SegmentError::Hash`].
    pub fn parse(bytes: &[u8]) -> Result<Header, SegmentError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(SegmentError::Header)?;
        if header[..8] != MAGIC || u64_at(header, 56) != Xxh3::of(&header[..56]).0 {
            return Err(SegmentError::Header);
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        if header[10..12] != [XXH3, HASHES] || u64_at(header, 16) != XXH3_SEED {
            return Err(SegmentError::Hash);
        }
        Ok(Header {
            set: u64_at(header, 24),
            node: u64_at(header, 32),
            epoch: u32_at(header, 12),
            first_seq: u64_at(header, 40),
            created_ms: u64_at(header, 48),
        })
    }
}

/// A closed segment with these frames.
pub fn closed(header: &Header, frames: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + frames.len() + DIGEST_BYTES);
    bytes.extend(header.encode());
    bytes.extend_from_slice(frames);
    let digest = blake3::hash(&bytes);
    bytes.extend(digest.as_bytes());
    bytes
}

/// Appends a frame with hashes.
///
/// # Panics
/// When there are more than [`MAX_FRAME_HASHES`], or `op` has a record.
pub fn append_hashes(to: &mut Vec<u8>, seq: u64, ms: u64, op: Op, hashes: &[u64]) {
    assert!(matches!(op, Op::Add | Op::Delete), "{op:?} has a record");
    assert!(hashes.len() <= MAX_FRAME_HASHES, "{} hashes in a frame", hashes.len());
    append(to, seq, ms, op, hashes.len(), 8 * hashes.len(), |to| {
        to.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes()));
    });
}

/// Appends a frame with a record.
///
/// # Panics
/// When it has more than [`MAX_RECORD_BYTES`], or `op` has hashes.
pub fn append_record(to: &mut Vec<u8>, seq: u64, ms: u64, op: Op, record: &[u8]) {
    assert!(!matches!(op, Op::Add | Op::Delete), "{op:?} has hashes");
    assert!(record.len() <= MAX_RECORD_BYTES, "{} bytes in a record", record.len());
    append(to, seq, ms, op, 0, record.len(), |to| to.extend_from_slice(record));
}

fn append(
    to: &mut Vec<u8>,
    seq: u64,
    ms: u64,
    op: Op,
    hashes: usize,
    bytes: usize,
    payload: impl FnOnce(&mut Vec<u8>),
) {
    let begin = to.len();
    to.reserve(FRAME_HEADER_BYTES + bytes);
    to.extend([0; 8]);
    to.extend((bytes as u32).to_le_bytes());
    to.extend((hashes as u32).to_le_bytes());
    to.extend(seq.to_le_bytes());
    to.extend(ms.to_le_bytes());
    to.extend([op as u8, 0, 0, 0, 0, 0, 0, 0]);
    payload(to);
    let check = Xxh3::of(&to[begin + 8..]).0;
    to[begin..begin + 8].copy_from_slice(&check.to_le_bytes());
}

/// The frames of a segment, one after the other. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    next_seq: u64,
}

impl<'a> Frames<'a> {
    /// The header of an open segment, and its frames, of which the last may be incomplete.
    ///
    /// # Errors
    /// Those of [`Header::parse`].
    pub fn of_open(bytes: &'a [u8]) -> Result<(Header, Frames<'a>), SegmentError> {
        let header = Header::parse(bytes)?;
        Ok((header, Frames { bytes, at: HEADER_BYTES, next_seq: header.first_seq }))
    }

    /// Frames from the middle of a segment; the first has this number.
    pub fn of_rest(bytes: &'a [u8], next_seq: u64) -> Frames<'a> {
        Frames { bytes, at: 0, next_seq }
    }

    /// The header of a closed segment, and its frames. Each of them is complete.
    ///
    /// # Errors
    /// Those of [`Header::parse`]; [`SegmentError::Digest`], [`SegmentError::Frame`]: fetch the
    /// segment again.
    pub fn of_closed(bytes: &'a [u8]) -> Result<(Header, Frames<'a>), SegmentError> {
        let (before, digest) =
            bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(SegmentError::Header)?;
        let (header, frames) = Frames::of_open(before)?;
        if blake3::hash(before) != *digest {
            return Err(SegmentError::Digest);
        }
        match frames.clone().find_map(Result::err) {
            Some(bad) => Err(bad),
            None => Ok((header, frames)),
        }
    }

    /// As [`Frames::of_closed`], for the segment that a store has under this name.
    ///
    /// # Errors
    /// Also [`SegmentError::Name`].
    pub fn of_named(
        key: &SegmentKey,
        bytes: &'a [u8],
    ) -> Result<(Header, Frames<'a>), SegmentError> {
        let (header, frames) = Frames::of_closed(bytes)?;
        let set = set_number(0, key.filter.as_str().as_bytes());
        let stated = (header.set, header.node, header.epoch, header.first_seq);
        if stated != (set, key.node, key.epoch, key.first_seq) {
            return Err(SegmentError::Name);
        }
        Ok((header, frames))
    }

    /// Where the next frame begins: what is before is good.
    pub fn good_bytes(&self) -> usize {
        self.at
    }

    /// The number of the next frame.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    fn parse(&self) -> Option<Frame<'a>> {
        let rest = &self.bytes[self.at..];
        let head: &[u8; FRAME_HEADER_BYTES] = rest.first_chunk()?;
        let length = u32_at(head, 8) as usize;
        let hashes = u32_at(head, 12) as usize;
        let op = match head[32] {
            1 => Op::Add,
            2 => Op::Delete,
            3 => Op::Reserve,
            4 => Op::Drop,
            5 => Op::Expire,
            _ => return None,
        };
        let fits = match op {
            Op::Add | Op::Delete => hashes <= MAX_FRAME_HASHES && length == 8 * hashes,
            _ => hashes == 0 && length <= MAX_RECORD_BYTES,
        };
        let frame = rest.get(..FRAME_HEADER_BYTES + length).filter(|_| fits)?;
        let seq = u64_at(head, 16);
        let is_whole = u64_at(head, 0) == Xxh3::of(&frame[8..]).0;
        (is_whole && seq == self.next_seq && head[33..] == [0; 7]).then(|| Frame {
            seq,
            ms: u64_at(head, 24),
            op,
            bytes: frame,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let Some(frame) = self.parse() else {
            let bad = SegmentError::Frame { at: self.at };
            self.bytes = &self.bytes[..self.at];
            return Some(Err(bad));
        };
        self.at += frame.bytes.len();
        self.next_seq = self.next_seq.wrapping_add(1);
        Some(Ok(frame))
    }
}

/// Whether a sound frame begins somewhere in these bytes. A frame that was being written has none
/// behind it.
pub fn has_frame(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1)).any(|at| {
        let next_seq = u64_at(bytes, at + 16);
        (1..=5).contains(&bytes[at + 32]) && Frames { bytes, at, next_seq }.parse().is_some()
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the header is longer"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the header is longer"))
}

#[cfg(test)]
mod tests;
