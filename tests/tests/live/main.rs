//! Live IDs: over a day's filter, in the store, on several servers, from streams; and servers that
//! are killed.

mod absorb;
mod compact;
mod day;
mod follow;
mod kafka;
mod kills;
mod late_deletions;
mod log_format;
mod store;
mod streams;
mod urls;
