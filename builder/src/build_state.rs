//! [`BuildState`]: how a build begins and ends, wherever its filter comes from: input, parts, or a
//! blob that is there.

use std::collections::BTreeMap;

use bloomsday_common::blob::Header;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, Shape};
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::{self, FollowStep, PublishDecision, RecordState, Retention};
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::earlier_day::Comparison;
use crate::error::Error;
use crate::gates::{Baseline, PointerNow};
use crate::job::Job;
use crate::publish::{PointerSnapshot, PublishPlan, Uploaded};
use crate::report::Report;
use crate::timer::Timer;
use crate::{deltas, publish};

/// What a build has found out so far.
#[derive(Debug)]
pub(crate) struct BuildState {
    /// The pointer as it was at the beginning.
    pub(crate) start: PointerSnapshot,
    /// What the history will say.
    pub(crate) event: HistoryEvent,
    /// When a schedule wanted the build.
    pub(crate) due: Option<Timestamp>,
    pub(crate) report: Report,
    /// Runs from the beginning to the end of the build.
    pub(crate) total: Timer,
}

/// Checks that a job is possible, and reads the pointer.
///
/// # Errors
/// [`Error::FutureDay`], an impossible rate, or the store's.
pub(crate) async fn begin(job: &Job, store: &Store) -> Result<BuildState, Error> {
    let total = Timer::start();
    let event = HistoryEvent {
        day: Some(job.day),
        reason: job.accept_change.clone(),
        ..HistoryEvent::new(EventKind::Build, Outcome::Pending, Timestamp::now(), &job.by)
    };
    check_not_future(job.day, event.at)?;
    // An impossible rate is impossible for any number of IDs, so the check comes before hours of
    // reading.
    Shape::for_ids(job.layout, 1_000_000, job.fpp)?;
    // This read comes first, so the build notices each later change by an operator.
    let start = PointerSnapshot::take(store, &job.filter, job.day).await?;

    let mut report = Report::empty(&job.filter, job.day, job.layout, job.fpp);
    report.dry_run = job.dry_run;
    report.window_days = job.window.days;
    Ok(BuildState { start, event, due: job.due, report, total })
}

/// Ends a build that found no ID.
///
/// # Errors
/// The store's.
pub(crate) async fn refuse_empty(
    job: &Job,
    store: &Store,
    mut state: BuildState,
) -> Result<Report, Error> {
    let report = &mut state.report;
    report.outcome = Outcome::Refused;
    let (rows, nulls, invalid) = (report.rows, report.nulls, report.invalid);
    report.reason = Some(format!(
        "{} {} has no ID: {rows} rows, {nulls} of them null, {invalid} empty or over 1,024 bytes; \
         nothing was published and the pointer is unchanged",
        job.filter, job.day
    ));
    finish(store, state, job.remedy_words).await
}

/// Evaluates the gates, makes deltas, moves the pointer and records the build, whose blob is
/// uploaded and verified.
///
/// # Errors
/// The store's. The pointer is then unchanged.
pub(crate) async fn conclude(
    job: &Job,
    store: &Store,
    mut state: BuildState,
    header: &Header,
    blob: Uploaded<'_>,
    mut compared: Comparison,
) -> Result<Report, Error> {
    let earlier = compared.filter.take();
    compared.warnings.drain(..).for_each(|warning| state.report.warn(warning));
    state.report.overlap = compared.overlap.map(|overlap| overlap.share);
    let plan = publish::plan(store, &state.start, blob.key(), job.retention).await?;
    if let PublishDecision::Advance { .. } = plan.decision {
        let baseline = baseline(store, job, &plan.history, &mut state.report).await?;
        if !passes_gates(job, &mut state, baseline, &compared, blob.key()) {
            return finish(store, state, job.remedy_words).await;
        }
        // Before the pointer moves, so that every server that sees it finds them.
        make_deltas(job, store, &mut state.report, blob, earlier).await;
    }
    advance_or_preview(store, &mut state, plan, header, blob, job.retention).await?;
    finish(store, state, job.remedy_words).await
}

/// What is normal, from the history and from what the pointers of its days name now. Where pointers
/// were lost, the history decides, with a warning.
///
/// # Errors
/// A pointer cannot be read now. One that is no record says nothing.
async fn baseline(
    store: &Store,
    job: &Job,
    history: &[HistoryEvent],
    report: &mut Report,
) -> Result<Baseline, Error> {
    let (mut pointers, mut pointer_days) = (BTreeMap::new(), None);
    loop {
        // A day that does not count makes way for an older one.
        let mut days = Baseline::days_to_read(job.day, history, &pointers);
        days.retain(|day| !pointers.contains_key(day));
        if days.is_empty() {
            let lost = pointers.iter().filter(|(_, now)| **now == PointerNow::Lost);
            let mut lost = lost.map(|(day, _)| *day).rev();
            if let Some(day) =
                lost.find(|day| Baseline::is_accepted(job.day, history, &pointers, *day))
            {
                report.warn(format!(
                    "{day} has an accepted build in the history and no pointer, nor has any day \
                     before: it counts as usual all the same; were the pointers lost?"
                ));
            }
            return Ok(Baseline::of(job.day, history, &pointers));
        }
        for day in days {
            let now = pointer_now(store, job, day, &mut pointer_days).await?;
            pointers.insert(day, now);
        }
    }
}

/// What the pointer of a day names now. `all` has the days with pointers, once they were listed.
///
/// # Errors
/// The store does not say.
async fn pointer_now(
    store: &Store,
    job: &Job,
    day: Day,
    all: &mut Option<Vec<Day>>,
) -> Result<PointerNow, Error> {
    match store.pointer(&job.filter, day).await.map(|read| read.state) {
        Err(error) if error.is_inconclusive() => return Err(error.into()),
        Ok(RecordState::Found(pointer)) => return Ok(PointerNow::Blob(pointer.blob)),
        Ok(RecordState::Absent) => {}
        Ok(RecordState::Unreadable(_)) | Err(_) => return Ok(PointerNow::Unknown),
    }
    if day < Day::of(Timestamp::now()).minus(job.retention.keep_days) {
        return Ok(PointerNow::Unknown);
    }
    let all = match all {
        Some(all) => all,
        None => all.insert(store.pointer_days(&job.filter).await?),
    };
    // Whoever removes one as a rollback leaves those before.
    let has_earlier = all.first().is_some_and(|oldest| *oldest < day);
    Ok(if has_earlier { PointerNow::Removed } else { PointerNow::Lost })
}

/// Evaluates the gates. If the day is refused, the report says why; if its change is accepted, the
/// history will say why.
fn passes_gates(
    job: &Job,
    state: &mut BuildState,
    mut baseline: Baseline,
    compared: &Comparison,
    blob: &BlobKey,
) -> bool {
    let BuildState { event, report, .. } = state;
    if baseline.lacks_ids()
        && let Some((earlier, ids)) = &compared.ids
    {
        report.warn(format!(
            "the history has no accepted build of an earlier day, but a pointer leads to {earlier}: \
             the gate `ids` uses its {ids} IDs only; was the history deleted?"
        ));
        baseline = baseline.or_ids(*ids);
    }
    if report.files > 0 {
        baseline.fewer_files(report.files).into_iter().for_each(|warning| report.warn(warning));
    }
    let failed = report.evaluate(compared.overlap, &baseline, &job.gates);
    if failed.is_empty() {
        return true;
    }
    let Some(why) = &job.accept_change else {
        report.refuse(&failed, blob);
        return false;
    };
    event.reason = Some(format!("{why} (accepted although {failed})"));
    true
}

/// Makes the deltas that the job wants, if the blob is in memory.
async fn make_deltas(
    job: &Job,
    store: &Store,
    report: &mut Report,
    blob: Uploaded<'_>,
    earlier: Option<(BlobKey, Filter)>,
) {
    let Uploaded::InMemory(encoded) = blob else { return };
    if job.deltas.bases == 0 || job.dry_run {
        return;
    }
    let mut timer = Timer::start();
    let warn = |warning| report.warnings.push(warning);
    report.deltas = deltas::make_and_upload(job, store, encoded, earlier, warn).await;
    report.seconds.deltas = timer.lap();
}

/// Moves the pointer as planned; a dry run only says what would happen.
///
/// # Errors
/// The store's. The pointer is then unchanged.
pub(crate) async fn advance_or_preview(
    store: &Store,
    state: &mut BuildState,
    plan: PublishPlan,
    header: &Header,
    blob: Uploaded<'_>,
    retention: Retention,
) -> Result<(), Error> {
    let BuildState { start, event, report, .. } = state;
    *event = report.to_event(event.clone());
    let update = if report.dry_run {
        plan.preview(start, blob.key())?
    } else {
        publish::advance(store, start, plan, header, blob, retention, event).await?
    };
    (report.outcome, report.reason, report.remedy) = (update.outcome, update.reason, update.remedy);
    event.previous = update.previous;
    Ok(())
}

/// Refuses a day that cannot have ended yet.
///
/// # Errors
/// [`Error::FutureDay`] for a day after tomorrow.
pub(crate) fn check_not_future(day: Day, now: Timestamp) -> Result<(), Error> {
    let newest = protocol::newest_buildable(now);
    if day > newest { Err(Error::FutureDay { day, newest }) } else { Ok(()) }
}

/// Completes the report and appends it to the history.
pub(crate) async fn finish(
    store: &Store,
    state: BuildState,
    words: fn(&Remedy) -> String,
) -> Result<Report, Error> {
    let BuildState { event, due, mut report, mut total, .. } = state;
    if let (Some(reason), Some(remedy)) = (&mut report.reason, &report.remedy) {
        *reason = remedy.reword(reason, words);
    }
    report.seconds.total = total.lap();
    report.pinned = match store.pin(&report.filter).await {
        Ok(pin) => {
            !matches!(protocol::follow_pin(&pin.state, Timestamp::now()), FollowStep::ReadOlder)
        }
        // The build is complete; only this field of the report is unknown.
        Err(error) => {
            tracing::warn!("cannot read whether a pin overrides this day's pointer: {error}");
            false
        }
    };
    let event = report.to_event(event);
    let is_event = match report.outcome {
        // Nothing happened.
        Outcome::Unchanged => false,
        Outcome::Refused | Outcome::Superseded => {
            !publish::is_recorded(store, &report.filter, &event, due).await
        }
        _ => true,
    };
    if !report.dry_run && is_event {
        publish::record(store, &report.filter, &event).await;
    }
    crash_point("recorded");
    Ok(report)
}
