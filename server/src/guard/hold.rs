//! [`GuardHold`]: the guard of one filter between rounds. It remembers the filter held back and
//! since when, and writes what it found into status and log.
//!
//! A held filter stays in memory. Fetching it again at each poll would cost the store a blob every
//! ten minutes and could fail just when it is to answer; room for two filters was needed to load it
//! anyway, and it goes before another is loaded.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::protocol::Followed;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{Guard, Verdict, compare, decide};
use crate::generation::Generation;
use crate::handle::ServedFilter;
use crate::status::{Judged, PollStatus};

/// The guard of one filter.
pub(crate) struct GuardHold {
    mode: Guard,
    max_hold: Duration,
    /// With what named it.
    held: Option<(Arc<Generation>, Followed)>,
    /// When the filter that answers was first kept instead of a newer one. A mended blob that is
    /// held too does not start it anew: so nobody's fleet is frozen by a build an hour.
    since: Option<(Instant, Timestamp)>,
}

/// What is to be done about a newer day's filter.
pub(crate) enum Decision {
    Swap,
    Hold(String),
}

impl GuardHold {
    pub(crate) fn new(mode: Guard, max_hold: Duration) -> GuardHold {
        GuardHold { mode, max_hold, held: None, since: None }
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// When the filter held back is to answer at the latest.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let (since, _) = self.since.filter(|_| self.is_holding())?;
        Some(since + self.max_hold)
    }

    /// The filter held back, which the caller swaps or judges again.
    pub(crate) fn take_held(&mut self) -> Option<(Arc<Generation>, Followed)> {
        self.held.take()
    }

    /// The right filter answers: nothing is held any more.
    pub(crate) fn release(&mut self, poll_status: &mut PollStatus) {
        self.since = None;
        self.drop_held(poll_status);
    }

    /// Nothing names the filter held back any more.
    pub(crate) fn drop_held(&mut self, poll_status: &mut PollStatus) {
        self.held = None;
        if poll_status.judged.as_ref().is_some_and(|judged| judged.verdict == Verdict::Held) {
            poll_status.judged = None;
        }
    }

    /// Judges a newer day's filter, and keeps it if it is to be held back.
    pub(crate) fn judge(
        &mut self,
        served: &ServedFilter,
        (old, new): (&Generation, &Arc<Generation>),
        followed: &Followed,
        force: bool,
        now: Timestamp,
        poll_status: &mut PollStatus,
    ) -> Decision {
        if force && self.since.is_none() {
            return Decision::Swap;
        }
        let Some(questions) = served.recent_lookups() else { return Decision::Swap };
        let side = |generation: &Generation| generation.header.fpp_measured();
        let comparison = compare(&questions, (&old.filter, side(old)), (&new.filter, side(new)));
        let (clock, since) = (Instant::now(), self.since.map(|(since, _)| since));
        let verdict = match force {
            true => Verdict::Forced,
            false => decide(self.mode, comparison.as_ref(), since, self.max_hold, clock),
        };
        if verdict == Verdict::Held {
            self.since.get_or_insert((clock, now));
            self.held = Some((new.clone(), followed.clone()));
        }
        let held_since = self.since.map(|(_, at)| at);
        let max_hold = SignedDuration::try_from(self.max_hold).unwrap_or(SignedDuration::MAX);
        // After the hold ended, its end says nothing.
        let pinned = held_since.filter(|_| verdict == Verdict::Held);
        let held_until = pinned.map(|at| at.saturating_add(max_hold).unwrap_or(Timestamp::MAX));
        poll_status.counts.verdicts[verdict as usize] += 1;
        poll_status.judged = Some(Judged {
            verdict,
            day: new.key.day,
            digest: new.key.digest,
            questions: questions.len() as u64,
            hit_ratio_old: comparison.map(|comparison| comparison.old),
            hit_ratio_new: comparison.map(|comparison| comparison.new),
            difference: comparison.map(|comparison| comparison.difference),
            allowed: comparison.map(|comparison| comparison.allowed),
            at: now,
            held_since,
            held_until,
        });
        let (filter, day) = (served.name(), new.key.day);
        let rates = comparison.map_or_else(
            || format!("only {} distinct IDs were asked lately", questions.len()),
            |comparison| comparison.describe(),
        );
        match verdict {
            Verdict::TooFewQuestions => tracing::info!(%filter, %day, "the guard is off: {rates}"),
            Verdict::Passed => tracing::info!(%filter, %day, "the guard passes it: {rates}"),
            Verdict::Forced => tracing::warn!(%filter, %day, "forced past the guard: {rates}"),
            Verdict::Warned => tracing::warn!(
                %filter, %day,
                "it answers quite differently, and is swapped in all the same (guard = \"warn\"): {rates}"
            ),
            Verdict::Overdue => tracing::error!(
                %filter, %day,
                "it was held for the longest time allowed (guard_max_hold) and is swapped in now, \
                 though it answers quite differently: {rates}; repoint if the day is bad"
            ),
            Verdict::Held => {
                let until = held_until.map_or(String::new(), |at| format!("{at:.0}"));
                let why = format!(
                    "the guard holds {} back until {until} at most: {rates}; if the day is good, \
                     reload with force=true, else repoint",
                    new.key
                );
                tracing::warn!(%filter, "{why}");
                return Decision::Hold(why);
            }
        }
        Decision::Swap
    }
}
