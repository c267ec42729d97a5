//! Arrow's C data interface and C stream interface, in PyCapsules: columns come and go without a
//! copy.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, ArrayRef, make_array};
use arrow_schema::{ArrowError, Field};
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
    // SAFETY: a capsule of this name points to such a struct, by the interface. Its first field is
    // a pointer to its format, null once it was moved out.
    let is_moved = unsafe { schema.as_ptr().cast::<*const u8>().read() }.is_null();
    // SAFETY: a capsule of this name points to such a struct, by the interface, and stays alive
    // through `pair`, which borrows it for longer than this. `from_raw` moves the content out and
    // marks the original as released, so that the capsule's destructor does not release it again.
    let schema = unsafe { FFI_ArrowSchema::from_raw(schema.as_ptr()) };
    // SAFETY: as above.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    let column = || {
        if is_moved || array.is_released() {
            let why = "its capsules were used before: __arrow_c_array__ must return new ones";
            return Err(ArrowError::CDataInterface(why.to_owned()));
        }
        let field = Field::try_from(&schema)?;
        // SAFETY: the interface promises that the array is of this type and that its buffers are as
        // long as the type and the length demand, and never change.
        let data = unsafe { from_ffi(array, &schema) }?;
        Ok(Column { field, pieces: vec![make_array(data)] })
    };
    Ok(column())
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
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let mut reader = match ArrayStreamReader::try_new(stream) {
        Ok(reader) => reader,
        Err(error) => return Ok(Err(error)),
    };
    let field = reader.field().as_ref().clone();
    check(&field)?;
    // A producer that runs Python takes the interpreter's lock itself: pyarrow reads a stream in
    // this way, too. The reader is dropped with the lock.
    let pieces = py.detach(|| reader.by_ref().collect::<Result<_, _>>());
    Ok(pieces.map(|pieces| Column { field, pieces }))
}

/// What `__arrow_c_array__` returns for `array`.
pub(crate) fn export<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = arrow_array::ffi::to_ffi(&array.to_data())
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}
