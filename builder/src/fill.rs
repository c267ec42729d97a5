//! Distinct hashes → a filter. Knows no counts, gates or stores.

use std::cell::RefCell;
use std::io;
use std::sync::Mutex;

use bloomsday_common::filter::{Filter, FilterMut, FilterShard, Shape};
use bloomsday_common::hash::IdHash;

use crate::error::Error;
use crate::parallel::parallel_map;
use crate::partition::Distinct;

/// The shards per thread. Each thread takes the next shard when it is free, so a slow thread takes
/// fewer. There are at most [`MAX_SHARDS`] (or one per thread), since a partition that overlaps two
/// shards is read twice.
const SHARDS_PER_THREAD: usize = 16;
const MAX_SHARDS: usize = 512;

/// Fills a filter of this shape with every hash.
///
/// Each shard belongs to one thread, which reads the partitions that overlap it. So plain
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
    let n_shards = threads.saturating_mul(SHARDS_PER_THREAD).min(MAX_SHARDS).max(threads);
    let shards: Vec<_> = filter.shards_mut(n_shards).into_iter().map(Mutex::new).collect();
    let in_turn = |(): &mut (), index: usize| {
        let mut shard = shards[index].lock().expect("each is locked once");
        fill_shard(&mut shard, distinct)
    };
    parallel_map(threads, shards.len(), || (), in_turn).map_err(Error::spill)?;
    Ok(filter.freeze())
}

fn fill_shard<H: IdHash>(shard: &mut FilterShard<'_>, distinct: &Distinct<H>) -> io::Result<()> {
    // `bounds` is a copy, since the closures below borrow `shard`.
    let bounds = shard.bounds();
    let shard = RefCell::new(shard);
    let overlaps = |first, last| {
        let overlaps = bounds.overlaps(first, last);
        if overlaps {
            shard.borrow_mut().prefault(first, last);
        }
        overlaps
    };
    distinct.for_each_in_range(overlaps, |hashes| shard.borrow_mut().insert_in_range(hashes))
}
