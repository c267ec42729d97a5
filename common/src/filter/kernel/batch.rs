//! The loops that hide the latency of memory: many lookups at once, and the lower bound for that.
//! All kernels share them: `#[inline(always)]`, so that each is compiled with the instruction set
//! of its caller.

use crate::filter::blocked::{Block, block_of};
use crate::filter::overlay::Overlay;
use crate::hash::{IdHash, Xxh3, is_valid_len};
use crate::memory::prefetch;

/// How far ahead a loop prefetches: enough to keep every line-fill buffer busy.
const AHEAD: usize = 32;

/// The blocks of a body, indexed by hash without a bounds check for each.
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
        // SAFETY: `block_of` is floor(hash · n_blocks / 2^64), and hash < 2^64, so it is less than
        // `n_blocks`, the length of `blocks`, which `of` asserted not to be 0.
        unsafe { self.blocks.get_unchecked(block_of(hash, self.n_blocks)) }
    }
}

/// Hashes an ID and prefetches its block, and what lies over it. A function, not a closure: it must
/// be inlined at both places, or each lookup pays for a call and for the change of instruction set.
#[inline(always)]
fn hash_and_prefetch<'a, O: Overlay>(
    blocks: Blocks<'_>,
    over: &'a O,
    id: &[u8],
    all_valid: &mut bool,
) -> (u64, O::Word<'a>) {
    // Rare, and corrected at the end, so that the loop looks at each ID once.
    *all_valid &= is_valid_len(id);
    let Xxh3(hash) = Xxh3::of(id);
    prefetch(blocks.get(hash));
    (hash, over.prefetch(hash))
}

/// The loop of a batch: a ring of hashes whose blocks are being prefetched. Each is tested
/// [`AHEAD`] lookups after its prefetch. Returns the number of hits.
#[inline(always)]
pub(super) fn contains<T: AsRef<[u8]>>(
    body: &[u8],
    ids: &[T],
    hits: &mut [bool],
    over: &impl Overlay,
    test: impl Fn(&Block, u64) -> bool,
) -> usize {
    let blocks = Blocks::of(body);
    let hits = &mut hits[..ids.len()];
    let mut all_valid = true;
    let mut answers = Answers { blocks, hits, over, test, n_hits: 0, late: Late::default() };
    let mut ring = [(0, over.prefetch(0)); AHEAD];
    let (head, tail) = ids.split_at(ids.len().min(AHEAD));
    for (slot, id) in ring.iter_mut().zip(head) {
        *slot = hash_and_prefetch(blocks, over, id.as_ref(), &mut all_valid);
    }
    for (i, id) in tail.iter().enumerate() {
        let next = hash_and_prefetch(blocks, over, id.as_ref(), &mut all_valid);
        answers.answer(i, std::mem::replace(&mut ring[i % AHEAD], next));
    }
    for i in tail.len()..ids.len() {
        answers.answer(i, ring[i % AHEAD]);
    }
    let n_hits = answers.settle();
    if all_valid {
        return n_hits;
    }
    clear_invalid(ids, hits);
    hits.iter().filter(|hit| **hit).count()
}

/// What the loop of a batch answers with.
struct Answers<'a, O, T> {
    blocks: Blocks<'a>,
    hits: &'a mut [bool],
    over: &'a O,
    test: T,
    /// Hits are counted here: a caller that reads the results back at once waits until all are
    /// stored.
    n_hits: usize,
    late: Late,
}

impl<O: Overlay, T: Fn(&Block, u64) -> bool> Answers<'_, O, T> {
    /// Answers lookup `i`. As [`hash_and_prefetch`], it must be inlined.
    #[inline(always)]
    fn answer<'a>(&mut self, i: usize, (hash, word): (u64, O::Word<'a>))
    where
        O: 'a,
    {
        let hit = (self.test)(self.blocks.get(hash), hash);
        self.hits[i] = hit;
        if !O::CHANGES_ANSWERS {
            self.n_hits += usize::from(hit);
            return;
        }
        // No branch on what may change: it depends on memory that has just arrived, and cannot be
        // predicted.
        let may_change = O::may_change(word, hash);
        self.n_hits += usize::from(hit & !may_change);
        self.n_hits += self.late.push_if(may_change, i, hash, self.hits, self.over);
    }

    /// Answers what is late. Returns the number of hits of all.
    #[inline(always)]
    fn settle(mut self) -> usize {
        self.n_hits + self.late.settle(self.hits, self.over)
    }
}

/// How many lookups are answered late at once: so many that the memory of the first one has arrived
/// when that of the last one is prefetched.
const LATE: usize = 32;

/// The lookups whose answers an [`Overlay`] may change: their numbers and hashes.
struct Late {
    lookups: [(usize, u64); LATE],
    len: usize,
}

impl Default for Late {
    #[inline(always)]
    fn default() -> Late {
        Late { lookups: [(0, 0); LATE], len: 0 }
    }
}

impl Late {
    /// Adds lookup `i` if `is_late`, and answers all when there are [`LATE`]. Returns the number of
    /// hits among those that are answered now.
    #[inline(always)]
    fn push_if(
        &mut self,
        is_late: bool,
        i: usize,
        hash: u64,
        hits: &mut [bool],
        over: &impl Overlay,
    ) -> usize {
        self.lookups[self.len] = (i, hash);
        self.len += usize::from(is_late);
        if self.len == LATE { self.settle(hits, over) } else { 0 }
    }

    /// Answers all. Returns the number of hits.
    #[inline(never)]
    fn settle(&mut self, hits: &mut [bool], over: &impl Overlay) -> usize {
        let (late, mut n_hits) = (&self.lookups[..self.len], 0);
        late.iter().for_each(|(_, hash)| over.prefetch_answer(*hash));
        for (i, hash) in late {
            hits[*i] = over.answer(*hash, hits[*i]);
            n_hits += usize::from(hits[*i]);
        }
        self.len = 0;
        n_hits
    }
}

/// The loop of [`contains`] for IDs that are hashed already. Calls `found` with the number of each
/// hash and whether it may be in the body, in order.
#[inline(always)]
pub(super) fn contains_hashes<H: IdHash>(
    body: &[u8],
    hashes: &[H],
    mut found: impl FnMut(usize, bool),
    test: impl Fn(&Block, u64) -> bool,
) {
    let blocks = Blocks::of(body);
    for (i, hash) in hashes.iter().enumerate() {
        if let Some(next) = hashes.get(i + AHEAD) {
            prefetch(blocks.get(next.high_bits()));
        }
        found(i, test(blocks.get(hash.high_bits()), hash.high_bits()));
    }
}

#[cold]
fn clear_invalid<T: AsRef<[u8]>>(ids: &[T], hits: &mut [bool]) {
    for (id, hit) in ids.iter().zip(hits) {
        *hit &= is_valid_len(id.as_ref());
    }
}

/// Hashes each ID and reads a byte of its block [`AHEAD`] IDs after its prefetch: the loop of
/// [`contains`] without the test, for benchmarks.
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

/// How many bits are set. The compiler counts several words at once where its caller enables
/// vectors.
#[inline(always)]
pub(super) fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    in_words + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}
