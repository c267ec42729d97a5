//! AVX-512F: all sixteen probes at a time, with one load of the block.

use std::arch::x86_64::*;

use super::batch;
use super::bits::{Asked, is_usual, lanes};
use crate::filter::blocked::{Block, SALTS, block_of};
use crate::hash::IdHash;

/// # Safety
/// The machine has AVX-512F and BMI2, the layout is `blocked`, and the memory lives.
#[target_feature(enable = "avx512f,bmi2")]
pub(super) unsafe fn one(asked: &Asked, id: &[u8]) -> bool {
    if !is_usual(id) {
        // SAFETY: as the caller promises.
        return unsafe { other(asked, id) };
    }
    // SAFETY: as the caller promises.
    unsafe { asked.legal(id, |block, hash| test(block, asked.lanes, hash)) }
}

/// # Safety
/// The machine has AVX-512F and BMI2, the layout is `blocked`, and the memory lives.
#[target_feature(enable = "avx512f,bmi2")]
#[inline(never)]
unsafe fn other(asked: &Asked, id: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    unsafe { asked.any(id, |block, hash| test(block, asked.lanes, hash)) }
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], lanes(probes), hash)
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    answers: &mut [bool],
) -> usize {
    let lanes = lanes(probes);
    batch::ask(body, ids, answers, |block, hash| test(block, lanes, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn count<H: IdHash>(body: &[u8], probes: u32, hashes: &[H]) -> usize {
    let lanes = lanes(probes);
    batch::count(body, hashes, |block, hash| test(block, lanes, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn test(block: &Block, lanes: u16, hash: u64) -> bool {
    // SAFETY: unaligned loads of 64 bytes, from a block of 64 and from 16 words of 4.
    let (block, salts) = unsafe {
        (_mm512_loadu_si512(block.as_ptr().cast()), _mm512_loadu_si512(SALTS.as_ptr().cast()))
    };
    let products = _mm512_mullo_epi32(_mm512_set1_epi32(hash as i32), salts);
    // Of the nine highest bits four choose one of 16 words, and five a bit in it.
    let words = _mm512_permutexvar_epi32(_mm512_srli_epi32::<28>(products), block);
    // A rotation goes by its count modulo 32, which is all that is left to choose.
    let masks = _mm512_rolv_epi32(_mm512_set1_epi32(1), _mm512_srli_epi32::<23>(products));
    _mm512_mask_testn_epi32_mask(lanes, words, masks) == 0
}
