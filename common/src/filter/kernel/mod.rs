//! The code that tests bits, in one form for each instruction set. Chosen once, when a filter is
//! made; identical bits and answers everywhere: `scalar` is the definition, and property tests hold
//! the others to it.
//!
//! All unsafe code lives below this folder, but for what `memory` tells the caches, and for what the hash
//! of usual IDs does in vector registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod bits;
mod pinned;
mod scalar;

use std::fmt;

use crate::hash::IdHash;

pub(super) use batch::touch;
pub(super) use bits::FilterBits;
pub use pinned::PinnedFilter;

/// One form of the bit-testing code. A value exists only where the machine can run it.
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
    /// The form that every machine can run: the definition of the format.
    pub fn scalar() -> Kernel {
        Kernel(Isa::Scalar)
    }

    /// Every form that this machine can run, the fastest last.
    pub fn all() -> Vec<Kernel> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            all.push(Isa::Avx2);
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2") {
            all.push(Isa::Avx512);
        }
        all.into_iter().map(Kernel).collect()
    }

    /// The fastest form that this machine can run.
    pub fn best() -> Kernel {
        *Kernel::all().last().expect("the scalar form is always there")
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
    pub(crate) fn blocked(self, body: &[u8], probes: u32, hash: u64) -> bool {
        match self.0 {
            Isa::Scalar => scalar::contains(body, probes, hash),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX2 and BMI2.
            Isa::Avx2 => unsafe { avx2::contains(body, probes, hash) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX-512F and BMI2.
            Isa::Avx512 => unsafe { avx512::contains(body, probes, hash) },
        }
    }

    /// How many of these hashes may be in a `blocked` filter; dispatched once.
    pub(super) fn blocked_count<H: IdHash>(self, body: &[u8], probes: u32, hashes: &[H]) -> usize {
        match self.0 {
            Isa::Scalar => scalar::count(body, probes, hashes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX2 and BMI2.
            Isa::Avx2 => unsafe { avx2::count(body, probes, hashes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX-512F and BMI2.
            Isa::Avx512 => unsafe { avx512::count(body, probes, hashes) },
        }
    }

    /// How many bits are set.
    pub(super) fn count_ones(self, bytes: &[u8]) -> u64 {
        match self.0 {
            Isa::Scalar => batch::count_ones(bytes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of these forms exists only after the CPU said that it has AVX2.
            Isa::Avx2 | Isa::Avx512 => unsafe { avx2::count_ones(bytes) },
        }
    }

    /// Answers a batch of questions to a `blocked` filter, and counts those answered "yes"; dispatched
    /// once.
    pub(super) fn blocked_batch<T: AsRef<[u8]>>(
        self,
        body: &[u8],
        probes: u32,
        ids: &[T],
        answers: &mut [bool],
    ) -> usize {
        match self.0 {
            Isa::Scalar => scalar::batch(body, probes, ids, answers),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX2 and BMI2.
            Isa::Avx2 => unsafe { avx2::batch(body, probes, ids, answers) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX-512F and BMI2.
            Isa::Avx512 => unsafe { avx512::batch(body, probes, ids, answers) },
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
