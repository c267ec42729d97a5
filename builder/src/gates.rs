//! [`Gates`]: compares a day's numbers with absolute limits and with earlier days.
//!
//! Pure functions of counts and the history; knows no files, filters or pointers. A number passes
//! or fails like this:
//!
//! ```text
//!    passes          passes unless above band × baseline        refused
//! ──────────────┼────────────────────────────────────────┼──────────────
//!             floor                                     cap
//! ```
//!
//! For `overlap`, where a small number is suspicious, the picture is mirrored. `ids`, `files` and
//! `input_bytes` are refused on both sides of their band.

mod baseline;
mod counts;
mod gate;

use serde::{Deserialize, Serialize};

pub use self::baseline::{BASELINE_DAYS, Baseline, MAX_BASELINE_AGE_DAYS, PointerNow};
use self::counts::Numbers;
pub use self::counts::{DayCounts, Overlap};
pub use self::gate::Gate;

/// The overlap has a sampling error. It is refused only if it is this many deviations below its
/// limit.
const OVERLAP_DEVIATIONS: f64 = 3.0;

/// The limits of one gate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The lower absolute limit.
    pub floor: f64,
    /// The tolerated factor above (or below) the baseline; at least 1.
    pub band: f64,
    /// The upper absolute limit.
    pub cap: f64,
}

/// The limits that make a day suspicious. A build refuses a suspicious day.
///
/// ```
/// use bloomsday_builder::gates::{Baseline, DayCounts, Gate, Gates, Limits, evaluate};
///
/// let gates = Gates { ids: Limits { floor: 1_000.0, band: 2.0, cap: 1e9 }, ..Gates::default() };
/// gates.check().unwrap();
///
/// // Yesterday had 1,000,000 IDs; today has 400,000, which is less than half.
/// let baseline = Baseline::default().or_ids(1_000_000);
/// let counts = DayCounts { rows: 500_000, ids: 400_000, ..DayCounts::default() };
/// let verdicts = evaluate(&counts, &baseline, &gates);
/// let ids = verdicts.iter().find(|verdict| verdict.gate == Gate::Ids).unwrap();
/// assert!(!ids.passed);
/// assert_eq!((ids.low, ids.high), (500_000.0, 2_000_000.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gates {
    /// Distinct IDs. Fewer than `floor` or more than `cap` are refused; in between the number must
    /// be within a factor of `band` of the baseline's median.
    pub ids: Limits,
    /// Share of rows without an ID. Up to `floor` passes, and more than `cap` is refused; in
    /// between the share must not exceed `band` × the median.
    pub nulls: Limits,
    /// Share of rows whose ID is empty or too long; the rule is that of `nulls`.
    pub invalid: Limits,
    /// Rows with an ID per distinct ID; the rule is that of `nulls`, with the newest earlier day in
    /// place of the median.
    pub duplicates: Limits,
    /// Share of IDs that the newest earlier filter contains. Less than `floor` is refused, and
    /// `cap` or more passes; in between the share must be at least the median / `band`.
    pub overlap: Limits,
    /// Files read; the rule is that of `ids`. The default band is wide, because compaction may
    /// change the number tenfold. One file less than on all earlier days causes a warning only.
    pub files: Limits,
    /// The size of these files, with all columns, compressed; the rule is that of `ids`. The
    /// default band permits another codec, or a few more columns.
    pub input_bytes: Limits,
}

impl Default for Gates {
    fn default() -> Gates {
        let limits = |floor, band, cap| Limits { floor, band, cap };
        Gates {
            ids: limits(1.0, 2.0, 2e10),
            nulls: limits(0.01, 3.0, 0.5),
            invalid: limits(0.001, 3.0, 0.1),
            duplicates: limits(2.0, 3.0, 1000.0),
            overlap: limits(0.01, 2.0, 0.9),
            files: limits(1.0, 12.0, 1e6),
            input_bytes: limits(1.0, 4.0, 1e16),
        }
    }
}

impl Gates {
    /// The limits of a gate.
    pub fn limits(&self, gate: Gate) -> Limits {
        match gate {
            Gate::Ids => self.ids,
            Gate::Nulls => self.nulls,
            Gate::Invalid => self.invalid,
            Gate::Duplicates => self.duplicates,
            Gate::Overlap => self.overlap,
            Gate::Files => self.files,
            Gate::InputBytes => self.input_bytes,
        }
    }

    /// Checks that the limits are possible.
    ///
    /// # Errors
    /// The key, and what is wrong with its limits.
    pub fn check(&self) -> Result<(), String> {
        for gate in Gate::ALL {
            let (name, Limits { floor, band, cap }) = (gate.name(), self.limits(gate));
            if !(band.is_finite() && band >= 1.0) {
                let why = "and must be a number of at least 1";
                return Err(format!("gates.{name}: band is {band}, {why}"));
            }
            if !(0.0 <= floor && floor <= cap) {
                return Err(format!(
                    "gates.{name}: floor is {floor} and cap is {cap}, and must be 0 <= floor <= cap"
                ));
            }
        }
        Ok(())
    }
}

/// The result of one gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The gate.
    pub gate: Gate,
    /// The day's number.
    pub value: f64,
    /// The baseline; `None` without earlier days.
    pub norm: Option<f64>,
    /// The gate refuses less than this. `ids` refuses this itself when half of the files are
    /// missing.
    pub low: f64,
    /// The gate refuses more than this.
    pub high: f64,
    /// Whether the day passed.
    pub passed: bool,
    /// Whether `ids` refused its lower limit itself.
    #[serde(skip)]
    pub is_half_missing: bool,
}

/// Evaluates all gates for a day. A gate without a number, such as `overlap` without an earlier
/// day, has no verdict.
pub fn evaluate(counts: &DayCounts, baseline: &Baseline, gates: &Gates) -> Vec<Verdict> {
    let numbers = Numbers::of(counts);
    let (files, usual_files) = (numbers[Gate::Files], baseline.norms[Gate::Files]);
    let has_half_of_files = files.zip(usual_files).is_some_and(|(files, norm)| 2.0 * files <= norm);
    let tolerance = counts.overlap.map_or(0.0, |overlap| OVERLAP_DEVIATIONS * overlap.deviation);
    let verdict = |gate: Gate| {
        let (value, norm) = (numbers[gate]?, baseline.norms[gate]);
        let (low, high) = passing(gate, norm, gates.limits(gate));
        // The lower limit itself passes, which is half of the IDs. With half of the files, the
        // other half is missing.
        let is_half_missing = gate == Gate::Ids && has_half_of_files && value == low;
        let tolerance = if gate == Gate::Overlap { tolerance } else { 0.0 };
        let passed = value + tolerance >= low && value <= high && !is_half_missing;
        Some(Verdict { gate, value, norm, low, high, passed, is_half_missing })
    };
    Gate::ALL.into_iter().filter_map(verdict).collect()
}

/// The least and the largest number that pass a gate. Without a baseline only the absolute limits
/// count.
fn passing(gate: Gate, norm: Option<f64>, limits: Limits) -> (f64, f64) {
    let Limits { floor, band, cap } = limits;
    let below = norm.map(|norm| (norm / band).clamp(floor, cap));
    let above = norm.map(|norm| (norm * band).clamp(floor, cap));
    match gate {
        Gate::Ids | Gate::Files | Gate::InputBytes => {
            (below.unwrap_or(floor), above.unwrap_or(cap))
        }
        Gate::Nulls | Gate::Invalid | Gate::Duplicates => (0.0, above.unwrap_or(cap)),
        Gate::Overlap => (below.unwrap_or(floor), 1.0),
    }
}

impl std::fmt::Display for Verdict {
    /// Formats the numbers in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { gate, value, norm, low, high, passed, is_half_missing } = self;
        let number = |value: f64| match value {
            value if value.fract() == 0.0 => format!("{value:.0}"),
            value if value < 0.001 => format!("{value:.1e}"),
            value => format!("{value:.4}"),
        };
        let verdict = if *passed {
            "lies within"
        } else if *is_half_missing {
            "lies, with half of the files missing, on the lower end of"
        } else {
            "lies outside"
        };
        let (value, low, high) = (number(*value), number(*low), number(*high));
        let (gate, what) = (gate.name(), gate.what());
        write!(f, "{gate}: {what} {value} {verdict} {low} to {high}")?;
        match norm {
            Some(norm) => write!(f, " (usual: {})", number(*norm)),
            None => write!(f, " (no earlier day has this number)"),
        }
    }
}

#[cfg(test)]
mod tests;
