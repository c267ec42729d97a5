//! The version of this package, which is that of the crate.

use pyo3::prelude::*;

/// `bloomsday.__version__`. Not from the wheel's metadata: copies of a package may be without it.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
