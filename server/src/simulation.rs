//! The server on a paused clock, with a store that fails on purpose: single promises, and complete
//! months. Tests only.

mod blobs;
mod cost;
pub(crate) mod flaky_store;
mod guarding;
mod instructions;
mod memory;
mod months;
mod oracle;
mod outages;
mod poll_loops;
mod process;
mod steady_state;
