//! Distinct hashes → a filled filter. Knows no counts, gates or stores.

use std::io;

use bloomsday_common::filter::{Filter, FilterMut, Shape};
use bloomsday_common::hash::IdHash;

use crate::error::Error;
use crate::partition::Distinct;

/// Fills a filter of this shape with every hash.
///
/// Each thread owns a run of whole blocks and takes the partitions that reach into it, so plain stores
/// are enough and the bits do not depend on the number of threads.
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
    std::thread::scope(|scope| -> io::Result<()> {
        let slices = filter.slices(threads).into_iter().map(|mut slice| {
            scope.spawn(move || {
                // The bounds are asked before `slice` is borrowed to be filled.
                let bounds = slice.bounds();
                let slice = std::cell::RefCell::new(&mut slice);
                let wanted = |first, last| {
                    let wanted = bounds.meet(first, last);
                    if wanted {
                        slice.borrow_mut().expect(first, last);
                    }
                    wanted
                };
                distinct.for_some(wanted, |hashes| slice.borrow_mut().insert_own(hashes))
            })
        });
        let slices: Vec<_> = slices.collect();
        slices.into_iter().try_for_each(|t| t.join().expect("filling does not panic"))
    })
    .map_err(Error::spill)?;
    Ok(filter.freeze())
}
