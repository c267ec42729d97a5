//! The `blocked` layout: one 512-bit cache line per ID, `probes` bits in it.
//!
//! Putze, Sanders & Singler 2009 ("Cache-, hash- and space-efficient Bloom filters"), §3, with one
//! multiplication for each probe in place of double hashing. This file is the definition; the
//! kernels must give the same bits and results.

use super::Shape;
use crate::hash::IdHash;

/// 512 bits: bit `p` is bit `p & 7` of byte `p >> 3`.
pub(crate) type Block = [u8; 64];

pub(crate) const BLOCK_BYTES: usize = size_of::<Block>();
pub(crate) const BLOCK_BITS: u64 = 8 * BLOCK_BYTES as u64;

/// The most probes. A larger filter gains more than further probes do (see `shape`).
pub(crate) const MAX_PROBES: u32 = 16;

/// The most blocks: with more, the block would depend on the hash bits that choose the probes.
pub(crate) const MAX_BLOCKS: u64 = 1 << 32;

/// Odd multipliers, one for each probe: the first 16 words of the fraction of π, 32 bits each, with
/// the lowest bit set. Nobody could choose them to favour some IDs. Frozen with the format.
pub(crate) const SALTS: [u32; 16] = [
    0x243f_6a89,
    0x85a3_08d3,
    0x1319_8a2f,
    0x0370_7345,
    0xa409_3823,
    0x299f_31d1,
    0x082e_fa99,
    0xec4e_6c89,
    0x4528_21e7,
    0x38d0_1377,
    0xbe54_66cf,
    0x34e9_0c6d,
    0xc0ac_29b7,
    0xc97c_50dd,
    0x3f84_d5b5,
    0xb547_0917,
];

/// The block of a hash: fast-range on all 64 bits (Lemire 2019, "Fast random integer generation in
/// an interval"). Monotone: a larger hash never belongs to an earlier block.
#[inline(always)]
pub(crate) fn block_of(hash: u64, n_blocks: u64) -> usize {
    ((u128::from(hash) * u128::from(n_blocks)) >> 64) as usize
}

/// The bit that probe `i` tests, 0 to 511: from the low half of the hash, which the block, chosen
/// by the high bits, does not depend on.
#[inline(always)]
pub(crate) fn bit_of(hash: u64, i: usize) -> u32 {
    (hash as u32).wrapping_mul(SALTS[i]) >> 23
}

/// The mask of each bit within its byte. A table lookup is faster than a shift by a variable.
static MASKS: [u8; BLOCK_BITS as usize] = {
    let mut masks = [0; BLOCK_BITS as usize];
    let mut bit = 0;
    while bit < masks.len() {
        masks[bit] = 1 << (bit & 7);
        bit += 1;
    }
    masks
};

/// Whether a bit of a block is set.
#[inline(always)]
pub(crate) fn is_set(block: &Block, bit: u32) -> bool {
    block[(bit >> 3) as usize] >> (bit & 7) & 1 == 1
}

/// Whether all bits that a hash tests in its block are set.
#[inline(always)]
pub(crate) fn contains(block: &Block, probes: u32, hash: u64) -> bool {
    (0..probes as usize).all(|i| is_set(block, bit_of(hash, i)))
}

#[inline(always)]
pub(crate) fn insert(block: &mut Block, probes: u32, hash: u64) {
    for i in 0..probes as usize {
        let bit = bit_of(hash, i) as usize;
        block[bit >> 3] |= MASKS[bit];
    }
}

/// Inserts the hashes whose blocks are among `blocks`, and skips the others. The first of `blocks`
/// is the filter's block `first`.
pub(crate) fn insert_in_range<H: IdHash>(
    blocks: &mut [Block],
    first: usize,
    shape: Shape,
    hashes: &[H],
) {
    // Unrolled for the numbers of probes of common targets, which is faster.
    match shape.probes() {
        4 => insert_unrolled::<4, H>(blocks, first, shape, hashes),
        5 => insert_unrolled::<5, H>(blocks, first, shape, hashes),
        6 => insert_unrolled::<6, H>(blocks, first, shape, hashes),
        7 => insert_unrolled::<7, H>(blocks, first, shape, hashes),
        8 => insert_unrolled::<8, H>(blocks, first, shape, hashes),
        probes => insert_each(blocks, first, shape, probes, hashes),
    }
}

fn insert_unrolled<const PROBES: u32, H: IdHash>(
    blocks: &mut [Block],
    first: usize,
    shape: Shape,
    hashes: &[H],
) {
    insert_each(blocks, first, shape, PROBES, hashes);
}

#[inline(always)]
fn insert_each<H: IdHash>(
    blocks: &mut [Block],
    first: usize,
    shape: Shape,
    probes: u32,
    hashes: &[H],
) {
    for hash in hashes {
        let block = block_of(hash.high_bits(), shape.units());
        // A block before the first wraps around to a huge index, for which `get_mut` returns
        // `None`.
        if let Some(block) = blocks.get_mut(block.wrapping_sub(first)) {
            insert(block, probes, hash.high_bits());
        }
    }
}
