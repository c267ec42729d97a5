//! Models, explored exhaustively, in which each decision is made by the function that the program
//! runs.
//!
//! | module | who acts |
//! |---|---|
//! | `pointers` | builders, operators, a pruner and servers, on the records of one filter |
//! | `live_lease` | servers that share a filter of live IDs, of which one decides |
//! | `live_days` | a server and a follower, on one live ID, over days |

#![allow(clippy::unwrap_used)] // in a test it is an assertion

mod live_days;
mod live_lease;
mod pointers;
