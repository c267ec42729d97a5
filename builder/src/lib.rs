//! A day's Parquet files → a published blob.
//!
//! The way of an ID: `source → scan → hash → partition → fill → blob → publish`. Each step is a
//! module that does not know the next one. [`build()`] connects them:
//!
//! ```no_run
//! use bloomsday_builder::{Job, build};
//! use bloomsday_common::store::Store;
//!
//! # async fn nightly() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open("s3://ads/bloomsday")?;
//! let inputs = vec!["s3://ads/ids/dt={day}/*.parquet".into()];
//! let job = Job::new("retargeting".parse()?, "2026-11-19".parse()?, inputs, "user_id".into());
//! let report = build(&job, &store, &|_| ()).await?;
//! println!("{:?}: {} IDs", report.outcome, report.ids);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`build()`] | runs all steps of a build |
//! | [`Job`], [`Progress`] | what to build, and how far the build is |
//! | [`import()`] | another system's filter → a published blob |
//! | [`republish()`] | a blob file → a published blob |
//! | [`source`] | finds the files of a day's input |
//! | [`scan`] | files → row groups → IDs, on all cores; knows Parquet, and Arrow in `scan::decode` |
//! | [`segments`] | a day's live IDs in the store → the same hashes |
//! | [`ids`] | a Parquet column's types → the bytes of its IDs; knows Parquet and Arrow |
//! | `build_state` | how a build begins and ends, wherever its filter comes from |
//! | `gather` | the input of a build → its distinct hashes, and a sample of its IDs |
//! | [`budget`] | divides the memory of a build |
//! | [`parts`] | the same steps as pure functions, for engines that run on many machines |
//! | [`partition`] | partitions hashes, removes duplicates and counts, within a memory budget |
//! | [`sample`] | chooses raw IDs to verify with |
//! | [`fill`] | distinct hashes → a filter |
//! | [`verify`] | checks that a filter contains every ID, and measures its rate of false positives |
//! | [`quality`] | compares a filter's rate with what its IDs explain |
//! | [`gates`] | compares a day's numbers with limits and with earlier days |
//! | `earlier_day` | looks the day's IDs up in the newest earlier filter |
//! | `stable_shape` | chooses the shape that a day's filter needs, or that of the blob before |
//! | `deltas` | makes the deltas from the blobs of the days before, and uploads them |
//! | `compact` | the segments of a day → its distinct hashes |
//! | `report` | [`Report`]: the result of a build |
//! | [`publish`] | uploads the blob, reads it back, and moves the pointer |
//! | [`error`] | why a day could not be built |
//! | `parallel` | runs numbered tasks on several threads |
//! | `timer` | how long each step takes |
//!
//! Only `scan` and `ids` use the crates `parquet` and `arrow`.

#![forbid(unsafe_code)]

pub mod budget;
mod build;
mod build_state;
mod compact;
mod deltas;
mod earlier_day;
pub mod error;
pub mod fill;
pub mod gates;
mod gather;
pub mod ids;
mod import;
mod job;
mod parallel;
pub mod partition;
pub mod parts;
pub mod publish;
pub mod quality;
mod report;
mod republish;
pub mod sample;
pub mod scan;
pub mod segments;
pub mod source;
mod stable_shape;
mod timer;
pub mod verify;

/// For `fuzz/` only; not a stable API.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::scan::fuzzing::read;
}

pub use build::build;
pub use compact::{LiveHashes, compact};
pub use deltas::PublishedDelta;
pub use import::{ForeignFormat, Import, import};
pub use job::{Deltas, Job, MAX_DELTA_DAYS, MAX_THREADS, Progress, ShapeChoice};
pub use report::{Report, Seconds};
pub use republish::{Republish, republish};
pub use source::Window;
pub use stable_shape::ShapeSource;
