//! Those who act: each a small state machine whose every step is one request to the store.

use bloomsday_common::protocol::{self, Publish, Step, Unclear};

use crate::world::{
    Action, B, By, MAX_AGE_DAYS, Pinned, RETENTION, Record, World, Write, day_of, key, pin_of,
    seen, time,
};

// ---- builders ------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Builder {
    left: u8,
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
    /// The protocol said to point; the history is to be told first.
    Decided {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    Told {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// The blob was looked at just now.
    Looked {
        blob: B,
        start: Option<Record>,
        now: Option<Record>,
    },
    /// The write ended with an error.
    Unclear {
        new: Record,
        start: Option<Record>,
        now: Option<Record>,
    },
}

impl Builder {
    pub(crate) fn new(left: u8) -> Builder {
        Builder { left, at: Building::Idle }
    }

    pub(crate) fn has_looked(&self) -> bool {
        matches!(self.at, Building::Looked { .. } | Building::Unclear { .. })
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
            Building::Looked { .. } => {
                actions.extend(writes(world).map(|write| Action::Builder { builder, write }));
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
fn writes(world: &World) -> impl Iterator<Item = Write> {
    let unclear = [Write::Lost, Write::Ambiguous].into_iter().filter(|_| world.ambiguous_left > 0);
    [Write::Clear].into_iter().chain(unclear)
}

impl World {
    pub(crate) fn start_build(&mut self, builder: usize, blob: B) {
        let start = self.pointers.get(&blob.0).copied();
        self.builders[builder] = Builder {
            left: self.builders[builder].left - 1,
            at: Building::Started { blob, start },
        };
    }

    pub(crate) fn builder(&mut self, builder: usize, write: Write) {
        let at = self.builders[builder].at.clone();
        self.builders[builder].at = match at {
            Building::Idle => unreachable!("an idle builder has no step"),
            Building::Started { blob, start } => {
                self.blobs.entry(blob).or_insert(self.today);
                Building::Uploaded { blob, start }
            }
            Building::Uploaded { blob, start } => self.decide(blob, start),
            Building::Decided { blob, start, now } => {
                self.history.insert((blob.0, blob, now.map(|record| record.blob)));
                Building::Told { blob, start, now }
            }
            Building::Told { blob, start, now } => {
                let uploaded = self.blobs.get(&blob).copied();
                let fresh = |day| !protocol::is_old(time(day), self.now(), RETENTION);
                if !uploaded.is_some_and(fresh) {
                    self.blobs.insert(blob, self.today);
                    self.met.uploaded_again = true;
                }
                Building::Looked { blob, start, now }
            }
            Building::Looked { blob, start, now } => {
                let (previous, by) = (now.map(|record| record.blob), Some(By::Build));
                let stamp = 8 * builder as u8 + self.builders[builder].left;
                let new = Record { blob, previous, by, stamp };
                self.write_built(new, start, now, write)
            }
            Building::Unclear { new, start, now } => {
                let found = self.pointers.get(&new.blob.0).copied();
                let verdict = protocol::after_unclear_write(now.as_ref(), &new, found.as_ref());
                if (verdict == Unclear::Written) != (found == Some(new)) {
                    self.breaks("a build was wrong about what became of its write");
                }
                match verdict {
                    Unclear::Written => Building::Idle,
                    Unclear::NotWritten => self.write_built(new, start, now, Write::Clear),
                    Unclear::Changed => self.superseded(),
                }
            }
        };
    }

    fn decide(&mut self, blob: B, start: Option<Record>) -> Building {
        let now = self.pointers.get(&blob.0).copied();
        let had = protocol::blobs_a_day_had(day_of(blob.0), &self.told(), &seen(now.as_ref()));
        let new = key(blob);
        match protocol::publish(day_of(blob.0), &new, &seen(now.as_ref()), now == start, &had) {
            Publish::Unchanged => Building::Idle,
            Publish::Point { .. } => Building::Decided { blob, start, now },
            Publish::Superseded { .. } => self.superseded(),
            Publish::RolledBack { .. } => {
                self.met.rollback_stood = true;
                Building::Idle
            }
            Publish::Unreadable { .. } => unreachable!("nobody writes garbage here"),
        }
    }

    fn superseded(&mut self) -> Building {
        self.met.superseded = true;
        Building::Idle
    }

    /// The store's compare-and-set, for a build.
    fn write_built(
        &mut self,
        new: Record,
        start: Option<Record>,
        read: Option<Record>,
        write: Write,
    ) -> Building {
        let day = new.blob.0;
        let landed = self.compare_and_set(day, Some(new), read, write);
        if landed {
            if read != start {
                self.breaks("a build overwrote a pointer that it had not seen when it began");
            }
            if self.taken_away.contains(&(day, new.blob)) {
                self.breaks("a re-run undid a rollback");
            }
            self.met.mended |= self.taken_away.iter().any(|(taken, _)| *taken == day);
            // The operator's decision was about what the day held before.
            self.taken_away.retain(|(taken, _)| *taken != day);
        }
        match (landed, write) {
            (true, Write::Clear) => Building::Idle,
            _ => Building::Unclear { new, start, now: read },
        }
    }

    /// Writes if nothing changed; says whether it is written, which the writer may not get to know.
    fn compare_and_set(
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
        match new {
            Some(new) => drop(self.pointers.insert(day, new)),
            None => drop(self.pointers.remove(&day)),
        }
        true
    }
}

// ---- the operator --------------------------------------------------------------------------------

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
        day: u8,
        to: B,
        read: Option<Record>,
    },
    Unclear {
        day: u8,
        new: Record,
        read: Option<Record>,
    },
    /// The pointer was written; one more look.
    Pointed {
        day: u8,
        new: Record,
        before: Option<Record>,
    },
    TakingBack {
        day: u8,
        new: Record,
        before: Record,
    },
    PinChecked {
        to: B,
        read: Option<Pinned>,
    },
    Pinned {
        to: B,
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
        | Operating::Unclear { new: Record { blob, .. }, .. }
        | Operating::TakingBack { new: Record { blob, .. }, .. }
        | Operating::Pinned { to: blob } = self.at
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
                if world.pin.is_some() {
                    actions.push(Action::Unpin);
                }
            }
            Operating::Told { .. } => {
                actions.extend(writes(world).map(|write| Action::Operator { write }));
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
    fn is_doomed(&self, to: B) -> bool {
        let Some(uploaded) = self.blobs.get(&to) else { return true };
        let days: Vec<_> = self.pointers.keys().map(|day| day_of(*day)).collect();
        let dropped = protocol::pointers_to_drop(&days, day_of(self.today), RETENTION);
        let references = self.references(&dropped);
        protocol::is_doomed(&key(to), time(*uploaded), self.now(), &references, RETENTION)
    }

    fn begin(&mut self, at: Operating) {
        self.operator = Operator { left: self.operator.left - 1, at, unseen: self.operator.unseen };
    }

    pub(crate) fn start_repoint(&mut self, day: u8, to: B) {
        let read = self.pointers.get(&day).copied();
        let refused = self.is_doomed(to);
        self.begin(if refused { Operating::Idle } else { Operating::Checked { day, to, read } });
    }

    pub(crate) fn start_pin(&mut self, to: B) {
        let (read, refused) = (self.pin, self.is_doomed(to));
        self.begin(if refused { Operating::Idle } else { Operating::PinChecked { to, read } });
    }

    pub(crate) fn unpin(&mut self) {
        self.pin = None;
        self.begin(Operating::Idle);
    }

    pub(crate) fn hand_edit(&mut self, day: u8, to: B) {
        let stamp = self.operator.stamp();
        let before =
            self.pointers.insert(day, Record { blob: to, previous: None, by: None, stamp });
        // What only hands ever named leaves no trace when a hand takes it away again.
        let told = |blob| {
            let names = |told: &(u8, B, Option<B>)| told.1 == blob || told.2 == Some(blob);
            self.history.iter().any(|told| told.0 == day && names(told))
        };
        let before = before.filter(|before| told(before.blob));
        self.took_away(day, to, before);
        self.begin(Operating::Idle);
    }

    fn took_away(&mut self, day: u8, to: B, before: Option<Record>) {
        self.taken_away.remove(&(day, to));
        if let Some(before) = before {
            self.taken_away.insert((day, before.blob));
        }
    }

    pub(crate) fn operator(&mut self, write: Write) {
        let at = self.operator.at.clone();
        self.operator.at = match at {
            Operating::Idle => unreachable!("an idle operator has no step"),
            Operating::Checked { day, to, read } => {
                self.history.insert((day, to, read.map(|record| record.blob)));
                Operating::Told { day, to, read }
            }
            Operating::Told { day, to, read } => {
                let (previous, by) = (read.map(|record| record.blob), Some(By::Repoint));
                let new = Record { blob: to, previous, by, stamp: self.operator.stamp() };
                self.write_repointed(day, new, read, write)
            }
            Operating::Unclear { day, new, read } => {
                let found = self.pointers.get(&day);
                match protocol::after_unclear_write(read.as_ref(), &new, found) {
                    Unclear::Written => Operating::Pointed { day, new, before: read },
                    Unclear::NotWritten => self.write_repointed(day, new, read, Write::Clear),
                    Unclear::Changed => Operating::Idle,
                }
            }
            Operating::Pointed { day, new, before } => match before {
                _ if self.blobs.contains_key(&new.blob) => Operating::Idle,
                Some(before) => Operating::TakingBack { day, new, before },
                // There is nothing to put back: the command fails and says so.
                None => {
                    self.operator.unseen = Some(new.blob);
                    Operating::Idle
                }
            },
            Operating::TakingBack { day, new, before } => {
                self.compare_and_set(day, Some(before), Some(new), Write::Clear);
                self.met.taken_back = true;
                Operating::Idle
            }
            Operating::PinChecked { to, read } => {
                if self.pin == read {
                    self.pin = Some(Pinned { blob: to, stamp: self.operator.stamp() });
                    Operating::Pinned { to }
                } else {
                    Operating::Idle
                }
            }
            Operating::Pinned { to } => {
                if !self.blobs.contains_key(&to) {
                    self.pin = None;
                    self.met.taken_back = true;
                }
                Operating::Idle
            }
        };
    }

    fn write_repointed(
        &mut self,
        day: u8,
        new: Record,
        read: Option<Record>,
        write: Write,
    ) -> Operating {
        let landed = self.compare_and_set(day, Some(new), read, write);
        if landed {
            self.took_away(day, new.blob, read);
        }
        match (landed, write) {
            (true, Write::Clear) => Operating::Pointed { day, new, before: read },
            _ => Operating::Unclear { day, new, read },
        }
    }
}

// ---- the pruner ----------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pruner {
    left: u8,
    /// What is still to be dropped and deleted.
    due: Option<(Vec<u8>, Vec<B>)>,
}

impl Pruner {
    pub(crate) fn new(left: u8) -> Pruner {
        Pruner { left, due: None }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.due.is_some()
    }

    pub(crate) fn stop(&mut self) {
        self.due = None;
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
        let due = due.map(|(blob, _)| *blob).collect();
        let dropped = self.pointers.keys().copied().filter(|day| dropped.contains(&day_of(*day)));
        let due = Some((dropped.collect(), due));
        self.pruner = Pruner { left: self.pruner.left - 1, due };
    }

    pub(crate) fn pruner(&mut self) {
        let Some((mut pointers, mut blobs)) = self.pruner.due.take() else { return };
        if let Some(day) = pointers.pop() {
            self.pointers.remove(&day);
            // With its pointer the day forgets that it was rolled back: nobody is to follow it any more.
            self.taken_away.retain(|(taken, _)| *taken != day);
        } else if let Some(blob) = blobs.pop() {
            let references = self.references(&[]);
            let uploaded = self.blobs.get(&blob).copied();
            let may = |day| {
                protocol::may_delete(&key(blob), time(day), self.now(), &references, RETENTION)
            };
            if uploaded.is_some_and(may) {
                self.delete(blob);
            }
        }
        let rest = !pointers.is_empty() || !blobs.is_empty();
        self.pruner.due = rest.then_some((pointers, blobs));
    }

    fn delete(&mut self, blob: B) {
        let pinned = self.pin.is_some_and(|pin| pin.blob == blob);
        let named =
            self.pointers.values().any(|r| r.blob == blob || r.previous == Some(blob)) || pinned;
        if named {
            self.breaks("prune deleted what a pointer, its previous or the pin names");
        }
        if self.blobs.get(&blob).is_some_and(|day| self.today - day < 2) {
            self.breaks("prune deleted a blob within the window");
        }
        self.blobs.remove(&blob);
        self.met.deleted = true;
    }
}

// ---- servers -------------------------------------------------------------------------------------

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    current: Option<B>,
    last_followed: Option<u8>,
}

impl World {
    /// Where a server stands after a poll.
    pub(crate) fn after_poll(&self, server: usize) -> Server {
        let before = &self.servers[server];
        let mut after = before.clone();
        let pin = self.pin.map_or(protocol::Seen::Absent, |pin| protocol::Seen::Found(pin_of(pin)));
        let last = before.last_followed.map(day_of);
        let days = protocol::days_to_follow(day_of(self.today), last, MAX_AGE_DAYS);
        let pointers = days.iter().map(|day| {
            let index = (0..=self.today).find(|index| day_of(*index) == *day);
            let record = index.and_then(|index| self.pointers.get(&index));
            (index, record.copied(), protocol::follow_pointer(*day, &seen(record)))
        });
        let pinned = (None, None, protocol::follow_pin(&pin, self.now()));
        for (index, record, step) in std::iter::once(pinned).chain(pointers) {
            let Step::Follow(followed) = step else { continue };
            let blob = match (record, self.pin) {
                (Some(record), _) => record.blob,
                (None, Some(pin)) => pin.blob,
                (None, None) => unreachable!("something was followed"),
            };
            assert_eq!(followed.blob, key(blob));
            if self.blobs.contains_key(&blob) {
                after.current = Some(blob);
                after.last_followed = after.last_followed.max(index);
            }
            break;
        }
        after
    }
}
