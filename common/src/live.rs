//! What the live layer of a filter shares between programs: the arithmetic of an entry and the
//! format of a segment. Nothing here does I/O or reads a clock.
//!
//! | module | contents |
//! |---|---|
//! | [`entry`] | a hash and the step in which it was seen, as one 64-bit word |
//! | [`segment`] | the append-only log: bytes to frames and back |
//! | [`shipment`] | frames of a log → the segments in the store |
//! | [`absorb`] | what a day's filter does to a live ID |
//! | [`head`] | how much of a log is in the store |
//! | [`lease`] | which server decides what is new |

pub mod absorb;
pub mod entry;
pub mod head;
pub mod lease;
pub mod segment;
pub mod shipment;
