//! What the live layer of a filter shares between programs: the arithmetic of an entry and the format
//! of a segment. Nothing here does I/O or reads a clock.
//!
//! | module | contents |
//! |---|---|
//! | [`entry`] | a hash and the step in which it was seen, as one 64-bit word |
//! | [`segment`] | the append-only log: bytes to frames and back |
//! | [`shipment`] | frames of a log → the segments in the store |
//! | [`head`] | how much of a log is in the store |

pub mod entry;
pub mod head;
pub mod segment;
pub mod shipment;
