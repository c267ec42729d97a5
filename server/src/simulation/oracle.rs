//! [`Oracle`]: decides from the records in the store which blobs may be current. It shares no code
//! with the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use jiff::Timestamp;
use tokio::time::Instant;

use super::blobs::{Kind, Made, find};

/// How long a read and a load that began before a change may still act on the old records: both
/// deadlines, and the retries between.
const UNDER_WAY: Duration = Duration::from_secs(3 * 300 + 60);

/// A record as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Names(BlobKey),
    Garbage,
}

/// All records in the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) pointers: BTreeMap<Day, Record>,
    pub(super) pin: Option<(Record, Option<Timestamp>)>,
    /// Blobs that are missing or damaged now.
    pub(super) unsound: Vec<BlobKey>,
    /// Blobs to which a delta leads: a server may have the right one although it is missing or
    /// damaged.
    pub(super) by_delta: BTreeSet<BlobKey>,
}

/// What a server that reads the records now should do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// This blob should be current; the day is the pointer's, and a pin has none.
    Blob(BlobKey, Option<Day>),
    /// The current filter should stay.
    Keep,
}

impl Records {
    pub(super) fn is_sound(&self, key: &BlobKey) -> bool {
        !self.unsound.contains(key)
    }

    /// What a read at `now`, by the machine's own clock, leads to. `last` is the day of the newest
    /// pointer that this process followed.
    fn target(&self, now: Timestamp, last: Option<Day>) -> Target {
        self.targets(now, last).into_iter().next().unwrap_or(Target::Keep)
    }

    /// The same, and what the server does next if each of them is damaged.
    fn targets(&self, now: Timestamp, last: Option<Day>) -> Vec<Target> {
        let mut targets = Vec::new();
        for (place, record) in self.read_in_turn(now, last) {
            match record {
                Some(Record::Names(key)) => targets.push(Target::Blob(key.clone(), place)),
                Some(Record::Garbage) => targets.push(Target::Keep),
                None => continue,
            }
            if place.is_none() || record == Some(&Record::Garbage) {
                break;
            }
        }
        targets
    }

    /// The records that a poll reads, in its order: the pin, without a day, and the pointers.
    fn read_in_turn(
        &self,
        now: Timestamp,
        last: Option<Day>,
    ) -> impl Iterator<Item = (Option<Day>, Option<&Record>)> {
        let pin = self.pin.as_ref().filter(|(_, until)| until.is_none_or(|until| now < until));
        let newest = last.map_or(Day::of(now), |last| last.max(Day::of(now)));
        let pointers = (0..=3).map(move |age| newest.minus(age));
        let pointers = pointers.map(|day| (Some(day), self.pointers.get(&day)));
        std::iter::once((None, pin.map(|(record, _)| record))).chain(pointers)
    }
}

/// The state of a server at one moment, as its status reports it.
pub(super) struct Observation {
    pub(super) digest: Option<Digest>,
    pub(super) day: Option<Day>,
    pub(super) pointer_day: Option<Day>,
    pub(super) held: bool,
    /// The blob that the guard judged last.
    pub(super) judged: Option<Digest>,
    /// Whether the last poll succeeded.
    pub(super) well: bool,
}

/// Checks one server process after another.
pub(super) struct Oracle {
    /// The blobs that may become current, and since when they no longer may.
    allowed: Vec<(BlobKey, Option<Instant>)>,
    /// The blob that was current at the last observation.
    pub(super) answers: Option<&'static Made>,
    /// The day of the newest pointer that it was observed to follow.
    pub(super) last_followed: Option<Day>,
    /// The newest that it may have followed in a poll between two observations.
    may_have_followed: Option<Day>,
    /// When each pointer, or the pin, was missing last.
    missing: BTreeMap<Option<Day>, Instant>,
    served: Vec<BlobKey>,
    /// Since when a filter is held back without interruption.
    pub(super) held_from: Option<Instant>,
    /// Since when a newer filter is not current, including interruptions by a failing store.
    kept_from: Option<Instant>,
    /// The blob held back. It was verified, so later damage in the store does not matter.
    holds: Option<Digest>,
    pub(super) forced_at: Option<Instant>,
    max_hold: Option<Duration>,
}

impl Oracle {
    /// For a new process; `cached` are the blobs that its cache may contain. `max_hold` is set when
    /// the guard holds.
    pub(super) fn new(cached: Vec<BlobKey>, max_hold: Option<Duration>) -> Oracle {
        let allowed = cached.into_iter().map(|key| (key, Some(Instant::now()))).collect();
        Oracle {
            allowed,
            answers: None,
            last_followed: None,
            may_have_followed: None,
            missing: BTreeMap::new(),
            served: Vec::new(),
            held_from: None,
            kept_from: None,
            holds: None,
            forced_at: None,
            max_hold,
        }
    }

    /// What a poll at `now` should lead to; `None` if that depends on polls between two
    /// observations.
    pub(super) fn target(&self, records: &Records, now: Timestamp) -> Option<Target> {
        let last = self.may_have_followed.max(self.last_followed);
        let target = records.target(now, self.last_followed);
        (target == records.target(now, last)).then_some(target)
    }

    /// Which blobs the cache may contain when this process ends.
    pub(super) fn cacheable(&self) -> Vec<BlobKey> {
        self.served.iter().rev().take(3).cloned().collect()
    }

    /// Records which blobs may be current now; called before and after every change.
    pub(super) fn note(&mut self, records: &Records, now: Timestamp) {
        self.may_have_followed = self.may_have_followed.max(self.last_followed);
        // Only a server without a filter falls back to an older day.
        let polls = if self.answers.is_some() { 1 } else { usize::MAX };
        let [observed, possible] = [self.last_followed, self.may_have_followed]
            .map(|last| records.targets(now, last).into_iter().take(polls));
        let mut targets: Vec<Target> = observed.chain(possible).collect();
        // A poll takes time: a record that it found missing may exist when it reads the next one.
        for last in [self.last_followed, self.may_have_followed] {
            for (place, record) in records.read_in_turn(now, last) {
                match record {
                    None => _ = self.missing.insert(place, Instant::now()),
                    Some(Record::Names(key)) => targets.push(Target::Blob(key.clone(), place)),
                    Some(Record::Garbage) => {}
                }
                if self.missing.get(&place).is_none_or(|at| at.elapsed() > UNDER_WAY) {
                    break;
                }
            }
        }
        for target in &targets {
            if let Target::Blob(_, day) = target {
                self.may_have_followed = self.may_have_followed.max(*day);
            }
        }
        let (at, holds) = (Instant::now(), self.holds);
        let is_usable = |key: &BlobKey| {
            records.is_sound(key) || records.by_delta.contains(key) || holds == Some(key.digest)
        };
        let named = |key: &BlobKey| {
            targets.iter().any(|target| matches!(target, Target::Blob(named, _) if named == key))
        };
        for (key, ended) in &mut self.allowed {
            *ended = if named(key) && is_usable(key) { None } else { ended.or(Some(at)) };
        }
        for target in &targets {
            if let Target::Blob(key, _) = target
                && is_usable(key)
                && !self.allowed.iter().any(|(known, _)| known == key)
            {
                self.allowed.push((key.clone(), None));
            }
        }
        self.allowed.retain(|(key, ended)| {
            holds == Some(key.digest) || ended.is_none_or(|ended| at - ended < UNDER_WAY * 8)
        });
    }

    /// Checks an observation; `since` is the time of the one before.
    pub(super) fn judge(
        &mut self,
        observation: &Observation,
        since: Instant,
    ) -> Result<(), String> {
        let now = Instant::now();
        if let Some(before) = self.answers
            && observation.digest != Some(before.key.digest)
        {
            if observation.digest.is_none() {
                return Err("a filter was lost".into());
            }
            self.judge_guard(before, observation, (since, now))?;
        }
        match observation.digest {
            Some(digest) if self.answers.is_none_or(|before| before.key.digest != digest) => {
                let allowed = self.allowed.iter().find(|(key, _)| key.digest == digest);
                let Some((key, ended)) = allowed else {
                    return Err(format!(
                        "{digest} of {:?} answers; nothing named it",
                        observation.day
                    ));
                };
                // A held filter becomes current in time also while the records cannot be read.
                let held = self.holds == Some(digest) && !observation.well;
                if !held && ended.is_some_and(|ended| ended + UNDER_WAY < since) {
                    return Err(format!("{key} answers; nothing named it for long"));
                }
                self.answers = Some(find(key).ok_or("an unknown blob answers")?);
                self.served.push(key.clone());
            }
            _ => {}
        }
        self.last_followed = self.last_followed.max(observation.pointer_day);
        self.held_from = if observation.held { self.held_from.or(Some(now)) } else { None };
        self.holds = observation.judged.filter(|_| observation.held);
        self.kept_from = if observation.well && !observation.held {
            None
        } else {
            self.kept_from.or(self.held_from)
        };
        if observation.held && self.max_hold.is_none() {
            return Err("a guard that does not hold held".into());
        }
        Ok(())
    }

    /// After a good day, a day of unknown users from its own pointer becomes current only after the
    /// longest hold.
    fn judge_guard(
        &self,
        before: &Made,
        observation: &Observation,
        (since, now): (Instant, Instant),
    ) -> Result<(), String> {
        let Some(max_hold) = self.max_hold else { return Ok(()) };
        let next = observation.digest.and_then(|digest| {
            let (key, _) = self.allowed.iter().find(|(key, _)| key.digest == digest)?;
            find(key)
        });
        let Some(next) = next else { return Ok(()) };
        let strangers = |made: &Made| matches!(made.kind, Kind::Strangers | Kind::OtherStrangers);
        let newer_by_own_pointer =
            next.key.day > before.key.day && observation.pointer_day == Some(next.key.day);
        // Another such blob may have been current between two observations, for example under a pin
        // that ended.
        let may_have_answered =
            |ended: &Option<Instant>| ended.is_none_or(|at| at + UNDER_WAY >= since);
        let strangers_between = self.allowed.iter().any(|(key, ended)| {
            *key != next.key && may_have_answered(ended) && find(key).is_some_and(strangers)
        });
        // Good days that are weeks apart differ as much, so the guard must hold only this change.
        if strangers(before) || strangers_between || !strangers(next) || !newer_by_own_pointer {
            return Ok(());
        }
        // Polls are ten minutes apart, and observations up to forty.
        let slack = Duration::from_secs(3600);
        let held = self.kept_from.is_some_and(|from| now - from + slack >= max_hold);
        let forced = self.forced_at.is_some_and(|at| now - at < UNDER_WAY * 3);
        if held || forced || self.served.contains(&next.key) {
            return Ok(());
        }
        Err(format!("{} of strangers passed the guard", next.key))
    }
}
