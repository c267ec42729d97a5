//! Hashes, partitioned by their leading bits and deduplicated: what is left of the day's IDs.
//!
//! A partition is an interval of hashes, so of blocks too: it is sorted and counted alone, and filled
//! next to its neighbours. Memory has a budget; past it partitions go to a nameless file, which the
//! system removes whatever happens to the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::hash::IdHash;

/// 2^9 partitions: a partition of 300 million IDs is then 4.5 MiB, which sorts in cache.
const PARTITION_BITS: u32 = 9;
const PARTITIONS: usize = 1 << PARTITION_BITS;
/// How many hashes a feeding thread gathers for a partition before it hands them over: 2 KiB each,
/// 1 MiB in all, so that the gathering stays in the L2 cache.
const GATHERED: usize = 256;

/// Takes hashes from several threads at once.
pub struct Partitions<H> {
    parts: Vec<Mutex<Part<H>>>,
    spill: Spill,
    /// Bytes of hashes in memory, and how many there may be.
    held: AtomicU64,
    budget: u64,
}

/// The hashes of one partition: in memory, and in the spill file.
struct Part<H> {
    chunks: Vec<Vec<H>>,
    spilled: Vec<Extent>,
}

#[derive(Clone, Copy)]
struct Extent {
    offset: u64,
    bytes: u64,
}

impl<H: IdHash> Partitions<H> {
    /// No hashes yet. At most `budget` bytes of them are kept in memory; the rest goes to a nameless
    /// file in `spill_folder`, which is not made before it is needed.
    pub fn new(budget: u64, spill_folder: &Path) -> Partitions<H> {
        let part = || Mutex::new(Part { chunks: Vec::new(), spilled: Vec::new() });
        Partitions {
            parts: (0..PARTITIONS).map(|_| part()).collect(),
            spill: Spill::new(spill_folder),
            held: AtomicU64::new(0),
            budget,
        }
    }

    fn part(&self, index: usize) -> MutexGuard<'_, Part<H>> {
        self.parts[index].lock().expect("no thread panics while it holds a partition")
    }

    /// Adds a gathered chunk to its partition; past the budget the partition goes to the file.
    fn add(&self, index: usize, chunk: Vec<H>) -> io::Result<()> {
        let bytes = size_of_val(&chunk[..]) as u64;
        let mut part = self.part(index);
        part.chunks.push(chunk);
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.budget {
            return Ok(());
        }
        let all = part.chunks.concat();
        part.chunks = Vec::new();
        let extent = self.spill.append(&all)?;
        part.spilled.push(extent);
        self.held.fetch_sub(extent.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Removes duplicates, partition by partition on `threads` threads.
    ///
    /// # Errors
    /// The system's, when a spilled partition cannot be read or written.
    pub fn distinct(self, threads: usize) -> io::Result<Distinct<H>> {
        let in_turn = |index: usize| -> io::Result<Kept<H>> {
            let (chunks, spilled) = {
                let mut part = self.part(index);
                (std::mem::take(&mut part.chunks), std::mem::take(&mut part.spilled))
            };
            let mut hashes = chunks.concat();
            drop(chunks);
            self.spill.read(&spilled, &mut hashes)?;
            hashes.sort_unstable();
            hashes.dedup();
            if spilled.is_empty() {
                hashes.shrink_to_fit();
                Ok(Kept::InMemory(hashes))
            } else {
                self.spill.append(&hashes).map(Kept::Spilled)
            }
        };
        let kept = on_threads(threads, PARTITIONS, in_turn)?;
        let n_ids = kept.iter().map(Kept::len).sum();
        Ok(Distinct { kept, spill: self.spill, n_ids })
    }
}

/// One thread's way into the partitions. Dropped, it hands over what it still holds.
pub struct Feeder<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> {
    partitions: P,
    gathered: Vec<Vec<H>>,
    /// The first failure to spill; kept, because a sink cannot return it.
    failed: Option<io::Error>,
}

impl<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> Feeder<H, P> {
    /// A feeder for one thread.
    pub fn new(partitions: P) -> Feeder<H, P> {
        let gathered = (0..PARTITIONS).map(|_| Vec::with_capacity(GATHERED)).collect();
        Feeder { partitions, gathered, failed: None }
    }

    /// Takes one hash.
    #[inline]
    pub fn push(&mut self, hash: H) {
        let index = (hash.leading() >> (u64::BITS - PARTITION_BITS)) as usize;
        let chunk = &mut self.gathered[index];
        chunk.push(hash);
        if chunk.len() == GATHERED {
            let full = std::mem::replace(chunk, Vec::with_capacity(GATHERED));
            self.hand_over(index, full);
        }
    }

    /// Hands over everything.
    ///
    /// # Errors
    /// The system's, when this or an earlier hand-over could not spill.
    pub fn finish(mut self) -> io::Result<()> {
        for index in 0..PARTITIONS {
            let mut rest = std::mem::take(&mut self.gathered[index]);
            rest.shrink_to_fit();
            if !rest.is_empty() {
                self.hand_over(index, rest);
            }
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn hand_over(&mut self, index: usize, chunk: Vec<H>) {
        // After the first failure the build is lost: take no more memory for it.
        if self.failed.is_none() {
            self.failed = self.partitions.add(index, chunk).err();
        }
    }
}

/// The distinct hashes of a day, in partitions, each sorted.
pub struct Distinct<H> {
    kept: Vec<Kept<H>>,
    spill: Spill,
    n_ids: u64,
}

/// One deduplicated partition.
enum Kept<H> {
    InMemory(Vec<H>),
    Spilled(Extent),
}

impl<H> Kept<H> {
    fn len(&self) -> u64 {
        match self {
            Kept::InMemory(hashes) => hashes.len() as u64,
            Kept::Spilled(extent) => extent.bytes / size_of::<H>() as u64,
        }
    }
}

impl<H: IdHash> Distinct<H> {
    /// How many distinct hashes there are.
    pub fn n_ids(&self) -> u64 {
        self.n_ids
    }

    /// Calls `look` with every partition, in any order, on `threads` threads; results come in order.
    ///
    /// # Errors
    /// The system's, when a spilled partition cannot be read.
    pub fn for_each<R: Send>(
        &self,
        threads: usize,
        look: impl Fn(&[H]) -> R + Sync,
    ) -> io::Result<Vec<R>> {
        on_threads(threads, PARTITIONS, |index| self.with(index, &look))
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

    fn with<R>(&self, index: usize, mut look: impl FnMut(&[H]) -> R) -> io::Result<R> {
        match &self.kept[index] {
            Kept::InMemory(hashes) => Ok(look(hashes)),
            Kept::Spilled(extent) => {
                let mut hashes = Vec::new();
                self.spill.read(&[*extent], &mut hashes)?;
                Ok(look(&hashes))
            }
        }
    }
}

/// The nameless file. Written at offsets that no two writers share, so it needs no lock.
struct Spill {
    folder: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    end: AtomicU64,
}

impl Spill {
    fn new(folder: &Path) -> Spill {
        Spill { folder: folder.to_owned(), file: Mutex::new(None), end: AtomicU64::new(0) }
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().expect("opening a file does not panic");
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let made = Arc::new(tempfile::tempfile_in(&self.folder).map_err(|e| {
            io::Error::new(e.kind(), format!("no temporary file in {}: {e}", self.folder.display()))
        })?);
        *file = Some(made.clone());
        crash_point("spill-created");
        Ok(made)
    }

    fn append<H: IdHash>(&self, hashes: &[H]) -> io::Result<Extent> {
        let bytes: &[u8] = bytemuck::cast_slice(hashes);
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file()?.write_all_at(bytes, offset).map_err(|e| self.named(e))?;
        Ok(Extent { offset, bytes: bytes.len() as u64 })
    }

    fn read<H: IdHash>(&self, extents: &[Extent], hashes: &mut Vec<H>) -> io::Result<()> {
        for extent in extents {
            let before = hashes.len();
            hashes.resize(before + extent.bytes as usize / size_of::<H>(), H::zeroed());
            self.file()?
                .read_exact_at(bytemuck::cast_slice_mut(&mut hashes[before..]), extent.offset)
                .map_err(|e| self.named(e))?;
        }
        Ok(())
    }

    /// The nameless file's folder is what an operator can do something about.
    fn named(&self, e: io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("the temporary file in {}: {e}", self.folder.display()))
    }
}

/// Does `work` for `0..count` on `threads` threads, each taking the next number when it is free.
fn on_threads<R: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> io::Result<R> + Sync,
) -> io::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(count));
    let one_thread = || -> io::Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            let result = work(index)?;
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
mod tests {
    use std::collections::BTreeSet;

    use bloomsday_common::hash::{Murmur3, Xxh3};
    use proptest::prelude::*;

    use super::*;

    fn collect<H: IdHash + std::fmt::Debug>(
        hashes: &[H],
        threads: usize,
        budget: u64,
    ) -> (u64, Vec<H>) {
        let folder = tempfile::tempdir().unwrap();
        let partitions = Partitions::new(budget, folder.path());
        std::thread::scope(|scope| {
            for part in hashes.chunks(hashes.len().div_ceil(threads).max(1)) {
                let mut feeder = Feeder::new(&partitions);
                scope.spawn(move || {
                    part.iter().for_each(|hash| feeder.push(*hash));
                    feeder.finish().unwrap();
                });
            }
        });
        let distinct = partitions.distinct(threads).unwrap();
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "the spill file has a name"
        );
        let kept = distinct.for_each(threads, <[H]>::to_vec).unwrap().concat();
        // A second look finds the same: verification streams over the partitions again.
        assert_eq!(distinct.for_each(1, <[H]>::to_vec).unwrap().concat(), kept);
        (distinct.n_ids(), kept)
    }

    proptest! {
        #[test]
        fn distinct_hashes_are_what_a_set_would_keep(
            seed: u64,
            n in 0usize..20_000,
            distinct in 1u64..10_000,
            threads in 1usize..4,
            budget in prop_oneof![Just(0u64), Just(30_000), Just(u64::MAX)],
        ) {
            let spread = |i: u64| ((i % distinct) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let one: Vec<Xxh3> = (0..n as u64).map(|i| Xxh3(spread(i))).collect();
            let two: Vec<Murmur3> = one.iter().map(|h| Murmur3(h.0, !h.0)).collect();
            let expected: Vec<Xxh3> = one.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let (n_ids, kept) = collect(&one, threads, budget);
            prop_assert_eq!(n_ids, expected.len() as u64);
            prop_assert_eq!(kept, expected);
            prop_assert_eq!(collect(&two, threads, budget).0, n_ids);
        }
    }

    #[test]
    fn a_folder_that_cannot_hold_the_spill_is_named() {
        let partitions: Partitions<Xxh3> = Partitions::new(0, Path::new("/nowhere/at/all"));
        let mut feeder = Feeder::new(&partitions);
        (0..100_000).for_each(|i| feeder.push(Xxh3(i)));
        assert!(feeder.finish().unwrap_err().to_string().contains("/nowhere/at/all"));
    }
}
