//! A day's Parquet → a published blob.

#![forbid(unsafe_code)]

pub mod error;
pub mod ids;
pub mod scan;
pub mod source;
