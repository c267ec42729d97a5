//! A model of everybody who writes to one filter's records at once, explored exhaustively.
//!
//! Two builders, an operator who repoints, pins, unpins, and by hand writes a line, edits a record,
//! puts an earlier one back or removes the pointer, a pruner and two servers, over three days.
//! Every request to the store is a step of its own, any of them may stop for good after any step,
//! and a conditional write may fail, or succeed and report an error. Each decision is made by the
//! very functions of `bloomsday_common::protocol` that the program runs; this file only says who
//! calls them when.
//!
//! The bound, stated: three days, at most two builds of each builder (each of any day so far, with
//! either of two sets of IDs), operator's acts and prunes as [`Bound`] says, one ambiguous write.
//! One step: a complete poll of a server. Assumed: nobody is stopped for a full day between a read
//! and the write that follows from it, nor a prune for ten minutes between its look at a blob and
//! the delete; and in the moments between such a look and what follows, no hand names the blob that
//! a prune is about to delete, nor puts back the very record, or the absence, that a build is about
//! to replace; and nobody points a day while an operator takes back its first pointer. Not
//! promised: that a build remembers a blob that only hand edits have named, since those leave no
//! history; that one which was cut off between its pointing and its last record, and was never run
//! again, is remembered when a hand then leaves no trace of itself; nor that a day remembers its
//! rollback once prune has dropped its pointer, or may have.
//!
//! With deltas, a build publishes one between its upload and its pointer, or fails to; the store
//! may damage it; prune deletes it; and a server that has the one blob fetches the other by it.

mod actors;
mod operator;
mod world;

use std::time::Instant;

use stateright::DiscoveryClassification::Counterexample;
use stateright::{Checker, Model, Property};
use world::{Action, Bound, World};

impl Model for Bound {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a pointer that a build wrote names a complete blob",
                |_, world: &World| world.built_pointers_name_blobs(),
            ),
            Property::always("no step broke a promise", |_, world: &World| world.broken.is_none()),
            Property::always(
                "what an operator points at is there in the end",
                |_, world: &World| world.operators_targets_are_there(),
            ),
            Property::always("a delta changes no answer", |_, world: &World| {
                world.deltas_change_no_answer()
            }),
            Property::sometimes("a server loads by a delta", |_, world: &World| {
                world.met.loaded_by_delta
            }),
            Property::sometimes("a damaged delta costs a full load", |_, world: &World| {
                world.met.delta_failed
            }),
            Property::sometimes("a delta is deleted", |_, world: &World| world.met.delta_deleted),
            Property::sometimes("a build is superseded", |_, world: &World| world.met.superseded),
            Property::sometimes("a build loses to one with the same blob", |_, world: &World| {
                world.met.lost_to_the_same
            }),
            Property::sometimes("a rollback stands against a re-run", |_, world: &World| {
                world.met.rollback_stood
            }),
            Property::sometimes("a removed pointer stays removed", |_, world: &World| {
                world.met.removal_stood
            }),
            Property::sometimes("an earlier record put back stays", |_, world: &World| {
                world.met.restore_stood
            }),
            Property::sometimes("a mended day moves on", |_, world: &World| world.met.mended),
            Property::sometimes("a blob is deleted", |_, world: &World| world.met.deleted),
            Property::sometimes("a build uploads an old blob again", |_, world: &World| {
                world.met.uploaded_again
            }),
            Property::sometimes("an operator takes a pointer back", |_, world: &World| {
                world.met.taken_back
            }),
            Property::sometimes("a write succeeded and reported an error", |_, world: &World| {
                world.met.ambiguous
            }),
        ]
    }
}

/// Explores all of it, fails with the steps that led to a broken promise, and returns the
/// situations that were met.
fn explore(bound: Bound, name: &str) -> Vec<&'static str> {
    let (clock, most_states) = (Instant::now(), bound.most_states);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = bound.checker().threads(threads).target_state_count(most_states);
    let checker = checker.spawn_dfs().join();
    let mut met = Vec::new();
    for (property, path) in checker.discoveries() {
        if matches!(checker.discovery_classification(property), Counterexample) {
            let broken = path.last_state().broken;
            let steps: Vec<String> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
            panic!("{name}: not so: {property}: {broken:?}\n  {}", steps.join("\n  "));
        }
        met.push(property);
    }
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    assert!(checker.state_count() < most_states, "{name}: {states} states are not all of them");
    let seconds = clock.elapsed().as_secs_f64();
    println!("CAMPAIGN model: {name} | {states} states | every invariant holds | {seconds:.0}");
    println!("depth {depth}; met: {met:?}");
    met
}

fn full() -> bool {
    std::env::var("BLOOMSDAY_CAMPAIGN").is_ok_and(|size| size == "full")
}

/// Three days need a prune to be worth it, and a prune three days: so each bound is large in one
/// way.
fn bound(days: u8, builds: [u8; 2], operator_acts: u8, prunes: u8, ambiguous: u8) -> Bound {
    let servers = if full() { 2 } else { 1 };
    let most_states = if full() { 400_000_000 } else { 60_000_000 };
    let deltas = None;
    Bound { days, builds, operator_acts, prunes, ambiguous, deltas, servers, most_states }
}

#[test]
fn builders_and_an_operator_keep_every_invariant() {
    let mut met = explore(bound(2, [2, 1], 1, 0, 0), "three builds, one act, two days");
    met.extend(explore(bound(2, [1, 1], 1, 0, 1), "the same, two builds, one unclear write"));
    let situations = [
        "superseded",
        "the same blob",
        "stands",
        "removed",
        "put back",
        "mended",
        "reported an error",
    ];
    for situation in situations {
        assert!(met.iter().any(|met| met.contains(situation)), "never met: {situation} of {met:?}");
    }
}

#[test]
fn a_pruner_among_them_deletes_nothing_that_is_needed() {
    let name = "two builds, one act, one prune, three days";
    let met = explore(bound(3, [1, 1], 1, 1, 0), name);
    for situation in ["deleted", "old blob again", "takes a pointer back"] {
        assert!(met.iter().any(|met| met.contains(situation)), "never met: {situation} of {met:?}");
    }
}

#[test]
fn deltas_change_no_answer_and_go_with_their_blobs() {
    let with_deltas = |bound: Bound| Bound { deltas: Some(1), ..bound };
    let name = "two builds with deltas, one damaged, one act, two days";
    let mut met = explore(with_deltas(bound(2, [1, 1], 1, 0, 0)), name);
    let name = "two builds with deltas, one damaged, one prune, three days";
    met.extend(explore(with_deltas(bound(3, [1, 1], 0, 1, 0)), name));
    for situation in ["loads by a delta", "damaged delta", "delta is deleted"] {
        assert!(met.iter().any(|met| met.contains(situation)), "never met: {situation} of {met:?}");
    }
}

#[test]
#[ignore = "takes long: BLOOMSDAY_CAMPAIGN=full"]
fn more_of_everything() {
    explore(bound(2, [2, 2], 1, 0, 0), "four builds, one act, two days");
    explore(bound(2, [2, 1], 1, 0, 1), "three builds, one act, one unclear write, two days");
    explore(bound(2, [1, 1], 2, 0, 1), "two builds, two acts, one unclear write, two days");
    explore(
        bound(3, [1, 1], 1, 1, 1),
        "two builds, one act, one prune, one unclear write, three days",
    );
    explore(bound(3, [2, 1], 1, 1, 0), "three builds, one act, one prune, three days");
    explore(
        Bound { deltas: Some(1), ..bound(3, [1, 1], 1, 1, 0) },
        "two builds with deltas, one damaged, one act, one prune, three days",
    );
}
