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

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Model};

/// With more, a bound is too large for the memory of a small machine.
const MAX_STATES: usize = 4_000_000;

/// Explores every state of a model, and fails if a property does not hold in one.
fn explore<M>(bound: M, name: &str)
where
    M: Model<
            State: Debug + Hash + Send + Sync + Clone + PartialEq,
            Action: Debug + Clone + PartialEq,
        > + Send
        + Sync
        + 'static,
    M::State: 'static,
{
    let checker = bound.checker().threads(2).target_state_count(MAX_STATES).spawn_bfs().join();
    let states = checker.state_count();
    assert!(states < MAX_STATES, "{name}: {states} states are not all of them");
    checker.assert_properties();
    println!("{name}: {} states", checker.unique_state_count());
}
