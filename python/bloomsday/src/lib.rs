//! The native part of the Python package `bloomsday`: the module `bloomsday._native`.
//!
//! | module | does |
//! |---|---|
//! | `filter` | [`Filter`](filter::Filter): a blob file, for lookups |
//! | `server` | [`Server`](server::Server): the library that follows a store |
//! | `build` | builds and publications |
//! | `parts` | the pure functions of a build in parts, Arrow → Arrow |
//! | `spark` | the steps of such a build that its driver does |
//! | `ids` | what Python passes as IDs → bytes, and the answers back |
//! | `errors` | errors of the libraries → Python exceptions by kind |
//! | `version` | `bloomsday.__version__` |
//! | `wait` | runs what the libraries do asynchronously |
//!
//! Rules: no lookup, no load and no build has the interpreter's lock (GIL) while it works, except a
//! lookup of a single ID, which is shorter than releasing it.

#![deny(unsafe_code)]

mod build;
mod errors;
mod filter;
mod ids;
mod parts;
mod server;
mod spark;
mod version;
mod wait;

use pyo3::prelude::*;

/// The native part of the package `bloomsday`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::build::{build, publish};
    #[pymodule_export]
    use crate::filter::Filter;
    #[pymodule_export]
    use crate::ids::arrow::Answers;
    #[pymodule_export]
    use crate::parts::{Batch, PartsCount, PartsFill, PartsGather};
    #[pymodule_export]
    use crate::server::{ServedFilter, Server};
    #[pymodule_export]
    use crate::spark::Coordinator;
    #[pymodule_export]
    use crate::version::version;
}
