//! The live layer: IDs that count from the moment they are added.
//!
//! | module | contents |
//! |---|---|
//! | `table` | the exact set of live hashes, for lookups without locks |
//! | `writer` | the one owner of a table's changes |
//! | `budget` | how many bytes all tables may take |

mod budget;
mod table;
mod writer;
