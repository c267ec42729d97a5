//! The world: what the store holds, where everybody stands, and what must be so in every state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::{BlobKey, DeltaKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pin, Pointer};
use bloomsday_common::protocol::{RecordState, References, Retention};
use jiff::Timestamp;

use super::actors::{Builder, Pruner, Server};
use super::operator::Operator;

/// Pointers are kept for the current day and the newest; blobs for one day more.
pub(crate) const RETENTION: Retention = Retention { keep_days: 0, max_age_days: 0 };
/// Servers follow today's pointer or yesterday's.
pub(crate) const MAX_AGE_DAYS: u32 = 1;

/// How much of everything is explored.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) days: u8,
    pub(crate) builds: [u8; 2],
    pub(crate) operator_acts: u8,
    pub(crate) prunes: u8,
    pub(crate) ambiguous: u8,
    /// Whether builds publish deltas, and how many of those the store damages.
    pub(crate) deltas: Option<u8>,
    pub(crate) servers: usize,
    /// Past this many the exploration gives up, and the test fails.
    pub(crate) most_states: usize,
}

/// A blob: the day it is of, and which set of IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct B(pub(crate) u8, pub(crate) u8);

/// A pointer as it lies in the store. The stamp distinguishes writes of the same blob, as the time
/// and the writer do in a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Record {
    pub(crate) blob: B,
    pub(crate) previous: Option<B>,
    pub(crate) by: Option<By>,
    pub(crate) stamp: u8,
    /// When it says that it was written.
    pub(crate) written: u8,
}

/// A record of the history, but for its outcome, which may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Event {
    pub(crate) day: u8,
    pub(crate) blob: B,
    pub(crate) previous: Option<B>,
    pub(crate) by: By,
    pub(crate) at: u8,
    pub(crate) who: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum By {
    Build,
    Repoint,
}

/// A pin as it lies in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pinned {
    pub(crate) blob: B,
    pub(crate) stamp: u8,
}

/// A delta as it lies in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Delta {
    pub(crate) uploaded: u8,
    pub(crate) is_sound: bool,
}

/// One request of somebody, or the passing of a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    NextDay,
    StartBuild {
        builder: usize,
        day: u8,
        ids: u8,
    },
    Builder {
        builder: usize,
        write: Write,
    },
    StopBuilder {
        builder: usize,
    },
    Repoint {
        day: u8,
        to: B,
    },
    HandEdit {
        day: u8,
        to: B,
    },
    EditBlob {
        day: u8,
        to: B,
    },
    PutBack {
        record: Record,
    },
    Remove {
        day: u8,
    },
    PinTo {
        to: B,
    },
    Unpin,
    Operator {
        write: Write,
    },
    StopOperator,
    StartPrune,
    Pruner,
    StopPruner,
    Poll {
        server: usize,
    },
    /// The bytes of a delta change in the store.
    Damage {
        delta: DeltaBetween,
    },
}

/// How a conditional write goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Write {
    /// As it should.
    Clear,
    /// It fails without having written.
    Lost,
    /// It succeeds and reports an error.
    Ambiguous,
}

/// What the last step met. All of it must come up, or the model explores less than it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Met {
    pub(crate) superseded: bool,
    /// Another build with the same blob was faster.
    pub(crate) lost_to_the_same: bool,
    pub(crate) rollback_stood: bool,
    pub(crate) removal_stood: bool,
    pub(crate) restore_stood: bool,
    pub(crate) mended: bool,
    pub(crate) deleted: bool,
    pub(crate) uploaded_again: bool,
    pub(crate) taken_back: bool,
    pub(crate) ambiguous: bool,
    pub(crate) loaded_by_delta: bool,
    pub(crate) delta_failed: bool,
    pub(crate) delta_deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) today: u8,
    pub(crate) pointers: BTreeMap<u8, Record>,
    pub(crate) pin: Option<Pinned>,
    /// Each blob and the day of its upload.
    pub(crate) blobs: BTreeMap<B, u8>,
    pub(crate) deltas: BTreeMap<DeltaBetween, Delta>,
    /// Whether builds publish deltas.
    pub(crate) makes_deltas: bool,
    pub(crate) damages_left: u8,
    /// The events in the history, each with its last recorded outcome.
    pub(crate) history: BTreeMap<Event, Outcome>,
    /// How often each day's pointer was written: the clock of its records.
    pub(crate) written: BTreeMap<u8, u8>,
    /// Records that builds have left in pointers, which an operator may have saved.
    pub(crate) earlier: BTreeSet<Record>,
    /// Days that an operator has done anything to.
    pub(crate) touched: BTreeSet<u8>,
    pub(crate) builders: [Builder; 2],
    pub(crate) operator: Operator,
    pub(crate) pruner: Pruner,
    pub(crate) servers: Vec<Server>,
    pub(crate) ambiguous_left: u8,
    /// Days that an operator took away from a blob, and has not given back.
    pub(crate) taken_away: BTreeSet<(u8, B)>,
    /// The first promise that a step broke.
    pub(crate) broken: Option<&'static str>,
    pub(crate) met: Met,
}

impl World {
    pub(crate) fn new(bound: &Bound) -> World {
        World {
            today: 0,
            pointers: BTreeMap::new(),
            pin: None,
            blobs: BTreeMap::new(),
            deltas: BTreeMap::new(),
            makes_deltas: bound.deltas.is_some(),
            damages_left: bound.deltas.unwrap_or_default(),
            history: BTreeMap::new(),
            written: BTreeMap::new(),
            earlier: BTreeSet::new(),
            touched: BTreeSet::new(),
            builders: bound.builds.map(Builder::new),
            operator: Operator::new(bound.operator_acts),
            pruner: Pruner::new(bound.prunes),
            servers: vec![Server::default(); bound.servers],
            ambiguous_left: bound.ambiguous,
            taken_away: BTreeSet::new(),
            broken: None,
            met: Met::default(),
        }
    }

    pub(crate) fn actions(&self, bound: &Bound, actions: &mut Vec<Action>) {
        // Nobody is stopped for a full day between a read and the write after it.
        let waiting = self.builders.iter().any(Builder::has_looked)
            || self.operator.has_looked()
            || self.pruner.is_running();
        if self.today + 1 < bound.days && !waiting {
            actions.push(Action::NextDay);
        }
        for (builder, state) in self.builders.iter().enumerate() {
            state.actions(builder, self, actions);
        }
        self.operator.actions(self, actions);
        self.pruner.actions(actions);
        for server in 0..self.servers.len() {
            if self.after_poll(server) != self.servers[server] {
                actions.push(Action::Poll { server });
            }
        }
        if self.damages_left > 0 {
            let sound = self.deltas.iter().filter(|(_, delta)| delta.is_sound);
            actions.extend(sound.map(|(delta, _)| Action::Damage { delta: *delta }));
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        // Of the last step only, so that the way to a state does not multiply the states.
        self.met = Met::default();
        match action {
            Action::NextDay => {
                self.today += 1;
                // Of a day that is over prune may have dropped the pointer: without one it forgets.
                let (pointers, today) = (&self.pointers, self.today);
                self.taken_away.retain(|(day, _)| *day == today || pointers.contains_key(day));
            }
            Action::StartBuild { builder, day, ids } => self.start_build(builder, B(day, ids)),
            Action::Builder { builder, write } => self.builder(builder, write),
            Action::StopBuilder { builder } => self.builders[builder].stop(),
            Action::Repoint { day, to } => self.start_repoint(day, to),
            Action::HandEdit { day, to } => self.hand_edit(day, to),
            Action::EditBlob { day, to } => self.edit_blob(day, to),
            Action::PutBack { record } => self.put_back(record),
            Action::Remove { day } => self.remove(day),
            Action::PinTo { to } => self.start_pin(to),
            Action::Unpin => self.unpin(),
            Action::Operator { write } => self.operator(write),
            Action::StopOperator => self.operator.stop(),
            Action::StartPrune => self.start_prune(),
            Action::Pruner => self.pruner(),
            Action::StopPruner => self.pruner.stop(),
            Action::Poll { server } => self.poll(server),
            Action::Damage { delta } => {
                self.damages_left -= 1;
                if let Some(delta) = self.deltas.get_mut(&delta) {
                    delta.is_sound = false;
                }
            }
        }
    }

    // ---- what must be so ---------------------------------------------------------------------

    pub(crate) fn built_pointers_name_blobs(&self) -> bool {
        let mut built = self.pointers.values().filter(|record| record.by == Some(By::Build));
        built.all(|record| self.blobs.contains_key(&record.blob))
    }

    /// While nobody is about to look once more, what repoint and pin wrote is there.
    pub(crate) fn operators_targets_are_there(&self) -> bool {
        if !self.operator.is_done_looking() {
            return true;
        }
        let repointed = self.pointers.values().filter(|record| record.by == Some(By::Repoint));
        let targets = repointed.map(|record| record.blob).chain(self.pin.map(|pin| pin.blob));
        let mut targets = targets.filter(|blob| !self.operator.left_unchecked(*blob));
        targets.all(|blob| self.blobs.contains_key(&blob))
    }

    pub(crate) fn breaks(&mut self, promise: &'static str) {
        self.broken.get_or_insert(promise);
    }

    // ---- the store's side --------------------------------------------------------------------

    pub(crate) fn now(&self) -> Timestamp {
        time(self.today)
    }

    /// What the pin and the pointers, but for those of the days `without`, name.
    pub(crate) fn references(&self, without: &[Day]) -> References {
        let pin = match self.pin {
            Some(pin) => RecordState::Found(pin_of(pin)),
            None => RecordState::Absent,
        };
        let pointers: Vec<(Day, RecordState<Pointer>)> = self
            .pointers
            .iter()
            .map(|(day, record)| (day_of(*day), state_of(Some(record))))
            .filter(|(day, _)| !without.contains(day))
            .collect();
        References::of(&pin, pointers.iter().map(|(day, state)| (*day, state)))
    }

    /// Changes a pointer.
    pub(crate) fn set(&mut self, day: u8, record: Option<Record>) {
        *self.written.entry(day).or_default() += 1;
        match record {
            Some(record) => {
                if record.by == Some(By::Build) && record.blob.0 == day {
                    self.earlier.insert(record);
                }
                self.pointers.insert(day, record);
            }
            None => drop(self.pointers.remove(&day)),
        }
    }

    /// The time of an act on a day that begins now: after the last write, before the next.
    pub(crate) fn begins(&self, day: u8) -> u8 {
        2 * self.written.get(&day).copied().unwrap_or_default() + 1
    }

    /// The time of a write to a day's pointer that is made now.
    pub(crate) fn writes(&self, day: u8) -> u8 {
        self.begins(day) + 1
    }

    /// The history as the protocol reads it.
    pub(crate) fn acts(&self) -> Vec<HistoryEvent> {
        let events = self.history.iter().map(|(event, outcome)| HistoryEvent {
            day: Some(day_of(event.day)),
            blob: Some(key(event.blob)),
            previous: event.previous.map(key),
            ..HistoryEvent::new(kind_of(event.by), *outcome, moment(event.at), "")
        });
        events.collect()
    }
}

fn kind_of(by: By) -> EventKind {
    match by {
        By::Build => EventKind::Build,
        By::Repoint => EventKind::Repoint,
    }
}

fn moment(at: u8) -> Timestamp {
    Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(i64::from(at))
}

pub(crate) fn time(day: u8) -> Timestamp {
    day_of(day).end()
}

pub(crate) fn day_of(day: u8) -> Day {
    static FIRST: LazyLock<Day> = LazyLock::new(|| "2026-11-19".parse().unwrap());
    FIRST.plus(u32::from(day))
}

pub(crate) fn key(B(day, ids): B) -> BlobKey {
    static FILTER: LazyLock<FilterName> = LazyLock::new(|| "rt".parse().unwrap());
    BlobKey { filter: FILTER.clone(), day: day_of(day), digest: Digest::new([ids; 32]) }
}

/// A delta, by the sets of IDs of its two blobs, the smaller first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeltaBetween(pub(crate) u8, pub(crate) u8);

impl DeltaBetween {
    pub(crate) fn key(self) -> DeltaKey {
        DeltaKey::between(&key(B(0, self.0)), &key(B(0, self.1)))
    }
}

pub(crate) fn state_of(record: Option<&Record>) -> RecordState<Pointer> {
    let Some(record) = record else { return RecordState::Absent };
    let (kind, previous) = (record.by.map(kind_of), record.previous.map(key));
    let published_at = record.by.map(|_| moment(record.written));
    RecordState::Found(Pointer { previous, kind, published_at, ..Pointer::to(key(record.blob)) })
}

pub(crate) fn pin_of(pin: Pinned) -> Pin {
    Pin { blob: key(pin.blob), until: None, pinned_at: None, pinned_by: None, reason: None }
}
