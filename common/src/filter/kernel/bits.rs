//! [`FilterBits`]: a filter's memory, with all that one question needs resolved beforehand.

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

/// The memory of a filter, and the one function that asks it: layout, hash, kernel and address are
/// resolved when it is made, so that a question decides nothing.
pub(crate) struct FilterBits {
    pub(super) asked: Prober,
    pub(super) one: ProbeFn,
    /// Owns what `asked` points into. Never written again and never handed out to be.
    memory: Buffer,
    body: Range<usize>,
}

/// What a question needs of a filter.
#[derive(Clone, Copy)]
pub(super) struct Prober {
    first: *const Block,
    shape: Shape,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    pub(super) salts: Salts,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
    in_place: InlineKernel,
}

/// Which kernel answers in place, in the middle of the caller's own code. It saves a call, a fifth of the
/// time. That kernel's field is the length of a device ID, the other one a length that no ID has: so
/// one comparison says both that this kernel answers and how the ID is hashed.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
struct InlineKernel {
    avx512: usize,
    avx2: usize,
}

/// A multiplier for each of 16 lanes. Those past the probes repeat the first ones: to test a bit twice
/// changes no answer, and no lane has to be left out.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Salts(pub(super) [u32; 16]);

/// A single question, resolved for a layout and a kernel.
///
/// # Safety
/// Callable only where the kernel it came from may run, and while the memory behind `Prober` lives.
pub(super) type ProbeFn = unsafe fn(&Prober, &[u8]) -> bool;

// SAFETY: the pointer leads into `memory`, which moves with it and is only read.
unsafe impl Send for FilterBits {}
// SAFETY: as above; nothing here changes while it is shared.
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
        let asked = Prober {
            first: memory[body.clone()].as_ptr().cast(),
            shape,
            salts: *Salts::of(shape.probes()),
            in_place: InlineKernel::of(shape, kernel),
        };
        FilterBits { asked, one: one(shape.layout(), kernel), memory, body }
    }

    /// The same bits asked through another kernel.
    pub(crate) fn by(self, kernel: Kernel) -> FilterBits {
        let shape = self.asked.shape;
        let asked = Prober { in_place: InlineKernel::of(shape, kernel), ..self.asked };
        FilterBits { asked, one: one(shape.layout(), kernel), ..self }
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
        // SAFETY: both came from a kernel that may run here, and `self` owns the memory.
        unsafe { self.asked.ask(self.one, id) }
    }
}

impl Salts {
    /// Those of a filter with so many probes. One of another layout may have more, and asks for none.
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

/// The one function that answers questions to a layout through a kernel.
fn one(layout: Layout, kernel: Kernel) -> ProbeFn {
    match (layout, kernel.0) {
        (Layout::Guava, _) => guava_one,
        (Layout::Blocked, Isa::Scalar) => scalar::one,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx2) => avx2::one,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx512) => avx512::one,
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
            (Layout::Blocked, Isa::Avx2) if shape.probes() <= avx2::IN_PLACE_PROBES => {
                InlineKernel { avx2: DEVICE_ID_BYTES, ..InlineKernel::NEITHER }
            }
            _ => InlineKernel::NEITHER,
        }
    }
}

impl Prober {
    /// Nothing to ask: for functions that look at nothing.
    pub(super) fn nothing() -> Prober {
        let shape = Shape::new(Layout::Blocked, 1, 1).expect("the smallest shape");
        Prober {
            first: std::ptr::null(),
            shape,
            salts: *Salts::of(1),
            in_place: InlineKernel::NEITHER,
        }
    }

    /// A question, in place or through `one`.
    ///
    /// # Safety
    /// `one` and `self` came from the same kernel, which may run here, and the memory lives.
    #[inline(always)]
    pub(super) unsafe fn ask(&self, one: ProbeFn, id: &[u8]) -> bool {
        // SAFETY: as the caller promises.
        let is_in = unsafe { self.ask_in_place(id).unwrap_or_else(|| u8::from(one(self, id))) };
        // SAFETY: each way gives 0 or 1. Said here, where they meet, or the compiler tests it once more.
        unsafe { assert_unchecked(is_in <= 1) };
        is_in != 0
    }

    /// 1 or 0 for "yes" or "no", where a kernel answers in place.
    ///
    /// # Safety
    /// The kernel may run here, and the memory lives.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn ask_in_place(&self, id: &[u8]) -> Option<u8> {
        // SAFETY: as the caller promises; only kernels of the layout `blocked` answer in place.
        unsafe {
            if id.len() == self.in_place.avx512 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                Some(self.legal(id, |block, hash| avx512::test_in_place(block, &self.salts, hash)))
            } else if id.len() == self.in_place.avx2 {
                assert_unchecked(id.len() == DEVICE_ID_BYTES);
                Some(self.legal(id, |block, hash| avx2::test_in_place(block, &self.salts, hash)))
            } else {
                None
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    unsafe fn ask_in_place(&self, _: &[u8]) -> Option<u8> {
        None
    }

    pub(super) fn probes(&self) -> u32 {
        self.shape.probes()
    }

    /// A question with a legal ID.
    ///
    /// # Safety
    /// The layout is `blocked`, and the memory lives.
    #[inline(always)]
    pub(super) unsafe fn legal<A>(&self, id: &[u8], test: impl Fn(&Block, u64) -> A) -> A {
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
        is_valid_len(id) && unsafe { self.legal(id, test) }
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
unsafe fn guava_one(asked: &Prober, id: &[u8]) -> bool {
    // SAFETY: that many bytes were checked to follow `first` when the `Prober` was made.
    let body = unsafe {
        std::slice::from_raw_parts(asked.first.cast::<u8>(), asked.shape.body_bytes() as usize)
    };
    is_valid_len(id) && guava::contains(body, asked.shape, Murmur3::of(id))
}
