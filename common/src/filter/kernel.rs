//! The code that tests bits, in one version for each instruction set. It is chosen once, when a
//! filter is made. All versions give identical bits and results: `scalar` is the definition, and
//! property tests check the others against it.
//!
//! All unsafe code of the crate is in this folder, except the instructions that Rust has no
//! function for (`assembly.rs`), cache hints and non-temporal stores (`memory/cache.rs`), and words
//! that threads share in mapped memory (`memory/lines.rs`).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod bits;
mod inline;
mod kept;
mod prober;
mod scalar;

use std::fmt;

use super::overlay::Overlay;
use crate::hash::IdHash;

pub(super) use batch::touch;
pub(super) use bits::FilterBits;
pub use kept::KeptFilter;

/// The bit-testing code for one instruction set. A value exists only where the machine can run it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// The kernel that every machine can run: the definition of the format.
    #[doc(hidden)] // for benchmarks and tests: a filter chooses its kernel
    pub fn scalar() -> Kernel {
        Kernel(Isa::Scalar)
    }

    /// Every kernel that this machine can run, the fastest last.
    ///
    /// This is the only place that makes a kernel with an instruction set. AVX2 needs `avx2` and
    /// `bmi2`; AVX-512 needs those and `avx512f`, because it counts bits with the code of AVX2.
    #[doc(hidden)] // for benchmarks and tests: a filter chooses its kernel
    pub fn all() -> Vec<Kernel> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            all.push(Isa::Avx2);
            if is_x86_feature_detected!("avx512f") {
                all.push(Isa::Avx512);
            }
        }
        all.into_iter().map(Kernel).collect()
    }

    /// The fastest kernel that this machine can run.
    pub fn best() -> Kernel {
        *Kernel::all().last().expect("the scalar kernel is always there")
    }

    /// Its name in status and reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether all probe bits of a `blocked` hash are set.
    #[inline]
    pub(crate) fn contains(self, body: &[u8], probes: u32, hash: u64) -> bool {
        match self.0 {
            Isa::Scalar => scalar::contains(body, probes, hash),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX2 and BMI2, which the function
            // enables.
            Isa::Avx2 => unsafe { avx2::contains(body, probes, hash) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX-512F and BMI2, which it
            // enables.
            Isa::Avx512 => unsafe { avx512::contains(body, probes, hash) },
        }
    }

    /// How many of these hashes may be in a `blocked` filter.
    pub(super) fn count<H: IdHash>(self, body: &[u8], probes: u32, hashes: &[H]) -> usize {
        let mut n_hits = 0;
        self.contains_hashes(body, probes, hashes, |_, hit| n_hits += usize::from(hit));
        n_hits
    }

    /// Calls `found` with the number of each hash and whether it may be in a `blocked` filter, in
    /// order.
    pub(super) fn contains_hashes<H: IdHash>(
        self,
        body: &[u8],
        probes: u32,
        hashes: &[H],
        found: impl FnMut(usize, bool),
    ) {
        match self.0 {
            Isa::Scalar => scalar::contains_hashes(body, probes, hashes, found),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX2 and BMI2, which the function
            // enables.
            Isa::Avx2 => unsafe { avx2::contains_hashes(body, probes, hashes, found) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX-512F and BMI2, which it
            // enables.
            Isa::Avx512 => unsafe { avx512::contains_hashes(body, probes, hashes, found) },
        }
    }

    /// How many bits are set.
    pub(super) fn count_ones(self, bytes: &[u8]) -> u64 {
        match self.0 {
            Isa::Scalar => batch::count_ones(bytes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the function enables AVX2 and BMI2. `all` makes an AVX2 kernel only if the
            // CPU has both, and an AVX-512 kernel only where it made one of AVX2.
            Isa::Avx2 | Isa::Avx512 => unsafe { avx2::count_ones(bytes) },
        }
    }

    /// Looks up a batch of IDs in a `blocked` filter; `over` gives the answers. Returns the number
    /// of hits.
    pub(super) fn contains_batch<T: AsRef<[u8]>>(
        self,
        body: &[u8],
        probes: u32,
        ids: &[T],
        hits: &mut [bool],
        over: &impl Overlay,
    ) -> usize {
        match self.0 {
            Isa::Scalar => scalar::contains_batch(body, probes, ids, hits, over),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX2 and BMI2, which the function
            // enables.
            Isa::Avx2 => unsafe { avx2::contains_batch(body, probes, ids, hits, over) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` makes this kernel only if the CPU has AVX-512F and BMI2, which it
            // enables.
            Isa::Avx512 => unsafe { avx512::contains_batch(body, probes, ids, hits, over) },
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
