//! AVX-512F: all sixteen probes at a time, with one load of the block.

use std::arch::x86_64::*;

use super::batch;
use super::prober::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
use crate::filter::overlay::Overlay;
use crate::hash::IdHash;

/// A lookup.
///
/// # Safety
/// The CPU has AVX-512F and BMI2, and `prober` is of a `blocked` filter whose memory is alive.
#[target_feature(enable = "avx512f,bmi2")]
pub(super) unsafe fn probe(prober: &Prober, id: &[u8]) -> bool {
    // SAFETY: this function's contract includes that of `lookup_any`.
    unsafe { prober.lookup_any(id, |block, hash| test(block, &prober.salts, hash)) }
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], Salts::of(probes), hash)
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn contains_batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    hits: &mut [bool],
    over: &impl Overlay,
) -> usize {
    let salts = Salts::of(probes);
    batch::contains(body, ids, hits, over, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn contains_hashes<H: IdHash>(
    body: &[u8],
    probes: u32,
    hashes: &[H],
    found: impl FnMut(usize, bool),
) {
    let salts = Salts::of(probes);
    batch::contains_hashes(body, hashes, found, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn test(block: &Block, salts: &Salts, hash: u64) -> bool {
    // SAFETY: `loadu` needs no alignment. It reads the 64 bytes of a block and the 16 words of 4
    // bytes of `salts`, both behind live references.
    let (block, salts) = unsafe {
        (_mm512_loadu_si512(block.as_ptr().cast()), _mm512_loadu_si512(salts.0.as_ptr().cast()))
    };
    let products = _mm512_mullo_epi32(_mm512_set1_epi32(hash as i32), salts);
    // Of the nine highest bits four choose one of 16 words, and five a bit in it.
    let words = _mm512_permutexvar_epi32(_mm512_srli_epi32::<28>(products), block);
    // A rotation goes by its count modulo 32, which is all that is left to choose.
    let bits = _mm512_rorv_epi32(words, _mm512_srli_epi32::<23>(products));
    _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(1)) == 0
}
