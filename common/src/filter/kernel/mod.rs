//! The code that tests bits, in one form for each instruction set. Chosen once, when a filter is
//! made; identical bits and answers everywhere: `scalar` is the definition, and property tests hold
//! the others to it.
//!
//! The only unsafe code beside the memory map lives below this folder.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;

use std::fmt;

use super::{Layout, Shape, guava};
use crate::hash::{IdHash, Murmur3};

/// How far ahead a batch hashes and prefetches: enough to keep every line-fill buffer busy.
const AHEAD: usize = 32;

/// One form of the bit-testing code. A value exists only where the machine can run it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

/// A single question, resolved for a layout and a kernel: body, shape, ID.
///
/// # Safety
/// Callable only where the kernel it came from may run.
type One = unsafe fn(&[u8], Shape, &[u8]) -> bool;

impl Kernel {
    /// The form that every machine can run: the definition of the format.
    pub fn scalar() -> Kernel {
        Kernel(Form::Scalar)
    }

    /// Every form that this machine can run, the fastest last.
    pub fn all() -> Vec<Kernel> {
        let mut all = vec![Form::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            all.push(Form::Avx2);
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
            Form::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => "avx2",
        }
    }

    /// Resolves a layout to the one function that answers a question.
    pub(super) fn asker(self, layout: Layout) -> Asker {
        Asker(match (layout, self.0) {
            (Layout::Guava, _) => guava_one,
            (Layout::Blocked, Form::Scalar) => scalar::one,
            #[cfg(target_arch = "x86_64")]
            (Layout::Blocked, Form::Avx2) => avx2::one,
        })
    }

    /// Whether all probe bits of a `blocked` hash are set.
    #[inline]
    pub(crate) fn blocked(self, body: &[u8], probes: u32, hash: u64) -> bool {
        match self.0 {
            Form::Scalar => scalar::contains(body, probes, hash),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX2.
            Form::Avx2 => unsafe { avx2::contains(body, probes, hash) },
        }
    }

    /// Answers a batch of questions to a `blocked` filter; dispatched once.
    pub(super) fn blocked_batch<T: AsRef<[u8]>>(
        self,
        body: &[u8],
        probes: u32,
        ids: &[T],
        answers: &mut [bool],
    ) {
        match self.0 {
            Form::Scalar => scalar::batch(body, probes, ids, answers),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Kernel` of this form exists only after the CPU said that it has AVX2.
            Form::Avx2 => unsafe { avx2::batch(body, probes, ids, answers) },
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One function that answers a question; see [`Kernel::asker`].
#[derive(Clone, Copy)]
pub(super) struct Asker(One);

impl Asker {
    /// Whether a legal `id` is in the filter with this body and shape.
    #[inline(always)]
    pub(super) fn ask(self, body: &[u8], shape: Shape, id: &[u8]) -> bool {
        // SAFETY: made by `Kernel::asker` only, from a kernel that may run on this machine.
        unsafe { (self.0)(body, shape, id) }
    }
}

fn guava_one(body: &[u8], shape: Shape, id: &[u8]) -> bool {
    guava::contains(body, shape, Murmur3::of(id))
}

/// Asks the processor for the cache line of a block, and does not wait for it.
#[inline(always)]
fn prefetch(block: &super::blocked::Block) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a valid reference; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// The loop of a batch, shared by all forms: a ring of hashes whose blocks are on their way, each
/// tested [`AHEAD`] questions after its prefetch.
///
/// `#[inline(always)]` so that it is compiled with the instruction set of its caller.
#[inline(always)]
fn batch_with<T: AsRef<[u8]>>(
    body: &[u8],
    ids: &[T],
    answers: &mut [bool],
    test: impl Fn(&super::blocked::Block, u64) -> bool,
) {
    use super::blocked::block_of;
    use crate::hash::{Xxh3, is_legal};

    let (blocks, _) = body.as_chunks();
    let n_blocks = blocks.len() as u64;
    let mut ring = [(0usize, 0u64); AHEAD];
    for step in 0..ids.len() + AHEAD {
        let slot = step % AHEAD;
        if let Some(due) = step.checked_sub(AHEAD) {
            let (block, hash) = ring[slot];
            answers[due] = is_legal(ids[due].as_ref()) && test(&blocks[block], hash);
        }
        if let Some(id) = ids.get(step) {
            let Xxh3(hash) = Xxh3::of(id.as_ref());
            let block = block_of(hash, n_blocks);
            prefetch(&blocks[block]);
            ring[slot] = (block, hash);
        }
    }
}

/// Hashes each ID and touches its line, [`AHEAD`] IDs after its prefetch: the loop of a batch with
/// nothing but memory in it.
pub(super) fn touch<T: AsRef<[u8]>>(body: &[u8], ids: &[T]) -> u64 {
    use super::blocked::{Block, block_of};
    use crate::hash::Xxh3;

    let (blocks, _) = body.as_chunks();
    let n_blocks = blocks.len() as u64;
    let mut ring = [0usize; AHEAD];
    let mut sum = 0u64;
    let touch = |block: &Block| u64::from(block[0]);
    for (step, id) in ids.iter().enumerate() {
        let block = block_of(Xxh3::of(id.as_ref()).0, n_blocks);
        prefetch(&blocks[block]);
        let due = std::mem::replace(&mut ring[step % AHEAD], block);
        sum = sum.wrapping_add(touch(&blocks[due]));
    }
    ring.iter().fold(sum, |sum, due| sum.wrapping_add(touch(&blocks[*due])))
}
