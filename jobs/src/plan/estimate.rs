//! Estimates the time and memory of a day's build on this machine, from two small trial builds.
//!
//! The time of each step is linear in the rows or in the IDs, so two points are enough. The time of
//! a remote store is not included: the input of a trial is in the page cache, and its store is a
//! local folder.

use std::path::PathBuf;

use bloomsday_builder::budget::{Budget, Needs};
use bloomsday_builder::{Job, Seconds, build};
use bloomsday_common::day::Day;
use bloomsday_common::filter::Shape;
use bloomsday_common::memory::available;
use bloomsday_common::store::Store;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::Error;
use crate::output::{binary_size, thousands};
use crate::remedy;
use crate::sample_data::{self, COLUMN, user};

/// IDs of the two trials. A build of fewer than a million IDs samples all of them, and a day's does
/// not.
const FEW: u64 = 1_000_000;
const MANY: u64 = 8_000_000;

/// The build to estimate.
pub(super) struct Workload {
    pub(super) rows: u64,
    pub(super) ids: u64,
    pub(super) shape: Shape,
    pub(super) fpp: f64,
    pub(super) memory: u64,
    pub(super) threads: usize,
    pub(super) spill_folder: PathBuf,
}

/// The result.
pub(super) struct Estimate {
    workload: Workload,
    needs: Needs,
    seconds: Seconds,
    /// Why the build would not fit into memory, if so.
    problem: Option<String>,
}

/// Runs the trials, and estimates the build.
///
/// Cost: some seconds.
///
/// # Errors
/// When the trial builds fail, for want of space for temporary files.
pub(super) async fn estimate(workload: Workload) -> Result<Estimate, Error> {
    let Workload { memory, shape, fpp, threads, .. } = workload;
    let budget = Budget::of(memory, shape.layout(), fpp, threads)?;
    let needs = budget.needs(workload.rows, workload.shape);
    // With a budget of zero a build spills everything, and in pieces so small that it writes them
    // twice, as for a day with duplicates.
    let memory = if needs.spilled > 0 { 0 } else { u64::MAX };
    // The smaller trial runs first and warms the caches for both.
    let (few, many) = (workload.trial(FEW, memory).await?, workload.trial(MANY, memory).await?);
    let at = |few: f64, many: f64, n: u64| {
        let each = (many - few).max(0.0) / (MANY - FEW) as f64;
        (few + each * (n as f64 - FEW as f64)).max(0.0)
    };
    let (rows, ids) = (workload.rows, workload.ids);
    let mut seconds = Seconds {
        scan: at(few.scan, many.scan, rows),
        count: at(few.count, many.count, rows),
        fill: at(few.fill, many.fill, ids),
        publish: at(few.publish, many.publish, ids),
        verify: at(few.verify, many.verify, ids),
        deltas: 0.0,
        total: 0.0,
    };
    let Seconds { scan, count, fill, publish, verify, .. } = seconds;
    seconds.total = scan + count + fill + publish + verify;
    let problem = workload.problem(&needs);
    Ok(Estimate { workload, needs, seconds, problem })
}

impl Workload {
    /// Builds this many IDs, from a temporary file into a temporary store.
    async fn trial(&self, ids: u64, memory: u64) -> Result<Seconds, Error> {
        let doing = format!("try a small build in {}", self.spill_folder.display());
        let folder = tempfile::tempdir_in(&self.spill_folder)
            .map_err(|source| Error::System { doing, source })?;
        let input = folder.path().join("input.parquet");
        sample_data::write(&input, (0..ids).map(user))?;
        let store = Store::create(&folder.path().join("store").display().to_string())?;
        let (filter, day) = ("trial".parse()?, Day::of(Timestamp::now()));
        let inputs = vec![input.display().to_string()];
        let job = Job {
            fpp: self.fpp,
            layout: self.shape.layout(),
            memory,
            spill_folder: self.spill_folder.clone(),
            threads: self.threads,
            by: "bloomsday plan".to_owned(),
            remedy_words: remedy::words,
            ..Job::new(filter, day, inputs, COLUMN.to_owned())
        };
        Ok(build(&job, &store, &|_| ()).await?.seconds)
    }

    fn problem(&self, needs: &Needs) -> Option<String> {
        let filters = binary_size(2 * self.shape.body_bytes());
        let (memory, needed) = (binary_size(self.memory), binary_size(needs.memory));
        // A budget that is too small for what reading takes at least does not stop a build.
        if needs.memory > self.memory && needs.is_due_to_filters {
            return Some(format!(
                "it does not fit into {memory} of memory: the filter and the copy that is read back \
                 take {filters}, and all of it {needed}"
            ));
        }
        let left = available().filter(|left| left.bytes < needs.memory)?;
        let (available, by) = (binary_size(left.bytes), left.by);
        Some(format!("it takes {needed} of memory, and {available} are available ({by})"))
    }
}

impl Estimate {
    pub(super) fn json(&self) -> Value {
        json!({
            "threads": self.workload.threads, "rows": self.workload.rows,
            "memory_budget": self.workload.memory, "memory_bytes": self.needs.memory,
            "in_flight_bytes": self.needs.reading,
            "spilled_bytes": self.needs.spilled, "fits": self.problem.is_none(),
            "because": self.problem, "seconds": self.seconds,
        })
    }

    pub(super) fn page(&self) -> String {
        let Estimate { workload, needs, seconds, problem } = self;
        let spilled = match needs.spilled {
            0 => "nothing is spilled".to_owned(),
            bytes => {
                format!(
                    "up to {} are spilled to {}",
                    binary_size(bytes),
                    workload.spill_folder.display()
                )
            }
        };
        let mut page = format!(
            "\nbuilt here, {} rows with {} thread(s): about {:.0} s, from a trial of {} (local input)\n  \
             scan {:.1}, count {:.1}, fill {:.1}, publish {:.1}, verify {:.1}\n  \
             at most {} of memory, {} of it for what is read (IDs of up to 64 bytes); {spilled}\n",
            thousands(workload.rows),
            workload.threads,
            seconds.total,
            thousands(MANY),
            seconds.scan,
            seconds.count,
            seconds.fill,
            seconds.publish,
            seconds.verify,
            binary_size(needs.memory),
            binary_size(needs.reading),
        );
        if needs.memory > workload.memory && !needs.is_due_to_filters {
            let memory = binary_size(workload.memory);
            page += &format!(
                "  that much is taken also with --memory {memory}: it is built all the same\n"
            );
        }
        if let Some(problem) = problem {
            page += &format!("  {problem}\n");
        }
        page
    }
}
