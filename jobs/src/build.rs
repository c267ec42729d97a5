//! `bloomsday build`: one day, from Parquet to pointer.

use std::process::ExitCode;

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::Outcome;
use clap::Args;

use crate::config::{FPP, Settings, WindowMissing, window};
use crate::error::{Error, exit};
use crate::output::{Output, complain, mebibytes, or_dash, pairs, reason, thousands, who};
use crate::resources::Resources;

/// Build one day: read, count, fill, verify, publish, point.
///
/// Running it again with the same IDs changes nothing.
///
/// Example: bloomsday build rt --day 2026-11-19 --input 's3://dmp/rt/dt={day}/' --column device_id
#[derive(Args)]
pub(crate) struct Build {
    /// The filter.
    filter: FilterName,
    /// The UTC day whose IDs the input holds.
    #[arg(long)]
    day: Day,
    /// A Parquet file, a folder or a glob, local or a URL; may repeat, and may hold {day}.
    #[arg(long, value_name = "URL")]
    input: Vec<String>,
    /// The column with the IDs; dotted when nested.
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// The false-positive probability to size for [default: 0.03].
    #[arg(long, value_name = "RATE")]
    fpp: Option<f64>,
    /// How bits are arranged: blocked or guava [default: blocked].
    #[arg(long)]
    layout: Option<Layout>,
    /// Build from the inputs of so many days, up to and with this one; at most 400 [default: 1].
    #[arg(long, value_name = "N")]
    window_days: Option<u32>,
    /// When earlier days of the window have no input: error, or allow it and name them [default: error].
    #[arg(long, value_name = "error|allow")]
    window_missing: Option<WindowMissing>,
    #[command(flatten)]
    resources: Resources,
    /// Let a suspicious day pass, and record why.
    #[arg(long, value_name = "WHY", value_parser = reason)]
    accept_change: Option<String>,
    /// Build and check, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Build {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let job = self.job(settings)?;
        let store = settings.store_to_write(job.dry_run)?;
        let report = build(&job, &store, &output.build_progress()).await?;
        output.show(&report, || describe(&report));
        if let Some(reason) = &report.reason {
            complain(report.outcome.name(), reason);
        }
        Ok(match report.outcome {
            Outcome::Published | Outcome::Unchanged | Outcome::Pending => ExitCode::SUCCESS,
            Outcome::Superseded => ExitCode::from(exit::SUPERSEDED),
            Outcome::Refused => ExitCode::from(exit::REFUSED),
            Outcome::Failed => ExitCode::from(exit::FAILED),
        })
    }

    /// What the configuration alone says of building `day`.
    pub(crate) fn of(filter: FilterName, day: Day) -> Build {
        Build {
            filter,
            day,
            input: Vec::new(),
            column: None,
            fpp: None,
            layout: None,
            window_days: None,
            window_missing: None,
            resources: Resources::default(),
            accept_change: None,
            dry_run: false,
        }
    }

    pub(crate) fn job(self, settings: &Settings) -> Result<Job, Error> {
        let configured = settings.filter(&self.filter);
        let retention = settings.retention(&self.filter);
        let wrong = |why| Error::Usage(format!("filters.{}.{why}", self.filter));
        configured.gates.check().map_err(wrong)?;
        let missing = |what: &str| {
            let name = &self.filter;
            Error::Usage(format!(
                "no {what} is named: give --{what}, or write `{what}` under [filters.{name}] in \
                 bloomsday.toml"
            ))
        };
        let window = window(&configured, self.window_days, self.window_missing);
        let inputs = if self.input.is_empty() { configured.input } else { self.input };
        if inputs.is_empty() {
            return Err(missing("input"));
        }
        window.check(&inputs)?;
        let column = self.column.or(configured.column).ok_or_else(|| missing("column"))?;
        Ok(Job {
            filter: self.filter,
            day: self.day,
            inputs,
            window,
            column,
            fpp: self.fpp.or(configured.fpp).unwrap_or(FPP),
            layout: self.layout.or(configured.layout).unwrap_or(Layout::Blocked),
            memory: self.resources.memory(configured.memory),
            spill_folder: self.resources.spill_folder(),
            threads: self.resources.threads(),
            by: who(),
            gates: configured.gates,
            accept_change: self.accept_change,
            retention,
            dry_run: self.dry_run,
        })
    }
}

pub(crate) fn describe(report: &Report) -> String {
    let mut outcome = report.outcome.name().to_owned();
    if report.dry_run {
        outcome = format!("{outcome} if it were no dry run: nothing was written");
    }
    if report.pinned {
        outcome += " (pinned: servers stay on the pin until it is removed or expires)";
    }
    let gates = report.gates.iter().map(|verdict| verdict.gate);
    let judged: Vec<&str> = gates.collect();
    let mut lines = vec![
        ("outcome", outcome),
        ("filter", report.filter.to_string()),
        ("day", report.day.to_string()),
        ("blob", or_dash(report.blob.as_ref())),
        ("files", files(report)),
        (
            "rows",
            format!(
                "{} ({} null, {} empty or too long)",
                thousands(report.rows),
                thousands(report.nulls),
                thousands(report.invalid)
            ),
        ),
        ("IDs", format!("{} distinct", thousands(report.ids))),
        (
            "size",
            format!(
                "{}, {:.2} bits an ID, {}",
                mebibytes(report.bytes),
                report.bits_per_id,
                report.layout
            ),
        ),
        ("fpp", format!("{:.6} measured, {} target", report.fpp_measured, report.fpp_target)),
        (
            "overlap",
            report.overlap.map_or("– (no earlier day to compare with)".into(), |share| {
                format!("{:.1} % of these IDs were there the day before", share * 100.0)
            }),
        ),
        (
            "gates",
            match report.gates.iter().filter(|verdict| !verdict.passed).count() {
                _ if judged.is_empty() => "– (not asked)".into(),
                0 => format!("passed: {}", judged.join(", ")),
                failed => format!("{failed} of {} failed", judged.len()),
            },
        ),
        (
            "seconds",
            format!(
                "{:.1}: scan {:.1}, count {:.1}, fill {:.1}, publish {:.1}, verify {:.1}",
                report.seconds.total,
                report.seconds.scan,
                report.seconds.count,
                report.seconds.fill,
                report.seconds.publish,
                report.seconds.verify
            ),
        ),
    ];
    if report.window_days > 1 {
        lines.insert(3, ("window", window_of(report)));
    }
    lines.extend(report.warnings.iter().map(|warning| ("warning", warning.clone())));
    pairs(&lines)
}

/// How many names of files a line for people has; more are in the JSON.
const SHOWN_NAMES: usize = 3;

/// And how many days.
const SHOWN_DAYS: usize = 20;

/// What was read, and what was not.
fn files(report: &Report) -> String {
    let read = format!("{}, {}", thousands(report.files), mebibytes(report.input_bytes));
    if report.files_passed_over == 0 {
        return read;
    }
    let named: Vec<&str> =
        report.passed_over.iter().take(SHOWN_NAMES).map(String::as_str).collect();
    let more = if report.files_passed_over > named.len() as u64 { ", …" } else { "" };
    let count = thousands(report.files_passed_over);
    format!("{read}; {count} passed over for a hidden name: {}{more}", named.join(", "))
}

fn window_of(report: &Report) -> String {
    let days = format!("{} days", report.window_days);
    match report.window_missing.len() {
        0 => days,
        missing => {
            let named = report.window_missing.iter().take(SHOWN_DAYS).map(Day::to_string);
            let named: Vec<String> = named.collect();
            let more = if missing > SHOWN_DAYS { ", …" } else { "" };
            format!("{days}, {missing} of them without input: {}{more}", named.join(", "))
        }
    }
}
