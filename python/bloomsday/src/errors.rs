//! Errors of the libraries → the exceptions of `bloomsday.errors`, one class for each kind.

use std::fmt::Display;
use std::path::Path;

use bloomsday_common::error::{Error as CommonError, Kind};
use bloomsday_common::remedy::Remedy;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

/// The classes of `bloomsday.errors` whose exceptions come from Rust.
#[derive(Clone, Copy)]
pub(crate) enum ErrorClass {
    Build,
    IdType,
    MissingFile,
    MissingId,
    NotFound,
    NotReady,
    Server,
    Store,
    Superseded,
    UnsoundBlob,
    Usage,
}

impl ErrorClass {
    fn name(self) -> &'static str {
        match self {
            ErrorClass::Build => "BuildError",
            ErrorClass::IdType => "IdTypeError",
            ErrorClass::MissingFile => "MissingFileError",
            ErrorClass::MissingId => "MissingIdError",
            ErrorClass::NotFound => "NotFoundError",
            ErrorClass::NotReady => "NotReadyError",
            ErrorClass::Server => "ServerError",
            ErrorClass::Store => "StoreError",
            ErrorClass::Superseded => "SupersededError",
            ErrorClass::UnsoundBlob => "UnsoundBlobError",
            ErrorClass::Usage => "UsageError",
        }
    }
}

/// What to do, by the names of this package's arguments.
pub(crate) fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::MoreMemory => "give the build more `memory`".into(),
        Remedy::OtherMemory => "change `memory`".into(),
        Remedy::LargerFpp => "with a larger `fpp`".into(),
        Remedy::AllowMissingInput => "window_missing=\"allow\"".into(),
        Remedy::AcceptChange => "build again with accept_change=\"why\"".into(),
        // What names nothing of this package needs no other words.
        other => other.to_string(),
    }
}

/// The fields of an object that the Python side filled with a caller's arguments.
///
/// # Errors
/// Python's own, with the name of the argument. One that has no message of its own, such as
/// `UnicodeEncodeError`, shows the argument.
pub(crate) fn fields<'py, T>(object: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = object.py();
    object.extract().map_err(|error: PyErr| {
        let Some(cause) = error.cause(py) else { return error };
        let text = error.value(py).to_string();
        let name = text.rsplit('.').next().unwrap_or_default();
        of_argument(py, name, cause)
    })
}

/// An error about an argument, which it names if it is one of type or range.
pub(crate) fn of_argument(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyOverflowError>(py) {
        return PyErr::from_type(error.get_type(py), format!("{name}: {}", error.value(py)));
    }
    error
}

/// An exception of this class, with a message.
pub(crate) fn new(py: Python<'_>, class: ErrorClass, message: &str) -> PyErr {
    new_with(py, class, message, None, false)
}

/// As [`new`], for what may succeed later.
pub(crate) fn new_transient(py: Python<'_>, class: ErrorClass, message: &str) -> PyErr {
    new_with(py, class, message, None, true)
}

/// An error of the store, of a blob or of an address.
pub(crate) fn of_common(py: Python<'_>, error: &CommonError) -> PyErr {
    of_kind(py, error.kind(), error, error.remedy())
}

/// An error of a file that was opened by its path: one that is not there is also Python's own error
/// for it.
pub(crate) fn of_file(py: Python<'_>, error: &CommonError, path: &Path) -> PyErr {
    if error.kind() != Kind::NotFound {
        return of_common(py, error);
    }
    let missing = new(py, ErrorClass::MissingFile, &error.to_string());
    match missing.value(py).setattr("filename", path.as_os_str()) {
        Ok(()) => missing,
        Err(other) => other,
    }
}

/// An error of any library, by its kind.
pub(crate) fn of_kind(
    py: Python<'_>,
    kind: Kind,
    error: &impl Display,
    remedy: Option<Remedy>,
) -> PyErr {
    let class = match kind {
        Kind::Usage => ErrorClass::Usage,
        Kind::NotFound => ErrorClass::NotFound,
        Kind::Superseded => ErrorClass::Superseded,
        Kind::Corrupt => ErrorClass::UnsoundBlob,
        Kind::Transient | Kind::Failed => ErrorClass::Store,
    };
    new_with(py, class, &error.to_string(), remedy, kind == Kind::Transient)
}

/// An exception with everything that it can have.
pub(crate) fn new_with(
    py: Python<'_>,
    class: ErrorClass,
    message: &str,
    remedy: Option<Remedy>,
    is_transient: bool,
) -> PyErr {
    let message = remedy.as_ref().map_or(message.into(), |remedy| remedy.reword(message, words));
    let remedy = remedy.as_ref().map(words);
    let made = py
        .import("bloomsday.errors")
        .and_then(|errors| errors.getattr(class.name())?.call1((message, remedy, is_transient)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        // The package is incomplete: say that.
        Err(error) => error,
    }
}
