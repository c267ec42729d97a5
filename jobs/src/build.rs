//! `bloomsday build`: one day, from Parquet to pointer.

use std::process::ExitCode;

use bloomsday_builder::{Job, MAX_DELTA_DAYS, ShapeChoice, build};
use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::reason;
use clap::{Args, ValueEnum};

use crate::config::{BuildOverrides, Settings, WindowMissing};
use crate::error::{Error, exit};
use crate::output::{Output, say};
use crate::report::describe;
use crate::resources::Resources;

/// Build one day: read, count, fill, verify, publish the blob, write the pointer.
///
/// Running it again with the same IDs changes nothing.
///
/// Example: bloomsday build rt --day 2026-11-19 --input 's3://dmp/rt/dt={day}/' --column device_id
/// Example: bloomsday build urls --day 2026-11-19 --input live:
#[derive(Args)]
pub(crate) struct Build {
    /// The name of the filter.
    filter: FilterName,
    /// The UTC day whose IDs the input contains.
    #[arg(long)]
    day: Day,
    /// A Parquet file, a folder or a glob; a path or a URL; may repeat, and may contain {day}. Or
    /// `live:`, what was added to the live filter that day.
    #[arg(long, value_name = "URL")]
    input: Vec<String>,
    /// The column with the IDs; dotted when nested.
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// What is hashed of an ID: its bytes, or the normalised form of a URL [default: bytes].
    #[arg(long, value_name = "bytes|url")]
    id: Option<IdForm>,
    /// The false-positive probability to size for [default: 0.03].
    #[arg(long, value_name = "RATE")]
    fpp: Option<f64>,
    /// The layout of the filter: blocked, guava, spark1 or spark2 [default: blocked].
    #[arg(long)]
    layout: Option<Layout>,
    /// Build from the inputs of N days, the last of which is --day; at most 400 [default: 1].
    #[arg(long, value_name = "N")]
    window_days: Option<u32>,
    /// What to do when earlier days of the window have no input, or segments of live IDs are
    /// missing: fail (error), or name what is missing and go on (allow) [default: error].
    #[arg(long, value_name = "error|allow")]
    window_missing: Option<WindowMissing>,
    /// Publish deltas from the blobs of the last N days, so that servers fetch only what changed;
    /// at most 14 [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DELTA_DAYS)))]
    deltas: Option<u32>,
    /// The filter's shape: that of the blob before while it fits (carried), a new one with headroom
    /// (fresh), or the smallest (exact) [default: carried with deltas, exact without].
    #[arg(long, value_name = "carried|fresh|exact")]
    shape: Option<ShapeFlag>,
    #[command(flatten)]
    resources: Resources,
    /// Publish a day that the gates refuse, and record why.
    #[arg(long, value_name = "WHY", value_parser = reason)]
    accept_change: Option<String>,
    /// Build and verify, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// What `--shape` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShapeFlag {
    Carried,
    Fresh,
    Exact,
}

impl ShapeFlag {
    /// What the library calls it.
    fn choice(self) -> ShapeChoice {
        match self {
            ShapeFlag::Carried => ShapeChoice::Carried,
            ShapeFlag::Fresh => ShapeChoice::Fresh,
            ShapeFlag::Exact => ShapeChoice::Exact,
        }
    }
}

impl Build {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let job = self.job(settings)?;
        let store = settings.store_to_write(job.dry_run)?;
        let report = build(&job, &store, &output.build_progress()).await?;
        output.show(&report, || describe(&report));
        if let Some(reason) = &report.reason {
            say(report.outcome.name(), reason);
        }
        Ok(ExitCode::from(exit::of(report.outcome)))
    }

    fn job(self, settings: &Settings) -> Result<Job, Error> {
        let overrides = BuildOverrides {
            inputs: self.input,
            column: self.column,
            id: self.id,
            fpp: self.fpp,
            layout: self.layout,
            window_days: self.window_days,
            window_missing: self.window_missing,
            deltas: self.deltas,
            shape: self.shape.map(ShapeFlag::choice),
            resources: self.resources,
            accept_change: self.accept_change,
            dry_run: self.dry_run,
        };
        settings.build_job(self.filter, self.day, overrides)
    }
}
