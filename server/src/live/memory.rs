//! What of the live layer is in memory: tables of hashes, the index of fingerprints, and how much
//! they may take.
//!
//! | module | contents |
//! |---|---|
//! | `table` | the exact set of live hashes, for lookups without locks |
//! | `shard_lines` | the lines of one shard of a table, and the Bloom filter in front of them |
//! | `writer` | the one owner of a table's changes |
//! | `near` | the exact set of fingerprints of a set of that kind, found by similar ones |
//! | `domains` | which domains the URLs that are added belong to |
//! | `budget` | how many bytes all tables may take |

pub(super) mod budget;
pub(super) mod domains;
pub(super) mod near;
mod shard_lines;
pub(super) mod table;
pub(super) mod writer;
