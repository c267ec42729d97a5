//! The only file with assembly: three functions that Rust has no other way to write.
//!
//! - `test_avx512` and `test_avx2`: a program for any x86-64 has to call a function that enables
//!   these instruction sets; the compiler can put these few instructions into the caller.
//! - `prefetch` on AArch64: stable Rust has no function for this hint on this processor.
//!
//! The tests exist for a target: without them a reader is 8.7 times as fast as Guava and slower
//! than sbbf-rs-safe, and 10 times and not slower are wanted (decision 20).
//!
//! # Safety
//! One argument for all. The CPU has the instruction set: `prfm` is in every AArch64, and for the
//! other two the caller promises it.
//!
//! - **Memory.** The tests read the 64 bytes of `block`, the first 32 (AVX2) or all 64 (AVX-512)
//!   bytes of `salts`, and the 4 bytes of `ONE`, all behind live references; no VEX or EVEX
//!   instruction here needs alignment. They write no memory: `readonly`. Their output depends only
//!   on their inputs and on those bytes, and they always end: `pure`. `prfm` is a hint: it changes
//!   no memory and cannot fault at any address. None uses the stack: `nostack`.
//! - **`sym ONE`.** A private static of this crate is linked into the same image as this code, so
//!   its address relative to `rip` is known when linking, also in a position-independent program.
//! - **Registers.** Every register that is written is declared as clobbered, and the flags are by
//!   default; `prfm` writes neither. `vzeroupper` clears the upper halves of `ymm0` to `ymm15`, so
//!   that SSE code after it does not wait for them; so all sixteen are declared. SSE code does not
//!   use registers from 16 on, so AVX-512 needs none.
//! - **Result.** `setc` writes 0 or 1.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// What `avx512::test` returns: 1 or 0.
///
/// # Safety
/// The CPU has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn test_avx512(block: &[u8; 64], salts: &[u32; 16], hash: u64) -> u8 {
    static ONE: u32 = 1;
    let hit: u8;
    // SAFETY: the argument is at the top of this file.
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

/// What `avx2::test` returns for at most eight probes: 1 or 0.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn test_avx2(block: &[u8; 64], salts: &[u32; 16], hash: u64) -> u8 {
    static ONE: u32 = 1;
    let hit: u8;
    // SAFETY: the argument is at the top of this file.
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

/// Prefetches the cache line that something begins in. Does not wait for it.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn prefetch<T>(of: &T) {
    // SAFETY: the argument is at the top of this file.
    unsafe {
        asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) std::ptr::from_ref(of),
            options(readonly, nostack, preserves_flags),
        );
    }
}
