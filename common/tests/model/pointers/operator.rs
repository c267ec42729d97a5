//! The operator: repoints, pins and unpins with the program, and rolls back by hand: a plain line,
//! the day's own earlier record put back, one field of it edited, the pointer removed.

use bloomsday_common::pointer::Outcome;
use bloomsday_common::protocol::{self, AmbiguousWrite};

use super::actors::ways;
use super::world::{
    Action, B, By, Event, Pinned, RETENTION, Record, World, Write, day_of, key, time,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operator {
    left: u8,
    at: Operating,
    /// A target whose operator was stopped before the last check: nothing is promised about it.
    unchecked: Option<B>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Operating {
    Idle,
    /// The target was verified and is not expiring; the event is recorded before the write.
    Checked {
        day: u8,
        to: B,
        read: Option<Record>,
    },
    Recorded {
        event: Event,
        read: Option<Record>,
    },
    AmbiguousWrite {
        event: Event,
        new: Record,
        read: Option<Record>,
    },
    /// The pointer was written; the blob is checked once more.
    Pointed {
        event: Event,
        new: Record,
        before: Option<Record>,
    },
    TakingBack {
        event: Event,
        new: Record,
        before: Option<Record>,
    },
    /// Only the outcome is still to be recorded in the history.
    Ended {
        event: Event,
        outcome: Outcome,
    },
    PinChecked {
        to: B,
        read: Option<Pinned>,
    },
    Pinned {
        new: Pinned,
        before: Option<Pinned>,
    },
}

impl Operator {
    pub(crate) fn new(left: u8) -> Operator {
        Operator { left, at: Operating::Idle, unchecked: None }
    }

    /// Different for each of the operator's acts.
    fn stamp(&self) -> u8 {
        32 + self.left
    }

    pub(crate) fn has_looked(&self) -> bool {
        self.at != Operating::Idle
    }

    pub(crate) fn is_done_looking(&self) -> bool {
        self.at == Operating::Idle
    }

    /// Whether this is the target of an act that is not over, or was stopped.
    pub(crate) fn may_not_have_looked_at(&self, blob: B) -> bool {
        self.target() == Some(blob) || self.left_unchecked(blob)
    }

    /// What was written and is still to be checked.
    fn target(&self) -> Option<B> {
        match self.at {
            Operating::Pointed { new: Record { blob, .. }, .. }
            | Operating::AmbiguousWrite { new: Record { blob, .. }, .. }
            | Operating::TakingBack { new: Record { blob, .. }, .. }
            | Operating::Pinned { new: Pinned { blob, .. }, .. } => Some(blob),
            _ => None,
        }
    }

    /// Whether a prune is waited for before the last check.
    fn waits(&self, world: &World) -> bool {
        let is_old = |B(day, _)| protocol::may_be_old(day_of(day), day_of(world.today), RETENTION);
        world.pruner.is_running() && self.target().is_some_and(is_old)
    }

    pub(crate) fn left_unchecked(&self, blob: B) -> bool {
        self.unchecked == Some(blob)
    }

    pub(crate) fn stop(&mut self) {
        if let Some(blob) = self.target() {
            self.unchecked = Some(blob);
        }
        self.at = Operating::Idle;
    }

    pub(crate) fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        match self.at {
            Operating::Idle if self.left == 0 => {}
            Operating::Idle => {
                for to in world.blobs.keys().copied() {
                    for day in 0..=world.today {
                        if world.pointers.get(&day).map(|record| record.blob) != Some(to) {
                            actions.push(Action::Repoint { day, to });
                            if !world.pruner.is_about_to_delete(to) {
                                actions.push(Action::HandEdit { day, to });
                            }
                        }
                    }
                    actions.push(Action::PinTo { to });
                }
                for (day, record) in world.pointers.iter().filter(|(_, record)| record.by.is_some())
                {
                    let others = world.blobs.keys().filter(|to| **to != record.blob);
                    for to in others.filter(|to| !world.pruner.is_about_to_delete(**to)) {
                        actions.push(Action::EditBlob { day: *day, to: *to });
                    }
                }
                for record in &world.earlier {
                    let day = record.blob.0;
                    let now = world.pointers.get(&day);
                    // What prune has deleted, nobody would put back.
                    if now.is_some_and(|now| now.blob != record.blob)
                        && world.blobs.contains_key(&record.blob)
                        && !world.pruner.is_about_to_delete(record.blob)
                        && !world.sets_out_from(day, Some(*record))
                    {
                        actions.push(Action::PutBack { record: *record });
                    }
                }
                let days = world.pointers.keys().filter(|day| !world.sets_out_from(**day, None));
                actions.extend(days.map(|day| Action::Remove { day: *day }));
                if world.pin.is_some() {
                    actions.push(Action::Unpin);
                }
            }
            // A prune that looked at the target before may still delete it.
            Operating::Pointed { .. } | Operating::Pinned { .. } if self.waits(world) => {
                actions.push(Action::StopOperator);
            }
            Operating::Recorded { .. } => {
                actions.extend(ways(world).map(|write| Action::Operator { write }));
                actions.push(Action::StopOperator);
            }
            _ => {
                actions.push(Action::Operator { write: Write::Clear });
                actions.push(Action::StopOperator);
            }
        }
    }
}

impl World {
    /// Whether repoint and pin refuse a target.
    fn is_expiring(&self, to: B) -> bool {
        let Some(uploaded) = self.blobs.get(&to) else { return true };
        let days: Vec<_> = self.pointers.keys().map(|day| day_of(*day)).collect();
        let dropped = protocol::pointers_to_drop(&days, day_of(self.today), RETENTION);
        let references = self.references(&dropped);
        protocol::is_expiring(&key(to), time(*uploaded), self.now(), &references, RETENTION)
    }

    fn begin(&mut self, at: Operating) {
        self.operator =
            Operator { left: self.operator.left - 1, at, unchecked: self.operator.unchecked };
    }

    pub(crate) fn start_repoint(&mut self, day: u8, to: B) {
        let read = self.pointers.get(&day).copied();
        let refused = self.is_expiring(to);
        self.begin(if refused { Operating::Idle } else { Operating::Checked { day, to, read } });
    }

    pub(crate) fn start_pin(&mut self, to: B) {
        let (read, refused) = (self.pin, self.is_expiring(to));
        self.begin(if refused { Operating::Idle } else { Operating::PinChecked { to, read } });
    }

    pub(crate) fn unpin(&mut self) {
        self.pin = None;
        self.begin(Operating::Idle);
    }

    /// Writes the pointer by hand, as a plain line.
    pub(crate) fn hand_edit(&mut self, day: u8, to: B) {
        let stamp = self.operator.stamp();
        let before = self.pointers.get(&day).copied();
        self.set(day, Some(Record { blob: to, previous: None, by: None, stamp, written: 0 }));
        // A blob that was only ever named by hand leaves no trace when it is removed by hand.
        let is_recorded = |blob| {
            let names = |event: &Event| event.blob == blob || event.previous == Some(blob);
            self.history.keys().any(|event| event.day == day && names(event))
        };
        let before = before.filter(|before| is_recorded(before.blob));
        self.took_away(day, Some(to), before);
        self.begin(Operating::Idle);
    }

    /// Changes the blob of a record by hand, and nothing else of it.
    pub(crate) fn edit_blob(&mut self, day: u8, to: B) {
        let before = self.pointers.get(&day).copied();
        self.set(day, before.map(|before| Record { blob: to, ..before }));
        self.took_away_silently(day, Some(to), before);
    }

    /// Restores an earlier record of a build of that day.
    pub(crate) fn put_back(&mut self, record: Record) {
        let day = record.blob.0;
        let before = self.pointers.get(&day).copied();
        self.set(day, Some(record));
        self.took_away_silently(day, Some(record.blob), before);
    }

    /// Deletes the day's pointer.
    pub(crate) fn remove(&mut self, day: u8) {
        let before = self.pointers.get(&day).copied();
        self.set(day, None);
        self.took_away_silently(day, None, before);
        if day < self.today {
            // Prune may have dropped it as well: the day forgets.
            self.taken_away.retain(|(taken, _)| *taken != day);
        }
    }

    /// A change that the pointer does not record: only blobs with a certain record in the history
    /// are promised.
    fn took_away_silently(&mut self, day: u8, to: Option<B>, before: Option<Record>) {
        let certain = self.certainly_named(day);
        self.took_away(day, to, before);
        self.taken_away.retain(|(taken, blob)| *taken != day || certain.contains(blob));
        self.begin(Operating::Idle);
    }

    /// The blobs that the pointer of a day has named with certainty, by the history.
    fn certainly_named(&self, day: u8) -> Vec<B> {
        let events = self.history.iter().filter(|(event, _)| event.day == day);
        let sure = [Outcome::Published, Outcome::Unchanged];
        let named = events.flat_map(|(event, outcome)| {
            [Some(event.blob).filter(|_| sure.contains(outcome)), event.previous]
        });
        named.flatten().collect()
    }

    fn took_away(&mut self, day: u8, to: Option<B>, before: Option<Record>) {
        self.touched.insert(day);
        self.taken_away.retain(|taken| Some(*taken) != to.map(|to| (day, to)));
        if let Some(before) = before {
            self.taken_away.insert((day, before.blob));
        }
    }

    pub(crate) fn operator(&mut self, write: Write) {
        let at = self.operator.at.clone();
        self.operator.at = match at {
            Operating::Idle => unreachable!("an idle operator has no step"),
            Operating::Checked { day, to, read } => {
                let (previous, who) = (read.map(|record| record.blob), self.operator.stamp());
                let at = self.begins(day);
                let event = Event { day, blob: to, previous, by: By::Repoint, at, who };
                self.history.insert(event, Outcome::Pending);
                Operating::Recorded { event, read }
            }
            Operating::Recorded { event, read } => {
                let Event { blob, previous, at, who, .. } = event;
                let by = Some(By::Repoint);
                let new = Record { blob, previous, by, stamp: who, written: at };
                self.write_repointed(event, new, read, write)
            }
            Operating::AmbiguousWrite { event, new, read } => {
                let found = self.pointers.get(&event.day);
                match protocol::after_ambiguous_write(read.as_ref(), &new, found) {
                    AmbiguousWrite::Written => Operating::Pointed { event, new, before: read },
                    AmbiguousWrite::NotWritten => {
                        self.write_repointed(event, new, read, Write::Clear)
                    }
                    AmbiguousWrite::Changed => {
                        Operating::Ended { event, outcome: Outcome::Superseded }
                    }
                }
            }
            Operating::Pointed { event, new, before } => {
                if self.blobs.contains_key(&new.blob) {
                    Operating::Ended { event, outcome: Outcome::Published }
                } else {
                    Operating::TakingBack { event, new, before }
                }
            }
            Operating::TakingBack { event, new, before } => {
                self.compare_and_set(event.day, before, Some(new), Write::Clear);
                self.met.taken_back = true;
                Operating::Ended { event, outcome: Outcome::Failed }
            }
            Operating::Ended { event, outcome } => {
                self.history.insert(event, outcome);
                Operating::Idle
            }
            Operating::PinChecked { to, read } => {
                if self.pin == read {
                    let new = Pinned { blob: to, stamp: self.operator.stamp() };
                    self.pin = Some(new);
                    Operating::Pinned { new, before: read }
                } else {
                    Operating::Idle
                }
            }
            Operating::Pinned { new, before } => {
                if !self.blobs.contains_key(&new.blob) && self.pin == Some(new) {
                    self.pin = before;
                    self.met.taken_back = true;
                    // The earlier one may name what is gone by now: nobody looked at that.
                    self.operator.unchecked = before.map(|before| before.blob);
                }
                Operating::Idle
            }
        };
    }

    fn write_repointed(
        &mut self,
        event: Event,
        new: Record,
        read: Option<Record>,
        write: Write,
    ) -> Operating {
        let landed = self.compare_and_set(event.day, Some(new), read, write);
        if landed {
            self.took_away(event.day, Some(new.blob), read);
        }
        match (landed, write) {
            (true, Write::Clear) => Operating::Pointed { event, new, before: read },
            _ => Operating::AmbiguousWrite { event, new, read },
        }
    }
}
