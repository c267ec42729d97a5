//! The kernels that run inline: a lookup of a device ID without a call.
//!
//! This is the only file with assembly. A program for any x86-64 must call a function that enables
//! AVX2 or AVX-512; the compiler can put these few instructions into the caller. It exists for a
//! target: without it a reader is 8.7 times as fast as Guava and slower than sbbf-rs-safe, and 10
//! times and not slower are wanted (decision 20).
//!
//! # Safety
//! One argument for both functions. The CPU has the instruction set: the caller promises it.
//!
//! - **Memory.** They read the 64 bytes of `block`, the first 32 (AVX2) or all 64 (AVX-512) bytes
//!   of `salts`, and the 4 bytes of `ONE`, all behind live references; no VEX or EVEX instruction
//!   here needs alignment. They write no memory: `readonly`. Their output depends only on their
//!   inputs and on those bytes, and they always end: `pure`. They do not use the stack: `nostack`.
//! - **`sym ONE`.** A private static of this crate is linked into the same image as this code, so
//!   its address relative to `rip` is known when linking, also in a position-independent program.
//! - **Registers.** Every register that is written is declared as clobbered, and the flags are by
//!   default. `vzeroupper` clears the upper halves of `ymm0` to `ymm15`, so that SSE code after it
//!   does not wait for them; so all sixteen are declared. SSE code does not use registers from 16
//!   on, so AVX-512 needs none.
//! - **Result.** `setc` writes 0 or 1.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::hint::assert_unchecked;

#[cfg(target_arch = "x86_64")]
use super::Isa;
use super::Kernel;
#[cfg(target_arch = "x86_64")]
use super::prober::Salts;
use super::prober::{InlineKernel, ProbeFn, Prober};
#[cfg(target_arch = "x86_64")]
use crate::filter::blocked::Block;
#[cfg(target_arch = "x86_64")]
use crate::filter::layout::Layout;
use crate::filter::shape::Shape;

/// How many bytes most device IDs have: 32 hex digits. IDs of this length are looked up inline.
#[cfg(target_arch = "x86_64")]
const DEVICE_ID_BYTES: usize = 32;

/// How many probes the inline AVX2 kernel has lanes for. An fpp below 0.002 needs more.
#[cfg(target_arch = "x86_64")]
const MAX_AVX2_PROBES: u32 = 8;

/// The kernel that runs inline for a filter of this shape.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
pub(super) fn choose(shape: Shape, kernel: Kernel) -> InlineKernel {
    #[cfg(target_arch = "x86_64")]
    match (shape.layout(), kernel.0) {
        (Layout::Blocked, Isa::Avx512) => {
            return InlineKernel { avx512: DEVICE_ID_BYTES, ..InlineKernel::NONE };
        }
        (Layout::Blocked, Isa::Avx2) if shape.probes() <= MAX_AVX2_PROBES => {
            return InlineKernel { avx2: DEVICE_ID_BYTES, ..InlineKernel::NONE };
        }
        _ => {}
    }
    InlineKernel::NONE
}

impl Prober {
    /// A lookup, inline or through `probe_fn`.
    ///
    /// # Safety
    /// Either `probe_fn` and `self` were made together from one kernel, and the memory behind
    /// `self` is alive; or `self` is [`Prober::none`] and `probe_fn` does not use its pointer.
    #[inline(always)]
    pub(super) unsafe fn contains(&self, probe_fn: ProbeFn, id: &[u8]) -> bool {
        // SAFETY: in the first case the caller's promise is the contract of both functions. In the
        // second case `inline` is `NONE`, so that `contains_inline` reads nothing and returns
        // `None`, and `probe_fn` does not use the pointer.
        let hit =
            unsafe { self.contains_inline(id).unwrap_or_else(|| u8::from(probe_fn(self, id))) };
        // SAFETY: `u8::from(bool)` is 0 or 1, and so is the byte that both inline kernels return.
        // Said here, where both paths meet: otherwise the compiler tests it once more.
        unsafe { assert_unchecked(hit <= 1) };
        hit != 0
    }

    /// 1 for a hit and 0 for a miss, where a kernel runs inline.
    ///
    /// # Safety
    /// `self` is [`Prober::none`], or the memory behind it is alive.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn contains_inline(&self, id: &[u8]) -> Option<u8> {
        // SAFETY: a slice has at most `isize::MAX` bytes, so `id.len()` never equals `usize::MAX`.
        // When it equals a field, that field is therefore `DEVICE_ID_BYTES`: that is what
        // `assert_unchecked` says. Only `choose` sets a field to that, for a `blocked` filter and a
        // `Kernel` of this instruction set, which the CPU has (fact 3); for AVX2 it also checked
        // that the probes fit its eight lanes. Such a prober is not `none`, so the caller promises
        // that its memory is alive.
        unsafe {
            if id.len() == self.inline.avx512 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                let test = |block: &Block, hash| test_avx512(block, &self.salts, hash);
                Some(self.lookup_valid(id, test))
            } else if id.len() == self.inline.avx2 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                let test = |block: &Block, hash| test_avx2(block, &self.salts, hash);
                Some(self.lookup_valid(id, test))
            } else {
                None
            }
        }
    }

    /// No kernel runs inline on this architecture.
    ///
    /// # Safety
    /// None is needed: it reads nothing. It is `unsafe` so that callers are the same everywhere.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    unsafe fn contains_inline(&self, _: &[u8]) -> Option<u8> {
        None
    }
}

/// What `avx512::test` returns: 1 or 0.
///
/// # Safety
/// The CPU has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn test_avx512(block: &Block, salts: &Salts, hash: u64) -> u8 {
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
unsafe fn test_avx2(block: &Block, salts: &Salts, hash: u64) -> u8 {
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
