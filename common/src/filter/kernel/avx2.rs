//! AVX2: eight probes at a time, with one load of each half of the block.

use std::arch::asm;
use std::arch::x86_64::*;

use super::batch;
use super::bits::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
use crate::hash::{IdHash, is_short};

/// A lookup.
///
/// # Safety
/// The CPU has AVX2 and BMI2, and `prober` is of a `blocked` filter whose memory is alive.
#[target_feature(enable = "avx2,bmi2")]
pub(super) unsafe fn probe(prober: &Prober, id: &[u8]) -> bool {
    if !is_short(id) {
        // SAFETY: this function's contract is the same.
        return unsafe { probe_any(prober, id) };
    }
    // SAFETY: this function's contract includes that of `lookup_valid`.
    unsafe {
        prober.lookup_valid(id, |block, hash| test(block, prober.probes(), &prober.salts, hash))
    }
}

/// A lookup of an ID that is not short, in a function of its own: most IDs are short.
///
/// # Safety
/// The CPU has AVX2 and BMI2, and `prober` is of a `blocked` filter whose memory is alive.
#[target_feature(enable = "avx2,bmi2")]
#[inline(never)]
unsafe fn probe_any(prober: &Prober, id: &[u8]) -> bool {
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
) -> usize {
    let salts = Salts::of(probes);
    batch::contains(body, ids, hits, |block, hash| test(block, probes, salts, hash))
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
    // SAFETY: `loadu` needs no alignment. It reads 32 bytes: bytes 0 to 31 and 32 to 63 of a block of 64,
    // and the 8 words of 4 bytes of `salts`, all behind live references.
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

/// How many probes [`test_inline`] has lanes for. An fpp below 0.002 needs more.
pub(super) const MAX_INLINE_PROBES: u32 = 8;

/// What [`test`] returns for at most eight probes, 1 or 0, as inline assembly. A program for any x86-64
/// must call a function that enables AVX2; the compiler can put these instructions into the caller.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn test_inline(block: &Block, salts: &Salts, hash: u64) -> u8 {
    static ONE: u32 = 1;
    let hit: u8;
    // SAFETY: the CPU has AVX2, as the caller promises.
    // Memory: it reads bytes 0 to 31 and 32 to 63 of `block`, the first 32 of the 64 bytes of `salts`
    // (no VEX instruction here needs alignment), and the 4 bytes of `ONE`, all behind live references.
    // It writes no memory, so `readonly`; its output depends only on its inputs and on those bytes, it has
    // no other effect and always ends, so `pure`; it does not use the stack, so `nostack`.
    // `sym ONE`: a private static of this crate is linked into the same image as this code, so its
    // address relative to `rip` is known when linking, also in a position-independent program.
    // Registers: it writes `ymm0` to `ymm2`; `vzeroupper` clears the upper halves of all sixteen, so that
    // SSE code after it does not wait for them. All are declared as clobbered, and so are the flags,
    // by default.
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
            "setc {hit}",
            "vzeroupper",
            hash = in(reg) hash,
            block = in(reg) block,
            salts = in(reg) salts,
            one = sym ONE,
            hit = lateout(reg_byte) hit,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(pure, readonly, nostack)
        );
    }
    hit
}
