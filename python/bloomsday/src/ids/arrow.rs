//! Columns of Arrow; the answer is a Boolean column in which a null stays a null.

use std::fmt::{Display, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, BinaryType, ByteArrayType, Int8Type, Int16Type, Int32Type, Int64Type,
    LargeBinaryType, LargeUtf8Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, Utf8Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, GenericByteArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, NullBufferBuilder};
use arrow_schema::{DataType, Field};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::capsule::{self, Column};
use super::{COLUMN_TYPES, Lookup, library, look_up, look_up_written, no_ids};
use crate::errors::{self, ErrorClass};

/// Answers as a column of Arrow, for any library that reads `__arrow_c_array__`.
#[pyclass(frozen, module = "bloomsday", name = "Answers")]
#[derive(Debug)]
pub(crate) struct Answers {
    answers: BooleanArray,
}

#[pymethods]
impl Answers {
    /// Arrow's PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // There is one type of Booleans, and a producer may ignore a request that it cannot meet.
        drop(requested_schema);
        capsule::export(py, &self.answers)
    }

    fn __len__(&self) -> usize {
        self.answers.len()
    }

    /// A list of `True`, `False` and, for a null, `None`.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.answers.iter())
    }
}

impl Answers {
    /// The answers; a null is `false`.
    pub(super) fn values(&self) -> Vec<bool> {
        self.answers.iter().map(|answer| answer == Some(true)).collect()
    }

    /// The place of the first null.
    pub(super) fn first_null(&self) -> Option<usize> {
        (0..self.answers.len()).find(|place| self.answers.is_null(*place))
    }
}

/// Looks up a column, and returns a column of the library that it came from.
pub(super) fn contains<'py>(
    lookup: &impl Lookup,
    ids: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    let answers = Bound::new(py, answer(lookup, ids)?)?;
    match library(ids)? {
        "pyarrow" => py.import("pyarrow")?.call_method1("array", (answers,)),
        "polars" => {
            let series = py.import("polars")?.call_method1("Series", (answers,))?;
            series.call_method1("alias", (ids.getattr("name")?,))
        }
        _ => Ok(answers.into_any()),
    }
}

/// A column as it can be imported. What polars keeps as Python objects is refused: it exports their
/// addresses as bytes. One of nulls only is made text: it exports it with a buffer too many.
fn importable<'py>(ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = ids.py();
    let dtype = match ids.getattr("dtype") {
        Ok(dtype) if library(ids)? == "polars" => dtype.str()?.to_string(),
        _ => return Ok(ids.clone()),
    };
    match &*dtype {
        "Object" => Err(no_ids(py, "polars.Object", "pass a list of it, `ids.to_list()`")),
        "Null" => ids.call_method1("cast", (py.import("polars")?.getattr("String")?,)),
        _ => Ok(ids.clone()),
    }
}

/// Looks up a column.
pub(super) fn answer(lookup: &impl Lookup, ids: &Bound<'_, PyAny>) -> PyResult<Answers> {
    let py = ids.py();
    let ids = &importable(ids)?;
    let check = |field: &Field| {
        if let Some(other) = other_extension(field) {
            return Err(no_ids(py, other, "pass a column of what it is made of, if these are IDs"));
        }
        if is_readable(field.data_type(), is_uuid(field)) {
            return Ok(());
        }
        let remedy = match field.data_type() {
            DataType::Struct(_) => "pass one column of the table",
            _ => COLUMN_TYPES,
        };
        Err(no_ids(py, &field.data_type().to_string(), remedy))
    };
    let Column { field, pieces } = capsule::import(ids, check)?.map_err(|error| {
        errors::new(py, ErrorClass::IdType, &format!("the Arrow column cannot be read: {error}"))
    })?;
    let is_uuid = is_uuid(&field);
    let answers = py.detach(|| {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let mut values = BooleanBufferBuilder::new(length);
        let mut nulls = NullBufferBuilder::new(length);
        for piece in &pieces {
            let answers = piece_answers(lookup, piece, is_uuid);
            // Eight bytes of bits at a time, where `From` sets each bit by itself.
            values.append_buffer(&BooleanBuffer::collect_bool(answers.len(), |i| answers[i]));
            match piece.logical_nulls() {
                Some(of_piece) => nulls.append_buffer(&of_piece),
                None => nulls.append_n_non_nulls(piece.len()),
            }
        }
        let nulls = nulls.finish();
        // The answer of a null means nothing: it is written as `false`.
        let values = match &nulls {
            Some(nulls) => &values.finish() & nulls.inner(),
            None => values.finish(),
        };
        BooleanArray::new(values, nulls)
    });
    Ok(Answers { answers })
}

/// What the values of a field mean besides their type, if anything.
fn extension(field: &Field) -> Option<&str> {
    field.metadata().get("ARROW:extension:name").map(String::as_str)
}

pub(crate) fn is_uuid(field: &Field) -> bool {
    extension(field) == Some("arrow.uuid")
}

/// An extension whose values are no text, bytes or integers, whatever they are stored as.
pub(crate) fn other_extension(field: &Field) -> Option<&str> {
    extension(field).filter(|name| !["arrow.uuid", "arrow.json"].contains(name))
}

/// Whether [`piece_answers`] knows the type.
fn is_readable(data_type: &DataType, is_uuid: bool) -> bool {
    use DataType as T;
    match data_type {
        T::Dictionary(_, values) => is_readable(values, is_uuid),
        T::FixedSizeBinary(_) => true,
        _ if is_uuid => false,
        T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => true,
        _ => data_type.is_integer() || *data_type == T::Null,
    }
}

/// One answer for each element; what it is for a null means nothing. The view of a null may lead
/// anywhere, so nulls of those types are not read.
fn piece_answers(lookup: &impl Lookup, piece: &ArrayRef, is_uuid: bool) -> Vec<bool> {
    use DataType as T;
    match piece.data_type() {
        T::Utf8 => look_up(lookup, values_of(piece.as_bytes::<Utf8Type>())),
        T::LargeUtf8 => look_up(lookup, values_of(piece.as_bytes::<LargeUtf8Type>())),
        T::Utf8View => {
            let ids = piece.as_string_view();
            look_up(
                lookup,
                (0..ids.len()).map(|i| if ids.is_null(i) { "" } else { ids.value(i) }.as_bytes()),
            )
        }
        T::Binary => look_up(lookup, values_of(piece.as_bytes::<BinaryType>())),
        T::LargeBinary => look_up(lookup, values_of(piece.as_bytes::<LargeBinaryType>())),
        T::BinaryView => {
            let ids = piece.as_binary_view();
            look_up(lookup, (0..ids.len()).map(|i| if ids.is_null(i) { &[] } else { ids.value(i) }))
        }
        T::FixedSizeBinary(_) if is_uuid => {
            let ids = piece.as_fixed_size_binary();
            look_up_written(lookup, ids.len(), |i, text| write_uuid(ids.value(i), text))
        }
        T::FixedSizeBinary(_) => {
            let ids = piece.as_fixed_size_binary();
            look_up(lookup, (0..ids.len()).map(|i| ids.value(i)))
        }
        T::Dictionary(..) => {
            let dictionary = piece.as_any_dictionary();
            if dictionary.values().is_empty() {
                // It has nulls only, whose keys mean nothing.
                return vec![false; piece.len()];
            }
            let of_values = piece_answers(lookup, dictionary.values(), is_uuid);
            // The key of a null means nothing, and may lead anywhere.
            dictionary.normalized_keys().into_iter().map(|key| of_values[key]).collect()
        }
        T::Int8 => numbers::<Int8Type>(lookup, piece),
        T::Int16 => numbers::<Int16Type>(lookup, piece),
        T::Int32 => numbers::<Int32Type>(lookup, piece),
        T::Int64 => numbers::<Int64Type>(lookup, piece),
        T::UInt8 => numbers::<UInt8Type>(lookup, piece),
        T::UInt16 => numbers::<UInt16Type>(lookup, piece),
        T::UInt32 => numbers::<UInt32Type>(lookup, piece),
        T::UInt64 => numbers::<UInt64Type>(lookup, piece),
        // A column of nulls only.
        _ => vec![false; piece.len()],
    }
}

/// The bytes of each value, read by their offsets in order: by `value(i)` each offset is read and
/// compared twice.
fn values_of<T: ByteArrayType>(column: &GenericByteArray<T>) -> impl Iterator<Item = &[u8]> {
    let (bytes, offsets) = (column.values().as_slice(), column.value_offsets());
    offsets.windows(2).map(|pair| &bytes[pair[0].as_usize()..pair[1].as_usize()])
}

/// Integers as decimal text.
fn numbers<T: ArrowPrimitiveType>(lookup: &impl Lookup, piece: &ArrayRef) -> Vec<bool>
where
    T::Native: Display,
{
    let numbers = piece.as_primitive::<T>().values();
    look_up_written(lookup, numbers.len(), |i, text| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}", numbers[i]);
    })
}

/// A UUID as 36 lower-case characters.
fn write_uuid(bytes: &[u8], text: &mut String) {
    for (i, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text.extend(
            [byte >> 4, byte & 15].map(|half| char::from(b"0123456789abcdef"[half as usize])),
        );
    }
}
