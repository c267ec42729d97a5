//! AVX2: eight probes at a time, with one load of each half of the block.

use std::arch::asm;
use std::arch::x86_64::*;

use super::batch;
use super::bits::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
use crate::hash::{IdHash, is_short};

/// # Safety
/// The machine has AVX2 and BMI2, the layout is `blocked`, and the memory lives.
#[target_feature(enable = "avx2,bmi2")]
pub(super) unsafe fn one(asked: &Prober, id: &[u8]) -> bool {
    if !is_short(id) {
        // SAFETY: as the caller promises.
        return unsafe { other(asked, id) };
    }
    // SAFETY: as the caller promises.
    unsafe { asked.legal(id, |block, hash| test(block, asked.probes(), &asked.salts, hash)) }
}

/// # Safety
/// The machine has AVX2 and BMI2, the layout is `blocked`, and the memory lives.
#[target_feature(enable = "avx2,bmi2")]
#[inline(never)]
unsafe fn other(asked: &Prober, id: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    unsafe { asked.any(id, |block, hash| test(block, asked.probes(), &asked.salts, hash)) }
}

#[target_feature(enable = "avx2,bmi2")]
#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], probes, Salts::of(probes), hash)
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    answers: &mut [bool],
) -> usize {
    let salts = Salts::of(probes);
    batch::ask(body, ids, answers, |block, hash| test(block, probes, salts, hash))
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn count<H: IdHash>(body: &[u8], probes: u32, hashes: &[H]) -> usize {
    let salts = Salts::of(probes);
    batch::count(body, hashes, |block, hash| test(block, probes, salts, hash))
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
    // SAFETY: two unaligned loads of 32 bytes each from a block of 64, one from 8 words of 4.
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

/// How many probes [`test_in_place`] has lanes for. More are needed below an fpp of 0.002.
pub(super) const IN_PLACE_PROBES: u32 = 8;

/// What [`test`] says of at most eight probes, 1 or 0, as instructions: the compiler puts those where the
/// question is asked, also in a program for any x86-64, where it would have to call a function of another
/// instruction set.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn test_in_place(block: &Block, salts: &Salts, hash: u64) -> u8 {
    static ONE: u32 = 1;
    let is_in: u8;
    // SAFETY: three loads of 32 bytes, from a block of 64 and from 16 words of 4, and one of a word. The
    // upper halves of all registers are cleared: what follows may know nothing of them, and would wait.
    unsafe {
        asm!(
            "vmovd xmm0, {hash:e}",
            "vpbroadcastd ymm0, xmm0",
            "vpmulld ymm0, ymm0, [{salts}]",
            // Of the four highest bits three choose the word in each half, and the first the half.
            "vpsrld ymm1, ymm0, 28",
            "vpermd ymm2, ymm1, [{block}]",
            "vpermd ymm1, ymm1, [{block} + 32]",
            "vblendvps ymm1, ymm2, ymm1, ymm0",
            // The five after them choose the bit.
            "vpslld ymm0, ymm0, 4",
            "vpsrld ymm0, ymm0, 27",
            "vpbroadcastd ymm2, dword ptr [rip + {one}]",
            "vpsllvd ymm0, ymm2, ymm0",
            // It carries when all are set.
            "vptest ymm1, ymm0",
            "setc {is_in}",
            "vzeroupper",
            hash = in(reg) hash,
            block = in(reg) block,
            salts = in(reg) salts,
            one = sym ONE,
            is_in = lateout(reg_byte) is_in,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(pure, readonly, nostack)
        );
    }
    is_in
}
