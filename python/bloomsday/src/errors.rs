//! Errors of the libraries → the exceptions of `bloomsday.errors`, one class for each kind.

use std::fmt::Display;

use bloomsday_common::error::{Error as CommonError, Kind};
use bloomsday_common::remedy::Remedy;
use pyo3::prelude::*;

/// The exception `bloomsday.errors.{class}` with this message.
pub(crate) fn raise(py: Python<'_>, class: &str, message: &str) -> PyErr {
    raise_with(py, class, message, None, false)
}

/// An error of the store, of a blob or of an address.
pub(crate) fn of_common(py: Python<'_>, error: &CommonError) -> PyErr {
    of_kind(py, error.kind(), error, error.remedy())
}

/// An error of any library, by its kind.
pub(crate) fn of_kind(
    py: Python<'_>,
    kind: Kind,
    error: &impl Display,
    remedy: Option<Remedy>,
) -> PyErr {
    let class = match kind {
        Kind::Usage => "UsageError",
        Kind::NotFound => "NotFoundError",
        Kind::Superseded => "SupersededError",
        Kind::Corrupt => "UnsoundBlob",
        Kind::Transient | Kind::Failed => "StoreError",
    };
    raise_with(py, class, &error.to_string(), remedy, kind == Kind::Transient)
}

fn raise_with(
    py: Python<'_>,
    class: &str,
    message: &str,
    remedy: Option<Remedy>,
    is_transient: bool,
) -> PyErr {
    let remedy = remedy.map(|remedy| remedy.to_string());
    let made = py
        .import("bloomsday.errors")
        .and_then(|errors| errors.getattr(class)?.call1((message, remedy, is_transient)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        // The package is incomplete: say that.
        Err(error) => error,
    }
}
