//! Lists and tuples of `str`, `bytes` and `int`.

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyFloat, PyString};

use super::{Lookup, look_up, missing, single};

/// An ID that stays as it is while the interpreter's lock is released: another thread may change the list,
/// but not its elements.
enum Id {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    Number(String),
}

impl Id {
    fn bytes(&self) -> &[u8] {
        match self {
            Id::Text(text) => text.as_bytes(),
            Id::Bytes(bytes) => bytes,
            Id::Number(digits) => digits.as_bytes(),
        }
    }

    fn of(id: &Bound<'_, PyAny>, place: usize) -> PyResult<Id> {
        if let Ok(text) = id.cast::<PyString>() {
            return Ok(Id::Text(text.clone().try_into()?));
        }
        if let Ok(bytes) = id.cast::<PyBytes>() {
            return Ok(Id::Bytes(bytes.clone().into()));
        }
        let is_nan = |float: &Bound<'_, PyFloat>| float.extract::<f64>().is_ok_and(f64::is_nan);
        if id.is_none() || id.cast::<PyFloat>().is_ok_and(is_nan) {
            return Err(missing(id.py(), place));
        }
        Ok(Id::Number(single::decimal(id, Some(place))?))
    }
}

/// Looks up the elements of a sequence.
pub(super) fn contains(lookup: &impl Lookup, ids: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    let elements = ids.try_iter()?.enumerate();
    let held = elements.map(|(place, id)| Id::of(&id?, place)).collect::<PyResult<Vec<Id>>>()?;
    Ok(ids.py().detach(|| look_up(lookup, held.iter().map(Id::bytes))))
}
