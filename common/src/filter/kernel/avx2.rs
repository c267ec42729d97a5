//! AVX2: eight probes at a time, with one load of each half of the block.

use std::arch::x86_64::*;

use super::batch;
use super::prober::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
use crate::filter::overlay::Overlay;
use crate::hash::IdHash;

/// A lookup.
///
/// # Safety
/// The CPU has AVX2 and BMI2, and `prober` is of a `blocked` filter whose memory is alive.
#[target_feature(enable = "avx2,bmi2")]
pub(super) unsafe fn probe(prober: &Prober, id: &[u8]) -> bool {
    // SAFETY: this function's contract includes that of `lookup_any`.
    unsafe {
        prober.lookup_any(id, |block, hash| test(block, prober.probes(), &prober.salts, hash))
    }
}

#[target_feature(enable = "avx2,bmi2")]
#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], probes, Salts::of(probes), hash)
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn contains_batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    hits: &mut [bool],
    over: &impl Overlay,
) -> usize {
    let salts = Salts::of(probes);
    batch::contains(body, ids, hits, over, |block, hash| test(block, probes, salts, hash))
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn contains_hashes<H: IdHash>(
    body: &[u8],
    probes: u32,
    hashes: &[H],
    found: impl FnMut(usize, bool),
) {
    let salts = Salts::of(probes);
    batch::contains_hashes(body, hashes, found, |block, hash| test(block, probes, salts, hash))
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn count_ones(bytes: &[u8]) -> u64 {
    batch::count_ones(bytes)
}

#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn test(block: &Block, probes: u32, salts: &Salts, hash: u64) -> bool {
    let (salts, _) = salts.0.as_chunks::<8>();
    test8(block, &salts[0], hash) && (probes <= 8 || test8(block, &salts[1], hash))
}

#[target_feature(enable = "avx2,bmi2")]
#[inline]
fn test8(block: &Block, salts: &[u32; 8], hash: u64) -> bool {
    // SAFETY: `loadu` needs no alignment. It reads 32 bytes: bytes 0 to 31 and 32 to 63 of a block
    // of 64, and the 8 words of 4 bytes of `salts`, all behind live references.
    let (low, high, salts) = unsafe {
        (
            _mm256_loadu_si256(block.as_ptr().cast()),
            _mm256_loadu_si256(block.as_ptr().add(32).cast()),
            _mm256_loadu_si256(salts.as_ptr().cast()),
        )
    };
    let bits = _mm256_srli_epi32::<23>(_mm256_mullo_epi32(_mm256_set1_epi32(hash as i32), salts));
    // Which of 16 words: three bits choose the word in each half, the fourth chooses the half.
    let word = _mm256_srli_epi32::<5>(bits);
    let from_low = _mm256_permutevar8x32_epi32(low, word);
    let from_high = _mm256_permutevar8x32_epi32(high, word);
    let half = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(word));
    let words = _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(from_low),
        _mm256_castsi256_ps(from_high),
        half,
    ));
    let one = _mm256_set1_epi32(1);
    let mask = _mm256_sllv_epi32(one, _mm256_and_si256(bits, _mm256_set1_epi32(31)));
    _mm256_testc_si256(words, mask) == 1
}
