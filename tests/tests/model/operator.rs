//! The operator: repoints, pins and unpins with the program, and rolls back by hand: a plain line, the
//! day's own earlier record put back, one field of it edited, the pointer removed.

use bloomsday_common::pointer::Outcome;
use bloomsday_common::protocol::{self, AmbiguousWrite};

use crate::actors::ways;
use crate::world::{
    Action, B, By, Pinned, RETENTION, Record, Told, World, Write, day_of, key, time,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operator {
    left: u8,
    at: Operating,
    /// A target whose operator was stopped before the last look: nobody promised anything.
    unseen: Option<B>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Operating {
    Idle,
    /// The target was verified and is not doomed; the history is to be told first.
    Checked {
        day: u8,
        to: B,
        read: Option<Record>,
    },
    Told {
        told: Told,
        read: Option<Record>,
    },
    AmbiguousWrite {
        told: Told,
        new: Record,
        read: Option<Record>,
    },
    /// The pointer was written; one more look.
    Pointed {
        told: Told,
        new: Record,
        before: Option<Record>,
    },
    TakingBack {
        told: Told,
        new: Record,
        before: Record,
    },
    /// All is done but to tell the history how it ended.
    Ended {
        told: Told,
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
        Operator { left, at: Operating::Idle, unseen: None }
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

    pub(crate) fn left_unseen(&self, blob: B) -> bool {
        self.unseen == Some(blob)
    }

    pub(crate) fn stop(&mut self) {
        if let Operating::Pointed { new: Record { blob, .. }, .. }
        | Operating::AmbiguousWrite { new: Record { blob, .. }, .. }
        | Operating::TakingBack { new: Record { blob, .. }, .. }
        | Operating::Pinned { new: Pinned { blob, .. }, .. } = self.at
        {
            self.unseen = Some(blob);
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
                            actions.push(Action::HandEdit { day, to });
                        }
                    }
                    actions.push(Action::PinTo { to });
                }
                for (day, record) in world.pointers.iter().filter(|(_, record)| record.by.is_some())
                {
                    for to in world.blobs.keys().filter(|to| **to != record.blob) {
                        actions.push(Action::EditBlob { day: *day, to: *to });
                    }
                }
                for record in &world.earlier {
                    let day = record.blob.0;
                    let now = world.pointers.get(&day);
                    // What prune has deleted, nobody would put back.
                    if now.is_some_and(|now| now.blob != record.blob)
                        && world.blobs.contains_key(&record.blob)
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
            Operating::Told { .. } => {
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
        self.operator = Operator { left: self.operator.left - 1, at, unseen: self.operator.unseen };
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

    /// A plain line.
    pub(crate) fn hand_edit(&mut self, day: u8, to: B) {
        let stamp = self.operator.stamp();
        let before = self.pointers.get(&day).copied();
        self.set(day, Some(Record { blob: to, previous: None, by: None, stamp, written: 0 }));
        // What only hands ever named leaves no trace when a hand takes it away again.
        let told = |blob| {
            let names = |told: &Told| told.blob == blob || told.previous == Some(blob);
            self.history.keys().any(|told| told.day == day && names(told))
        };
        let before = before.filter(|before| told(before.blob));
        self.took_away(day, Some(to), before);
        self.begin(Operating::Idle);
    }

    /// The blob of a record, and nothing else of it.
    pub(crate) fn edit_blob(&mut self, day: u8, to: B) {
        let before = self.pointers.get(&day).copied();
        self.set(day, before.map(|before| Record { blob: to, ..before }));
        self.took_away_silently(day, Some(to), before);
    }

    /// An earlier record of a build of that day.
    pub(crate) fn put_back(&mut self, record: Record) {
        let day = record.blob.0;
        let before = self.pointers.get(&day).copied();
        self.set(day, Some(record));
        self.took_away_silently(day, Some(record.blob), before);
    }

    /// The day has no pointer any more.
    pub(crate) fn remove(&mut self, day: u8) {
        let before = self.pointers.get(&day).copied();
        self.set(day, None);
        self.took_away_silently(day, None, before);
        if day < self.today {
            // Prune may have dropped it as well: the day forgets.
            self.taken_away.retain(|(taken, _)| *taken != day);
        }
    }

    /// An act that the pointer itself does not show: only what the history certainly tells is promised.
    fn took_away_silently(&mut self, day: u8, to: Option<B>, before: Option<Record>) {
        let shown = self.shown(day);
        self.took_away(day, to, before);
        self.taken_away.retain(|(taken, blob)| *taken != day || shown.contains(blob));
        self.begin(Operating::Idle);
    }

    /// What the history certainly tells that the pointer of a day has named.
    fn shown(&self, day: u8) -> Vec<B> {
        let told = self.history.iter().filter(|(told, _)| told.day == day);
        let sure = [Outcome::Published, Outcome::Unchanged];
        let named = told.flat_map(|(told, outcome)| {
            [Some(told.blob).filter(|_| sure.contains(outcome)), told.previous]
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
                let told = Told { day, blob: to, previous, by: By::Repoint, at, who };
                self.history.insert(told, Outcome::Pending);
                Operating::Told { told, read }
            }
            Operating::Told { told, read } => {
                let Told { blob, previous, at, who, .. } = told;
                let by = Some(By::Repoint);
                let new = Record { blob, previous, by, stamp: who, written: at };
                self.write_repointed(told, new, read, write)
            }
            Operating::AmbiguousWrite { told, new, read } => {
                let found = self.pointers.get(&told.day);
                match protocol::after_ambiguous_write(read.as_ref(), &new, found) {
                    AmbiguousWrite::Written => Operating::Pointed { told, new, before: read },
                    AmbiguousWrite::NotWritten => {
                        self.write_repointed(told, new, read, Write::Clear)
                    }
                    AmbiguousWrite::Changed => {
                        Operating::Ended { told, outcome: Outcome::Superseded }
                    }
                }
            }
            Operating::Pointed { told, new, before } => match before {
                _ if self.blobs.contains_key(&new.blob) => {
                    Operating::Ended { told, outcome: Outcome::Published }
                }
                Some(before) => Operating::TakingBack { told, new, before },
                // There is nothing to put back: the command fails and says so.
                None => {
                    self.operator.unseen = Some(new.blob);
                    Operating::Ended { told, outcome: Outcome::Failed }
                }
            },
            Operating::TakingBack { told, new, before } => {
                self.compare_and_set(told.day, Some(before), Some(new), Write::Clear);
                self.met.taken_back = true;
                Operating::Ended { told, outcome: Outcome::Failed }
            }
            Operating::Ended { told, outcome } => {
                self.history.insert(told, outcome);
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
                    self.operator.unseen = before.map(|before| before.blob);
                }
                Operating::Idle
            }
        };
    }

    fn write_repointed(
        &mut self,
        told: Told,
        new: Record,
        read: Option<Record>,
        write: Write,
    ) -> Operating {
        let landed = self.compare_and_set(told.day, Some(new), read, write);
        if landed {
            self.took_away(told.day, Some(new.blob), read);
        }
        match (landed, write) {
            (true, Write::Clear) => Operating::Pointed { told, new, before: read },
            _ => Operating::AmbiguousWrite { told, new, read },
        }
    }
}
