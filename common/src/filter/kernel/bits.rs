//! [`FilterBits`]: a filter's memory, with everything that one lookup needs resolved in advance.
//!
//! The comments on safety refer to the three facts of `prober` by number.

use std::ops::Range;

use super::prober::{InlineKernel, ProbeFn, Prober, Salts};
use super::{Isa, Kernel, inline, scalar};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::filter::classic;
use crate::filter::layout::Layout;
use crate::filter::shape::Shape;
use crate::hash::{IdHash, Murmur3, Spark, is_valid_len};
use crate::id_form::IdForm;
use crate::memory::Buffer;

/// The memory of a filter, and the one function that looks an ID up in it: layout, hash, kernel and
/// address are resolved when it is made, so that a lookup has nothing left to choose.
pub(crate) struct FilterBits {
    pub(super) prober: Prober,
    pub(super) probe_fn: ProbeFn,
    /// Owns what `prober` points into. It is never written again, and no `&mut` to it is returned.
    memory: Buffer,
    body: Range<usize>,
    id_form: IdForm,
}

// SAFETY: the raw pointer in `prober` is what keeps this from being `Send`. It points to bytes that
// `memory` owns (fact 2), which moves to the other thread too, and `Buffer` is `Send`.
unsafe impl Send for FilterBits {}
// SAFETY: through `&FilterBits` the bytes behind the pointer are only read, and nothing writes to
// them while the value exists (fact 2); there is no interior mutability.
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
            inline: inline::choose(shape, kernel),
        };
        let probe_fn = probe_fn(shape.layout(), kernel);
        FilterBits { prober, probe_fn, memory, body, id_form: IdForm::Bytes }
    }

    /// The same bits, looked up by IDs of this form.
    pub(crate) fn with_id_form(self, id_form: IdForm, kernel: Kernel) -> FilterBits {
        FilterBits { id_form, ..self }.with_kernel(kernel)
    }

    pub(crate) fn id_form(&self) -> IdForm {
        self.id_form
    }

    /// The same bits, looked up through another kernel.
    pub(crate) fn with_kernel(self, kernel: Kernel) -> FilterBits {
        let shape = self.prober.shape;
        let (probe_fn, inline) = match (self.id_form, shape.layout()) {
            (IdForm::Bytes, layout) => (probe_fn(layout, kernel), inline::choose(shape, kernel)),
            (IdForm::Url, layout) => (probe_url(layout), InlineKernel::NONE),
        };
        let prober = Prober { inline, ..self.prober };
        FilterBits { prober, probe_fn, ..self }
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
        // SAFETY: `probe_fn` and `prober` were made together from one `Kernel` (fact 3), and
        // `memory` keeps the bytes alive as long as `self` is borrowed (fact 2).
        unsafe { self.prober.contains(self.probe_fn, id) }
    }
}

/// The function that looks up one ID in a layout through a kernel.
fn probe_fn(layout: Layout, kernel: Kernel) -> ProbeFn {
    match (layout, kernel.0) {
        (Layout::Guava, _) => probe_classic::<Murmur3, false>,
        (Layout::Spark1, _) => probe_classic::<Spark<1>, false>,
        (Layout::Spark2, _) => probe_classic::<Spark<2>, false>,
        (Layout::Blocked, Isa::Scalar) => scalar::probe,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx2) => avx2::probe,
        #[cfg(target_arch = "x86_64")]
        (Layout::Blocked, Isa::Avx512) => avx512::probe,
    }
}

/// The function that looks up one URL in a layout. It is the same for every kernel.
fn probe_url(layout: Layout) -> ProbeFn {
    match layout {
        Layout::Blocked => scalar::probe_url,
        Layout::Guava => probe_classic::<Murmur3, true>,
        Layout::Spark1 => probe_classic::<Spark<1>, true>,
        Layout::Spark2 => probe_classic::<Spark<2>, true>,
    }
}

/// A lookup in a classic filter. It is the same for every kernel.
///
/// # Safety
/// `prober` is of a filter of the hash's layout whose memory is alive.
unsafe fn probe_classic<H: IdHash, const URL: bool>(prober: &Prober, id: &[u8]) -> bool {
    let form = if URL { IdForm::Url } else { IdForm::Bytes };
    // SAFETY: `shape.body_bytes()` bytes follow `first` (fact 1); they are alive by the caller's
    // promise and are never written (fact 2). Bytes need no alignment.
    let body = unsafe {
        std::slice::from_raw_parts(prober.first.cast::<u8>(), prober.shape.body_bytes() as usize)
    };
    is_valid_len(id) && classic::contains(body, prober.shape, form.hash::<H>(id))
}
