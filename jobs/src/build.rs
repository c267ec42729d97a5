//! `bloomsday build`: one day, from Parquet to pointer.

use std::process::ExitCode;

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::Outcome;
use clap::Args;

use crate::config::{FPP, Settings};
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
            Outcome::Published | Outcome::Unchanged | Outcome::Pointing => ExitCode::SUCCESS,
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
        let inputs = if self.input.is_empty() { configured.input } else { self.input };
        if inputs.is_empty() {
            return Err(missing("input"));
        }
        let column = self.column.or(configured.column).ok_or_else(|| missing("column"))?;
        Ok(Job {
            filter: self.filter,
            day: self.day,
            inputs,
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
    pairs(&[
        ("outcome", outcome),
        ("filter", report.filter.to_string()),
        ("day", report.day.to_string()),
        ("blob", or_dash(report.blob.as_ref())),
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
    ])
}
