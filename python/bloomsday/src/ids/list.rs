//! Lists, tuples and other sequences of single IDs.

use bloomsday_common::hash::is_valid_len;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyList, PyString, PyTuple};

use super::{Lookup, add_answers, library, missing, single};

/// How many IDs are copied before the interpreter's lock is released to look them up.
const PIECE: usize = 8 * 1024;

/// A copy of some IDs, one behind the other: what stays as it is while the interpreter's lock is
/// released. A reference to each element would cost more than its 32 bytes.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    /// Where each ID ends.
    ends: Vec<usize>,
}

impl Piece {
    #[inline]
    fn add(&mut self, id: &Bound<'_, PyAny>, place: usize) -> PyResult<()> {
        if let Ok(text) = id.cast::<PyString>() {
            self.add_bytes(text.to_str()?.as_bytes());
        } else if let Ok(bytes) = id.cast::<PyBytes>() {
            self.add_bytes(bytes.as_bytes());
        } else if is_missing(id) {
            return Err(missing(id.py(), place));
        } else {
            match single::text_of(id, Some(place)) {
                Ok(text) => self.add_bytes(text.as_bytes()),
                Err(_) if is_mark_of_missing(id)? => return Err(missing(id.py(), place)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    #[inline]
    fn add_bytes(&mut self, id: &[u8]) {
        // An ID that is too long is a miss as an empty one is, and is not worth a copy.
        if is_valid_len(id) {
            self.bytes.extend_from_slice(id);
        }
        self.ends.push(self.bytes.len());
    }

    /// Looks its IDs up, and is empty then.
    fn answer(&mut self, py: Python<'_>, lookup: &impl Lookup, answers: &mut Vec<bool>) {
        let (bytes, ends) = (&self.bytes, &self.ends);
        py.detach(|| {
            let mut start = 0;
            let ids = ends.iter().map(|end| &bytes[std::mem::replace(&mut start, *end)..*end]);
            add_answers(lookup, ids, answers);
        });
        self.bytes.clear();
        self.ends.clear();
    }
}

fn is_missing(id: &Bound<'_, PyAny>) -> bool {
    let is_nan = |float: &Bound<'_, PyFloat>| float.extract::<f64>().is_ok_and(f64::is_nan);
    id.is_none() || id.cast::<PyFloat>().is_ok_and(is_nan)
}

/// Whether it is `pandas.NA` or `numpy.ma.masked`. Nothing is imported for it.
fn is_mark_of_missing(id: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = id.get_type().name()?;
    Ok((name == "NAType" && library(id)? == "pandas")
        || (name == "MaskedConstant" && library(id)? == "numpy"))
}

/// Looks up the elements of a sequence.
pub(super) fn contains(lookup: &impl Lookup, ids: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    if let Ok(list) = ids.cast::<PyList>() {
        return elements(ids.py(), lookup, list.iter().map(Ok));
    }
    if let Ok(tuple) = ids.cast::<PyTuple>() {
        return elements(ids.py(), lookup, tuple.iter().map(Ok));
    }
    elements(ids.py(), lookup, ids.try_iter()?)
}

fn elements<'py>(
    py: Python<'py>,
    lookup: &impl Lookup,
    ids: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Vec<bool>> {
    let mut answers = Vec::with_capacity(ids.size_hint().0);
    let mut piece = Piece::default();
    for (place, id) in ids.enumerate() {
        piece.add(&id?, place)?;
        if piece.ends.len() == PIECE {
            piece.answer(py, lookup, &mut answers);
        }
    }
    piece.answer(py, lookup, &mut answers);
    Ok(answers)
}
