//! The C library: lookups in blob files, and the server library that follows a store.
//!
//! `include/bloomsday.h` is made of these files by `tests/header.rs`; [docs/c.md] is the guide.
//!
//! | module | contents |
//! |---|---|
//! | `filter` | `bloomsday_open`, `bloomsday_contains` and its batches |
//! | `server` | `bloomsday_start` and what a started server does |
//! | `config` | the JSON that `bloomsday_start` takes |
//! | `failure` | return codes, the last error of a thread, no panic past this library |
//! | `pointers` | what C gives and gets: the checks of each pointer |
//!
//! [docs/c.md]: https://github.com/bloomsday/bloomsday/blob/main/docs/c.md

// Each function takes pointers from C.
#![allow(unsafe_code)]

mod config;
mod failure;
mod filter;
mod pointers;
mod server;
