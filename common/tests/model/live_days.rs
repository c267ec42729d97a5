//! A model of one ID in a live filter over days, explored exhaustively: it is added and deleted,
//! days are built with or without it, the pointer moves forward and back, a server swaps filters at
//! its own pace, is killed and starts again. It is the one that decides, or a follower, which never
//! meet but in the log. What a filter does to the ID, and when it has to come back, is decided by
//! the very functions of `bloomsday_common::live::absorb` that the program runs, which segments
//! prune deletes by that of `bloomsday_common::protocol`, and which change of the ID counts in a
//! day that is built from the live set by the order of `bloomsday_common::live::segment`.
//!
//! The bounds, stated: one ID, because IDs do not touch each other; a window of three days; two
//! adds, a deletion, two or three blobs of any day with any content (a build may lose the ID, a
//! false positive may have it), a kill: not all of them in one exploration. One step: a read of the
//! log, a swap, one ID of the comparison with a day.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::live::absorb::{Absorbed, absorb, comes_back, day_number};
use bloomsday_common::live::segment::ChangeOrder;
use bloomsday_common::pointer::Pointer;
use bloomsday_common::protocol::{RecordState, References, segment_days_to_delete};
use stateright::{Model, Property};

/// For how many days a sighting counts.
const LIVE_DAYS: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Decider,
    Follower,
}

/// What is explored.
#[derive(Clone, Debug)]
struct Bound {
    role: Role,
    /// Whether a follower may hear of a change from an engine before it is in the store.
    engine: bool,
    last_day: u8,
    adds: u8,
    deletions: u8,
    blobs: usize,
    kills: u8,
    /// Days are built from the segments of so many days (`--input live:`, or of what `compact`
    /// makes of them), and not with any content.
    live_window: Option<u8>,
}

impl Bound {
    /// Whether what a server changes goes to the store by a step of its own.
    fn ships(&self) -> bool {
        self.role == Role::Follower || self.live_window.is_some()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    today: u8,
    /// The decider's log, which is on its disk.
    log: Vec<Change>,
    /// How much of it is in the store.
    shipped: usize,
    /// The segments of days before this one are deleted.
    pruned: u8,
    /// What was built, and pointed at as it was.
    blobs: Vec<Blob>,
    pointer: Option<Blob>,
    server: Server,
    kills: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Change {
    day: u8,
    is_deletion: bool,
}

/// A blob, told apart by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blob {
    number: u8,
    day: u8,
    has_it: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    live: Live,
    /// How many changes of the log it knows.
    known: usize,
    loaded: Option<Blob>,
    /// With which filter the live IDs were compared last.
    absorbed: Option<Blob>,
    phase: Phase,
    /// The earliest day whose filter took the ID over, since it was added last.
    taken_over: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Live {
    #[default]
    Absent,
    Seen(u8),
    Hidden,
}

/// Where a server is between one filter and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    BroughtBack(Blob),
    Swapped(Blob),
    /// The comparison found that the filter has the ID, which was seen on this day.
    Compared(Blob, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    NextDay,
    Add,
    Delete,
    Ship,
    Read,
    Prune,
    Build { day: u8, has_it: bool },
    Point(Blob),
    Go,
    Kill,
}

fn date(day: u8) -> Day {
    "2026-11-20".parse::<Day>().unwrap().plus(u32::from(day))
}

impl Blob {
    fn name(self) -> (Day, Digest) {
        (date(self.day), Digest::new([self.number; 32]))
    }

    fn absorbs(self, seen: u8) -> Absorbed {
        absorb(day_number(date(seen)), date(self.day), self.has_it)
    }
}

impl Server {
    fn contains(&self, today: u8) -> bool {
        match self.live {
            Live::Hidden => false,
            Live::Seen(day) if is_in_window(day, today) => true,
            _ => self.loaded.is_some_and(|blob| blob.has_it),
        }
    }

    fn apply(&mut self, change: Change) {
        self.known += 1;
        let seen = match self.live {
            Live::Seen(before) => before.max(change.day),
            _ => change.day,
        };
        self.live = if change.is_deletion { Live::Hidden } else { Live::Seen(seen) };
        self.taken_over = None;
    }

    /// Reads changes again before this filter goes live.
    fn bring_back(&mut self, changes: &[Change], today: u8, next: Blob) {
        if !comes_back(self.absorbed.map(Blob::name), next.name()) {
            return;
        }
        for change in changes.iter().filter(|change| !change.is_deletion) {
            let stays = next.absorbs(change.day) != Absorbed::Dropped;
            if self.live != Live::Hidden && is_in_window(change.day, today) && stays {
                let before = if let Live::Seen(before) = self.live { before } else { 0 };
                (self.live, self.taken_over) = (Live::Seen(before.max(change.day)), None);
            }
        }
    }
}

fn is_in_window(seen: u8, today: u8) -> bool {
    today < seen + LIVE_DAYS
}

impl World {
    /// How much of the log can be read again: the decider has it, a follower has the store.
    fn stored(&self, role: Role) -> usize {
        if role == Role::Decider { self.log.len() } else { self.shipped }
    }

    fn readable(&self, role: Role) -> Vec<Change> {
        let is_there = |change: &Change| role == Role::Decider || change.day >= self.pruned;
        self.log[..self.stored(role)].iter().copied().filter(is_there).collect()
    }

    /// Whether a day that is built now from the segments of a window, which have other IDs, too,
    /// has this one. None before the day is over and all of it is in the store: a schedule waits
    /// for that, and other builds warn.
    fn live_content(&self, day: u8, window: u8) -> Option<bool> {
        let waits = self.log[self.shipped..].iter().any(|change| change.day <= day);
        if day >= self.today || waits {
            return None;
        }
        let first = (day + 1).saturating_sub(window).max(self.pruned);
        let stored = self.log[..self.shipped].iter().enumerate();
        let found = stored.filter(|(_, change)| (first..=day).contains(&change.day));
        let order = |seq: usize, change: &Change| ChangeOrder {
            ms: day_number(date(change.day)) * 86_400_000,
            node: 1,
            epoch: 1,
            seq: seq as u64,
        };
        let newest = found.max_by_key(|(seq, change)| order(*seq, change));
        Some(newest.is_some_and(|(_, change)| !change.is_deletion))
    }

    /// Up to which day prune deletes segments now, that one not included.
    fn due(&self) -> u8 {
        let Some(blob) = self.pointer else { return 0 };
        let ((day, digest), filter) = (blob.name(), "rt".parse().unwrap());
        let pointer = RecordState::Found(Pointer::to(BlobKey { filter, day, digest }));
        let references = References::of(&RecordState::Absent, [(day, &pointer)]);
        let days: Vec<Day> = (0..=self.today).map(date).collect();
        let (today, keep) = (date(self.today), u32::from(LIVE_DAYS));
        segment_days_to_delete(&days, today, keep, &references).len() as u8
    }

    /// The filter from which the server answers, and the last change that it knows.
    fn answers_from(&self) -> Option<(Blob, Change)> {
        let last = self.server.known.checked_sub(1)?;
        Some((self.server.loaded?, self.log[last]))
    }

    fn go(&mut self, role: Role) -> Option<()> {
        let (changes, today) = (self.readable(role), self.today);
        // What came by an engine and is not in the store could not be read again: it is not
        // dropped.
        let ahead = self.log[..self.server.known].get(self.stored(role)).map(|change| change.day);
        let (pointer, server) = (self.pointer, &mut self.server);
        server.phase = match server.phase {
            Phase::Idle => {
                let next = pointer.filter(|next| server.loaded != Some(*next))?;
                server.bring_back(&changes, today, next);
                Phase::BroughtBack(next)
            }
            Phase::BroughtBack(next) => {
                server.loaded = Some(next);
                Phase::Swapped(next)
            }
            Phase::Swapped(blob) => match server.live {
                Live::Seen(seen)
                    if blob.absorbs(seen) == Absorbed::Dropped
                        && ahead.is_none_or(|ahead| seen < ahead) =>
                {
                    Phase::Compared(blob, seen)
                }
                live => {
                    if live == Live::Absent && blob.has_it {
                        server.taken_over = server.taken_over.map(|day| day.min(blob.day));
                    }
                    server.absorbed = Some(blob);
                    Phase::Idle
                }
            },
            Phase::Compared(blob, seen) => {
                // One that was seen again since then stays.
                if server.live == Live::Seen(seen) {
                    server.live = Live::Absent;
                    let before = server.taken_over.unwrap_or(blob.day);
                    server.taken_over = Some(before.min(blob.day));
                }
                server.absorbed = Some(blob);
                Phase::Idle
            }
        };
        Some(())
    }

    /// A server starts: the decider reads its log, a follower what the store has of the last days.
    fn start(&mut self, role: Role) {
        let mut server = Server::default();
        for change in self.log[..self.stored(role)].iter().copied() {
            if role == Role::Decider || is_in_window(change.day, self.today) {
                server.apply(change);
            } else {
                server.known += 1;
            }
        }
        self.server = server;
    }
}

impl Model for Bound {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.today < self.last_day {
            steps.push(Step::NextDay);
        }
        let deletions = world.log.iter().filter(|change| change.is_deletion).count();
        if world.log.len() - deletions < usize::from(self.adds) {
            steps.push(Step::Add);
        }
        if deletions < usize::from(self.deletions) && !world.log.is_empty() {
            steps.push(Step::Delete);
        }
        if self.ships() && world.shipped < world.log.len() {
            steps.push(Step::Ship);
        }
        if self.role == Role::Follower {
            let told = if self.engine { world.log.len() } else { world.shipped };
            if world.server.known < told {
                steps.push(Step::Read);
            }
        }
        if self.ships() && world.due() > world.pruned {
            steps.push(Step::Prune);
        }
        if world.blobs.len() < self.blobs {
            for day in 0..=world.today {
                let contents = match self.live_window {
                    None => vec![true, false],
                    Some(window) => world.live_content(day, window).into_iter().collect(),
                };
                steps.extend(contents.iter().map(|has_it| Step::Build { day, has_it: *has_it }));
            }
        }
        steps.extend(world.blobs.iter().map(|blob| Step::Point(*blob)));
        steps.push(Step::Go);
        if world.kills < self.kills {
            steps.push(Step::Kill);
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let day = world.today;
        match step {
            Step::NextDay => world.today += 1,
            Step::Add | Step::Delete => {
                let change = Change { day, is_deletion: step == Step::Delete };
                world.log.push(change);
                if self.role == Role::Decider {
                    world.server.apply(change);
                }
            }
            Step::Ship => world.shipped += 1,
            Step::Prune => world.pruned = world.due(),
            Step::Read => {
                let known = world.server.known;
                let change = world.log[known];
                if known < world.shipped && change.day < world.pruned {
                    world.server.known += 1;
                } else {
                    world.server.apply(change);
                }
            }
            Step::Build { day, has_it } => {
                let number = world.blobs.len() as u8;
                let blob = Blob { number, day, has_it };
                world.blobs.push(blob);
                world.pointer = Some(blob);
            }
            Step::Point(blob) if world.pointer == Some(blob) => return None,
            Step::Point(blob) => world.pointer = Some(blob),
            Step::Go => world.go(self.role)?,
            Step::Kill => {
                world.kills += 1;
                world.start(self.role);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let added = |bound: &Bound, world: &World| {
            let Some((blob, last)) = world.answers_from() else { return true };
            // A filter of a later day need not have what an earlier one took over.
            // One whose window is as long as the live set's has it, unless it was deleted since.
            let is_deleted =
                world.log[world.server.known..].iter().any(|change| change.is_deletion);
            let has_all = bound.live_window.is_some_and(|window| window >= LIVE_DAYS);
            let has_all = has_all && !is_deleted;
            let is_over = !has_all && world.server.taken_over.is_some_and(|day| day < blob.day);
            let counts = !last.is_deletion && is_in_window(last.day, world.today);
            !counts || is_over || world.server.contains(world.today)
        };
        let deleted = |_: &Bound, world: &World| {
            let Some((_, last)) = world.answers_from() else { return true };
            let is_known = is_in_window(last.day, world.today);
            !(last.is_deletion && is_known && world.server.contains(world.today))
        };
        let rolled_back = |_: &Bound, world: &World| {
            let Server { live, phase, absorbed, .. } = world.server;
            let later = |blob: Blob| absorbed.is_some_and(|absorbed| absorbed.day > blob.day);
            matches!((live, phase), (Live::Seen(_), Phase::BroughtBack(next)) if later(next))
        };
        let taken_over = |_: &Bound, world: &World| {
            world.server.taken_over.is_some() && world.server.live == Live::Absent
        };
        vec![
            Property::always("an added ID is a hit until a filter of its day takes it over", added),
            Property::always("a deleted ID is a miss until it is added again", deleted),
            Property::sometimes("a day takes it over", taken_over),
            Property::sometimes("it comes back before an earlier filter", rolled_back),
        ]
    }
}

fn explore(bound: Bound) {
    let name = format!("{bound:?}");
    crate::explore(bound, &name);
}

#[test]
fn over_days_rollbacks_and_restarts_an_added_id_is_a_hit_and_a_deleted_one_is_none() {
    for role in [Role::Decider, Role::Follower] {
        let bound = Bound {
            role,
            engine: false,
            last_day: 3,
            adds: 1,
            deletions: 1,
            blobs: 2,
            kills: 1,
            live_window: None,
        };
        explore(bound.clone());
        explore(Bound { last_day: 2, adds: 2, deletions: 1, ..bound.clone() });
        explore(Bound { last_day: 2, deletions: 0, blobs: 3, ..bound.clone() });
        explore(Bound { last_day: 2, engine: true, ..bound.clone() });
    }
}

#[test]
fn days_that_are_built_from_the_live_set_have_what_it_has() {
    for role in [Role::Decider, Role::Follower] {
        for window in [1, LIVE_DAYS] {
            let bound = Bound {
                role,
                engine: false,
                last_day: 3,
                adds: 2,
                deletions: 1,
                blobs: 2,
                kills: 0,
                live_window: Some(window),
            };
            explore(Bound { adds: 1, kills: 1, ..bound.clone() });
            explore(Bound { last_day: 2, blobs: 3, ..bound.clone() });
            explore(bound);
        }
    }
}
