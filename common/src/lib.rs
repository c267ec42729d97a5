//! What Bloomsday's builder and server share: filters, the blob format, the pointer protocol and
//! the store.
//!
//! | module | contents |
//! |---|---|
//! | [`day`] | [`Day`](day::Day): the UTC date that names a set of IDs |
//! | [`hash`] | the hashes of an ID, one for each layout |
//! | [`filter`] | [`Filter`](filter::Filter), [`FilterMut`](filter::FilterMut), shapes, layouts and kernels |
//! | [`live`] | IDs that count from the moment they are added: entries, and the log's format |
//! | [`memory`] | huge-page buffers, free memory, and control of the processor's caches |
//! | [`digest`] | BLAKE3 of a blob, which names it and proves its contents |
//! | [`blob`] | filters to bytes and back |
//! | [`delta`] | what changed between two blobs of one shape: made, checked and applied |
//! | [`key`] | the names of filters and blobs, and where each object is in the store |
//! | [`mod@simhash`] | 64 bits of a text, of which similar texts have nearly all in common |
//! | [`id_form`] | what is hashed of an ID |
//! | [`url_id`] | an ID that is a URL, in one form for URLs that mean the same page |
//! | [`mod@pointer`] | the pointer, pin and history records |
//! | [`protocol`] | every decision of publish, repoint, pin, prune and follow, as pure functions |
//! | [`mod@random`] | a random number |
//! | [`atomic_file`] | writes a file completely or not at all |
//! | [`store`] | every read and write; does what [`protocol`] decides |
//! | [`redact`] | foreign text in messages: on one line, cut, without secrets |
//! | [`mod@crash_point`] | named places at which a test kills a program |
//! | [`error`] | what can go wrong |
//! | [`remedy`] | what a person can do about it, as data |
//! | `assembly` | the instructions that Rust has no function for |
//!
//! The crate's features each add a kind of store: `aws`, `azure`, `gcp`, `hdfs`, `http-store` (read
//! only), and `redis` for pointers. Local folders always work.
//!
//! # Example
//!
//! A filter is built, published and looked up:
//!
//! ```
//! use bloomsday_common::blob::{self, Header, Origin};
//! use bloomsday_common::filter::{FilterMut, Layout, Shape};
//! use bloomsday_common::hash::{IdHash, Xxh3};
//! use bloomsday_common::pointer::Pointer;
//! use bloomsday_common::store::{Following, Store};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let shape = Shape::for_ids(Layout::Blocked, 1, 0.01)?;
//! let mut filter = FilterMut::new(shape)?;
//! filter.insert(Xxh3::of(b"user-1"));
//! let filter = filter.freeze();
//! let header = Header {
//!     filter: "rt".parse()?,
//!     day: "2026-11-19".parse()?,
//!     shape,
//!     id_form: Default::default(),
//!     origin: Origin::Built,
//!     ids: 1,
//!     fpp_target: 0.01,
//!     fpp_hits: 0,
//!     fpp_lookups: 0,
//!     ones: filter.count_ones(),
//! };
//! let (rt, day) = (header.filter.clone(), header.day);
//!
//! // The writer: first the blob, then the pointer that names it.
//! let folder = tempfile::tempdir()?;
//! let store = Store::create(folder.path().to_str().unwrap())?;
//! let encoded = blob::encode(&header, &filter);
//! store.put_blob(&encoded, &|_| {}).await?;
//! let read = store.pointer(&rt, day).await?;
//! store.put_pointer(&rt, day, &Pointer::to(encoded.key().clone()), &read.version).await?;
//!
//! // The reader: first the pointer, then the blob.
//! let Following::Blob(found) = store.follow(&rt, &[day], jiff::Timestamp::now()).await? else {
//!     panic!("there is a pointer")
//! };
//! let (_, filter) = store.open_blob(&found.blob).await?;
//! assert!(filter.contains(b"user-1"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

#[allow(unsafe_code)] // instructions that Rust has no function for
mod assembly;
pub mod atomic_file;
pub mod blob;
pub mod crash_point;
pub mod day;
pub mod delta;
pub mod digest;
pub mod error;
pub mod filter;
pub mod hash;
pub mod id_form;
pub mod key;
pub mod live;
pub mod memory;
pub mod pointer;
pub mod protocol;
pub mod random;
pub mod redact;
pub mod remedy;
pub mod simhash;
pub mod store;
pub mod url_id;
