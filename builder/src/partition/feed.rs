//! [`Feeder`]: takes hashes on one thread and writes them where their partition grows.
//!
//! A hash goes first into a line of its partition: all lines together fit a core's cache. A full line goes
//! to the partition's chunk in one piece, past the caches: they are left to the lines, and to whoever makes
//! the hashes. Its last hash never enters the line: a line that is read right after it was written waits for
//! that write, and for all before it.

use std::io;
use std::sync::atomic::Ordering;

use bloomsday_common::hash::IdHash;
use bloomsday_common::memory::LineWriter;

use super::spill::Extent;
use super::{
    CHUNK, CHUNKS_A_SLAB, Fed, PARTITION_BITS, PARTITIONS, Part, Partitions, Slab, pieces, sum,
};

/// 16 64-bit hashes. Which hash makes a line full no processor can foresee: with half as many that happens
/// twice as often, and all takes a seventh longer; with twice as many the lines no longer fit the cache
/// beside what is decoded.
const LINE_WORDS: usize = 16;
type Line = [u64; LINE_WORDS];

/// In place of a chunk's number: its partition had none before it.
const FIRST: u32 = u32::MAX;

/// One thread's way into the partitions: it is made and finished on the thread that pushes.
pub struct Feeder<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> {
    partitions: P,
    // Arrays, whose bounds an index of so many bits cannot leave.
    lines: Box<[Line; PARTITIONS]>,
    /// How many hashes are in each line.
    held: Box<[u8; PARTITIONS]>,
    /// How many places of each partition's last line have no hash: only whole lines are written.
    unused: Box<[u8; PARTITIONS]>,
    /// Where the next line of each partition goes, counted in lines from the start of the slabs; at the
    /// start of a chunk it has no room.
    next: Box<[u32; PARTITIONS]>,
    /// Of each chunk given out of the slabs the one that its partition had before, or [`FIRST`]. Written
    /// in order, where a list for each partition would be one more miss of the cache.
    before: Vec<u32>,
    slabs: Vec<LineWriter>,
    /// The hash that a whole line of the partition had last, where there was such a line.
    repeated: Box<[Option<H>]>,
    /// Of all lines written.
    sum: u64,
    /// What each partition has in the file.
    spilled: Vec<Vec<Extent>>,
    /// Whether its only slab was more than the budget had left.
    beyond: bool,
    /// The first failure to spill; kept, because a sink cannot return it.
    failed: Option<io::Error>,
}

impl<H: IdHash, P: std::ops::Deref<Target = Partitions<H>>> Feeder<H, P> {
    /// Hashes in a line.
    const LINE: usize = size_of::<Line>() / size_of::<H>();
    const LINES_A_CHUNK: usize = CHUNK / Self::LINE;
    const LINES_A_SLAB: usize = Self::LINES_A_CHUNK * CHUNKS_A_SLAB;
    /// Slabs of a feeder, at most: their lines are counted in 32 bits, 512 GiB a thread.
    const MOST_SLABS: usize = u32::MAX as usize / Self::LINES_A_SLAB;

    /// A feeder for one thread.
    pub fn new(partitions: P) -> Feeder<H, P> {
        let lines = vec![[0; LINE_WORDS]; PARTITIONS];
        Feeder {
            partitions,
            lines: lines.into_boxed_slice().try_into().expect("as many as were made"),
            held: Box::new([0; PARTITIONS]),
            unused: Box::new([0; PARTITIONS]),
            next: Box::new([0; PARTITIONS]),
            before: Vec::new(),
            slabs: Vec::new(),
            repeated: vec![None; PARTITIONS].into_boxed_slice(),
            sum: 0,
            spilled: vec![Vec::new(); PARTITIONS],
            beyond: false,
            failed: None,
        }
    }

    /// Takes one hash.
    #[inline]
    pub fn push(&mut self, hash: H) {
        let index = (hash.high_bits() >> (u64::BITS - PARTITION_BITS)) as usize;
        let held = &mut self.held[index];
        if usize::from(*held) < Self::LINE - 1 {
            hashes_mut(&mut self.lines[index])[usize::from(*held)] = hash;
            *held += 1;
        } else {
            *held = 0;
            self.hand_over(index, hash);
        }
    }

    /// Hands over everything.
    ///
    /// # Errors
    /// The system's, when this or an earlier hand-over could not spill.
    pub fn finish(mut self) -> io::Result<()> {
        for index in 0..PARTITIONS {
            let held = usize::from(std::mem::take(&mut self.held[index]));
            if held > 0 && self.has_room(index) {
                // What an earlier line had there would count in the sum; zeros do not.
                let mut line = self.lines[index];
                hashes_mut(&mut line)[held..].fill(H::zeroed());
                self.write(index, &line);
                self.unused[index] = (Self::LINE - held) as u8;
            }
        }
        if self.beyond && self.failed.is_none() {
            // The one slab that work needs was not in the budget: what it holds is not kept there.
            self.failed = self.spill().err();
            self.slabs.clear();
        }
        match self.failed {
            Some(error) => Err(error),
            None => {
                let parts = (0..PARTITIONS).map(|index| self.part(index)).collect();
                let mut all = self.partitions.fed.lock().expect("pushing does not panic");
                let slabs = self.slabs.into_iter().map(|slab| Slab::of(slab.finish())).collect();
                all.push(Fed { slabs, parts, sum: self.sum });
                Ok(())
            }
        }
    }

    /// Writes a line, with its last hash, to its partition's chunk.
    #[inline(never)]
    fn hand_over(&mut self, index: usize, last: H) {
        // Arrays, whose copies are moves of known size.
        let mut line = self.lines[index];
        let hashes: &mut [H] = hashes_mut(&mut line);
        hashes[Self::LINE - 1] = last;
        if hashes.iter().all(|hash| *hash == last) && self.is_repeated(index, last) {
            return;
        }
        if self.has_room(index) {
            self.write(index, &line);
        }
    }

    /// Whether the line of this one hash that is there already was the partition's last such line. An ID
    /// that half of all rows have, all zeros perhaps, would else take half of the memory, and its
    /// partition all of it again when it is deduplicated.
    #[cold]
    fn is_repeated(&mut self, index: usize, hash: H) -> bool {
        self.repeated[index].replace(hash) == Some(hash)
    }

    /// Writes the next line of a partition, which has room for it.
    #[inline(always)]
    fn write(&mut self, index: usize, words: &Line) {
        let line = self.next[index] as usize;
        self.next[index] += 1;
        self.sum = self.sum.wrapping_add(sum(words.iter().copied()));
        let slab = &mut self.slabs[line / Self::LINES_A_SLAB];
        slab.write(line % Self::LINES_A_SLAB, words);
    }

    /// What a partition has: hashes come to it when their line is full, or at the end.
    fn part(&mut self, index: usize) -> Part {
        let spilled = std::mem::take(&mut self.spilled[index]);
        let Some(last_line) = self.next[index].checked_sub(1) else {
            return Part { spilled, ..Part::default() };
        };
        let before = |chunk: &u32| Some(self.before[*chunk as usize]).filter(|&it| it != FIRST);
        let last = last_line / Self::LINES_A_CHUNK as u32;
        let mut chunks: Vec<u32> = std::iter::successors(Some(last), before).collect();
        chunks.reverse();
        let in_last = (last_line as usize % Self::LINES_A_CHUNK + 1) * Self::LINE;
        let len = (chunks.len() - 1) * CHUNK + in_last - usize::from(self.unused[index]);
        Part { chunks, len, spilled }
    }

    /// Whether a partition has room for a line, or could be given some.
    #[inline(always)]
    fn has_room(&mut self, index: usize) -> bool {
        // After the first failure the build is lost: take no more memory for it.
        if self.next[index].is_multiple_of(Self::LINES_A_CHUNK as u32) && self.failed.is_none() {
            self.failed = self.grow(index).err();
        }
        self.failed.is_none()
    }

    /// Gives a partition another chunk; when memory is used up, what there is goes to the file first.
    #[cold]
    fn grow(&mut self, index: usize) -> io::Result<()> {
        if self.before.len() == self.slabs.len() * CHUNKS_A_SLAB {
            let (held, bytes) = (&self.partitions.held, Slab::<H>::BYTES as u64);
            let fits = held.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.partitions.budget
                && self.slabs.len() < Self::MOST_SLABS;
            if fits || self.slabs.is_empty() {
                self.beyond |= !fits;
                self.slabs.push(LineWriter::new(Slab::<H>::memory()?));
            } else {
                held.fetch_sub(bytes, Ordering::Relaxed);
                self.spill()?;
            }
        }
        let last_line = self.next[index].checked_sub(1);
        self.next[index] = (self.before.len() * Self::LINES_A_CHUNK) as u32;
        self.before.push(last_line.map_or(FIRST, |line| line / Self::LINES_A_CHUNK as u32));
        Ok(())
    }

    /// Writes all that is in memory to the file, partition by partition, and uses the memory again.
    fn spill(&mut self) -> io::Result<()> {
        let finished = std::mem::take(&mut self.slabs).into_iter().map(LineWriter::finish);
        let slabs: Vec<Slab<H>> = finished.map(Slab::of).collect();
        let mut hashes = Vec::new();
        for index in 0..PARTITIONS {
            let part = self.part(index);
            hashes.clear();
            pieces(&part, &slabs).for_each(|piece| hashes.extend_from_slice(piece));
            self.spilled[index] = part.spilled;
            if !hashes.is_empty() {
                self.spilled[index].push(self.partitions.spill.append(&hashes)?);
            }
        }
        self.next.fill(0);
        self.before.clear();
        self.slabs = slabs.into_iter().map(|slab| LineWriter::new(slab.memory)).collect();
        Ok(())
    }
}

#[inline(always)]
fn hashes_mut<H: IdHash>(line: &mut Line) -> &mut [H] {
    bytemuck::cast_slice_mut(line)
}
