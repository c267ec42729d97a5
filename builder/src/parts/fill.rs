//! [`Fill`]: a range's distinct hashes → its pieces of the blob. No I/O, and no counts of rows.

use std::ops::Range;
use std::sync::OnceLock;

use bloomsday_common::blob::{BlobSizes, SUBTREE_BYTES, subtree_chaining_value};
use bloomsday_common::day::Day;
use bloomsday_common::digest::ChainingValue;
use bloomsday_common::filter::{BlockRange, OnesHistogram, Shape};
use bloomsday_common::hash::Xxh3;
use bloomsday_common::key::FilterName;

use super::ranges::Ranges;
use crate::error::Error;
use crate::partition::sum_of;
use crate::verify::{ABSENT_LOOKUPS, absent_hashes};

/// What all tasks that fill know: the shape, the ranges, and where the bytes of the blob lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillPlan {
    /// The filter's shape.
    pub shape: Shape,
    /// The ranges of hashes.
    pub ranges: Ranges,
    /// Where the bytes of the blob lie.
    pub blob_sizes: BlobSizes,
}

impl FillPlan {
    /// For a blob of this filter and day.
    pub fn new(filter: &FilterName, day: Day, shape: Shape, ranges: Ranges) -> FillPlan {
        FillPlan { shape, ranges, blob_sizes: BlobSizes::of(filter, day, shape) }
    }

    /// The blocks of a range. The first and the last may belong to other ranges, too.
    pub(super) fn blocks(&self, range: u32) -> Range<u64> {
        let (first, last) = self.ranges.hashes(range);
        BlockRange::blocks_of(self.shape, first, last)
    }

    /// Where a block lies in the blob.
    pub(super) fn offset(&self, block: u64) -> u64 {
        self.blob_sizes.header_bytes + block * BlockRange::BLOCK_BYTES as u64
    }
}

/// One range, filled, with its IDs looked up in it.
#[derive(Debug)]
pub struct Fill {
    plan: FillPlan,
    bits: BlockRange,
    /// The chaining values of the parts that lie within this range, each with its number.
    values: Vec<(u64, ChainingValue)>,
    numbers: Filled,
}

/// The numbers of a range that was filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The number of hashes.
    pub ids: u64,
    /// Their wrapping sum.
    pub sum: u64,
    /// How many of them are not found.
    pub lost: u64,
    /// How many sampled IDs were looked up by their bytes.
    pub sampled: u64,
    /// How many of those are not found.
    pub lost_samples: u64,
    /// How many IDs that are in no filter are found in blocks of this range only.
    pub hits: u64,
    /// How full the blocks of this range only are.
    pub blocks: OnesHistogram,
}

/// A piece of the blob.
#[derive(Clone, Copy, Debug)]
pub struct BlobPiece<'a> {
    /// The number of its part.
    pub part: u64,
    /// Where it begins in the blob.
    pub offset: u64,
    /// The chaining value of the part, if the piece is all of it and no other range has blocks in
    /// it.
    pub value: Option<ChainingValue>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Fill {
    /// Sets the bits of a range, computes the chaining values of its parts, and then looks up every
    /// hash and every sampled ID in the same bytes.
    ///
    /// Memory: the bits of the range. Cost: one store and one lookup a hash, next to each other in
    /// memory.
    ///
    /// # Errors
    /// [`Error::Changed`]: these are not distinct hashes of this range, in ascending order.
    pub fn range(
        plan: FillPlan,
        range: u32,
        hashes: &[Xxh3],
        samples: &[u8],
    ) -> Result<Fill, Error> {
        let changed = || Error::Changed { written: "that were counted", read: "to be filled in" };
        if range >= plan.ranges.count()
            || !hashes.is_sorted_by(|a, b| a < b)
            || [hashes.first(), hashes.last()]
                .into_iter()
                .flatten()
                .any(|h| plan.ranges.of(*h) != range)
        {
            return Err(changed());
        }
        let mut bits = BlockRange::zeroed(plan.shape, plan.blocks(range));
        bits.insert(hashes);
        let mut fill = Fill { plan, bits, values: Vec::new(), numbers: Filled::default() };
        fill.values = fill.values();
        // From here on the bits are only read: what is looked up is what the values are of.
        let (sampled, lost_samples) = fill.look_up(samples).ok_or_else(changed)?;
        let own = fill.own_blocks();
        let mut blocks = OnesHistogram::new();
        blocks.add(&fill.bits.bytes()[fill.place(own.clone())]);
        fill.numbers = Filled {
            ids: hashes.len() as u64,
            sum: sum_of(hashes),
            lost: (hashes.len() - fill.bits.count(hashes)) as u64,
            sampled,
            lost_samples,
            hits: fill.bits.count(absent_in(plan.shape, own)) as u64,
            blocks,
        };
        Ok(fill)
    }

    /// The numbers of the range.
    pub fn numbers(&self) -> &Filled {
        &self.numbers
    }

    /// The pieces of the blob, in order: each lies in one part.
    pub fn pieces(&self) -> impl Iterator<Item = BlobPiece<'_>> {
        let start = self.plan.offset(self.bits.blocks().start);
        let end = self.plan.offset(self.bits.blocks().end);
        let first_part = start / SUBTREE_BYTES as u64;
        (first_part..end.div_ceil(SUBTREE_BYTES as u64)).map(move |part| {
            let of_part = part * SUBTREE_BYTES as u64..(part + 1) * SUBTREE_BYTES as u64;
            let (from, to) = (of_part.start.max(start), of_part.end.min(end));
            let value = self.values.iter().find(|(number, _)| *number == part);
            let bytes = &self.bits.bytes()[(from - start) as usize..(to - start) as usize];
            BlobPiece { part, offset: from, value: value.map(|(_, value)| *value), bytes }
        })
    }

    /// The chaining values of the parts of which no other range has a block.
    fn values(&self) -> Vec<(u64, ChainingValue)> {
        let own = self.own_blocks();
        let (start, end) = (self.plan.offset(own.start), self.plan.offset(own.end));
        let whole = self.pieces().filter(|piece| {
            let is_whole = piece.bytes.len() == SUBTREE_BYTES;
            is_whole && piece.offset >= start && piece.offset + SUBTREE_BYTES as u64 <= end
        });
        let content = self.plan.blob_sizes.content();
        whole
            .map(|piece| (piece.part, subtree_chaining_value(content, piece.offset, piece.bytes)))
            .collect()
    }

    /// The blocks that no other range can have: all but the first and the last.
    fn own_blocks(&self) -> Range<u64> {
        let Range { start, end } = self.bits.blocks();
        start + 1..(end - 1).max(start + 1)
    }

    /// Where blocks lie in the bytes of the range.
    fn place(&self, blocks: Range<u64>) -> Range<usize> {
        let first = self.bits.blocks().start;
        let at = |block: u64| (block - first) as usize * BlockRange::BLOCK_BYTES;
        let end = self.bits.bytes().len();
        at(blocks.start).min(end)..at(blocks.end).min(end)
    }

    /// Looks up sampled IDs: how many there are, and how many are not found. `None` if these are
    /// none.
    fn look_up(&self, mut samples: &[u8]) -> Option<(u64, u64)> {
        let (mut sampled, mut lost) = (0, 0);
        while let Some((length, rest)) = samples.split_first_chunk::<2>() {
            let (id, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            sampled += 1;
            lost += u64::from(!self.bits.contains(id));
            samples = rest;
        }
        samples.is_empty().then_some((sampled, lost))
    }
}

/// The hashes of the IDs that no filter contains, of these blocks, in ascending order.
pub(super) fn absent_in(shape: Shape, blocks: Range<u64>) -> &'static [Xxh3] {
    // The same for every build of a process: 8 MiB.
    static ABSENT: OnceLock<Vec<Xxh3>> = OnceLock::new();
    let absent = ABSENT.get_or_init(|| {
        let mut absent = absent_hashes::<Xxh3>(0..ABSENT_LOOKUPS);
        absent.sort_unstable();
        absent
    });
    let block = |hash: &Xxh3| BlockRange::blocks_of(shape, hash.0, hash.0).start;
    let start = absent.partition_point(|hash| block(hash) < blocks.start);
    let end = absent.partition_point(|hash| block(hash) < blocks.end);
    &absent[start..end.max(start)]
}
