//! The library that a bidder links: it follows a store's pointers, loads filters, and looks IDs up
//! in them.
//!
//! A blob goes `store → loader → generation → handle`; a lookup goes `handle → filter`.
//!
//! | module | contents |
//! |---|---|
//! | [`start`], [`Bloomsday`] | where a program begins |
//! | `config` | [`Config`] and [`FilterConfig`] |
//! | [`limits`] | the range of each setting |
//! | [`handle`] | [`FilterHandle`] and [`Reader`]: the hot path |
//! | [`status`] | [`FilterStatus`]: which filter is current, and why |
//! | [`error`] | [`error::Error`]: why a server cannot start or reload |
//! | `http` | lookups, status and admin over HTTP (feature `http`) |
//! | `live` | IDs that count from the moment they are added (feature `live`) |
//! | `poller` | the background thread, and the schedule of each filter |
//! | `follower` | one round of one filter: resolve, load, judge, swap |
//! | `loader` | fetches and checks a blob, from the cache or the store, in full or by a delta, before a deadline |
//! | `cache` | the local copy for a start without the store |
//! | `memory_check` | whether there is memory for one more filter |
//! | `generation` | one loaded filter with its header |
//! | `guard` | compares the old and the new filter on recent lookups; may hold the new one back |
//! | `all_loaded` | notifies when every filter is loaded |
//! | `heartbeat` | writes to the store which filter this server uses |
//! | `resp` | the live layer over Redis's protocol (feature `resp`) |
//! | `connections` | accepting connections, for all addresses (features `http` and `resp`) |
//! | `tls`, `token` | `Tls` and `Token`: what all addresses share (`tls`: `http` or `resp`; `token`: `http` or `live`) |
//! | `backoff` | the pauses of a retry loop |
//! | `random` | random numbers; not for secrets |
//! | `clock` | the time of day |
//!
//! # Example
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (_folder, store) = store_with(&[b"0f8fad5bd9cb469fa16570867728950e"]);
//! use bloomsday_server::{Config, FilterConfig};
//!
//! // `store` is a URL such as s3://ads-filters/prod, or a local folder.
//! let filters = vec![FilterConfig::new("rt".parse()?)];
//! let bloomsday = bloomsday_server::start(Config::new(&store, filters)).await?;
//!
//! // One reader for each thread that looks IDs up.
//! let mut reader = bloomsday.filter("rt")?.reader();
//! assert!(reader.contains(b"0f8fad5bd9cb469fa16570867728950e"));
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod all_loaded;
mod backoff;
mod bloomsday;
mod cache;
mod clock;
mod config;
#[cfg(any(feature = "http", feature = "resp"))]
mod connections;
pub mod error;
mod follower;
mod generation;
mod guard;
pub mod handle;
mod heartbeat;
#[cfg(feature = "http")]
pub mod http;
pub mod limits;
#[cfg(feature = "live")]
#[cfg_attr(
    not(feature = "resp"),
    allow(dead_code, unused_imports, reason = "only `resp` calls some of it")
)]
pub mod live;
mod loader;
mod memory_check;
mod poller;
mod random;
#[cfg(feature = "resp")]
pub mod resp;
#[cfg(test)]
mod simulation;
pub mod status;
#[cfg(any(feature = "http", feature = "resp"))]
mod tls;
#[cfg(any(feature = "http", feature = "live"))]
#[cfg_attr(
    not(any(feature = "http", feature = "resp")),
    allow(dead_code, reason = "only `http` and `resp` check tokens")
)]
mod token;

pub use bloomsday::{Bloomsday, open_store, start, start_on, start_unloaded};
// What the public types here have in their fields and arguments.
pub use bloomsday_common::day::Day;
pub use bloomsday_common::digest::Digest;
pub use bloomsday_common::error::Kind;
pub use bloomsday_common::id_form::IdForm;
pub use bloomsday_common::key::FilterName;
pub use bloomsday_common::remedy::Remedy;
pub use bloomsday_common::store::Store;
pub use cache::check_cache_dir;
pub use config::{Config, FilterConfig};
pub use guard::{Guard, Verdict};
pub use handle::{FilterHandle, Reader};
pub use status::{FilterStatus, Judged, ReloadOutcome, Reloaded, State};
#[cfg(any(feature = "http", feature = "resp"))]
pub use tls::Tls;
#[cfg(any(feature = "http", feature = "live"))]
pub use token::Token;
