//! The programs that act: each a small state machine whose every step is one request to the store.

use std::collections::BTreeMap;

use bloomsday_common::pointer::Outcome;
use bloomsday_common::protocol::{self, AmbiguousWrite, FollowStep, Past, PublishDecision, Route};

use super::world::{
    Action, B, By, Delta, DeltaBetween, Event, MAX_AGE_DAYS, RETENTION, Record, World, Write,
    day_of, key, pin_of, state_of, time,
};

// ---- builders
// ------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Builder {
    left: u8,
    /// When its build began.
    began: u8,
    at: Building,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Building {
    Idle,
    /// The pointer was read before anything else.
    Started {
        blob: B,
        start: Option<Record>,
    },
    /// The blob is complete and verified.
    Uploaded {
        blob: B,
        start: Option<Record>,
    },
    /// Its deltas are published, as far as they could be.
    Compared {
        blob: B,
        start: Option<Record>,
    },
    /// The protocol decided to write the pointer; the event is recorded before the write.
    Decided {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    Recorded {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// The blob was checked and, if it was old, uploaded again. One of an old day waits for a prune
    /// that may have looked at it before that, and is checked once more.
    Kept {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// The blob was checked just now.
    Looked {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// The write ended with an error.
    AmbiguousWrite {
        new: Record,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// Somebody else wrote first; the pointer is read again.
    Lost {
        new: Record,
    },
    /// Only the outcome is still to be recorded in the history.
    Ended {
        event: Event,
        outcome: Outcome,
    },
}

impl Builder {
    pub(crate) fn new(left: u8) -> Builder {
        Builder { left, began: 0, at: Building::Idle }
    }

    pub(crate) fn has_looked(&self) -> bool {
        matches!(
            self.at,
            Building::Kept { .. } | Building::Looked { .. } | Building::AmbiguousWrite { .. }
        )
    }

    pub(crate) fn stop(&mut self) {
        self.at = Building::Idle;
    }

    pub(crate) fn actions(&self, builder: usize, world: &World, actions: &mut Vec<Action>) {
        match self.at {
            Building::Idle if self.left == 0 => {}
            Building::Idle => {
                // The second builder has the same IDs as the first, or mended ones.
                for day in 0..=world.today {
                    let ids = 0..=builder as u8;
                    actions.extend(ids.map(|ids| Action::StartBuild { builder, day, ids }));
                }
            }
            Building::Uploaded { .. } if world.makes_deltas => {
                let ways = [Write::Clear, Write::Lost];
                actions.extend(ways.map(|write| Action::Builder { builder, write }));
                actions.push(Action::StopBuilder { builder });
            }
            Building::Kept { .. } if world.pruner.is_running() => {
                actions.push(Action::StopBuilder { builder });
            }
            Building::Looked { .. } => {
                actions.extend(ways(world).map(|write| Action::Builder { builder, write }));
                actions.push(Action::StopBuilder { builder });
            }
            _ => {
                actions.push(Action::Builder { builder, write: Write::Clear });
                actions.push(Action::StopBuilder { builder });
            }
        }
    }
}

/// The ways in which a conditional write may go now.
pub(crate) fn ways(world: &World) -> impl Iterator<Item = Write> {
    let unclear = [Write::Lost, Write::Ambiguous].into_iter().filter(|_| world.ambiguous_left > 0);
    [Write::Clear].into_iter().chain(unclear)
}

impl World {
    /// Whether a build is about to replace this very record of a day, or its absence.
    pub(crate) fn sets_out_from(&self, day: u8, record: Option<Record>) -> bool {
        self.builders.iter().any(|builder| match &builder.at {
            Building::Decided { blob, now, .. }
            | Building::Recorded { blob, now, .. }
            | Building::Kept { blob, now, .. }
            | Building::Looked { blob, now, .. }
            | Building::AmbiguousWrite { new: Record { blob, .. }, now, .. } => {
                blob.0 == day && *now == record
            }
            _ => false,
        })
    }

    pub(crate) fn start_build(&mut self, builder: usize, blob: B) {
        let start = self.pointers.get(&blob.0).copied();
        let (left, began) = (self.builders[builder].left - 1, self.begins(blob.0));
        self.builders[builder] = Builder { left, began, at: Building::Started { blob, start } };
    }

    /// The event that a build records before it writes the pointer.
    fn event(&self, builder: usize, blob: B, previous: Option<B>) -> Event {
        let Builder { left, began, .. } = self.builders[builder];
        Event {
            day: blob.0,
            blob,
            previous,
            by: By::Build,
            at: began,
            who: 8 * builder as u8 + left,
        }
    }

    pub(crate) fn builder(&mut self, builder: usize, write: Write) {
        let at = self.builders[builder].at.clone();
        self.builders[builder].at = match at {
            Building::Idle => unreachable!("an idle builder has no step"),
            Building::Started { blob, start } => {
                self.blobs.entry(blob).or_insert(self.today);
                Building::Uploaded { blob, start }
            }
            Building::Uploaded { blob, start } if self.makes_deltas => {
                if write == Write::Clear {
                    self.publish_delta(blob);
                }
                Building::Compared { blob, start }
            }
            Building::Uploaded { blob, start } | Building::Compared { blob, start } => {
                self.decide(builder, blob, start)
            }
            Building::Decided { blob, start, now } => {
                let event = self.event(builder, blob, now.map(|record| record.blob));
                self.history.insert(event, Outcome::Pending);
                Building::Recorded { blob, start, now }
            }
            Building::Recorded { blob, start, now } => {
                self.upload_if_old(blob);
                if protocol::may_be_old(day_of(blob.0), day_of(self.today), RETENTION) {
                    Building::Kept { blob, start, now }
                } else {
                    Building::Looked { blob, start, now }
                }
            }
            Building::Kept { blob, start, now } => {
                self.upload_if_old(blob);
                Building::Looked { blob, start, now }
            }
            Building::Looked { blob, start, now } => {
                let (previous, by) = (now.map(|record| record.blob), Some(By::Build));
                let stamp = 8 * builder as u8 + self.builders[builder].left;
                let new = Record { blob, previous, by, stamp, written: self.writes(blob.0) };
                self.write_built(builder, new, start, now, write)
            }
            Building::AmbiguousWrite { new, start, now } => {
                let found = self.pointers.get(&new.blob.0).copied();
                let verdict = protocol::after_ambiguous_write(now.as_ref(), &new, found.as_ref());
                if (verdict == AmbiguousWrite::Written) != (found == Some(new)) {
                    self.breaks("a build was wrong about what became of its write");
                }
                let event = self.event(builder, new.blob, new.previous);
                match verdict {
                    AmbiguousWrite::Written => {
                        Building::Ended { event, outcome: Outcome::Published }
                    }
                    AmbiguousWrite::NotWritten => {
                        self.write_built(builder, new, start, now, Write::Clear)
                    }
                    AmbiguousWrite::Changed => Building::Lost { new },
                }
            }
            Building::Lost { new } => {
                let event = self.event(builder, new.blob, new.previous);
                let found = self.pointers.get(&new.blob.0);
                let outcome = if found.is_some_and(|found| found.blob == new.blob) {
                    Outcome::Unchanged
                } else {
                    Outcome::Superseded
                };
                self.met.lost_to_the_same |= outcome == Outcome::Unchanged;
                self.met.superseded |= outcome == Outcome::Superseded;
                Building::Ended { event, outcome }
            }
            Building::Ended { event, outcome } => {
                self.history.insert(event, outcome);
                Building::Idle
            }
        };
    }

    fn upload_if_old(&mut self, blob: B) {
        let uploaded = self.blobs.get(&blob).copied();
        let fresh = |day| !protocol::is_near_deletion(time(day), self.now(), RETENTION);
        if !uploaded.is_some_and(fresh) {
            self.blobs.insert(blob, self.today);
            self.met.uploaded_again = true;
        }
    }

    /// The delta from a blob with other IDs that a pointer names, if there is one.
    fn publish_delta(&mut self, blob: B) {
        let mut named = self.pointers.values().map(|record| record.blob);
        let base = named.find(|base| base.1 != blob.1 && self.blobs.contains_key(base));
        let Some(base) = base else { return };
        let delta = DeltaBetween(base.1.min(blob.1), base.1.max(blob.1));
        self.deltas.insert(delta, Delta { uploaded: self.today, is_sound: true });
    }

    fn decide(&mut self, builder: usize, blob: B, start: Option<Record>) -> Building {
        let now = self.pointers.get(&blob.0).copied();
        let (day, found) = (day_of(blob.0), state_of(now.as_ref()));
        let past = Past::of(day, &self.acts(), &found, day_of(self.today), RETENTION);
        match protocol::decide_publish(&key(blob), &found, now == start, &past) {
            PublishDecision::Unchanged { unrecorded: false } => Building::Idle,
            PublishDecision::Unchanged { unrecorded: true } => {
                let event = self.event(builder, blob, None);
                Building::Ended { event, outcome: Outcome::Unchanged }
            }
            PublishDecision::Advance { .. } => Building::Decided { blob, start, now },
            PublishDecision::Superseded { .. } => self.superseded(),
            PublishDecision::RolledBack { .. } => {
                if !self.touched.contains(&blob.0) {
                    self.breaks(
                        "the protocol reported a rollback to a build, and no operator did anything",
                    );
                }
                self.met.rollback_stood = true;
                self.met.removal_stood = now.is_none();
                self.met.restore_stood =
                    now.is_some_and(|now| now.by == Some(By::Build) && now.blob.0 == blob.0);
                Building::Idle
            }
            PublishDecision::Unreadable { .. } => unreachable!("nobody writes garbage here"),
        }
    }

    fn superseded(&mut self) -> Building {
        self.met.superseded = true;
        Building::Idle
    }

    /// The store's compare-and-set, for a build.
    fn write_built(
        &mut self,
        builder: usize,
        new: Record,
        start: Option<Record>,
        read: Option<Record>,
        write: Write,
    ) -> Building {
        let day = new.blob.0;
        let landed = self.compare_and_set(day, Some(new), read, write);
        if landed {
            if read != start {
                self.breaks("a build overwrote a pointer that it had not read when it began");
            }
            if self.taken_away.contains(&(day, new.blob)) {
                self.breaks("a re-run undid a rollback");
            }
            self.met.mended |= self.taken_away.iter().any(|(taken, _)| *taken == day);
            // The operator's decision was about what the day held before.
            self.taken_away.retain(|(taken, _)| *taken != day);
        }
        match (landed, write) {
            (true, Write::Clear) => {
                let event = self.event(builder, new.blob, new.previous);
                Building::Ended { event, outcome: Outcome::Published }
            }
            _ => Building::AmbiguousWrite { new, start, now: read },
        }
    }

    /// Writes if nothing changed; says whether it is written, which the writer may not get to know.
    pub(crate) fn compare_and_set(
        &mut self,
        day: u8,
        new: Option<Record>,
        read: Option<Record>,
        write: Write,
    ) -> bool {
        if write != Write::Clear {
            self.ambiguous_left -= 1;
            self.met.ambiguous |= write == Write::Ambiguous;
        }
        let now = self.pointers.get(&day).copied();
        if write == Write::Lost || now != read {
            return false;
        }
        self.set(day, new);
        true
    }
}

// ---- the pruner
// ----------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pruner {
    left: u8,
    /// What is still to be dropped and deleted.
    due: Option<Due>,
    /// A blob that was old and unneeded when it was looked at. Its delete is the next request.
    deleting: Option<B>,
}

/// Pointers, blobs and deltas, in the order in which they go.
type Due = (Vec<u8>, Vec<B>, Vec<DeltaBetween>);

impl Pruner {
    pub(crate) fn new(left: u8) -> Pruner {
        Pruner { left, due: None, deleting: None }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.due.is_some()
    }

    /// Whether its next request deletes this blob.
    pub(crate) fn is_about_to_delete(&self, blob: B) -> bool {
        self.deleting == Some(blob)
    }

    pub(crate) fn stop(&mut self) {
        (self.due, self.deleting) = (None, None);
    }

    pub(crate) fn actions(&self, actions: &mut Vec<Action>) {
        match &self.due {
            None if self.left > 0 => actions.push(Action::StartPrune),
            None => {}
            Some(_) => actions.extend([Action::Pruner, Action::StopPruner]),
        }
    }
}

impl World {
    pub(crate) fn start_prune(&mut self) {
        let days: Vec<_> = self.pointers.keys().map(|day| day_of(*day)).collect();
        let dropped = protocol::pointers_to_drop(&days, day_of(self.today), RETENTION);
        let references = self.references(&dropped);
        let due = self.blobs.iter().filter(|(blob, uploaded)| {
            protocol::may_delete(&key(**blob), time(**uploaded), self.now(), &references, RETENTION)
        });
        let due: Vec<B> = due.map(|(blob, _)| *blob).collect();
        let dropped = self.pointers.keys().copied().filter(|day| dropped.contains(&day_of(*day)));
        let staying = self.blobs.keys().filter(|blob| !due.contains(blob));
        let staying: Vec<_> = staying.map(|blob| key(*blob)).collect();
        let deltas = self.deltas.iter().filter(|(delta, state)| {
            let uploaded = time(state.uploaded);
            protocol::may_delete_delta(&delta.key(), uploaded, self.now(), &staying, RETENTION)
        });
        let deltas = deltas.map(|(delta, _)| *delta).collect();
        let due = Some((dropped.collect(), due, deltas));
        self.pruner = Pruner { left: self.pruner.left - 1, due, deleting: None };
    }

    pub(crate) fn pruner(&mut self) {
        let Some((mut pointers, mut blobs, mut deltas)) = self.pruner.due.take() else { return };
        if let Some(blob) = self.pruner.deleting.take() {
            self.delete(blob);
        } else if let Some(day) = pointers.pop() {
            self.pointers.remove(&day);
            // With its pointer the day forgets that it was rolled back: nobody is to follow it any
            // more.
            self.taken_away.retain(|(taken, _)| *taken != day);
        } else if let Some(blob) = blobs.pop() {
            let references = self.references(&[]);
            let uploaded = self.blobs.get(&blob).copied();
            let may = |day| {
                protocol::may_delete(&key(blob), time(day), self.now(), &references, RETENTION)
            };
            let deletes = uploaded.is_some_and(may);
            if deletes && uploaded.is_some_and(|day| self.today - day < 2) {
                self.breaks("prune takes a blob within the window for old");
            }
            self.pruner.deleting = deletes.then_some(blob);
        } else if let Some(delta) = deltas.pop() {
            self.met.delta_deleted |= self.deltas.remove(&delta).is_some();
        }
        let rest = self.pruner.deleting.is_some()
            || !pointers.is_empty()
            || !blobs.is_empty()
            || !deltas.is_empty();
        self.pruner.due = rest.then_some((pointers, blobs, deltas));
    }

    fn delete(&mut self, blob: B) {
        // What an operator wrote is still to be checked, or was left so.
        let is_unchecked = self.operator.may_not_have_looked_at(blob);
        let is_checked = |by: Option<By>| by != Some(By::Repoint) || !is_unchecked;
        let pinned = self.pin.is_some_and(|pin| pin.blob == blob) && !is_unchecked;
        let names = |record: &Record| {
            record.previous == Some(blob) || record.blob == blob && is_checked(record.by)
        };
        if pinned || self.pointers.values().any(names) {
            self.breaks("prune deleted what a pointer, its previous or the pin names");
        }
        self.blobs.remove(&blob);
        self.met.deleted = true;
    }
}

// ---- servers
// -------------------------------------------------------------------------------------

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    current: Option<B>,
    last_followed: Option<u8>,
    /// The delta that could not be used since the last load.
    failed: Option<DeltaBetween>,
}

impl World {
    pub(crate) fn poll(&mut self, server: usize) {
        let (before, after) = (self.servers[server].clone(), self.after_poll(server));
        if let Some(want) = after.current.filter(|want| before.current != Some(*want)) {
            let delta = self.delta_to(&before, want);
            self.met.loaded_by_delta =
                delta.is_some_and(|delta| self.deltas.get(&delta).is_some_and(|d| d.is_sound));
            self.met.delta_failed =
                delta.is_some_and(|delta| self.deltas.get(&delta).is_some_and(|d| !d.is_sound));
        }
        self.servers[server] = after;
    }

    /// The delta by which a server would fetch a blob.
    fn delta_to(&self, server: &Server, want: B) -> Option<DeltaBetween> {
        let (have, failed) = (server.current.map(key), server.failed.map(DeltaBetween::key));
        match protocol::route(have.as_ref(), &key(want), failed.as_ref()) {
            Route::Full => None,
            Route::Delta(delta) => {
                let found = self.deltas.keys().find(|known| known.key() == delta);
                found.copied()
            }
        }
    }

    /// What a server has after it tried to load a blob: by a sound delta, else the blob if it is
    /// there.
    fn load(&self, server: &mut Server, want: B) -> bool {
        let delta = self.delta_to(server, want);
        let is_sound = delta.map(|delta| self.deltas[&delta].is_sound);
        if is_sound == Some(false) {
            server.failed = delta;
        }
        let is_loaded = is_sound == Some(true) || self.blobs.contains_key(&want);
        if is_loaded {
            (server.current, server.failed) = (Some(want), None);
        }
        is_loaded
    }

    /// Whether each server has, after a poll, what it would have without deltas wherever the blob
    /// is there.
    pub(crate) fn deltas_change_no_answer(&self) -> bool {
        let without = World { deltas: BTreeMap::new(), ..self.clone() };
        (0..self.servers.len()).all(|server| {
            let (by_delta, in_full) = (self.after_poll(server), without.after_poll(server));
            let is_there = by_delta.current.is_some_and(|blob| self.blobs.contains_key(&blob));
            !is_there || by_delta.current == in_full.current
        })
    }

    /// Where a server stands after a poll.
    pub(crate) fn after_poll(&self, server: usize) -> Server {
        let before = &self.servers[server];
        let mut after = before.clone();
        let pin = self
            .pin
            .map_or(protocol::RecordState::Absent, |pin| protocol::RecordState::Found(pin_of(pin)));
        let last = before.last_followed.map(day_of);
        let days = protocol::days_to_follow(day_of(self.today), last, MAX_AGE_DAYS);
        let pointers = days.iter().map(|day| {
            let index = (0..=self.today).find(|index| day_of(*index) == *day);
            let record = index.and_then(|index| self.pointers.get(&index));
            (index, record.copied(), protocol::follow_pointer(*day, &state_of(record)))
        });
        let pinned = (None, None, protocol::follow_pin(&pin, self.now()));
        for (index, record, step) in std::iter::once(pinned).chain(pointers) {
            let FollowStep::Follow(followed) = step else { continue };
            let blob = match (record, self.pin) {
                (Some(record), _) => record.blob,
                (None, Some(pin)) => pin.blob,
                (None, None) => unreachable!("something was followed"),
            };
            assert_eq!(followed.blob, key(blob));
            if after.current == Some(blob) || self.load(&mut after, blob) {
                after.last_followed = after.last_followed.max(index);
            }
            break;
        }
        after
    }
}
