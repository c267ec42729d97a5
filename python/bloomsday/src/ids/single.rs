//! One ID: `str`, `bytes`, an integer or a `uuid.UUID`.

use std::fmt::Write;

use bloomsday_common::hash::ID_BYTES;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyMemoryView, PyString, PyType};

use super::Lookup;
use crate::errors::{self, ErrorClass};

/// Looks up one ID. Cost: no allocation for `str` and `bytes`.
#[inline]
pub(crate) fn contains(lookup: &impl Lookup, id: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(lookup.one(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = id.cast::<PyBytes>() {
        return Ok(lookup.one(bytes.as_bytes()));
    }
    Ok(lookup.one(text_of(id, None)?.as_bytes()))
}

/// An integer as decimal text, and a UUID as 36 lower-case characters: what a build makes of
/// columns of these.
pub(super) fn text_of(id: &Bound<'_, PyAny>, place: Option<usize>) -> PyResult<String> {
    if let Ok(integer) = id.cast_exact::<PyInt>() {
        return decimal(integer);
    }
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let uuid = UUID.import(id.py(), "uuid", "UUID")?;
    if id.is_instance(uuid)? {
        return uuid.call_method1(intern!(id.py(), "__str__"), (id,))?.extract();
    }
    match integer(id)? {
        Some(integer) => decimal(&integer),
        None => Err(no_id(id, place)?),
    }
}

/// What is an integer: also those of numpy, which are no `int`.
fn integer<'py>(id: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyInt>>> {
    if id.is_instance_of::<PyBool>() || is_numpy_bool(&id.get_type())? {
        return Ok(None);
    }
    if let Ok(integer) = id.cast::<PyInt>() {
        return Ok(Some(integer.clone()));
    }
    let py = id.py();
    match id.call_method0(intern!(py, "__index__")) {
        Ok(integer) => Ok(integer.cast_into().ok()),
        // Another exception is of the caller's own `__index__`.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyAttributeError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Before version 2.3 it has an `__index__`.
fn is_numpy_bool(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let is_bool = class.name()? == "bool" || class.name()? == "bool_";
    Ok(is_bool && class.module()? == "numpy")
}

fn decimal(integer: &Bound<'_, PyInt>) -> PyResult<String> {
    if let Ok(number) = integer.extract::<i64>() {
        return Ok(number.to_string());
    }
    // Python refuses to write very long integers. With more than 10 bits for each 3 digits of the
    // longest ID, it has more digits than that: a digit has 3.32 bits.
    let bits = integer.call_method0("bit_length")?.extract::<usize>()?;
    if bits <= ID_BYTES.end() * 10 / 3 {
        // A subclass may write itself in another way.
        let text = integer.py().get_type::<PyInt>().call_method1("__repr__", (integer,))?;
        return text.extract();
    }
    Ok(String::new())
}

/// The exception for what is no ID.
fn no_id(id: &Bound<'_, PyAny>, place: Option<usize>) -> PyResult<PyErr> {
    let mut message =
        format!("an ID is str, bytes, an integer or a uuid.UUID, not {}", id.get_type().name()?);
    if let Some(place) = place {
        let _ = write!(message, " (at position {place})");
    }
    if id.is_instance_of::<PyByteArray>() || id.is_instance_of::<PyMemoryView>() {
        message.push_str(": write bytes(id)");
    } else if !id.is_none() && !id.is_instance_of::<PyBool>() {
        message.push_str(
            ": an ID is looked up by the bytes that the build read, and many by contains_batch",
        );
    }
    Ok(errors::new(id.py(), ErrorClass::IdType, &message))
}
