//! numpy arrays and pandas columns; the answer is a numpy array of Booleans.
//!
//! The elements are copied, a piece at a time: an array can be written to by another thread while
//! the interpreter's lock is released.

use std::fmt::Write;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use super::{COLUMN_TYPES, Lookup, arrow, list, look_up, look_up_written, missing, no_ids};

/// How many bytes of an array are copied at once: the lookups of a piece take milliseconds, because
/// a thread that wants the interpreter's lock back may wait that long (`sys.getswitchinterval`, 5
/// ms).
const PIECE_BYTES: usize = 8 << 20;

/// Whether `ids` is a numpy array. Nothing is imported for it.
pub(super) fn is_array(ids: &Bound<'_, PyAny>) -> PyResult<bool> {
    match imported(ids.py(), "numpy")? {
        Some(numpy) => ids.is_instance(&numpy.getattr("ndarray")?),
        None => Ok(false),
    }
}

/// A module, if somebody has imported it.
fn imported<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(py.import(intern!(py, "sys"))?.getattr("modules")?.get_item(name).ok())
}

/// Looks up the elements of a one-dimensional array; or the rows of a two-dimensional one of bytes.
pub(super) fn contains<'py>(
    lookup: &impl Lookup,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    let ids = &without_mask(ids)?;
    let dtype = ids.getattr("dtype")?;
    let kind: char = dtype.getattr("kind")?.extract()?;
    let width: usize = dtype.getattr("itemsize")?.extract()?;
    let shape: Vec<usize> = ids.getattr("shape")?.extract()?;
    let refused = |remedy: &str| no_ids(py, &format!("numpy {dtype}, shape {shape:?}"), remedy);
    let answers = match (kind, &shape[..]) {
        ('u', [_, row]) if width == 1 => fixed(lookup, ids, *row, |row| row)?,
        (_, shape) if shape.len() != 1 => return Err(refused("pass one dimension")),
        // numpy fills an element up with zeros, and takes them off when it is read.
        ('S', _) => fixed(lookup, ids, width, without_zeros)?,
        ('U', _) => text(lookup, ids, &dtype)?,
        ('i' | 'u', _) => {
            let wide = if kind == 'i' { "int64" } else { "uint64" };
            let wide = ids.call_method1("astype", (wide,))?;
            integers(lookup, &wide, kind == 'i')?
        }
        ('O' | 'T', _) => list::contains(lookup, &ids.call_method0("tolist")?)?,
        _ => return Err(refused(COLUMN_TYPES)),
    };
    to_array(py, &answers)
}

/// A masked array as an ordinary one, if no ID in it is masked: behind a mask is some other value,
/// which nobody asks for. Other arrays stay as they are.
fn without_mask<'py>(ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    let Some(masked) = imported(py, "numpy.ma")? else { return Ok(ids.clone()) };
    if !ids.is_instance(&masked.getattr("MaskedArray")?)? {
        return Ok(ids.clone());
    }
    let mask = masked.call_method1("getmaskarray", (ids,))?.call_method0("ravel")?;
    if mask.call_method0("any")?.is_truthy()? {
        // A row of bytes is one ID.
        let place: usize = mask.call_method0("argmax")?.extract()?;
        let row = ids.getattr("shape")?.extract::<Vec<usize>>()?.get(1).copied().unwrap_or(1);
        return Err(missing(py, place / row.max(1)));
    }
    masked.call_method1("getdata", (ids,))
}

/// A pandas column: by Arrow if it is kept so, else by numpy.
pub(super) fn contains_pandas<'py>(
    lookup: &impl Lookup,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    if ids.getattr("ndim").and_then(|ndim| ndim.extract()).unwrap_or(1) != 1usize {
        return Err(no_ids(py, "pandas table", "pass one column of it"));
    }
    // The array behind a Series or an Index: pandas keeps text in one of pyarrow, which needs no
    // copy.
    let array = ids.getattr("array").unwrap_or_else(|_| ids.clone());
    if array.hasattr("__arrow_array__")? && py.import("pyarrow").is_ok() {
        let column = py.import("pyarrow")?.call_method1("array", (array,));
        // A column of objects of many kinds is no Arrow column; then the list says what is wrong.
        if let Ok(column) = column {
            let answers = arrow::answer(lookup, &column)?;
            if let Some(place) = answers.first_null() {
                return Err(missing(py, place));
            }
            return to_array(py, &answers.values());
        }
    }
    contains(lookup, &ids.call_method0("to_numpy")?)
}

/// Elements of `width` bytes each, of which `id` takes the ID.
fn fixed(
    lookup: &impl Lookup,
    ids: &Bound<'_, PyAny>,
    width: usize,
    id: impl Fn(&[u8]) -> &[u8] + Sync,
) -> PyResult<Vec<bool>> {
    in_pieces(ids, width, |piece, n| match width {
        // Elements without a byte.
        0 => vec![false; n],
        _ => look_up(lookup, piece.chunks_exact(width).map(&id)),
    })
}

fn without_zeros(element: &[u8]) -> &[u8] {
    let end = element.iter().rposition(|byte| *byte != 0);
    &element[..end.map_or(0, |last| last + 1)]
}

/// Elements of four bytes a character.
fn text(
    lookup: &impl Lookup,
    ids: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
) -> PyResult<Vec<bool>> {
    let native = dtype.call_method1("newbyteorder", ("=",))?;
    let ids = ids.call_method1("astype", (native,))?;
    let width: usize = dtype.getattr("itemsize")?.extract()?;
    in_pieces(&ids, width, |piece, n| {
        if width == 0 {
            return vec![false; n];
        }
        let (mut flat, mut ends) = (String::new(), vec![0]);
        for element in piece.chunks_exact(width) {
            let (codes, _) = element.as_chunks::<4>();
            let codes = codes.iter().map(|code| u32::from_ne_bytes(*code));
            let written = codes.clone().rposition(|code| code != 0).map_or(0, |last| last + 1);
            // What is no character is in no filter, because it has no UTF-8: an empty ID misses,
            // too.
            let characters = codes.take(written).map(char::from_u32).collect::<Option<String>>();
            flat.push_str(&characters.unwrap_or_default());
            ends.push(flat.len());
        }
        look_up(lookup, ends.windows(2).map(|pair| &flat.as_bytes()[pair[0]..pair[1]]))
    })
}

/// Eight bytes a number.
fn integers(lookup: &impl Lookup, ids: &Bound<'_, PyAny>, signed: bool) -> PyResult<Vec<bool>> {
    in_pieces(ids, 8, |piece, _| {
        let (numbers, _) = piece.as_chunks::<8>();
        look_up_written(lookup, numbers.len(), |i, text| {
            // Writing to a string does not fail.
            let _ = if signed {
                write!(text, "{}", i64::from_ne_bytes(numbers[i]))
            } else {
                write!(text, "{}", u64::from_ne_bytes(numbers[i]))
            };
        })
    })
}

/// Copies a few elements at a time and looks them up without the interpreter's lock.
fn in_pieces(
    ids: &Bound<'_, PyAny>,
    width: usize,
    look: impl Fn(&[u8], usize) -> Vec<bool> + Sync,
) -> PyResult<Vec<bool>> {
    let py = ids.py();
    let length = ids.len()?;
    let at_once = (PIECE_BYTES / width.max(1)).max(1);
    let mut answers = Vec::with_capacity(length);
    for start in (0..length).step_by(at_once) {
        let end = length.min(start + at_once);
        let piece = ids.get_item(pyo3::types::PySlice::new(py, start as isize, end as isize, 1))?;
        let piece = piece.call_method0(intern!(py, "tobytes"))?;
        let bytes = piece.cast::<PyBytes>()?.as_bytes();
        answers.extend(py.detach(|| look(bytes, end - start)));
    }
    Ok(answers)
}

/// A numpy array of Booleans, which may be written to.
fn to_array<'py>(py: Python<'py>, answers: &[bool]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, answers.len(), |bytes| {
        let written = bytes.iter_mut().zip(answers);
        written.for_each(|(byte, answer)| *byte = u8::from(*answer));
        Ok(())
    })?;
    py.import("numpy")?.call_method1("frombuffer", (bytes, "bool"))
}
