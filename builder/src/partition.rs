//! Hashes, partitioned by their leading bits and deduplicated: what is left of the day's IDs.
//!
//! A partition is an interval of hashes, so of blocks too: it is deduplicated and counted alone, in
//! cache, and filled next to its neighbours. Memory has a budget; past it hashes go to a nameless file,
//! which the system removes whatever happens to the process.
//!
//! | module | does |
//! |---|---|
//! | `feed` | takes hashes on one thread and writes them where their partition grows |
//! | `dedup` | removes the duplicates of one partition |
//! | `spill` | the nameless file |

mod dedup;
mod feed;
mod spill;

use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::{Buffer, prefetch_all};

use self::dedup::{Chunk, Dedup, Left};
pub use self::feed::Feeder;
use self::spill::{Extent, Spill};
use crate::error::Error;

/// 2^12 partitions: one of 100 million IDs is deduplicated by one table, and the lines of all of them
/// together, 512 KiB, fit a second cache of 1 MiB beside what is decoded.
const PARTITION_BITS: u32 = 12;
const PARTITIONS: usize = 1 << PARTITION_BITS;
/// Hashes in a chunk: what a partition grows by. Small in tests, so that few hashes spill.
const CHUNK: usize = if cfg!(test) { 32 } else { 256 };
/// Chunks in a slab, the piece in which memory is taken, one for each partition: 8 MiB of 64-bit hashes.
const CHUNKS_A_SLAB: usize = PARTITIONS;
/// Bytes that a partition has in one place of the file, in the mean, to be left there. It is read again twice
/// or three times, and a disk gives less of it in smaller pieces.
const LARGE_EXTENT: u64 = if cfg!(test) { 512 } else { 32 << 10 };

/// Takes hashes from several threads at once.
pub struct Partitions<H> {
    fed: Mutex<Vec<Fed<H>>>,
    spill: Spill,
    /// Bytes of hashes in memory, and how many there may be.
    held: AtomicU64,
    budget: u64,
}

/// What one feeder gathered.
struct Fed<H> {
    slabs: Vec<Slab<H>>,
    parts: Vec<Part>,
    /// Of all its hashes when they were written.
    sum: u64,
}

/// Of one partition, what one feeder gathered: chunks in its slabs, all of them full but the last;
/// and places in the spill file.
#[derive(Default)]
struct Part {
    chunks: Vec<u32>,
    len: usize,
    spilled: Vec<Extent>,
}

/// Memory for [`CHUNKS_A_SLAB`] chunks, in huge pages: partitions grow all at once, so that with small ones
/// nearly every line would miss the TLB; and their first touch costs half as much.
struct Slab<H> {
    memory: Buffer,
    of: PhantomData<H>,
}

impl<H: IdHash> Slab<H> {
    const HASHES: usize = CHUNKS_A_SLAB * CHUNK;
    const BYTES: usize = Slab::<H>::HASHES * size_of::<H>();

    /// New memory for a slab.
    fn memory() -> io::Result<Buffer> {
        Buffer::zeroed(Slab::<H>::BYTES).map_err(|e| {
            io::Error::new(e.kind(), format!("no memory for {} bytes ({e})", Slab::<H>::BYTES))
        })
    }

    fn of(memory: Buffer) -> Slab<H> {
        Slab { memory, of: PhantomData }
    }

    #[inline]
    fn hashes(&self) -> &[H] {
        bytemuck::cast_slice(&self.memory)
    }

    #[inline]
    fn hashes_mut(&mut self) -> &mut [H] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }
}

impl<H: IdHash> Partitions<H> {
    /// No hashes yet. About `budget` bytes of them are kept in memory, though a feeder works with at least
    /// a slab of 8 MiB (16 for `guava`); the rest goes to a nameless file in `spill_folder`, which is not
    /// made before it is needed.
    pub fn new(budget: u64, spill_folder: &Path) -> Partitions<H> {
        Partitions {
            fed: Mutex::new(Vec::new()),
            spill: Spill::new(spill_folder),
            held: AtomicU64::new(0),
            budget,
        }
    }

    /// Removes duplicates, partition by partition on `threads` threads.
    ///
    /// # Errors
    /// [`Error::Spill`] when a spilled partition cannot be read or written; [`Error::Changed`] when what
    /// is read, from memory or the file, is not what feeders wrote.
    pub fn distinct(self, threads: usize) -> Result<Distinct<H>, Error> {
        let mut fed = self.fed.into_inner().expect("no feeder panics while it hands over");
        let spilled = fed.iter().any(|fed| fed.parts.iter().any(|part| !part.spilled.is_empty()));
        let written = sum(fed.iter().map(|fed| fed.sum));
        let kept = if spilled {
            distinct_in_file(&fed, &self.spill, threads)
        } else {
            distinct_in_place(&mut fed, threads)
        };
        let (parts, left): (Vec<Part>, Vec<Left>) = kept.map_err(Error::spill)?.into_iter().unzip();
        if sum(left.iter().map(|left| left.sum_before)) != written {
            let (written, read) = ("that were partitioned", "to be deduplicated");
            return Err(Error::Changed { written, read });
        }
        let sum = sum(left.iter().map(|left| left.sum));
        let n_ids = left.iter().map(|left| left.len as u64).sum();
        // Where something was spilled all is in the file by now.
        let fed = if spilled { Vec::new() } else { fed };
        let slabs = fed.into_iter().flat_map(|fed| fed.slabs).collect();
        Ok(Distinct { parts, slabs, spill: self.spill, n_ids, sum })
    }
}

/// The sum of hashes, by which a step knows those that the step before wrote: one that is lost, doubled or
/// has a bit flipped on its way through memory or the file changes it.
///
/// Cost: hardly any where they are read anyway.
pub(crate) fn sum_of<H: IdHash>(hashes: &[H]) -> u64 {
    sum(bytemuck::cast_slice(hashes).iter().copied())
}

/// A sum that begins again at 0.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::wrapping_add)
}

/// The hashes of a partition that are in memory, piece by piece.
fn pieces<'a, H: IdHash>(part: &'a Part, slabs: &'a [Slab<H>]) -> impl Iterator<Item = &'a [H]> {
    let mut left = part.len;
    part.chunks.iter().map_while(move |chunk| {
        let (slab, start) = place(*chunk);
        let len = left.min(CHUNK);
        left -= len;
        (len > 0).then(|| &slabs[slab].hashes()[start..start + len])
    })
}

/// The slab of a chunk, and where in it the chunk begins.
fn place(chunk: u32) -> (usize, usize) {
    let chunk = chunk as usize;
    (chunk / CHUNKS_A_SLAB, chunk % CHUNKS_A_SLAB * CHUNK)
}

/// Deduplicates each partition in memory of its own and leaves all of it in the file. One without duplicates
/// stays where it lies there, unless that is in small pieces: for a day without any this is a pass less over
/// the file, of five or six.
fn distinct_in_file<H: IdHash>(
    fed: &[Fed<H>],
    spill: &Spill,
    threads: usize,
) -> io::Result<Vec<(Part, Left)>> {
    let in_turn = |dedup: &mut Dedup<H>, index: usize| {
        let of_each = || fed.iter().map(|fed| (&fed.parts[index], &fed.slabs));
        let mut in_file: Vec<Extent> =
            of_each().flat_map(|(part, _)| &part.spilled).copied().collect();
        let in_memory: Vec<&[H]> =
            of_each().flat_map(|(part, slabs)| pieces(part, slabs)).collect();
        let in_memory = in_memory.concat();
        let mut hashes = Vec::new();
        spill.read(&in_file, &mut hashes)?;
        hashes.extend_from_slice(&in_memory);
        let chunks = hashes.chunks_mut(CHUNK);
        let mut chunks: Vec<_> = chunks.map(|hashes| Chunk { len: hashes.len(), hashes }).collect();
        let left = dedup.distinct(&mut chunks);
        let spilled = in_file.iter().map(|extent| extent.bytes).sum::<u64>();
        let in_pieces = spilled < LARGE_EXTENT * in_file.len() as u64;
        if left.len < hashes.len() || in_pieces {
            in_file = vec![spill.append(&hashes[..left.len])?];
        } else if !in_memory.is_empty() {
            in_file.push(spill.append(&in_memory)?);
        }
        Ok((Part { spilled: in_file, ..Part::default() }, left))
    };
    on_threads(threads, PARTITIONS, Dedup::new, in_turn)
}

/// Deduplicates each partition within its own chunks, so that no memory is needed beside them. The chunks of
/// all feeders are then numbered as one.
fn distinct_in_place<'a, H: IdHash>(
    fed: &'a mut [Fed<H>],
    threads: usize,
) -> io::Result<Vec<(Part, Left)>> {
    let mut slabs_before = 0;
    let mut gathered: Vec<(u32, Vec<Part>)> = Vec::with_capacity(fed.len());
    for fed in fed.iter_mut() {
        let first_chunk = (slabs_before * CHUNKS_A_SLAB) as u32;
        gathered.push((first_chunk, std::mem::take(&mut fed.parts)));
        slabs_before += fed.slabs.len();
    }
    // Each belongs to one partition, whose thread takes it from here: they lie where they came, and to find
    // them for all partitions beforehand keeps the other threads waiting.
    let slabs = fed.iter_mut().flat_map(|fed| &mut fed.slabs);
    let memory: Vec<Mutex<&mut [H]>> =
        slabs.flat_map(|slab| slab.hashes_mut().chunks_exact_mut(CHUNK)).map(Mutex::new).collect();
    let in_turn = |(dedup, chunks): &mut (Dedup<H>, Vec<Chunk<'a, H>>), index: usize| {
        chunks.clear();
        let mut numbers = Vec::new();
        for (first_chunk, parts) in &gathered {
            let mut left = parts[index].len;
            for number in parts[index].chunks.iter().map(|chunk| first_chunk + chunk) {
                let mut hashes = memory[number as usize].lock().expect("it is only taken");
                let len = left.min(CHUNK);
                left -= len;
                chunks.push(Chunk { hashes: std::mem::take(&mut *hashes), len });
                numbers.push(number);
            }
        }
        let left = dedup.distinct(chunks);
        numbers.truncate(left.len.div_ceil(CHUNK));
        Ok((Part { chunks: numbers, len: left.len, spilled: Vec::new() }, left))
    };
    on_threads(threads, PARTITIONS, || (Dedup::new(), Vec::new()), in_turn)
}

/// The distinct hashes of a day, in partitions.
pub struct Distinct<H> {
    parts: Vec<Part>,
    slabs: Vec<Slab<H>>,
    spill: Spill,
    n_ids: u64,
    sum: u64,
}

impl<H: IdHash> Distinct<H> {
    /// How many distinct hashes there are.
    pub fn n_ids(&self) -> u64 {
        self.n_ids
    }

    /// The sum of them when they were kept, as [`sum_of`] takes it.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// Calls `look` with all hashes, piece by piece and in any order, on `threads` threads. What it
    /// gives comes in the order of the partitions, so that neighbours are neighbours in the filter.
    ///
    /// # Errors
    /// The system's, when a spilled partition cannot be read.
    pub fn for_each<R: Send>(
        &self,
        threads: usize,
        look: impl Fn(&[H]) -> R + Sync,
    ) -> io::Result<Vec<R>> {
        let in_turn = |(): &mut (), index: usize| {
            let mut found = Vec::new();
            self.with(index, |piece| found.push(look(piece)))?;
            Ok(found)
        };
        let found = on_threads(threads, PARTITIONS, || (), in_turn)?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Calls `look` with the partitions that hold hashes of `wanted`, one after the other.
    ///
    /// # Errors
    /// The system's, when a spilled partition cannot be read.
    pub fn for_some(
        &self,
        wanted: impl Fn(u64, u64) -> bool,
        mut look: impl FnMut(&[H]),
    ) -> io::Result<()> {
        for index in 0..PARTITIONS {
            let first = (index as u64) << (u64::BITS - PARTITION_BITS);
            let last = first | (u64::MAX >> PARTITION_BITS);
            if wanted(first, last) {
                self.with(index, &mut look)?;
            }
        }
        Ok(())
    }

    fn with(&self, index: usize, mut look: impl FnMut(&[H])) -> io::Result<()> {
        let part = &self.parts[index];
        let mut pieces = pieces(part, &self.slabs).peekable();
        while let Some(piece) = pieces.next() {
            if let Some(next) = pieces.peek() {
                prefetch_all(next);
            }
            look(piece);
        }
        if !part.spilled.is_empty() {
            let mut hashes = Vec::new();
            self.spill.read(&part.spilled, &mut hashes)?;
            look(&hashes);
        }
        Ok(())
    }
}

/// Does `work` for `0..count` on `threads` threads, each with a state of its own and taking the next
/// number when it is free.
pub(crate) fn on_threads<S, R: Send>(
    threads: usize,
    count: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(count));
    let one_thread = || -> io::Result<()> {
        let mut state = state();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            let result = work(&mut state, index)?;
            done.lock().expect("pushing does not panic").push((index, result));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one_thread)).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a worker's panic is a bug of ours"))
    })?;
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_unstable_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests;
