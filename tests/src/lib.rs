//! What the end-to-end tests share: the real program, real servers and real Parquet.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | runs `bloomsday` once and keeps its output |
//! | [`daemon`] | runs `bloomsday serve` and sends it requests |
//! | [`backend`] | the stores every test runs against: a local folder, and S3 (moto) |
//! | [`azure`] | an Azure Blob server (azurite) |
//! | [`browser`] | a real Chromium without a window |
//! | [`gcs`] | a Google Cloud Storage server (fake-gcs-server), started and killed as a test likes |
//! | [`hdfs`] | a real HDFS, likewise |
//! | [`input`] | Parquet and IDs |
//! | [`publisher`] | builds of days, with their input |
//! | [`blobs`] | blobs without Parquet |
//! | [`measured`] | a build with a limit on its memory, and measures it |
//! | [`campaign`] | sizes, seeds and results of campaigns |
//! | [`daily`] | the daily loop, on any store |
//! | [`damage`] | damages bytes as disks, networks and attackers do |
//! | [`faulty_store`] | a store that fails in a chosen way |
//! | [`kafka`] | a real Kafka, started and killed as a test likes |
//! | [`kill_point`] | runs that are killed at a named place |
//! | [`live`] | runs `bloomsday serve --resp` and talks to it over Redis's protocol |
//! | [`nginx`] | a folder served over plain HTTP |
//! | [`other_programs`] | runs compilers, and readers in other languages |
//! | [`redis`] | a real Redis, started and killed as a test likes |
//! | [`sources`] | the files of this project, for tests that read them |
//! | [`vectors`] | blobs with the answers of the program, for readers in other languages |
//! | [`wait`] | waits for events |
//! | [`wire`] | HTTP as no proper client sends it |
//!
//! Nothing here waits for a fixed time: a wait is for an event, with a deadline that fails the
//! test.

#![forbid(unsafe_code)]

/// Whether servers and tools are there: S3, Azure, Redis, nginx, Chromium, Java, Python, promtool
/// and the like.
///
/// `tests/run.sh` installs them and turns the feature `integration` on. Without it, `cargo test`
/// needs Rust and a C compiler only: tests that need more are ignored, and the others leave those
/// parts out.
pub const INTEGRATION: bool = cfg!(feature = "integration");

pub mod azure;
pub mod backend;
pub mod blobs;
pub mod browser;
pub mod campaign;
pub mod daemon;
pub mod daily;
pub mod damage;
pub mod faulty_store;
pub mod gcs;
pub mod hdfs;
pub mod input;
pub mod kafka;
pub mod kill_point;
pub mod live;
pub mod measured;
pub mod nginx;
pub mod other_programs;
pub mod program;
pub mod publisher;
pub mod redis;
pub mod sources;
pub mod vectors;
pub mod wait;
pub mod wire;
