//! The loops that hide memory's latency: ask many, and the limit of that. Shared by all
//! forms: `#[inline(always)]`, so that each is compiled with the instruction set of its caller.

use crate::filter::blocked::{Block, block_of};
use crate::hash::{IdHash, Xxh3, is_valid_len};
use crate::memory::prefetch;

/// How far ahead a loop prefetches: enough to keep every line-fill buffer busy.
const AHEAD: usize = 32;

/// The blocks of a body, found by hash without a second look at the bounds.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    blocks: &'a [Block],
    n_blocks: u64,
}

impl<'a> Blocks<'a> {
    #[inline(always)]
    fn of(body: &'a [u8]) -> Blocks<'a> {
        let (blocks, _) = body.as_chunks();
        assert!(!blocks.is_empty(), "a filter has a block");
        Blocks { blocks, n_blocks: blocks.len() as u64 }
    }

    #[inline(always)]
    fn get(self, hash: u64) -> &'a Block {
        // SAFETY: fast-range of at least one block gives less than their number.
        unsafe { self.blocks.get_unchecked(block_of(hash, self.n_blocks)) }
    }
}

/// Hashes an ID and sends for its block. A function, not a closure: it must be inlined at both places,
/// or each question pays a call and the change of instruction set.
#[inline(always)]
fn begin(blocks: Blocks<'_>, id: &[u8], all_legal: &mut bool) -> u64 {
    // Rare, and put right at the end: the loop need not look at an ID twice.
    *all_legal &= is_valid_len(id);
    let Xxh3(hash) = Xxh3::of(id);
    prefetch(blocks.get(hash));
    hash
}

/// The loop of a batch: a ring of hashes whose blocks are on their way, each tested [`AHEAD`]
/// questions after its prefetch. Gives the number answered "yes".
#[inline(always)]
pub(super) fn ask<T: AsRef<[u8]>>(
    body: &[u8],
    ids: &[T],
    answers: &mut [bool],
    test: impl Fn(&Block, u64) -> bool,
) -> usize {
    let blocks = Blocks::of(body);
    let answers = &mut answers[..ids.len()];
    let (mut all_legal, mut seen) = (true, 0);
    let mut ring = [0u64; AHEAD];
    let (head, tail) = ids.split_at(ids.len().min(AHEAD));
    for (slot, id) in ring.iter_mut().zip(head) {
        *slot = begin(blocks, id.as_ref(), &mut all_legal);
    }
    let (due, last) = answers.split_at_mut(tail.len());
    for (i, (id, answer)) in tail.iter().zip(due).enumerate() {
        let next = begin(blocks, id.as_ref(), &mut all_legal);
        let hash = std::mem::replace(&mut ring[i % AHEAD], next);
        *answer = test(blocks.get(hash), hash);
        // Counted here: who reads the answers back at once waits until they are all stored.
        seen += usize::from(*answer);
    }
    for (i, answer) in last.iter_mut().enumerate() {
        let hash = ring[(tail.len() + i) % AHEAD];
        *answer = test(blocks.get(hash), hash);
        seen += usize::from(*answer);
    }
    if !all_legal {
        deny_illegal(ids, answers);
        seen = answers.iter().filter(|answer| **answer).count();
    }
    seen
}

/// How many of these hashes may be in it: the loop of [`ask`] for what is hashed already.
#[inline(always)]
pub(super) fn count<H: IdHash>(
    body: &[u8],
    hashes: &[H],
    test: impl Fn(&Block, u64) -> bool,
) -> usize {
    let blocks = Blocks::of(body);
    let mut seen = 0;
    for (i, hash) in hashes.iter().enumerate() {
        if let Some(next) = hashes.get(i + AHEAD) {
            prefetch(blocks.get(next.high_bits()));
        }
        seen += usize::from(test(blocks.get(hash.high_bits()), hash.high_bits()));
    }
    seen
}

#[cold]
fn deny_illegal<T: AsRef<[u8]>>(ids: &[T], answers: &mut [bool]) {
    for (id, answer) in ids.iter().zip(answers) {
        *answer &= is_valid_len(id.as_ref());
    }
}

/// Hashes each ID and touches its line [`AHEAD`] IDs after its prefetch: the loop of [`ask`] with
/// nothing but memory in it.
pub(crate) fn touch<T: AsRef<[u8]>>(body: &[u8], ids: &[T]) -> u64 {
    let blocks = Blocks::of(body);
    let mut ring = [0u64; AHEAD];
    let mut sum = 0u64;
    let touch = |hash: u64| u64::from(blocks.get(hash)[0]);
    for (step, id) in ids.iter().enumerate() {
        let Xxh3(hash) = Xxh3::of(id.as_ref());
        prefetch(blocks.get(hash));
        sum = sum.wrapping_add(touch(std::mem::replace(&mut ring[step % AHEAD], hash)));
    }
    ring.iter().fold(sum, |sum, due| sum.wrapping_add(touch(*due)))
}

/// How many bits are set: several words a step, which the compiler makes vectors of where its caller
/// may use them.
#[inline(always)]
pub(super) fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let whole: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    whole + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}
