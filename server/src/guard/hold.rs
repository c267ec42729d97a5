//! [`GuardHold`]: the guard of one filter between rounds. It remembers the filter that is held back
//! and since when, and writes its verdicts to the log.
//!
//! A filter on hold stays in memory. To fetch it again at each poll would cost the store a blob
//! every ten minutes, and could fail at the end of the hold. Its load needed memory for two filters
//! anyway, and it is dropped before another load.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::protocol::Followed;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{Comparison, Guard, Verdict, compare, verdict_of};
use crate::generation::Generation;
use crate::handle::ServedFilter;
use crate::status::Judged;

/// The guard of one filter.
pub(crate) struct GuardHold {
    mode: Guard,
    max_hold: Duration,
    /// The filter on hold, and what named it.
    held: Option<(Arc<Generation>, Followed)>,
    /// When the hold began. A second blob that is held, too, does not start a new hold: otherwise a
    /// build each hour could keep the old filter current without end.
    since: Option<(Instant, Timestamp)>,
    /// The last verdict. That of a filter on hold ends with it.
    judged: Option<Judged>,
    /// How often each verdict was given.
    verdicts: [u64; Verdict::ALL.len()],
}

/// What to do with a newer day's filter.
pub(crate) enum Decision {
    Swap,
    Hold(String),
}

impl GuardHold {
    pub(crate) fn new(mode: Guard, max_hold: Duration) -> GuardHold {
        GuardHold {
            mode,
            max_hold,
            held: None,
            since: None,
            judged: None,
            verdicts: [0; Verdict::ALL.len()],
        }
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// The last verdict.
    pub(crate) fn judged(&self) -> Option<&Judged> {
        self.judged.as_ref()
    }

    /// How often each verdict was given, by its number.
    pub(crate) fn verdicts(&self) -> [u64; Verdict::ALL.len()] {
        self.verdicts
    }

    /// When the hold ends at the latest.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        let (since, _) = self.since.filter(|_| self.is_holding())?;
        Some(since + self.max_hold)
    }

    /// The filter on hold, which the caller swaps in or judges again.
    pub(crate) fn take_held(&mut self) -> Option<(Arc<Generation>, Followed)> {
        self.held.take()
    }

    /// Ends the hold: the right filter is current.
    pub(crate) fn release(&mut self) {
        self.since = None;
        self.drop_held();
    }

    /// Drops the filter on hold, since no record names it any more.
    pub(crate) fn drop_held(&mut self) {
        self.held = None;
        self.judged.take_if(|judged| judged.verdict == Verdict::Held);
    }

    /// Judges a newer day's filter, and keeps it if the verdict is to hold it back.
    pub(crate) fn judge(
        &mut self,
        served: &ServedFilter,
        (old, new): (&Generation, &Arc<Generation>),
        followed: &Followed,
        force: bool,
        now: Timestamp,
    ) -> Decision {
        if force && self.since.is_none() {
            return Decision::Swap;
        }
        let Some(ids) = served.recent_lookups() else { return Decision::Swap };
        let side = |generation: &Generation| generation.header.fpp_measured();
        let comparison = compare(&ids, (&old.filter, side(old)), (&new.filter, side(new)));
        let (clock, since) = (Instant::now(), self.since.map(|(since, _)| since));
        let verdict = if force {
            Verdict::Forced
        } else {
            verdict_of(self.mode, comparison.as_ref(), since, self.max_hold, clock)
        };
        self.verdicts[verdict as usize] += 1;
        let rates = comparison.as_ref().map_or_else(
            || format!("recent lookups have only {} distinct IDs", ids.len()),
            Comparison::describe,
        );
        if verdict == Verdict::Held {
            self.since.get_or_insert((clock, now));
            self.held = Some((new.clone(), followed.clone()));
        }
        let report = self.report(verdict, &new.key, ids.len(), comparison, now);
        let held_until = self.judged.insert(report).held_until;
        if verdict != Verdict::Held {
            log_swap(verdict, served.name(), new.key.day, &rates);
            return Decision::Swap;
        }
        let until = held_until.map_or(String::new(), |at| format!("{at:.0}"));
        let why = format!(
            "the guard holds {} back until {until} at most: {rates}; if the day is good, reload with \
             force=true, else repoint",
            new.key
        );
        tracing::warn!(filter = %served.name(), "{why}");
        Decision::Hold(why)
    }

    /// A verdict as the status has it.
    fn report(
        &self,
        verdict: Verdict,
        key: &BlobKey,
        lookups: usize,
        comparison: Option<Comparison>,
        at: Timestamp,
    ) -> Judged {
        let held_since = self.since.map(|(_, at)| at);
        let max_hold = SignedDuration::try_from(self.max_hold).unwrap_or(SignedDuration::MAX);
        let end_of = |at: Timestamp| at.saturating_add(max_hold).unwrap_or(Timestamp::MAX);
        Judged {
            verdict,
            day: key.day,
            digest: key.digest,
            lookups: lookups as u64,
            hit_ratio_old: comparison.map(|comparison| comparison.old),
            hit_ratio_new: comparison.map(|comparison| comparison.new),
            difference: comparison.map(|comparison| comparison.difference),
            allowed: comparison.map(|comparison| comparison.allowed),
            at,
            held_since,
            // After the hold, its end has no meaning.
            held_until: held_since.filter(|_| verdict == Verdict::Held).map(end_of),
        }
    }
}

/// Writes to the log why a filter is swapped in.
fn log_swap(verdict: Verdict, filter: &FilterName, day: Day, rates: &str) {
    match verdict {
        Verdict::TooFewLookups => {
            tracing::info!(%filter, %day, "the guard has no verdict: {rates}")
        }
        Verdict::Passed => tracing::info!(%filter, %day, "the guard passes it: {rates}"),
        Verdict::Forced => tracing::warn!(%filter, %day, "forced past the guard: {rates}"),
        Verdict::Warned => tracing::warn!(
            %filter, %day,
            "its hit rate differs too much; it is swapped in all the same, as the guard only warns: {rates}"
        ),
        Verdict::Overdue => tracing::error!(
            %filter, %day,
            "it was held for the longest time allowed (guard_max_hold) and is swapped in now, \
             though its hit rate differs too much: {rates}; repoint if the day is bad"
        ),
        Verdict::Held => unreachable!("what is held is not swapped in"),
    }
}
