//! What a day will take on this machine: two small builds are run here and now, and the rest follows.
//!
//! All that a build does grows with its rows or its IDs, so two points make a line. What a store far away
//! adds is not in it: the trial's input is in the page cache and its store a local folder.

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
use crate::output::{mebibytes, thousands};
use crate::remedy;
use crate::sample_data::{self, COLUMN, user};

/// IDs of the two trials. Of fewer than a million a build samples each, which it does not of a day's.
const FEW: u64 = 1_000_000;
const MANY: u64 = 8_000_000;

/// What to foretell.
pub(super) struct Workload {
    pub(super) rows: u64,
    pub(super) ids: u64,
    pub(super) shape: Shape,
    pub(super) fpp: f64,
    pub(super) memory: u64,
    pub(super) threads: usize,
    pub(super) spill_folder: PathBuf,
}

/// The answer.
pub(super) struct Estimate {
    workload: Workload,
    needs: Needs,
    seconds: Seconds,
    /// Why the day would not fit, if so.
    trouble: Option<String>,
}

/// Tries, and foretells. Takes seconds.
///
/// # Errors
/// When the trial builds fail, for want of space for temporary files.
pub(super) async fn estimate(workload: Workload) -> Result<Estimate, Error> {
    let Workload { memory, shape, fpp, threads, .. } = workload;
    let budget = Budget::of(memory, shape.layout(), fpp, threads)?;
    let needs = budget.needs(workload.rows, workload.shape);
    // A budget of nothing spills everything, in pieces so small that it is written twice, as a day with
    // duplicates is.
    let memory = if needs.spilled > 0 { 0 } else { u64::MAX };
    // The first one warms up what both need.
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
        total: 0.0,
    };
    let Seconds { scan, count, fill, publish, verify, .. } = seconds;
    seconds.total = scan + count + fill + publish + verify;
    let trouble = workload.trouble(&needs);
    Ok(Estimate { workload, needs, seconds, trouble })
}

impl Workload {
    /// Builds so many IDs from a file of their own into a store of their own.
    async fn trial(&self, ids: u64, memory: u64) -> Result<Seconds, Error> {
        let doing = format!("try a small build in {}", self.spill_folder.display());
        let folder = tempfile::tempdir_in(&self.spill_folder)
            .map_err(|source| Error::System { doing, source })?;
        let input = folder.path().join("input.parquet");
        sample_data::write(&input, (0..ids).map(user))?;
        let store = Store::create(&folder.path().join("store").display().to_string())?;
        let job = Job {
            filter: "trial".parse()?,
            day: Day::of(Timestamp::now()),
            inputs: vec![input.display().to_string()],
            window: Default::default(),
            column: COLUMN.to_owned(),
            fpp: self.fpp,
            layout: self.shape.layout(),
            memory,
            spill_folder: self.spill_folder.clone(),
            threads: self.threads,
            by: "bloomsday plan".to_owned(),
            gates: Default::default(),
            accept_change: None,
            retention: Default::default(),
            remedy_words: remedy::words,
            dry_run: false,
        };
        Ok(build(&job, &store, &|_| ()).await?.seconds)
    }

    fn trouble(&self, needs: &Needs) -> Option<String> {
        let filters = mebibytes(2 * self.shape.body_bytes());
        let (memory, needed) = (mebibytes(self.memory), mebibytes(needs.memory));
        if needs.memory > self.memory {
            return Some(format!(
                "it does not fit into {memory} of memory: the filter and the copy that is read back \
                 take {filters}, and all of it {needed}"
            ));
        }
        let there = available().filter(|there| there.bytes < needs.memory)?;
        let (available, by) = (mebibytes(there.bytes), there.by);
        Some(format!("it takes {needed} of memory, and {available} are available ({by})"))
    }
}

impl Estimate {
    pub(super) fn json(&self) -> Value {
        json!({
            "threads": self.workload.threads, "rows": self.workload.rows,
            "memory_budget": self.workload.memory, "memory_bytes": self.needs.memory,
            "spilled_bytes": self.needs.spilled, "fits": self.trouble.is_none(),
            "because": self.trouble, "seconds": self.seconds,
        })
    }

    pub(super) fn page(&self) -> String {
        let Estimate { workload, needs, seconds, trouble } = self;
        let spilled = match needs.spilled {
            0 => "nothing is spilled".to_owned(),
            bytes => {
                format!(
                    "up to {} are spilled to {}",
                    mebibytes(bytes),
                    workload.spill_folder.display()
                )
            }
        };
        let mut page = format!(
            "\nbuilt here, {} rows with {} thread(s): about {:.0} s, by a trial of {} (input at hand)\n  \
             scan {:.1}, count {:.1}, fill {:.1}, publish {:.1}, verify {:.1}\n  \
             up to {} of memory; {spilled}\n",
            thousands(workload.rows),
            workload.threads,
            seconds.total,
            thousands(MANY),
            seconds.scan,
            seconds.count,
            seconds.fill,
            seconds.publish,
            seconds.verify,
            mebibytes(needs.memory),
        );
        if let Some(trouble) = trouble {
            page += &format!("  {trouble}\n");
        }
        page
    }
}
