//! [`FilterBits`]: a filter's memory, with everything that one lookup needs resolved in advance.
//!
//! The safety of a lookup rests on three facts, which the comments below refer to by number:
//!
//! 1. **Length.** [`FilterBits::new`] asserts that the body has exactly `shape.body_bytes()` bytes, and
//!    takes `first` from that body. So `shape.units()` blocks (`blocked`) or `shape.body_bytes()` bytes
//!    (`guava`) follow `first`. A [`Prober`] with a null `first` has [`InlineKernel::NEITHER`] and is used
//!    only with probe functions that read nothing ([`Prober::none`]).
//! 2. **Lifetime.** `first` points into the heap block or the mapping that a [`Buffer`] owns. Moving the
//!    `Buffer` does not move those bytes. Nothing writes to them while the `FilterBits` exists: the buffer
//!    is private, only `&Buffer` is returned, and [`FilterBits::into_memory`] consumes the filter.
//! 3. **Instruction set.** A [`Kernel`] with an instruction set exists only after the CPU reported that
//!    set ([`Kernel::all`]), and [`probe_fn`] and [`InlineKernel::of`] choose from a `Kernel`.

use std::hint::assert_unchecked;
use std::ops::Range;

use super::{Isa, Kernel, scalar};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::filter::blocked::{Block, MAX_PROBES, SALTS};
use crate::filter::{Layout, Shape, guava};
#[cfg(target_arch = "x86_64")]
use crate::hash::DEVICE_ID_BYTES;
use crate::hash::{IdHash, Murmur3, Xxh3, is_valid_len};
use crate::memory::Buffer;

/// The memory of a filter, and the one function that looks an ID up in it: layout, hash, kernel and
/// address are resolved when it is made, so that a lookup has nothing left to choose.
pub(crate) struct FilterBits {
    pub(super) prober: Prober,
    pub(super) probe_fn: ProbeFn,
    /// Owns what `prober` points into. It is never written again, and no `&mut` to it is returned.
    memory: Buffer,
    body: Range<usize>,
}

/// What a lookup needs of a filter.
#[derive(Clone, Copy)]
pub(super) struct Prober {
    first: *const Block,
    shape: Shape,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(super) salts: Salts,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    inline: InlineKernel,
}

/// Which kernel runs inline, in the middle of the caller's own code, and so saves a call.
///
/// That kernel's field is the length of a device ID, every other field is `usize::MAX`, a length that
/// no slice has. So one comparison decides both that this kernel runs and how the ID is hashed.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
struct InlineKernel {
    avx512: usize,
    avx2: usize,
}

/// A multiplier for each of 16 lanes. Lanes past the number of probes repeat the first ones: testing a
/// bit twice changes no result, and no lane has to be masked.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Salts(pub(super) [u32; 16]);

/// A single lookup, resolved for a layout and a kernel.
///
/// # Safety
/// The `Prober` has the layout and the kernel that [`probe_fn`] chose this function for, and the memory
/// behind it is alive (facts 1 to 3 of this file).
pub(super) type ProbeFn = unsafe fn(&Prober, &[u8]) -> bool;

// SAFETY: the raw pointer in `prober` is what keeps this from being `Send`. It points to bytes that
// `memory` owns (fact 2), which moves to the other thread too, and `Buffer` is `Send`.
unsafe impl Send for FilterBits {}
// SAFETY: through `&FilterBits` the bytes behind the pointer are only read, and nothing writes to them
// while the value exists (fact 2); there is no interior mutability.
unsafe impl Sync for FilterBits {}

impl FilterBits {
    /// Resolves `memory[body]` for this shape and kernel.
    ///
    /// # Panics
    /// When the body's length is not the shape's: callers check it before.
    pub(crate) fn new(
        shape: Shape,
        memory: Buffer,
        body: Range<usize>,
        kernel: Kernel,
    ) -> FilterBits {
        assert_eq!(body.len() as u64, shape.body_bytes(), "the body must have the shape's length");
        let prober = Prober {
            first: memory[body.clone()].as_ptr().cast(),
            shape,
            salts: *Salts::of(shape.probes()),
            inline: InlineKernel::of(shape, kernel),
        };
        FilterBits { prober, probe_fn: probe_fn(shape.layout(), kernel), memory, body }
    }

    /// The same bits, looked up through another kernel.
    pub(crate) fn with_kernel(self, kernel: Kernel) -> FilterBits {
        let shape = self.prober.shape;
        let prober = Prober { inline: InlineKernel::of(shape, kernel), ..self.prober };
        FilterBits { prober, probe_fn: probe_fn(shape.layout(), kernel), ..self }
    }

    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        &self.memory[self.body.clone()]
    }

    pub(crate) fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Returns the memory, for another filter.
    pub(crate) fn into_memory(self) -> Buffer {
        self.memory
    }

    /// Whether `id` may be in it. An ID of invalid length is not.
    #[inline(always)]
    pub(crate) fn contains(&self, id: &[u8]) -> bool {
        // SAFETY: `probe_fn` and `prober` were made together from one `Kernel` (fact 3), and `memory`
        // keeps the bytes alive as long as `self` is borrowed (fact 2).
        unsafe { self.prober.contains(self.probe_fn, id) }
    }
}

impl Salts {
    /// The multipliers of a filter with so many probes. A filter of another layout may have more
    /// probes; it uses none of these.
    pub(super) fn of(probes: u32) -> &'static Salts {
        static BY_PROBES: [Salts; MAX_PROBES as usize] = {
            let mut by_probes = [Salts(SALTS); MAX_PROBES as usize];
            let mut probes = 1;
            while probes <= by_probes.len() {
                let mut lane = probes;
                while lane < SALTS.len() {
                    by_probes[probes - 1].0[lane] = SALTS[lane % probes];
                    lane += 1;
                }
                probes += 1;
            }
            by_probes
        };
        &BY_PROBES[probes.clamp(1, MAX_PROBES) as usize - 1]
    }
}

/// The function that looks up one ID in a layout through a kernel.
fn probe_fn(layout: Layout, kernel: Kernel) -> ProbeFn {
    match (layout, kernel.0) {
        (Layout::Guava, _) => probe_guava,
        (Layout::Blocked, Isa::Scalar) => scalar::probe,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx2) => avx2::probe,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx512) => avx512::probe,
    }
}

impl InlineKernel {
    const NEITHER: InlineKernel = InlineKernel { avx512: usize::MAX, avx2: usize::MAX };

    fn of(shape: Shape, kernel: Kernel) -> InlineKernel {
        match (shape.layout(), kernel.0) {
            #[cfg(target_arch = "x86_64")]
            (Layout::Blocked, Isa::Avx512) => {
                InlineKernel { avx512: DEVICE_ID_BYTES, ..InlineKernel::NEITHER }
            }
            #[cfg(target_arch = "x86_64")]
            (Layout::Blocked, Isa::Avx2) if shape.probes() <= avx2::MAX_INLINE_PROBES => {
                InlineKernel { avx2: DEVICE_ID_BYTES, ..InlineKernel::NEITHER }
            }
            _ => InlineKernel::NEITHER,
        }
    }
}

impl Prober {
    /// A prober without a filter, for probe functions that read nothing.
    pub(super) fn none() -> Prober {
        let shape = Shape::new(Layout::Blocked, 1, 1).expect("the smallest shape");
        Prober {
            first: std::ptr::null(),
            shape,
            salts: *Salts::of(1),
            inline: InlineKernel::NEITHER,
        }
    }

    /// A lookup, inline or through `probe_fn`.
    ///
    /// # Safety
    /// Either `probe_fn` and `self` were made together from one kernel, and the memory behind `self` is
    /// alive; or `self` is [`Prober::none`] and `probe_fn` does not use its pointer.
    #[inline(always)]
    pub(super) unsafe fn contains(&self, probe_fn: ProbeFn, id: &[u8]) -> bool {
        // SAFETY: in the first case the caller's promise is the contract of both functions. In the
        // second case `inline` is `NEITHER`, so that `contains_inline` reads nothing and returns `None`,
        // and `probe_fn` does not use the pointer.
        let hit =
            unsafe { self.contains_inline(id).unwrap_or_else(|| u8::from(probe_fn(self, id))) };
        // SAFETY: `u8::from(bool)` is 0 or 1, and both inline kernels return the byte that `setc` wrote,
        // which is 0 or 1 by the definition of that instruction. Said here, where both paths meet:
        // otherwise the compiler tests it once more.
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
        // SAFETY: a slice has at most `isize::MAX` bytes, so `id.len()` never equals `usize::MAX`. When it
        // equals a field, that field is therefore `DEVICE_ID_BYTES`: that is what `assert_unchecked` says.
        // Only `InlineKernel::of` sets a field to that, for a `blocked` filter and a `Kernel` of this
        // instruction set, which the CPU has (fact 3); for AVX2 it also checked that the probes fit its
        // eight lanes. Such a prober is not `none`, so the caller promises that its memory is alive.
        unsafe {
            if id.len() == self.inline.avx512 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                let test = |block: &Block, hash| avx512::test_inline(block, &self.salts, hash);
                Some(self.lookup_valid(id, test))
            } else if id.len() == self.inline.avx2 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                let test = |block: &Block, hash| avx2::test_inline(block, &self.salts, hash);
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

    pub(super) fn probes(&self) -> u32 {
        self.shape.probes()
    }

    /// A lookup of an ID of valid length.
    ///
    /// # Safety
    /// `self` is of a `blocked` filter whose memory is alive.
    #[inline(always)]
    pub(super) unsafe fn lookup_valid<A>(&self, id: &[u8], test: impl Fn(&Block, u64) -> A) -> A {
        let Xxh3(hash) = Xxh3::of(id);
        // SAFETY: the caller promises exactly what `block` needs.
        test(unsafe { self.block(hash) }, hash)
    }

    /// A lookup of an ID of any length.
    ///
    /// # Safety
    /// `self` is of a `blocked` filter whose memory is alive.
    #[inline(always)]
    pub(super) unsafe fn lookup_any(&self, id: &[u8], test: impl Fn(&Block, u64) -> bool) -> bool {
        // SAFETY: the caller promises exactly what `lookup_valid` needs.
        is_valid_len(id) && unsafe { self.lookup_valid(id, test) }
    }

    /// The block that a hash belongs to.
    ///
    /// # Safety
    /// `self` is of a `blocked` filter whose memory is alive.
    #[inline(always)]
    unsafe fn block(&self, hash: u64) -> &Block {
        let block = crate::filter::blocked::block_of(hash, self.shape.units());
        // SAFETY: `block_of` is floor(hash · units / 2^64), and hash < 2^64, so `block` < `units`: it lies
        // inside the body (fact 1). A `Block` is an array of bytes: any address is aligned and any bits
        // are valid. The bytes are alive by the caller's promise and are never written (fact 2).
        unsafe { &*self.first.add(block) }
    }
}

/// A lookup in a `guava` filter. It is the same for every kernel.
///
/// # Safety
/// `prober` is of a `guava` filter whose memory is alive.
unsafe fn probe_guava(prober: &Prober, id: &[u8]) -> bool {
    // SAFETY: `shape.body_bytes()` bytes follow `first` (fact 1); they are alive by the caller's promise
    // and are never written (fact 2). Bytes need no alignment.
    let body = unsafe {
        std::slice::from_raw_parts(prober.first.cast::<u8>(), prober.shape.body_bytes() as usize)
    };
    is_valid_len(id) && guava::contains(body, prober.shape, Murmur3::of(id))
}
