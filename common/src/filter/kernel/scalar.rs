//! Plain Rust: the definition that the other kernels must agree with.

use super::batch;
use super::bits::Prober;
use crate::filter::blocked::{Block, bit_of, block_of};
use crate::hash::{IdHash, is_short};

/// # Safety
/// The layout is `blocked`, and the memory lives.
pub(super) unsafe fn one(asked: &Prober, id: &[u8]) -> bool {
    if !is_short(id) {
        // SAFETY: as the caller promises.
        return unsafe { other(asked, id) };
    }
    // SAFETY: as the caller promises.
    unsafe { asked.legal(id, |block, hash| test(block, asked.probes(), hash)) }
}

/// # Safety
/// The layout is `blocked`, and the memory lives.
#[inline(never)]
unsafe fn other(asked: &Prober, id: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    unsafe { asked.any(id, |block, hash| test(block, asked.probes(), hash)) }
}

#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], probes, hash)
}

pub(super) fn batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    answers: &mut [bool],
) -> usize {
    batch::ask(body, ids, answers, |block, hash| test(block, probes, hash))
}

pub(super) fn count<H: IdHash>(body: &[u8], probes: u32, hashes: &[H]) -> usize {
    batch::count(body, hashes, |block, hash| test(block, probes, hash))
}

#[inline(always)]
fn test(block: &Block, probes: u32, hash: u64) -> bool {
    (0..probes as usize).all(|i| {
        let bit = bit_of(hash, i);
        block[(bit >> 3) as usize] >> (bit & 7) & 1 == 1
    })
}
