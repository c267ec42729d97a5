//! What the end-to-end tests share: the real program, real servers and real Parquet.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | runs `bloomsday` once and keeps what it said |
//! | [`daemon`] | runs `bloomsday serve` and asks it over HTTP |
//! | [`backend`] | the stores every test runs against: a local folder, and S3 (moto) |
//! | [`input`] | Parquet and IDs |
//!
//! Nothing here waits for a fixed time: a wait is for an event, with a deadline that fails the test.

#![forbid(unsafe_code)]

pub mod backend;
pub mod daemon;
pub mod input;
pub mod program;
