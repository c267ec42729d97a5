//! [`Oracle`]: knows the records that others wrote, and from them which blobs may answer. It shares
//! no code with what it judges.

use std::collections::BTreeMap;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use jiff::Timestamp;
use tokio::time::Instant;

use super::blobs::{Kind, Made, find};

/// How long a look and a load begun before a change may still act on what they saw: both deadlines,
/// and the retries between.
const UNDER_WAY: Duration = Duration::from_secs(3 * 300 + 60);

/// A record as its writer meant it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Names(BlobKey),
    Garbage,
}

/// Everything that is in the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) pointers: BTreeMap<Day, Record>,
    pub(super) pin: Option<(Record, Option<Timestamp>)>,
    /// Blobs that are missing or damaged now.
    pub(super) unsound: Vec<BlobKey>,
}

/// What a server that looks now should do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// This should answer; the day is the pointer's, a pin has none.
    Blob(BlobKey, Option<Day>),
    /// What answers should go on.
    Keep,
}

impl Records {
    pub(super) fn is_sound(&self, key: &BlobKey) -> bool {
        !self.unsound.contains(key)
    }

    /// What a look at `now` leads to, by the machine's own clock; `last` is the newest pointer's
    /// day that this process followed.
    fn target(&self, now: Timestamp, last: Option<Day>) -> Target {
        self.targets(now, last).into_iter().next().unwrap_or(Target::Keep)
    }

    /// The same, and what follows if each should prove damaged.
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

    /// What a look reads, in this order: the pin, as no day, and the pointers.
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

/// What is seen of a server at one moment.
pub(super) struct Seen {
    pub(super) digest: Option<Digest>,
    pub(super) day: Option<Day>,
    pub(super) pointer_day: Option<Day>,
    pub(super) held: bool,
    /// The blob that was judged last.
    pub(super) judged: Option<Digest>,
    /// Whether the last look went well.
    pub(super) well: bool,
}

/// Judges one server process after another.
pub(super) struct Oracle {
    /// The blobs that may begin to answer, and since when they no longer may.
    allowed: Vec<(BlobKey, Option<Instant>)>,
    /// The blob that answered when last seen.
    pub(super) answers: Option<&'static Made>,
    /// The newest pointer's day that it was seen to follow.
    pub(super) last_followed: Option<Day>,
    /// The newest that it may have followed unseen: in a poll between two looks at it.
    may_have_followed: Option<Day>,
    /// When each pointer, or the pin, was missing last.
    missing: BTreeMap<Option<Day>, Instant>,
    served: Vec<BlobKey>,
    /// Since when a filter is held back without a break.
    pub(super) held_from: Option<Instant>,
    /// Since when something newer is kept from answering, breaks by a failing store included.
    kept_from: Option<Instant>,
    /// The blob held back: it was verified, whatever becomes of it in the store.
    holds: Option<Digest>,
    pub(super) forced_at: Option<Instant>,
    max_hold: Option<Duration>,
}

impl Oracle {
    /// For a new process; `cached` are the blobs that its cache may hold. `max_hold` is set when
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

    /// What a look at `now` should lead to; nothing when it depends on what was followed unseen.
    pub(super) fn target(&self, records: &Records, now: Timestamp) -> Option<Target> {
        let last = self.may_have_followed.max(self.last_followed);
        let target = records.target(now, self.last_followed);
        (target == records.target(now, last)).then_some(target)
    }

    /// What the cache may hold when this process ends.
    pub(super) fn cacheable(&self) -> Vec<BlobKey> {
        self.served.iter().rev().take(3).cloned().collect()
    }

    /// Takes note of what may answer now; called before and after everything that changes it.
    pub(super) fn note(&mut self, records: &Records, now: Timestamp) {
        self.may_have_followed = self.may_have_followed.max(self.last_followed);
        // Only a server that has nothing goes a day back.
        let polls = if self.answers.is_some() { 1 } else { usize::MAX };
        let [seen, unseen] = [self.last_followed, self.may_have_followed]
            .map(|last| records.targets(now, last).into_iter().take(polls));
        let mut targets: Vec<Target> = seen.chain(unseen).collect();
        // A look takes its time: what it found missing may be there by now, when it reads what
        // comes next.
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
        let is_usable = |key: &BlobKey| records.is_sound(key) || holds == Some(key.digest);
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

    /// Judges what is seen, `since` the last time.
    pub(super) fn judge(&mut self, seen: &Seen, since: Instant) -> Result<(), String> {
        let now = Instant::now();
        if let Some(before) = self.answers
            && seen.digest != Some(before.key.digest)
        {
            if seen.digest.is_none() {
                return Err("a filter was lost".into());
            }
            self.judge_guard(before, seen, (since, now))?;
        }
        match seen.digest {
            Some(digest) if self.answers.is_none_or(|before| before.key.digest != digest) => {
                let allowed = self.allowed.iter().find(|(key, _)| key.digest == digest);
                let Some((key, ended)) = allowed else {
                    return Err(format!("{digest} of {:?} answers; nothing named it", seen.day));
                };
                // What was held answers in time also while nobody can tell who names it.
                let held = self.holds == Some(digest) && !seen.well;
                if !held && ended.is_some_and(|ended| ended + UNDER_WAY < since) {
                    return Err(format!("{key} answers; nothing named it for long"));
                }
                self.answers = Some(find(key).ok_or("an unknown blob answers")?);
                self.served.push(key.clone());
            }
            _ => {}
        }
        self.last_followed = self.last_followed.max(seen.pointer_day);
        self.held_from = if seen.held { self.held_from.or(Some(now)) } else { None };
        self.holds = seen.judged.filter(|_| seen.held);
        self.kept_from = match seen.well && !seen.held {
            true => None,
            false => self.kept_from.or(self.held_from),
        };
        if seen.held && self.max_hold.is_none() {
            return Err("a guard that does not hold held".into());
        }
        Ok(())
    }

    /// A day of strangers after a good one, by its own pointer, answers only after the longest
    /// hold.
    fn judge_guard(
        &self,
        before: &Made,
        seen: &Seen,
        (since, now): (Instant, Instant),
    ) -> Result<(), String> {
        let Some(max_hold) = self.max_hold else { return Ok(()) };
        let next = seen.digest.and_then(|digest| {
            let (key, _) = self.allowed.iter().find(|(key, _)| key.digest == digest)?;
            find(key)
        });
        let Some(next) = next else { return Ok(()) };
        let strangers = |made: &Made| matches!(made.kind, Kind::Strangers | Kind::OtherStrangers);
        let newer_by_own_pointer =
            next.key.day > before.key.day && seen.pointer_day == Some(next.key.day);
        // Other strangers may have answered in between, unseen: under a pin that ended, say.
        let may_have_answered =
            |ended: &Option<Instant>| ended.is_none_or(|at| at + UNDER_WAY >= since);
        let strangers_between = self.allowed.iter().any(|(key, ended)| {
            *key != next.key && may_have_answered(ended) && find(key).is_some_and(strangers)
        });
        // Good days weeks apart differ as well, so only this change is one that must be held.
        if strangers(before) || strangers_between || !strangers(next) || !newer_by_own_pointer {
            return Ok(());
        }
        // Looks are ten minutes apart, and what is seen of them up to forty.
        let slack = Duration::from_secs(3600);
        let held = self.kept_from.is_some_and(|from| now - from + slack >= max_hold);
        let forced = self.forced_at.is_some_and(|at| now - at < UNDER_WAY * 3);
        if held || forced || self.served.contains(&next.key) {
            return Ok(());
        }
        Err(format!("{} of strangers passed the guard", next.key))
    }
}
