//! [`Report`]: the result of a build, for its caller and for the history. Makes no decisions.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::filter::Layout;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{HistoryEvent, Outcome};
use bloomsday_common::remedy::Remedy;
use serde::Serialize;

use crate::deltas::PublishedDelta;
use crate::gates::{self, Baseline, DayCounts, Gates, Overlap, Verdict};
use crate::source::Input;
use crate::stable_shape::ShapeSource;

/// The result of a build or an import. It serializes to the JSON report of the program.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The filter that was built.
    pub filter: FilterName,
    /// The day that the filter is for.
    pub day: Day,
    /// Whether the pointer moved: `published`, `unchanged`, `superseded` or `refused`.
    pub outcome: Outcome,
    /// Whether a pin makes the servers serve another blob.
    pub pinned: bool,
    /// The blob; `None` if there was no ID to build from.
    pub blob: Option<BlobKey>,
    /// The digest of the blob.
    pub digest: Option<Digest>,
    /// How the filter arranges its bits.
    pub layout: &'static str,
    /// The number of distinct IDs.
    pub ids: u64,
    /// The number of files read.
    pub files: u64,
    /// The number of segments of live IDs read, in place of files.
    pub segments: u64,
    /// The number of files that were not read because their name, or the name of a folder above, is
    /// hidden.
    pub files_passed_over: u64,
    /// Some of their names.
    pub passed_over: Vec<String>,
    /// The size of the files read, in bytes.
    pub input_bytes: u64,
    /// How many days of input the filter covers.
    pub window_days: u32,
    /// The days of these without input.
    pub window_missing: Vec<Day>,
    /// The number of rows read.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID was empty or longer than 1,024 bytes.
    pub invalid: u64,
    /// The size of the blob, in bytes.
    pub bytes: u64,
    /// Where the filter's shape came from.
    pub shape: ShapeSource,
    /// The day of the blob whose shape it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape_from: Option<Day>,
    /// The deltas that were published with the blob.
    pub deltas: Vec<PublishedDelta>,
    /// The bits of the filter per distinct ID.
    pub bits_per_id: f64,
    /// The false-positive probability that the filter was sized for.
    pub fpp_target: f64,
    /// The false-positive probability that was measured.
    pub fpp_measured: f64,
    /// The share of the IDs that the newest earlier filter contains, if there is such a filter.
    pub overlap: Option<f64>,
    /// The results of the gates.
    pub gates: Vec<Verdict>,
    /// How many IDs of the input were looked up by their bytes, not only by their hash, in what was
    /// published. Segments contain hashes only.
    pub sampled_ids: u64,
    /// Problems that did not stop the build.
    pub warnings: Vec<String>,
    /// The duration of each step.
    pub seconds: Seconds,
    /// Why the pointer did not move, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the reason says to do.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
    /// Whether this was a dry run, which writes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The duration of each step of a build, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Seconds {
    /// Read, decode, hash and partition.
    pub scan: f64,
    /// Remove duplicates.
    pub count: f64,
    /// Set bits, measure the rate of false positives, and compute the digest.
    pub fill: f64,
    /// Upload, and read back.
    pub publish: f64,
    /// Look up every ID in the bytes read back, and compare with the earlier filter.
    pub verify: f64,
    /// Fetch the blobs before, make deltas, and upload them.
    pub deltas: f64,
    /// The whole build.
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
            segments: 0,
            files_passed_over: 0,
            passed_over: Vec::new(),
            input_bytes: 0,
            window_days: 1,
            window_missing: Vec::new(),
            rows: 0,
            nulls: 0,
            invalid: 0,
            bytes: 0,
            shape: ShapeSource::Exact,
            shape_from: None,
            deltas: Vec::new(),
            bits_per_id: 0.0,
            fpp_target: fpp,
            fpp_measured: 0.0,
            overlap: None,
            gates: Vec::new(),
            sampled_ids: 0,
            warnings: Vec::new(),
            seconds: Seconds::default(),
            reason: None,
            remedy: None,
            dry_run: false,
        }
    }

    /// Adds the numbers of the input.
    pub(crate) fn read_from(&mut self, input: &Input) {
        self.files = input.files.len() as u64;
        self.files_passed_over = input.passed_over;
        self.passed_over.clone_from(&input.passed_over_names);
        self.input_bytes = input.bytes();
        self.window_missing.clone_from(&input.missing);
        input.warnings.iter().for_each(|warning| self.warn(warning.clone()));
    }

    /// Logs a warning and adds it to the report.
    pub(crate) fn warn(&mut self, warning: String) {
        tracing::warn!("{warning}");
        self.warnings.push(warning);
    }

    /// Evaluates the gates. Returns the failed ones as text, which is empty if all passed.
    pub(crate) fn evaluate(
        &mut self,
        overlap: Option<Overlap>,
        baseline: &Baseline,
        gates: &Gates,
    ) -> String {
        let Report { rows, nulls, invalid, ids, files, input_bytes, .. } = *self;
        // The number of segments and their size say how long a server ran: `ids` says how much was
        // added. An engine's own rows come from no files that are known here.
        let is_scanned = files > 0;
        let files = is_scanned.then_some(files);
        let input_bytes = is_scanned.then_some(input_bytes);
        let counts = DayCounts { rows, nulls, invalid, ids, overlap, files, input_bytes };
        self.gates = gates::evaluate(&counts, baseline, gates);
        let failed = self.gates.iter().filter(|verdict| !verdict.passed);
        failed.map(Verdict::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Refuses the blob because of `failed`: sets the outcome, the reason and the remedy.
    pub(crate) fn refuse(&mut self, failed: &str, blob: &BlobKey) {
        let Report { filter, day, .. } = &*self;
        let kept = if self.dry_run {
            String::new()
        } else {
            format!("\n  The blob is kept for inspection at {blob}.")
        };
        let remedy = Remedy::AcceptChange;
        self.reason = Some(format!(
            "{filter} {day} is not like the days before: {failed}; nothing was pointed at{kept}\n  \
             If the input is wrong, mend it and build again. If the change is real: {remedy}"
        ));
        (self.outcome, self.remedy) = (Outcome::Refused, Some(remedy));
    }

    /// Returns `event` with the outcome and the numbers of this report.
    pub(crate) fn to_event(&self, event: HistoryEvent) -> HistoryEvent {
        HistoryEvent {
            outcome: self.outcome,
            reason: self.reason.clone().or(event.reason),
            ids: Some(self.ids),
            rows: Some(self.rows),
            nulls: Some(self.nulls),
            invalid: Some(self.invalid),
            overlap: self.overlap,
            files: (self.files > 0).then_some(self.files),
            files_passed_over: (self.files > 0).then_some(self.files_passed_over),
            input_bytes: (self.files > 0).then_some(self.input_bytes),
            window_missing: self.window_missing.clone(),
            deltas: (!self.deltas.is_empty()).then_some(self.deltas.len() as u64),
            delta_bytes: self.deltas.iter().find(|d| d.from.day < self.day).map(|d| d.bytes),
            fpp_measured: Some(self.fpp_measured),
            seconds: Some(self.seconds.total),
            ..event
        }
    }
}
