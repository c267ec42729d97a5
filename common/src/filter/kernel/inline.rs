//! The kernels that run inline: a lookup of a device ID without a call. Their instructions are in
//! `assembly`.

use std::hint::assert_unchecked;

#[cfg(target_arch = "x86_64")]
use super::Isa;
use super::Kernel;
use super::prober::{InlineKernel, ProbeFn, Prober};
#[cfg(target_arch = "x86_64")]
use crate::assembly::{test_avx2, test_avx512};
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
                let test = |block: &Block, hash| test_avx512(block, &self.salts.0, hash);
                Some(self.lookup_valid(id, test))
            } else if id.len() == self.inline.avx2 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                let test = |block: &Block, hash| test_avx2(block, &self.salts.0, hash);
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
