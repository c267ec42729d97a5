//! Arrow's C data interface and C stream interface, in PyCapsules: columns come and go without a
//! copy.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use std::ffi::CStr;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, ArrayRef, make_array};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyTuple};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// A column that came from Python: its type, and its pieces.
pub(crate) struct Column {
    pub(crate) field: Field,
    pub(crate) pieces: Vec<ArrayRef>,
}

/// Takes a column or a record batch of any library that has `__arrow_c_array__` or
/// `__arrow_c_stream__`, if `check` passes its type.
pub(crate) fn import(
    object: &Bound<'_, PyAny>,
    check: impl FnOnce(&Field) -> PyResult<()>,
) -> PyResult<Result<Column, ArrowError>> {
    let py = object.py();
    if object.hasattr(intern!(py, "__arrow_c_array__"))? {
        let pair = object.call_method0(intern!(py, "__arrow_c_array__"))?;
        let column = import_array(&pair)?;
        if let Ok(column) = &column {
            check(&column.field)?;
        }
        return Ok(column);
    }
    import_stream(&object.call_method0(intern!(py, "__arrow_c_stream__"))?, check)
}

/// Takes what `__arrow_c_array__` returns.
fn import_array(pair: &Bound<'_, PyAny>) -> PyResult<Result<Column, ArrowError>> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule of this name points to such a struct, by the interface, and stays alive
    // through `pair`, which borrows it for longer than this. `from_raw` moves the content out and
    // marks the original as released, so that the capsule's destructor does not release it again.
    let schema = unsafe { FFI_ArrowSchema::from_raw(schema.as_ptr()) };
    // SAFETY: as above.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    let column = || {
        // Of a schema that was released, no other field means anything.
        if schema.release().is_none() || array.is_released() {
            let why = "its capsules were used before: __arrow_c_array__ must return new ones";
            return Err(ArrowError::CDataInterface(why.to_owned()));
        }
        let field = field_of(&schema)?;
        // SAFETY: the interface promises that the array is of this type and that its buffers are as
        // long as the type and the length demand, and never change.
        let data = unsafe { from_ffi(array, &schema) }?;
        // Else `make_array` panics when a library breaks that promise.
        data.validate()?;
        Ok(Column { field, pieces: vec![make_array(data)] })
    };
    Ok(column().and_then(checked))
}

/// The column, unless offsets of its values go back, or a key of a dictionary has no value.
fn checked(column: Column) -> Result<Column, ArrowError> {
    column.pieces.iter().try_for_each(check_places).map(|()| column)
}

fn check_places(piece: &ArrayRef) -> Result<(), ArrowError> {
    use DataType as T;
    let sound = match piece.data_type() {
        T::Utf8 => piece.as_string::<i32>().value_offsets().is_sorted(),
        T::LargeUtf8 => piece.as_string::<i64>().value_offsets().is_sorted(),
        T::Binary => piece.as_binary::<i32>().value_offsets().is_sorted(),
        T::LargeBinary => piece.as_binary::<i64>().value_offsets().is_sorted(),
        T::Dictionary(..) => {
            check_places(piece.as_any_dictionary().values())?;
            return piece.to_data().validate_values();
        }
        _ => true,
    };
    let wrong = || ArrowError::InvalidArgumentError("its offsets go back".into());
    if sound { Ok(()) } else { Err(wrong()) }
}

/// Takes all pieces from what `__arrow_c_stream__` returns, if `check` passes their type: a stream
/// may be long.
fn import_stream(
    stream: &Bound<'_, PyAny>,
    check: impl FnOnce(&Field) -> PyResult<()>,
) -> PyResult<Result<Column, ArrowError>> {
    let py = stream.py();
    let stream: &Bound<'_, PyCapsule> = stream.cast()?;
    let stream = stream.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: as for an array: the struct is what its name says, lives as long as the borrowed
    // capsule, and is moved out.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let schema = schema_of(&mut stream);
    let opened = || {
        let reader = ArrayStreamReader::try_new(stream)?;
        let field =
            schema.as_ref().map_or_else(|| Ok(reader.field().as_ref().clone()), field_of)?;
        Ok((reader, field))
    };
    let (mut reader, field) = match opened() {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    check(&field)?;
    // A producer that runs Python takes the interpreter's lock itself: pyarrow reads a stream in
    // this way, too. The reader is dropped with the lock.
    let pieces = py.detach(|| reader.by_ref().collect::<Result<_, _>>());
    Ok(pieces.and_then(|pieces| checked(Column { field, pieces })))
}

/// The schema of a stream that is not used up, if it can be had.
fn schema_of(stream: &mut FFI_ArrowArrayStream) -> Option<FFI_ArrowSchema> {
    stream.release()?;
    let (get_schema, mut schema) = (stream.get_schema()?, FFI_ArrowSchema::empty());
    // SAFETY: it is the callback of this stream, which is not released, and the interface lets a
    // consumer call it at any time before the end. It fills the struct whose address it gets.
    let status = unsafe { get_schema(stream, &raw mut schema) };
    (status == 0 && schema.release().is_some()).then_some(schema)
}

/// The field of a schema. With a dictionary it has the metadata of the values, for which an arrow
/// field has no place: what they mean besides their type would be lost.
fn field_of(schema: &FFI_ArrowSchema) -> Result<Field, ArrowError> {
    let field = Field::try_from(schema)?;
    let field = match field.data_type() {
        DataType::Struct(_) => {
            let columns = schema.children().map(field_of).collect::<Result<Fields, _>>()?;
            field.with_data_type(DataType::Struct(columns))
        }
        _ => field,
    };
    let Some(values) = schema.dictionary() else { return Ok(field) };
    let mut metadata = field_of(values)?.metadata().clone();
    metadata.extend(field.metadata().clone());
    Ok(field.with_metadata(metadata))
}

/// What `__arrow_c_array__` returns for `array`.
pub(crate) fn export<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = arrow_array::ffi::to_ffi(&array.to_data())
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}
