//! [`Gather`]: IDs → distinct hashes, in packages of one range. No I/O, and no shape.

use std::collections::BTreeMap;

use bloomsday_common::hash::{IdHash, Xxh3, mix64};

use super::MAX_PACKAGE_HASHES;
use super::ranges::Ranges;
use crate::error::Error;
use crate::ids;
use crate::partition::sum_of;
use crate::segments::HASH_COLUMN;

/// How many hashes are kept before they are sorted and passed on: 32 MiB, and as much again in
/// packages.
const MAX_HASHES: usize = 4 << 20;
/// The most bytes of sampled IDs that are kept.
const MAX_SAMPLE_BYTES: usize = 4 << 20;
/// About this many IDs of the day are sampled.
const SAMPLED_IDS: u64 = 1 << 20;

/// Refuses the column [`HASH_COLUMN`], whose numbers are hashes already: hashed again, every ID
/// would be a miss.
///
/// # Errors
/// [`Error::NotInParts`].
pub fn check_column(column: &str) -> Result<(), Error> {
    if column != HASH_COLUMN {
        return Ok(());
    }
    let why = format!(
        "the column `{HASH_COLUMN}` has hashes, and parts hash IDs: build it on one machine; if it has IDs, give \
         it another name"
    );
    Err(Error::NotInParts { why })
}

/// Hashes the IDs of one task, and removes duplicates among those that it has in memory.
///
/// Duplicates that are removed here are not sent to another machine: an ID that a billion rows have
/// is sent once by each task.
#[derive(Debug)]
pub struct Gather {
    ranges: Ranges,
    /// One distinct ID in this many is sampled; a power of two.
    stride: u64,
    hashes: Vec<Xxh3>,
    /// Sampled IDs by their hash. An ID of many rows is there once.
    sample: BTreeMap<u64, Vec<u8>>,
    sample_bytes: usize,
    counts: ids::RowCounts,
}

/// Some hashes of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The range.
    pub range: u32,
    /// The numbers of the call that made this package, if it is the first of that call.
    pub gathered: Option<Gathered>,
    /// Distinct hashes, in ascending order.
    pub hashes: Vec<Xxh3>,
    /// Sampled IDs: the length of each in two bytes, and its bytes.
    pub samples: Vec<u8>,
}

/// The numbers of some packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// Rows read.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID is empty or too long.
    pub invalid: u64,
    /// How many hashes are in the packages.
    pub sent: u64,
    /// Their wrapping sum.
    pub sent_sum: u64,
}

impl Gather {
    /// For a day of about `rows` rows in all tasks, of which about a million IDs are sampled.
    pub fn new(ranges: Ranges, rows: u64) -> Gather {
        let stride = (rows / SAMPLED_IDS).max(1).next_power_of_two();
        let (hashes, sample) = (Vec::new(), BTreeMap::new());
        Gather {
            ranges,
            stride,
            hashes,
            sample,
            sample_bytes: 0,
            counts: ids::RowCounts::default(),
        }
    }

    /// Takes a valid ID.
    #[inline]
    pub fn push(&mut self, id: &[u8]) {
        let hash = Xxh3::of(id);
        self.hashes.push(hash);
        // Mixed, because the bits of the hash itself choose the bits of the filter.
        if mix64(hash.0) & (self.stride - 1) == 0 {
            self.keep(id, hash);
        }
    }

    #[cold]
    fn keep(&mut self, id: &[u8], hash: Xxh3) {
        let bytes = size_of::<u16>() + id.len();
        let there = self.sample.contains_key(&hash.0);
        if !there && self.sample_bytes + bytes <= MAX_SAMPLE_BYTES {
            self.sample_bytes += bytes;
            self.sample.insert(hash.0, id.to_vec());
        }
    }

    /// Adds the counts of the rows whose valid IDs were taken.
    pub fn count(&mut self, counts: ids::RowCounts) {
        self.counts += counts;
    }

    /// Whether it is time for [`Gather::packages`].
    #[inline]
    pub fn is_full(&self) -> bool {
        self.hashes.len() >= MAX_HASHES
    }

    /// The packages of everything taken since the last call; none if nothing was. Rows without any
    /// valid ID give one package without hashes, so that they are counted.
    pub fn packages(&mut self) -> Vec<Package> {
        let counts = std::mem::take(&mut self.counts);
        let mut hashes = std::mem::take(&mut self.hashes);
        let sample = std::mem::take(&mut self.sample);
        self.sample_bytes = 0;
        if counts == ids::RowCounts::default() && hashes.is_empty() {
            return Vec::new();
        }
        hashes.sort_unstable();
        hashes.dedup();
        let ids::RowCounts { rows, nulls, invalid } = counts;
        let (sent, sent_sum) = (hashes.len() as u64, sum_of(&hashes));
        let mut packages = Vec::new();
        let of_one_range = hashes.chunk_by(|a, b| self.ranges.of(*a) == self.ranges.of(*b));
        for run in of_one_range {
            let range = self.ranges.of(run[0]);
            let (first, last) = self.ranges.hashes(range);
            let mut samples = Vec::new();
            for id in sample.range(first..=last).map(|(_, id)| id) {
                // The length of an ID fits 16 bits.
                samples.extend_from_slice(&(id.len() as u16).to_le_bytes());
                samples.extend_from_slice(id);
            }
            for hashes in run.chunks(MAX_PACKAGE_HASHES) {
                let (hashes, samples) = (hashes.to_vec(), std::mem::take(&mut samples));
                packages.push(Package { range, gathered: None, hashes, samples });
            }
        }
        if packages.is_empty() {
            let (hashes, samples) = (Vec::new(), Vec::new());
            packages.push(Package { range: 0, gathered: None, hashes, samples });
        }
        packages[0].gathered = Some(Gathered { rows, nulls, invalid, sent, sent_sum });
        // The next IDs need as much memory again.
        hashes.clear();
        self.hashes = hashes;
        packages
    }
}
