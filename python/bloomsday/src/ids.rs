//! What Python passes as IDs → bytes, and the answers back in the same kind of container.
//!
//! | module | takes | returns |
//! |---|---|---|
//! | `single` | `str`, `bytes`, integers, UUIDs | `bool` |
//! | `list` | lists, tuples, any iterable | a list |
//! | `numpy` | numpy arrays; pandas columns | a numpy array |
//! | `arrow` | whatever has `__arrow_c_array__` or `__arrow_c_stream__` | the same library's Boolean column |
//! | `capsule` | Arrow's C interface, with the unsafe code that it needs | |
//!
//! The bytes of an ID are those that a build takes from a column of that type: `docs/format.md`.

pub(crate) mod arrow;
#[allow(unsafe_code)] // pointers of Arrow's C interface
pub(crate) mod capsule;
mod list;
mod numpy;
mod single;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyString, PyTuple, PyType};

pub(crate) use single::contains;

use crate::errors::{self, ErrorClass};

/// Where IDs are looked up: a filter, or a handle of a server.
pub(crate) trait Lookup: Sync {
    /// Looks up one ID.
    fn one(&self, id: &[u8]) -> bool;
    /// Looks up many: `answers` is as long as `ids`.
    fn many(&self, ids: &[&[u8]], answers: &mut [bool]);
}

/// How many IDs are looked up by one call: enough that the waits for memory overlap, and few enough
/// that their addresses stay in the processor's first cache.
const CHUNK: usize = 1024;

/// Looks up IDs, one answer each.
fn look_up<'a>(lookup: &impl Lookup, ids: impl Iterator<Item = &'a [u8]>) -> Vec<bool> {
    let mut answers = Vec::new();
    add_answers(lookup, ids, &mut answers);
    answers
}

/// Looks up IDs, and adds one answer for each.
fn add_answers<'a>(
    lookup: &impl Lookup,
    ids: impl Iterator<Item = &'a [u8]>,
    answers: &mut Vec<bool>,
) {
    answers.reserve(ids.size_hint().0);
    let mut chunk: [&[u8]; CHUNK] = [&[]; CHUNK];
    let mut filled = 0;
    let mut look = |chunk: &[&[u8]]| {
        let before = answers.len();
        answers.resize(before + chunk.len(), false);
        lookup.many(chunk, &mut answers[before..]);
    };
    for id in ids {
        chunk[filled] = id;
        filled += 1;
        if filled == CHUNK {
            look(&chunk);
            filled = 0;
        }
    }
    look(&chunk[..filled]);
}

/// Looks up IDs that `write` makes the text of, by their place: a few at a time, in memory that is
/// used again.
fn look_up_written(
    lookup: &impl Lookup,
    length: usize,
    mut write: impl FnMut(usize, &mut String),
) -> Vec<bool> {
    let mut answers = Vec::with_capacity(length);
    let (mut text, mut ends) = (String::new(), Vec::with_capacity(CHUNK));
    for first in (0..length).step_by(CHUNK) {
        text.clear();
        ends.clear();
        for place in first..length.min(first + CHUNK) {
            write(place, &mut text);
            ends.push(text.len());
        }
        let mut start = 0;
        let ids =
            ends.iter().map(|end| &text.as_bytes()[std::mem::replace(&mut start, *end)..*end]);
        add_answers(lookup, ids, &mut answers);
    }
    answers
}

/// Looks up a column of IDs.
pub(crate) fn contains_batch<'py>(
    lookup: &impl Lookup,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    if ids.is_instance_of::<PyList>() || ids.is_instance_of::<PyTuple>() {
        return Ok(PyList::new(py, list::contains(lookup, ids)?)?.into_any());
    }
    let is_one = ids.is_instance_of::<PyString>() || ids.is_instance_of::<PyBytes>();
    if is_one || ids.is_instance_of::<PyByteArray>() || ids.is_instance_of::<PyMemoryView>() {
        let message = "a batch is a list or a column of IDs, and this is one ID: write `id in filter` (of a bytearray or \
                       a memoryview, `bytes(id) in filter`)";
        return Err(errors::new(py, ErrorClass::IdType, message));
    }
    if numpy::is_array(ids)? {
        return numpy::contains(lookup, ids);
    }
    if library(ids)? == "pandas" {
        return numpy::contains_pandas(lookup, ids);
    }
    if ids.hasattr(intern!(py, "__arrow_c_array__"))?
        || ids.hasattr(intern!(py, "__arrow_c_stream__"))?
    {
        return arrow::contains(lookup, ids);
    }
    let name = ids.get_type().name()?;
    let all = ids.try_iter().map_err(|error| {
        // Another exception is of the caller's own `__iter__`.
        if !error.is_instance_of::<PyTypeError>(py) {
            return error;
        }
        let message = format!(
            "a batch of IDs cannot be a {name}: pass a list, or a column of numpy, pyarrow, polars or pandas"
        );
        errors::new(py, ErrorClass::IdType, &message)
    })?;
    let all = PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)?;
    Ok(PyList::new(py, list::contains(lookup, all.as_any())?)?.into_any())
}

/// The libraries whose types are known here.
const LIBRARIES: [&str; 4] = ["numpy", "pandas", "polars", "pyarrow"];

/// The library that a type, or one that it is derived from, belongs to: the first part of its
/// module's name. Empty if there is none that is known here.
fn library(value: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    for base in value.get_type().mro() {
        let module = base.cast::<PyType>()?.module()?;
        let module = module.to_str()?.split('.').next().unwrap_or_default();
        if let Some(known) = LIBRARIES.into_iter().find(|known| *known == module) {
            return Ok(known);
        }
    }
    Ok("")
}

/// An ID is missing at this place of a column.
fn missing(py: Python<'_>, place: usize) -> PyErr {
    let message = format!(
        "the ID at position {place} is missing (None, NaN, NA or masked): drop such rows first, or pass an \
         Arrow column, whose nulls stay null"
    );
    errors::new(py, ErrorClass::MissingId, &message)
}

/// A column of this type has no IDs.
fn no_ids(py: Python<'_>, what: &str, remedy: &str) -> PyErr {
    let message = format!("a column of type {what} has no IDs: {remedy}");
    errors::new(py, ErrorClass::IdType, &message)
}

/// What a column of IDs may be.
const COLUMN_TYPES: &str = "an ID is text, bytes or an integer";
