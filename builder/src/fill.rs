//! Distinct hashes → a filter. Knows no counts, gates or stores.

use std::cell::RefCell;
use std::io;
use std::sync::Mutex;

use bloomsday_common::filter::{Filter, FilterMut, FilterShard, Shape};
use bloomsday_common::hash::IdHash;

use crate::error::Error;
use crate::parallel::parallel_map;
use crate::partition::Distinct;

/// The runs of blocks per thread. Each thread takes the next run when it is free, so a slow thread
/// takes fewer. There are at most [`MAX_RUNS`] (or one per thread), since a partition that overlaps
/// two runs is read twice.
const RUNS_PER_THREAD: usize = 16;
const MAX_RUNS: usize = 512;

/// Fills a filter of this shape with every hash.
///
/// Each run of blocks belongs to one thread, which reads the partitions that overlap it. So plain
/// stores are enough, and the bits do not depend on the number of threads.
///
/// # Errors
/// [`Error::Memory`]: no memory for the filter. [`Error::Spill`]: a spilled partition cannot be
/// read.
pub fn fill<H: IdHash>(
    distinct: &Distinct<H>,
    shape: Shape,
    threads: usize,
) -> Result<Filter, Error> {
    let memory = |source| Error::Memory { what: "a filter", bytes: shape.body_bytes(), source };
    let mut filter = FilterMut::new(shape).map_err(memory)?;
    let n_runs = threads.saturating_mul(RUNS_PER_THREAD).min(MAX_RUNS).max(threads);
    let runs: Vec<_> = filter.shards_mut(n_runs).into_iter().map(Mutex::new).collect();
    let in_turn = |(): &mut (), index: usize| {
        let mut run = runs[index].lock().expect("each is locked once");
        fill_run(&mut run, distinct)
    };
    parallel_map(threads, runs.len(), || (), in_turn).map_err(Error::spill)?;
    Ok(filter.freeze())
}

fn fill_run<H: IdHash>(run: &mut FilterShard<'_>, distinct: &Distinct<H>) -> io::Result<()> {
    // `bounds` is a copy, since the closures below borrow `run`.
    let bounds = run.bounds();
    let run = RefCell::new(run);
    let overlaps = |first, last| {
        let overlaps = bounds.overlaps(first, last);
        if overlaps {
            run.borrow_mut().prefault(first, last);
        }
        overlaps
    };
    distinct.for_each_in_range(overlaps, |hashes| run.borrow_mut().insert_in_range(hashes))
}
