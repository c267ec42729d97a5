//! What a filter's schedule wants next, as a pure function: the rules, the time, what has happened and
//! what the input looked like → the next act. No clock and no I/O here.

use std::collections::BTreeMap;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use jiff::{SignedDuration, Timestamp};

use super::expression::Expression;

/// The pause after a first failure; it doubles with each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause between two tries.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);
/// A run that failed so often is given up until somebody builds the day by hand, or the next run is due.
pub(super) const MAX_TRIES: usize = 20;

/// How one filter is scheduled.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// When.
    pub(crate) expression: Expression,
    /// A run builds its own date minus so many days.
    pub(crate) day_offset: u32,
    /// Runs of so many dates before today's are made up for when they were missed.
    pub(crate) catch_up_days: u32,
    /// A day that is not published so long after its run was due is late.
    pub(crate) deadline: Duration,
    /// Input that looks the same so long apart has stopped changing.
    pub(crate) settle: Duration,
    /// Whether only a success marker makes the input ready.
    pub(crate) marker_only: bool,
}

/// What a look at a day's input found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or not all of it.
    Nothing,
    /// Files, told apart from other files by this number.
    Files(u64),
    /// Files, and beside them the marker that says there will be no more.
    Complete,
}

/// The last look at a day's input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// When.
    pub(super) at: Timestamp,
    /// What was there.
    pub(super) found: Found,
    /// When this was first found, unchanged since.
    pub(super) since: Timestamp,
}

/// What is known of one filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Acts on it, in any order.
    pub(super) acts: Vec<HistoryEvent>,
    /// When each day's pointer was written; `None` for one written by hand.
    pub(super) pointers: BTreeMap<Day, Option<Timestamp>>,
    /// The last look at each day's input.
    pub(super) looks: BTreeMap<Day, Look>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Build this day: its input is ready.
    Build(Day),
    /// Look at this day's input.
    Look(Day),
    /// Nothing before this moment.
    Wait(Timestamp),
}

/// How a day that was due stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Published, or an operator decided otherwise.
    Done,
    /// A gate refused it: a person must look.
    Refused,
    /// To be tried, not before this moment.
    Pending(Timestamp),
    /// It failed too often.
    GaveUp,
}

impl Known {
    /// Takes note of a look.
    pub(super) fn looked(&mut self, day: Day, at: Timestamp, found: Found) {
        let before = self.looks.get(&day).filter(|look| look.found == found && look.at <= at);
        let since = before.map_or(at, |look| look.since);
        self.looks.insert(day, Look { at, found, since });
    }
}

impl Rules {
    /// The days whose run is due at `now` or was within the days to catch up, each with the latest
    /// moment it was due.
    pub(super) fn due(&self, now: Timestamp) -> BTreeMap<Day, Timestamp> {
        let first = Day::of(now).minus(self.catch_up_days + 1).end();
        let before = first.saturating_sub(SignedDuration::from_secs(1)).unwrap_or(first);
        let runs = self.expression.after(before).take_while(|run| *run <= now);
        runs.map(|run| (Day::of(run).minus(self.day_offset), run)).collect()
    }

    /// The next runs after `now`, each with the day it builds.
    pub(crate) fn upcoming(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Day)> + '_ {
        self.expression.after(now).map(|run| (run, Day::of(run).minus(self.day_offset)))
    }

    /// How the run of `day` that was due at `due` stands.
    pub(super) fn standing(&self, day: Day, due: Timestamp, known: &Known) -> Standing {
        let tries = || {
            let of_run = |act: &&HistoryEvent| act.act == EventKind::Build && act.at >= due;
            known.acts.iter().filter(|act| act.day == Some(day)).filter(of_run)
        };
        match known.pointers.get(&day) {
            Some(Some(written)) if *written >= due => return Standing::Done,
            // By hand: an operator has decided about this day.
            Some(None) => return Standing::Done,
            _ => {}
        }
        let ended = |outcome| tries().any(|act| act.outcome == outcome);
        if [Outcome::Published, Outcome::Unchanged, Outcome::Superseded].into_iter().any(ended) {
            return Standing::Done;
        }
        if ended(Outcome::Refused) {
            return Standing::Refused;
        }
        let failed = || tries().filter(|act| act.outcome == Outcome::Failed);
        let times = failed().count();
        if times >= MAX_TRIES {
            return Standing::GaveUp;
        }
        let Some(last) = failed().map(over).max() else { return Standing::Pending(due) };
        Standing::Pending(later(last, pause(times)))
    }

    /// What to do at `now`.
    ///
    /// The newest day goes first: it is the one that servers follow. An older day whose input never
    /// comes holds nothing up.
    pub(super) fn next(&self, now: Timestamp, known: &Known) -> Next {
        let mut wake = self.expression.after(now).next().unwrap_or(Timestamp::MAX);
        for (&day, &due) in self.due(now).iter().rev() {
            let Standing::Pending(not_before) = self.standing(day, due, known) else { continue };
            let look_at = match known.looks.get(&day) {
                // From before the run was due, or from a clock that was ahead.
                Some(look) if look.at < due || look.at > now => now,
                None => now,
                Some(look) if self.is_ready(look) && now < later(look.at, self.settle) => {
                    if not_before <= now {
                        return Next::Build(day);
                    }
                    not_before
                }
                Some(look) => later(look.at, self.settle).max(not_before),
            };
            if look_at.max(not_before) <= now {
                return Next::Look(day);
            }
            wake = wake.min(look_at.max(not_before));
        }
        Next::Wait(wake)
    }

    /// Whether the input is whole, as far as can be told.
    fn is_ready(&self, look: &Look) -> bool {
        match look.found {
            Found::Nothing => false,
            Found::Complete => true,
            Found::Files(_) => !self.marker_only && look.at >= later(look.since, self.settle),
        }
    }

    /// The due days that are not done, each with whether it is past its deadline.
    pub(super) fn open(&self, now: Timestamp, known: &Known) -> Vec<(Day, Standing, bool)> {
        let due = self.due(now).into_iter();
        due.map(|(day, due)| (day, self.standing(day, due, known), due))
            .filter(|(_, standing, _)| *standing != Standing::Done)
            .map(|(day, standing, due)| (day, standing, now > later(due, self.deadline)))
            .collect()
    }
}

/// When a run was over.
fn over(act: &HistoryEvent) -> Timestamp {
    later(act.at, Duration::try_from_secs_f64(act.seconds.unwrap_or(0.0)).unwrap_or_default())
}

/// How long to wait after so many failures.
fn pause(failures: usize) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    (FIRST_PAUSE * 2u32.pow(doublings)).min(LONGEST_PAUSE)
}

/// `after` later than `at`, at most the end of time.
pub(super) fn later(at: Timestamp, after: Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    at.saturating_add(after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
