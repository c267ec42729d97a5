//! The contract between Bloomsday's builder and server: all that a writer and a reader must agree
//! on, and nothing else.
//!
//! | module | holds |
//! |---|---|
//! | [`day`] | [`Day`](day::Day): the UTC date that names a set of IDs |
//! | [`hash`] | the bytes of an ID → its hash, one for each layout |
//! | [`filter`] | [`Filter`](filter::Filter), [`FilterMut`](filter::FilterMut), shapes, layouts and kernels |
//! | [`memory`] | huge-page buffers, and what caches are told of them |
//! | [`digest`] | BLAKE3 of a blob: its name and proof |
//! | [`blob`] | filter ⇄ bytes: every byte of the format is described there |
//! | [`key`] | the names of filters and blobs, and where in the store things lie |
//! | [`mod@pointer`] | the pointer, pin and history records |
//! | [`protocol`] | every decision of publish, repoint, pin and follow, as pure functions |
//! | [`store`] | every read and write; does what `protocol` decides |
//! | [`redact`] | outside text in messages: one line, cut, without secrets |
//! | [`mod@crash_point`] | named places at which a test kills a program |
//! | [`error`] | what can go wrong, sorted by what to do about it |

#![deny(unsafe_code)]

pub mod blob;
pub mod crash_point;
pub mod day;
pub mod digest;
pub mod error;
pub mod filter;
pub mod hash;
pub mod key;
pub mod memory;
pub mod pointer;
pub mod protocol;
pub mod redact;
pub mod store;
