//! [`Rules`]: what a filter's schedule does next, as a pure function of the rules, the time and
//! what was observed. No clock and no I/O here.

use std::collections::BTreeMap;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use jiff::{SignedDuration, Timestamp};

use super::cron::Expression;

/// The pause after the first failure. It doubles with each further one.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause between two attempts.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);
/// After this many failures a run is given up, until a person builds the day or the next run is
/// due.
pub(crate) const MAX_TRIES: usize = 20;

/// The shortest pause after a check, and the shortest time for which what it found holds: a listing
/// may take longer than `settle`.
const MIN_CHECK_PAUSE: Duration = Duration::from_secs(1);
const MIN_CHECK_HOLDS: Duration = Duration::from_secs(60);
/// A run stays due for so long after its deadline, so that it is seen to be late, also when its
/// date is no longer among the days to catch up.
const LATE: Duration = Duration::from_secs(3600);
/// The longest deadline for which it does.
const MAX_LATE_DEADLINE: Duration = Duration::from_secs(86_400);

/// How one filter is scheduled.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// When a run is due.
    pub(crate) expression: Expression,
    /// A run builds the day this many days before its own date.
    pub(crate) day_offset: u32,
    /// Missed runs of this many days before today are made up for.
    pub(crate) catch_up_days: u32,
    /// How long after its run was due an unpublished day is late.
    pub(crate) deadline: Duration,
    /// Input that is the same in two checks this long apart is complete.
    pub(crate) settle: Duration,
    /// Whether only a success marker makes the input ready.
    pub(crate) marker_only: bool,
}

/// What a check of a day's input found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or not every input.
    Nothing,
    /// Input that may still grow, with a number that changes when it does: a hash of the files, or
    /// how many segments there are.
    Incomplete(u64),
    /// Files, and the marker that says that there will be no more.
    Complete,
}

/// The last check of a day's input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputCheck {
    /// When it began.
    pub(crate) at: Timestamp,
    /// When it ended.
    pub(crate) ended: Timestamp,
    /// What it found.
    pub(crate) found: Found,
    /// Since when every check has found this.
    pub(crate) since: Timestamp,
}

/// What has been read of one filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Its events, in any order.
    pub(crate) events: Vec<HistoryEvent>,
    /// When each day's pointer was written; `None` for one written by hand.
    pub(crate) pointers: BTreeMap<Day, Option<Timestamp>>,
    /// The last check of each day's input.
    pub(crate) checks: BTreeMap<Day, InputCheck>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Build this day: its input is ready.
    Build(Day),
    /// Check this day's input.
    CheckInput(Day),
    /// Do nothing before this moment.
    Wait(Timestamp),
}

/// The state of a day that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Published, or an operator decided otherwise.
    Done,
    /// A gate refused it: a person must decide.
    Refused,
    /// To be built, not before this moment.
    Pending(Timestamp),
    /// It failed [`MAX_TRIES`] times.
    GaveUp,
}

impl Standing {
    /// Whether it is to be built, and not only after a pause.
    pub(crate) fn may_run(&self, now: Timestamp) -> bool {
        matches!(self, Standing::Pending(not_before) if *not_before <= now)
    }
}

/// A due day that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenDay {
    pub(crate) day: Day,
    pub(crate) standing: Standing,
    /// Whether it is past its deadline.
    pub(crate) is_late: bool,
}

impl Observed {
    /// Records a check that began at `at`.
    pub(crate) fn checked(&mut self, day: Day, at: Timestamp, ended: Timestamp, found: Found) {
        let before = self.checks.get(&day).filter(|check| check.found == found && check.at <= at);
        let since = before.map_or(at, |check| check.since);
        self.checks.insert(day, InputCheck { at, ended, found, since });
    }
}

impl Rules {
    /// The days whose last run was due within the days to catch up, or whose deadline passed less
    /// than an hour ago: a late run is seen although midnight came. With each, when that run was
    /// due.
    pub(crate) fn due(&self, now: Timestamp) -> BTreeMap<Day, Timestamp> {
        let reported_for = self.deadline.min(MAX_LATE_DEADLINE) + LATE;
        let reported_for = SignedDuration::try_from(reported_for).unwrap_or(SignedDuration::MAX);
        let oldest_reported = now.saturating_sub(reported_for).unwrap_or(Timestamp::MIN);
        let since = Day::of(now).minus(self.catch_up_days + 1).end().min(oldest_reported);
        let before = since.saturating_sub(SignedDuration::from_secs(1)).unwrap_or(since);
        let runs = self.expression.after(before).take_while(|run| *run <= now);
        runs.map(|run| (Day::of(run).minus(self.day_offset), run)).collect()
    }

    /// The next runs after `now`, each with the day it builds.
    pub(crate) fn upcoming(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Day)> + '_ {
        self.expression.after(now).map(|run| (run, Day::of(run).minus(self.day_offset)))
    }

    /// The state of the run of `day` that was due at `due`.
    pub(crate) fn standing(&self, day: Day, due: Timestamp, observed: &Observed) -> Standing {
        let tries = || {
            let of_run = |event: &&HistoryEvent| event.kind == EventKind::Build && event.at >= due;
            observed.events.iter().filter(|event| event.day == Some(day)).filter(of_run)
        };
        match observed.pointers.get(&day) {
            Some(Some(written)) if *written >= due => return Standing::Done,
            // Written by hand: an operator has decided about this day.
            Some(None) => return Standing::Done,
            _ => {}
        }
        let ended = |outcome| tries().any(|event| event.outcome == outcome);
        if [Outcome::Published, Outcome::Unchanged, Outcome::Superseded].into_iter().any(ended) {
            return Standing::Done;
        }
        if ended(Outcome::Refused) {
            return Standing::Refused;
        }
        let failed = || tries().filter(|event| event.outcome == Outcome::Failed);
        let times = failed().count();
        if times >= MAX_TRIES {
            return Standing::GaveUp;
        }
        let Some(last) = failed().map(over).max() else { return Standing::Pending(due) };
        Standing::Pending(later(last, pause(times)))
    }

    /// What to do at `now`.
    ///
    /// The newest day goes first, because servers follow it. An older day whose input never comes
    /// delays no other.
    pub(crate) fn next(&self, now: Timestamp, observed: &Observed) -> Action {
        let mut wake = self.expression.after(now).next().unwrap_or(Timestamp::MAX);
        for (&day, &due) in self.due(now).iter().rev() {
            let Standing::Pending(not_before) = self.standing(day, due, observed) else { continue };
            let check_at = match observed.checks.get(&day) {
                // The check is from before the run was due, or from a clock that was ahead.
                Some(check) if check.at < due || check.ended > now => now,
                None => now,
                Some(check) if self.is_ready(check) && now < self.holds_until(check) => {
                    if not_before <= now {
                        return Action::Build(day);
                    }
                    not_before
                }
                Some(check) => later(check.ended, self.settle.max(MIN_CHECK_PAUSE)).max(not_before),
            };
            if check_at.max(not_before) <= now {
                return Action::CheckInput(day);
            }
            wake = wake.min(check_at.max(not_before));
        }
        Action::Wait(wake)
    }

    /// Until when what a check found is taken for true.
    fn holds_until(&self, check: &InputCheck) -> Timestamp {
        later(check.ended, self.settle.max(MIN_CHECK_HOLDS))
    }

    /// Whether the input is complete, as far as the checks can say.
    fn is_ready(&self, check: &InputCheck) -> bool {
        match check.found {
            Found::Nothing => false,
            Found::Complete => true,
            Found::Incomplete(_) => {
                !self.marker_only && check.at >= later(check.since, self.settle)
            }
        }
    }

    /// The due days that are not done.
    pub(crate) fn open(&self, now: Timestamp, observed: &Observed) -> Vec<OpenDay> {
        let due = self.due(now).into_iter();
        let days = due.map(|(day, due)| OpenDay {
            day,
            standing: self.standing(day, due, observed),
            is_late: now > later(due, self.deadline),
        });
        days.filter(|open| open.standing != Standing::Done).collect()
    }
}

/// When a run ended.
fn over(event: &HistoryEvent) -> Timestamp {
    later(event.at, Duration::try_from_secs_f64(event.seconds.unwrap_or(0.0)).unwrap_or_default())
}

/// How long to wait after this many failures.
fn pause(failures: usize) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    (FIRST_PAUSE * 2u32.pow(doublings)).min(MAX_PAUSE)
}

/// `at` plus `after`, at most the latest timestamp.
pub(crate) fn later(at: Timestamp, after: Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    at.saturating_add(after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
