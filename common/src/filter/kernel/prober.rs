//! [`Prober`]: what one lookup needs of a filter, resolved in advance; and [`Salts`].
//!
//! The safety of a lookup rests on three facts, which the comments of `bits`, `inline`, `kept` and
//! this file refer to by number:
//!
//! 1. **Length.** `FilterBits::new` asserts that the body has exactly `shape.body_bytes()` bytes,
//!    and takes `first` from that body. So `shape.units()` blocks (`blocked`) or
//!    `shape.body_bytes()` bytes (`guava`) follow `first`. A [`Prober`] with a null `first` has
//!    [`InlineKernel::NONE`] and is used only with probe functions that read nothing
//!    ([`Prober::none`]).
//! 2. **Lifetime.** `first` points into the heap block or the mapping that a `Buffer` owns. Moving
//!    the `Buffer` does not move those bytes. Nothing writes to them while the `FilterBits` exists:
//!    the buffer is private, only `&Buffer` is returned, and `FilterBits::into_memory` consumes the
//!    filter.
//! 3. **Instruction set.** A `Kernel` with an instruction set exists only after the CPU reported
//!    that set (`Kernel::all`), and `bits::probe_fn` and `inline::choose` choose from a `Kernel`.

use crate::filter::blocked::{Block, MAX_PROBES, SALTS, block_of};
use crate::filter::layout::Layout;
use crate::filter::shape::Shape;
use crate::hash::{IdHash, Xxh3, is_valid_len};

/// What a lookup needs of a filter.
#[derive(Clone, Copy)]
pub(super) struct Prober {
    pub(super) first: *const Block,
    pub(super) shape: Shape,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(super) salts: Salts,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(super) inline: InlineKernel,
}

/// Which kernel runs inline, in the middle of the caller's own code, and so saves a call.
///
/// That kernel's field is the length of a device ID, every other field is `usize::MAX`, a length
/// that no slice has. So one comparison decides both that this kernel runs and how the ID is
/// hashed.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
pub(super) struct InlineKernel {
    pub(super) avx512: usize,
    pub(super) avx2: usize,
}

/// A multiplier for each of 16 lanes. Lanes past the number of probes repeat the first ones:
/// testing a bit twice changes no result, and no lane has to be masked.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Salts(pub(super) [u32; 16]);

/// A single lookup, resolved for a layout and a kernel.
///
/// # Safety
/// The `Prober` has the layout and the kernel that `bits::probe_fn` chose this function for, and
/// the memory behind it is alive (facts 1 to 3).
pub(super) type ProbeFn = unsafe fn(&Prober, &[u8]) -> bool;

impl Salts {
    /// The multipliers of a filter with this many probes. A filter of another layout may have more
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

impl InlineKernel {
    pub(super) const NONE: InlineKernel = InlineKernel { avx512: usize::MAX, avx2: usize::MAX };
}

impl Prober {
    /// A prober without a filter, for probe functions that read nothing.
    pub(super) fn none() -> Prober {
        let shape = Shape::new(Layout::Blocked, 1, 1).expect("the smallest shape");
        Prober { first: std::ptr::null(), shape, salts: *Salts::of(1), inline: InlineKernel::NONE }
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
        let block = block_of(hash, self.shape.units());
        // SAFETY: `block_of` is floor(hash · units / 2^64), and hash < 2^64, so `block` < `units`:
        // it lies inside the body (fact 1). A `Block` is an array of bytes: any address is aligned
        // and any bits are valid. The bytes are alive by the caller's promise and are never written
        // (fact 2).
        unsafe { &*self.first.add(block) }
    }
}
