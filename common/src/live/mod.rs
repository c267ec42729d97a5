//! What the live layer of a filter shares between programs: the arithmetic of an entry and the format
//!
//! | module | contents |
//! |---|---|
//! | [`entry`] | a hash and the step in which it was seen, as one 64-bit word |

pub mod entry;
