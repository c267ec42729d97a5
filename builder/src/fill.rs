//! Distinct hashes → a filled filter. Knows no counts, gates or stores.

use std::cell::RefCell;
use std::io;
use std::sync::Mutex;

use bloomsday_common::filter::{Filter, FilterMut, FilterShard, Shape};
use bloomsday_common::hash::IdHash;

use crate::error::Error;
use crate::parallel::parallel_map;
use crate::partition::Distinct;

/// Runs of blocks for each thread to take, so that one that the machine holds up leaves the last of its share
/// to the others; fewer where there would be more than [`MAX_RUNS`], since a partition that reaches into two
/// runs is looked at twice.
const RUNS_PER_THREAD: usize = 16;
const MAX_RUNS: usize = 512;

/// Fills a filter of this shape with every hash.
///
/// A run of whole blocks belongs to one thread, which takes the partitions that reach into it, so plain
/// stores are enough and the bits do not depend on the number of threads.
///
/// # Errors
/// [`Error::Memory`], or the system's when a spilled partition cannot be read.
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
    // The bounds are asked before `run` is borrowed to be filled.
    let bounds = run.bounds();
    let run = RefCell::new(run);
    let wanted = |first, last| {
        let wanted = bounds.overlaps(first, last);
        if wanted {
            run.borrow_mut().prefault(first, last);
        }
        wanted
    };
    distinct.for_each_in_range(wanted, |hashes| run.borrow_mut().insert_in_range(hashes))
}
