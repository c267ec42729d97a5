//! [`Report`]: what came of a build, for whoever ran it and for the history. Decides nothing.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::filter::Layout;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{HistoryEvent, Outcome};
use serde::Serialize;

use crate::gates::{self, Baseline, Counts, Gates, Verdict};
use crate::source::Input;

/// What came of it. Its JSON is the command's report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The filter.
    pub filter: FilterName,
    /// The day.
    pub day: Day,
    /// `published`, `unchanged`, `superseded` or `refused`.
    pub outcome: Outcome,
    /// Whether a pin holds the fleet on another blob meanwhile.
    pub pinned: bool,
    /// The blob; none when there was nothing to build.
    pub blob: Option<BlobKey>,
    /// Its digest.
    pub digest: Option<Digest>,
    /// How bits are arranged.
    pub layout: &'static str,
    /// Distinct IDs.
    pub ids: u64,
    /// Files read.
    pub files: u64,
    /// Files left out because their name, or that of a folder they lie in, is hidden.
    pub files_passed_over: u64,
    /// The first of these.
    pub passed_over: Vec<String>,
    /// The size of the files read.
    pub input_bytes: u64,
    /// How many days' inputs were read together.
    pub window_days: u32,
    /// Those of them that had none.
    pub window_missing: Vec<Day>,
    /// Rows read.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID was empty or longer than 1,024 bytes.
    pub invalid: u64,
    /// The size of the blob.
    pub bytes: u64,
    /// Bits of the filter for each distinct ID.
    pub bits_per_id: f64,
    /// The rate asked for.
    pub fpp_target: f64,
    /// The rate measured.
    pub fpp_measured: f64,
    /// The share of these IDs that the newest earlier day also held, if one could be asked.
    pub overlap: Option<f64>,
    /// What the gates made of the day's numbers.
    pub gates: Vec<Verdict>,
    /// What somebody should know, although it stopped nothing.
    pub warnings: Vec<String>,
    /// Where the time went.
    pub seconds: Seconds,
    /// Why it was not published, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Nothing was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Where a build's time went, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Seconds {
    /// Reading, decoding, hashing, partitioning.
    pub scan: f64,
    /// Removing duplicates.
    pub count: f64,
    /// Setting bits and measuring the rate.
    pub fill: f64,
    /// Digest, upload and reading back.
    pub publish: f64,
    /// Asking every ID.
    pub verify: f64,
    /// All of it.
    pub total: f64,
}

impl Report {
    pub(crate) fn empty(filter: &FilterName, day: Day, layout: Layout, fpp: f64) -> Report {
        Report {
            filter: filter.clone(),
            day,
            outcome: Outcome::Pending,
            pinned: false,
            blob: None,
            digest: None,
            layout: layout.name(),
            ids: 0,
            files: 0,
            files_passed_over: 0,
            passed_over: Vec::new(),
            input_bytes: 0,
            window_days: 1,
            window_missing: Vec::new(),
            rows: 0,
            nulls: 0,
            invalid: 0,
            bytes: 0,
            bits_per_id: 0.0,
            fpp_target: fpp,
            fpp_measured: 0.0,
            overlap: None,
            gates: Vec::new(),
            warnings: Vec::new(),
            seconds: Seconds::default(),
            reason: None,
            dry_run: false,
        }
    }

    /// Takes note of what the input holds.
    pub(crate) fn read_from(&mut self, input: &Input) {
        self.files = input.files.len() as u64;
        self.files_passed_over = input.passed_over;
        self.passed_over.clone_from(&input.passed_over_names);
        self.input_bytes = input.bytes();
        self.window_missing.clone_from(&input.missing);
        input.warnings.iter().for_each(|warning| self.warn(warning.clone()));
    }

    /// Says at once, and in the end, what somebody should know.
    pub(crate) fn warn(&mut self, warning: String) {
        tracing::warn!("{warning}");
        self.warnings.push(warning);
    }

    /// Puts the day's numbers to the gates; returns what failed, in words.
    pub(crate) fn evaluate(
        &mut self,
        overlap: Option<(f64, f64)>,
        baseline: &Baseline,
        gates: &Gates,
    ) -> String {
        let Report { rows, nulls, invalid, ids, files, input_bytes, .. } = *self;
        let (files, input_bytes) = (Some(files), Some(input_bytes));
        let counts = Counts { rows, nulls, invalid, ids, overlap, files, input_bytes };
        self.gates = gates::evaluate(&counts, baseline, gates);
        let failed = self.gates.iter().filter(|verdict| !verdict.passed);
        failed.map(Verdict::to_string).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn refusal(&self, failed: &str, blob: &BlobKey) -> String {
        let Report { filter, day, .. } = self;
        let kept = match self.dry_run {
            true => String::new(),
            false => format!("\n  The blob is kept for inspection at {blob}."),
        };
        format!(
            "{filter} {day} is not like the days before: {failed}; nothing was pointed at{kept}\n  \
             If the input is wrong, mend it and build again. If the change is real: build again with \
             --accept-change 'why'"
        )
    }

    /// The history record with everything the report knows.
    pub(crate) fn to_event(&self, act: HistoryEvent) -> HistoryEvent {
        HistoryEvent {
            outcome: self.outcome,
            reason: self.reason.clone().or(act.reason),
            ids: Some(self.ids),
            rows: Some(self.rows),
            nulls: Some(self.nulls),
            invalid: Some(self.invalid),
            overlap: self.overlap,
            files: (self.files > 0).then_some(self.files),
            files_passed_over: (self.files > 0).then_some(self.files_passed_over),
            input_bytes: (self.files > 0).then_some(self.input_bytes),
            window_missing: self.window_missing.clone(),
            fpp_measured: Some(self.fpp_measured),
            seconds: Some(self.seconds.total),
            ..act
        }
    }
}
