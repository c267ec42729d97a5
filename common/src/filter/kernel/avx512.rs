//! AVX-512F: all sixteen probes at a time, with one load of the block.

use std::arch::asm;
use std::arch::x86_64::*;

use super::batch;
use super::bits::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
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
) -> usize {
    let salts = Salts::of(probes);
    batch::contains(body, ids, hits, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn count<H: IdHash>(body: &[u8], probes: u32, hashes: &[H]) -> usize {
    let salts = Salts::of(probes);
    batch::count(body, hashes, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn test(block: &Block, salts: &Salts, hash: u64) -> bool {
    // SAFETY: `loadu` needs no alignment. It reads the 64 bytes of a block and the 16 words of 4 bytes of
    // `salts`, both behind live references.
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

/// What [`test`] returns, 1 or 0, as inline assembly. A program for any x86-64 must call a function that
/// enables AVX-512; the compiler can put these instructions into the caller.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
pub(super) unsafe fn test_inline(block: &Block, salts: &Salts, hash: u64) -> u8 {
    static ONE: u32 = 1;
    let hit: u8;
    // SAFETY: the CPU has AVX-512F, as the caller promises.
    // Memory: it reads the 64 bytes of `block`, the 64 bytes of `salts` (no EVEX instruction here needs
    // alignment), and the 4 bytes of `ONE`, all behind live references. It writes no memory, so `readonly`;
    // its output depends only on its inputs and on those bytes, it has no other effect and always ends,
    // so `pure`; it does not use the stack, so `nostack`.
    // `sym ONE`: a private static of this crate is linked into the same image as this code, so its
    // address relative to `rip` is known when linking, also in a position-independent program.
    // Registers: it writes `zmm16`, `zmm17` and `k1`, declared as clobbered, and the flags, clobbered by
    // default. SSE code does not use registers from 16 on, so no `vzeroupper` is needed.
    unsafe {
        asm!(
            "vpbroadcastd zmm16, {hash:e}",
            "vpmulld zmm16, zmm16, [{salts}]",
            "vpsrld zmm17, zmm16, 28",
            "vpermd zmm17, zmm17, [{block}]",
            "vpsrld zmm16, zmm16, 23",
            "vprorvd zmm16, zmm17, zmm16",
            "vptestmd k1, zmm16, dword ptr [rip + {one}]{{1to16}}",
            // It carries when all sixteen are set.
            "kortestw k1, k1",
            "setc {hit}",
            hash = in(reg) hash,
            block = in(reg) block,
            salts = in(reg) salts,
            one = sym ONE,
            hit = lateout(reg_byte) hit,
            out("zmm16") _,
            out("zmm17") _,
            out("k1") _,
            options(pure, readonly, nostack)
        );
    }
    hit
}
