//! [`Bits`]: a filter's memory, with all that one question needs resolved beforehand.

use std::ops::Range;

use super::{Form, Kernel, scalar};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::filter::blocked::Block;
use crate::filter::{Layout, Shape, guava};
use crate::hash::{IdHash, Murmur3, Xxh3, is_legal};
use crate::memory::Buffer;

/// The memory of a filter, and the one function that asks it: layout, hash, kernel and address are
/// resolved when it is made, so that a question decides nothing.
pub(crate) struct Bits {
    pub(super) asked: Asked,
    pub(super) one: One,
    /// Owns what `asked` points into. Never written again and never handed out to be.
    memory: Buffer,
    body: Range<usize>,
}

/// What a question needs of a filter.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) first: *const Block,
    pub(super) shape: Shape,
    /// As [`lanes`] tells.
    pub(super) lanes: u16,
}

/// A single question, resolved for a layout and a kernel.
///
/// # Safety
/// Callable only where the kernel it came from may run, and while the memory behind `Asked` lives.
pub(super) type One = unsafe fn(&Asked, &[u8]) -> bool;

// SAFETY: the pointer leads into `memory`, which moves with it and is only read.
unsafe impl Send for Bits {}
// SAFETY: as above; nothing here changes while it is shared.
unsafe impl Sync for Bits {}

impl Bits {
    /// Resolves `memory[body]` for this shape and kernel.
    ///
    /// # Panics
    /// When the body's length is not the shape's: callers check it before.
    pub(crate) fn new(shape: Shape, memory: Buffer, body: Range<usize>, kernel: Kernel) -> Bits {
        assert_eq!(body.len() as u64, shape.body_bytes(), "the body must have the shape's length");
        let asked = Asked {
            first: memory[body.clone()].as_ptr().cast(),
            shape,
            lanes: lanes(shape.probes()),
        };
        Bits { asked, one: one(shape.layout(), kernel), memory, body }
    }

    /// The same bits asked through another kernel.
    pub(crate) fn by(self, kernel: Kernel) -> Bits {
        Bits { one: one(self.asked.shape.layout(), kernel), ..self }
    }

    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        &self.memory[self.body.clone()]
    }

    pub(crate) fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Gives the memory back, for another filter.
    pub(crate) fn into_memory(self) -> Buffer {
        self.memory
    }

    /// Whether `id` may be in it; one that is not legal is not.
    #[inline(always)]
    pub(crate) fn ask(&self, id: &[u8]) -> bool {
        // SAFETY: `one` came from a kernel that may run here, and `self` owns the memory.
        unsafe { (self.one)(&self.asked, id) }
    }
}

/// The lanes that count: the lowest `probes` of 16.
pub(super) fn lanes(probes: u32) -> u16 {
    (u32::MAX >> (32 - probes.clamp(1, 16))) as u16
}

/// The one function that answers questions to a layout through a kernel.
fn one(layout: Layout, kernel: Kernel) -> One {
    match (layout, kernel.0) {
        (Layout::Guava, _) => guava_one,
        (Layout::Blocked, Form::Scalar) => scalar::one,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Form::Avx2) => avx2::one,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Form::Avx512) => avx512::one,
    }
}

/// Whether `id` has the length of most IDs: 32 hex digits, the 36 characters of a UUID. One comparison then
/// says that it is legal and nearly how it is hashed; the others are asked elsewhere, out of the way.
#[inline(always)]
pub(super) fn is_usual(id: &[u8]) -> bool {
    (17..=64).contains(&id.len())
}

impl Asked {
    pub(super) fn probes(&self) -> u32 {
        self.shape.probes()
    }

    /// A question with a legal ID.
    ///
    /// # Safety
    /// The layout is `blocked`, and the memory lives.
    #[inline(always)]
    pub(super) unsafe fn legal(&self, id: &[u8], test: impl Fn(&Block, u64) -> bool) -> bool {
        let Xxh3(hash) = Xxh3::of(id);
        // SAFETY: as the caller promises.
        test(unsafe { self.block(hash) }, hash)
    }

    /// A question with any ID.
    ///
    /// # Safety
    /// The layout is `blocked`, and the memory lives.
    #[inline(always)]
    pub(super) unsafe fn any(&self, id: &[u8], test: impl Fn(&Block, u64) -> bool) -> bool {
        // SAFETY: as the caller promises.
        is_legal(id) && unsafe { self.legal(id, test) }
    }

    /// # Safety
    /// The layout is `blocked`, and the memory lives.
    #[inline(always)]
    unsafe fn block(&self, hash: u64) -> &Block {
        let block = crate::filter::blocked::block_of(hash, self.shape.units());
        // SAFETY: fast-range gives less than the number of units, and that many blocks follow `first`.
        unsafe { &*self.first.add(block) }
    }
}

/// # Safety
/// The layout is `guava`, and the memory lives.
unsafe fn guava_one(asked: &Asked, id: &[u8]) -> bool {
    // SAFETY: that many bytes were checked to follow `first` when the `Asked` was made.
    let body = unsafe {
        std::slice::from_raw_parts(asked.first.cast::<u8>(), asked.shape.body_bytes() as usize)
    };
    is_legal(id) && guava::contains(body, asked.shape, Murmur3::of(id))
}
