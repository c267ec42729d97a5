//! One ID: `str`, `bytes` or `int`.

use std::fmt::Write;

use bloomsday_common::hash::ID_BYTES;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};

use super::Lookup;
use crate::errors;

/// Looks up one ID. Cost: no allocation for `str` and `bytes`.
#[inline]
pub(crate) fn contains(lookup: &impl Lookup, id: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(lookup.one(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = id.cast::<PyBytes>() {
        return Ok(lookup.one(bytes.as_bytes()));
    }
    Ok(lookup.one(decimal(id, None)?.as_bytes()))
}

/// An integer as decimal text, which is what a build makes of a column of integers.
pub(super) fn decimal(id: &Bound<'_, PyAny>, place: Option<usize>) -> PyResult<String> {
    let is_integer = id.is_instance_of::<PyInt>() && !id.is_instance_of::<PyBool>();
    if is_integer {
        if let Ok(number) = id.extract::<i64>() {
            return Ok(number.to_string());
        }
        // Python refuses to write very long integers, and such an ID cannot be in a filter.
        if id.call_method0("bit_length")?.extract::<usize>()? < *ID_BYTES.end() {
            return id.str()?.extract();
        }
        return Ok(String::new());
    }
    let mut message = format!("an ID is str, bytes or int, not {}", id.get_type().name()?);
    if let Some(place) = place {
        let _ = write!(message, " (at position {place})");
    }
    Err(errors::raise(id.py(), "IdTypeError", &message))
}
