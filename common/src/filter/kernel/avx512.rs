//! AVX-512F: all sixteen probes at a time, with one load of the block.

use std::arch::asm;
use std::arch::x86_64::*;

use super::batch;
use super::bits::{Prober, Salts};
use crate::filter::blocked::{Block, block_of};
use crate::hash::IdHash;

/// # Safety
/// The machine has AVX-512F and BMI2, the layout is `blocked`, and the memory lives.
#[target_feature(enable = "avx512f,bmi2")]
pub(super) unsafe fn one(asked: &Prober, id: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    unsafe { asked.any(id, |block, hash| test(block, &asked.salts, hash)) }
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], Salts::of(probes), hash)
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    answers: &mut [bool],
) -> usize {
    let salts = Salts::of(probes);
    batch::ask(body, ids, answers, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
pub(super) fn count<H: IdHash>(body: &[u8], probes: u32, hashes: &[H]) -> usize {
    let salts = Salts::of(probes);
    batch::count(body, hashes, |block, hash| test(block, salts, hash))
}

#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn test(block: &Block, salts: &Salts, hash: u64) -> bool {
    // SAFETY: unaligned loads of 64 bytes, from a block of 64 and from 16 words of 4.
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

/// What [`test`] says, 1 or 0, as instructions: the compiler puts those where the question is asked, also
/// in a program for any x86-64, where it would have to call a function of another instruction set.
///
/// # Safety
/// The machine has AVX-512F.
#[inline(always)]
pub(super) unsafe fn test_in_place(block: &Block, salts: &Salts, hash: u64) -> u8 {
    static ONE: u32 = 1;
    let is_in: u8;
    // SAFETY: two loads of 64 bytes, from a block of 64 and from 16 words of 4, and one of a word. The
    // registers from 16 on need no `vzeroupper` afterwards.
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
            "setc {is_in}",
            hash = in(reg) hash,
            block = in(reg) block,
            salts = in(reg) salts,
            one = sym ONE,
            is_in = lateout(reg_byte) is_in,
            out("zmm16") _,
            out("zmm17") _,
            out("k1") _,
            options(pure, readonly, nostack)
        );
    }
    is_in
}
