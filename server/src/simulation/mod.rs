//! The server on a paused clock, above a store that is ill on purpose: single promises, and whole
//! months. Tests only.

mod blobs;
mod cost;
mod guarding;
mod instructions;
mod memory;
mod months;
mod oracle;
mod outages;
mod paces;
mod process;
mod steady;
mod weather;
