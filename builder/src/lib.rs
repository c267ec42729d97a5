//! A day's Parquet → a published blob.
//!
//! An ID's way: `source → scan (ids) → hash → partition → fill → blob → publish`; each step is a module
//! that knows nothing of the next.
//!
//! | module | holds |
//! |---|---|
//! | [`build()`] | the whole pipeline |
//! | [`import()`] | another system's filter → a published blob |
//! | [`source`] | which files a day's input is |
//! | [`scan`] | files → row groups → IDs, on all cores |
//! | [`ids`] | Parquet columns → the bytes of IDs; the only file that knows arrow types |
//! | [`budget`] | one figure for memory, shared out among all that a build holds |
//! | [`partition`] | hashes, partitioned, deduplicated and counted within a memory budget |
//! | [`sample`] | a fair choice of raw IDs to verify with |
//! | [`fill`] | distinct hashes → a filter |
//! | [`verify`] | does this filter hold every ID? |
//! | [`quality`] | does it answer as its IDs should make it? |
//! | [`gates`] | is this day good? |
//! | `earlier` | the filter of an earlier day, to compare with |
//! | `report` | what came of it |
//! | [`publish`] | upload, read back, point |
//! | [`error`] | why a day could not be built |

#![forbid(unsafe_code)]

pub mod budget;
mod build;
mod earlier;
pub mod error;
pub mod fill;
pub mod gates;
pub mod ids;
mod import;
pub mod partition;
pub mod publish;
pub mod quality;
mod report;
pub mod sample;
pub mod scan;
pub mod source;
pub mod verify;

/// For `fuzz/` alone, without a promise.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::scan::fuzzing::read;
}

pub use build::{Job, Progress, build};
pub use import::{Import, import};
pub use report::{Report, Seconds};
pub use source::Window;
