//! A model of who decides, explored exhaustively: a decider, its successor and a follower share one
//! lease and one store. Every read and write of the lease is a step of its own, an answer may be
//! late, servers' clocks differ, any of them may be suspended or killed, and come back. Whether a
//! server takes the lease is decided by the very function of `bloomsday_common::live::lease` that
//! the program runs.
//!
//! The bound, stated: two servers, each adds an ID once an epoch, four seconds in steps of one, a
//! lease of two, clocks that differ by five, or one kill. One step: a follower's round, once a
//! second. Assumed: own clocks, by which a holder stops and a candidate waits, run equally fast.

use std::collections::BTreeSet;
use std::time::Duration;

use bloomsday_common::live::lease::{Candidate, Claim, Lease, claim};
use bloomsday_common::protocol::RecordState;
use jiff::Timestamp;
use stateright::{Model, Property};

/// The length of a lease.
const LENGTH: u8 = 2;
const NODES: [&str; 2] = ["0a", "0b"];

/// What is explored.
#[derive(Clone)]
struct Bound {
    /// The last second.
    end: u8,
    /// By how much each server's time of day is ahead.
    skew: [i64; 2],
    kills: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    lease: Option<Lease>,
    servers: [Server; 2],
    /// What is acknowledged, by epoch: an ID that heard "new".
    new: BTreeSet<u64>,
    /// Which of them the store has, and the follower.
    shipped: BTreeSet<u64>,
    followed: BTreeSet<u64>,
    kills: u8,
    /// For how many seconds without a break two servers could answer "new".
    two: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    is_down: bool,
    /// The epoch in which it has the lease, as far as it knows.
    own_epoch: Option<u64>,
    /// Until when, by its own clock.
    until: u8,
    /// What it read, and when: a write that is conditioned on it.
    read: Option<(Option<Lease>, u8)>,
    /// When it looks again.
    next_read: u8,
    /// Since when it has read the same record.
    seen: Option<(Option<Lease>, u8)>,
    /// What is in its log and not yet in the store.
    unshipped: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Wait,
    Read(usize),
    /// The write reaches the store; the answer comes, or is lost.
    Write(usize, bool),
    Add(usize),
    Ship(usize),
    Kill(usize),
    Start(usize),
}

impl World {
    fn decides(&self, server: usize) -> bool {
        let Server { is_down, own_epoch, until, .. } = &self.servers[server];
        !is_down && own_epoch.is_some() && self.now < *until
    }

    fn record(&self) -> RecordState<Lease> {
        self.lease.clone().map_or(RecordState::Absent, RecordState::Found)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

impl Model for Bound {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.end {
            steps.push(Step::Wait);
        }
        for (i, server) in world.servers.iter().enumerate() {
            if server.is_down {
                steps.push(Step::Start(i));
                continue;
            }
            match server.read {
                // A suspended server goes on with its write later: any number of waits may be
                // between.
                Some(_) => steps.extend([Step::Write(i, true), Step::Write(i, false)]),
                // A lease is renewed a few times in its length, not all the time.
                None if server.next_read <= world.now => steps.push(Step::Read(i)),
                None => {}
            }
            let epoch = server.own_epoch.unwrap_or(0);
            if world.decides(i) && !world.new.contains(&epoch) {
                steps.push(Step::Add(i));
            }
            if !server.unshipped.is_empty() {
                steps.push(Step::Ship(i));
            }
            if world.kills < self.kills {
                steps.push(Step::Kill(i));
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let now = world.now;
        match step {
            Step::Wait => {
                world.now += 1;
                // The follower reads what was there before this second.
                world.followed.clone_from(&world.shipped);
                // A second in which both decided from its beginning to its end.
                let both = |world: &World| world.decides(0) && world.decides(1);
                let ends = World { now: now + 1, ..before.clone() };
                world.two = if both(before) && both(&ends) { world.two + 1 } else { 0 };
            }
            Step::Read(i) => {
                let lease = world.lease.clone();
                let server = &mut world.servers[i];
                if server.seen.as_ref().is_none_or(|(seen, _)| *seen != lease) {
                    server.seen = Some((lease.clone(), now));
                }
                (server.read, server.next_read) = (Some((lease, now)), now + 1);
            }
            Step::Write(i, is_answered) => {
                let record = world.record();
                let server = &mut world.servers[i];
                let (read, began) = server.read.take()?;
                let since = server.seen.as_ref().map_or(began, |(_, since)| *since);
                let unchanged = Duration::from_secs(u64::from(began - since));
                let by = Candidate { node: NODES[i], own_epoch: server.own_epoch, unchanged };
                let was_read = read.clone().map_or(RecordState::Absent, RecordState::Found);
                // Decided by what was read, at that time; the write may come much later.
                let wall = at(i64::from(began) + self.skew[i]);
                match claim(&was_read, by, wall) {
                    Claim::Wait(_) => server.own_epoch = None,
                    Claim::Write { epoch } => {
                        if record != was_read {
                            // The condition is not met: somebody else wrote.
                            server.own_epoch = None;
                        } else {
                            let until = at(i64::from(began) + self.skew[i] + i64::from(LENGTH));
                            let (decider, node) = (format!("host-{i}"), NODES[i].to_owned());
                            let seconds = u64::from(LENGTH);
                            world.lease = Some(Lease { decider, node, epoch, until, seconds });
                            if let Some(before) = &read
                                && (epoch < before.epoch
                                    || (epoch == before.epoch && before.node != NODES[i]))
                            {
                                world.broken = Some("an epoch has two holders");
                            }
                            if is_answered {
                                (server.own_epoch, server.until) = (Some(epoch), began + LENGTH);
                            }
                        }
                    }
                }
            }
            Step::Add(i) => {
                let epoch = world.servers[i].own_epoch?;
                world.new.insert(epoch);
                world.servers[i].unshipped.insert(epoch);
            }
            Step::Ship(i) => {
                let ids = std::mem::take(&mut world.servers[i].unshipped);
                world.shipped.extend(ids);
            }
            Step::Kill(i) => {
                world.kills += 1;
                let unshipped = std::mem::take(&mut world.servers[i].unshipped);
                // Its log is on its disk.
                world.servers[i] = Server { is_down: true, unshipped, ..Server::default() };
            }
            Step::Start(i) => world.servers[i].is_down = false,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no epoch has two holders", |_, world: &World| world.broken.is_none()),
            Property::always("two decide for at most the length of a lease", |_, world: &World| {
                world.two <= LENGTH
            }),
            Property::always(
                "what was acknowledged is in a log or the store",
                |_, world: &World| {
                    let in_logs = world.servers.iter().flat_map(|server| &server.unshipped);
                    let kept: BTreeSet<u64> = in_logs.chain(&world.shipped).copied().collect();
                    world.new == kept && world.followed.is_subset(&world.shipped)
                },
            ),
            Property::sometimes("a successor decides", |_, world: &World| {
                world.servers[1].own_epoch.is_some_and(|epoch| epoch > 1) && world.decides(1)
            }),
            Property::sometimes("the first one decides again", |_, world: &World| {
                world.decides(0) && world.servers[0].own_epoch.is_some_and(|epoch| epoch > 2)
            }),
            Property::sometimes("the follower has what both added", |_, world: &World| {
                world.followed.len() >= 2
            }),
        ]
    }
}

fn explore(bound: Bound) {
    let name = format!("{:?} s apart, {} kills, to second {}", bound.skew, bound.kills, bound.end);
    crate::explore(bound, &name);
}

#[test]
fn two_servers_never_decide_together_for_longer_than_a_lease() {
    explore(Bound { end: 4, skew: [0, 0], kills: 1 });
    explore(Bound { end: 4, skew: [0, 5], kills: 0 });
    explore(Bound { end: 4, skew: [5, 0], kills: 0 });
}
