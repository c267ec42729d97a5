//! `bloomsday schedule --dry-run`: what is due, and the next runs.

use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use jiff::Timestamp;
use serde::Serialize;

use super::Runner;
use crate::error::{Error, exit};
use crate::output::{self, Output, say, table};
use crate::scheduling::rules::{OpenDay, Standing};

/// How many of the next runs are listed.
const MAX_LISTED_RUNS: usize = 3;

#[derive(Serialize)]
struct ScheduleReport {
    filter: FilterName,
    schedule: String,
    /// Due days that are not done.
    open: Vec<OpenDayReport>,
    /// The next runs.
    next: Vec<Upcoming>,
}

#[derive(Serialize)]
struct OpenDayReport {
    day: Day,
    standing: &'static str,
    late: bool,
    /// What the day waits for, if it is to be built.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

#[derive(Serialize)]
struct Upcoming {
    at: Timestamp,
    day: Day,
}

/// Prints what is due and the next runs of every filter.
pub(super) async fn run(runners: Vec<Runner>, output: &Output) -> Result<ExitCode, Error> {
    let (mut rows, mut worst, now) = (Vec::new(), 0, Timestamp::now());
    for mut runner in runners {
        match report_of(&mut runner, now).await {
            Ok(report) => {
                output.show(&report, String::new);
                rows.extend(rows_of(&report));
            }
            // The other filters are listed all the same.
            Err(error) => {
                say("error", &format!("{}: {error}", runner.filter));
                worst = exit::worse(worst, error.exit_status());
            }
        }
    }
    if !output.is_json() {
        output::print(&table(&["filter", "when", "day", "standing", "because"], &rows));
    }
    Ok(ExitCode::from(worst))
}

/// Reads the store and checks the inputs of the days that are due.
async fn report_of(runner: &mut Runner, now: Timestamp) -> Result<ScheduleReport, Error> {
    runner.read_history().await?;
    runner.read_pointers(now).await?;
    for OpenDay { day, standing, .. } in runner.rules.open(now, &runner.observed) {
        // A failed check is reported as what the day waits for.
        if matches!(standing, Standing::Pending(_))
            && let Err(error) = runner.check_input(day, now).await
        {
            tracing::debug!("{error}");
        }
    }
    let open = runner.rules.open(now, &runner.observed).into_iter();
    let open = open.map(|OpenDay { day, standing, is_late: late }| {
        let is_pending = matches!(standing, Standing::Pending(_));
        let because = runner.waits_for(day).filter(|_| is_pending).map(|waits| waits.why);
        let standing = match standing {
            Standing::Done => "done",
            Standing::Pending(_) => "to be built",
            Standing::Refused => "refused",
            Standing::GaveUp => "given up",
        };
        OpenDayReport { day, standing, late, because }
    });
    let next = runner.rules.upcoming(now).take(MAX_LISTED_RUNS);
    Ok(ScheduleReport {
        filter: runner.filter.clone(),
        schedule: runner.rules.expression.to_string(),
        open: open.collect(),
        next: next.map(|(at, day)| Upcoming { at, day }).collect(),
    })
}

fn rows_of(report: &ScheduleReport) -> Vec<Vec<String>> {
    let name = report.filter.to_string();
    let due = report.open.iter().map(|open| {
        let late = if open.late { ", late" } else { "" };
        let standing = format!("{}{late}", open.standing);
        let because = open.because.clone().unwrap_or_default();
        vec![name.clone(), "due".into(), open.day.to_string(), standing, because]
    });
    let next = report.next.iter().map(|next| {
        let (at, day) = (format!("{:.0}", next.at), next.day.to_string());
        vec![name.clone(), at, day, String::new(), String::new()]
    });
    due.chain(next).collect()
}
