//! [`Gates`]: compares a day's numbers with absolute limits and with earlier days.
//!
//! Pure functions of counts and the history; knows no files, filters or pointers. A number passes
//! or fails like this. For `overlap`, where a small number is suspicious, the picture is mirrored.
//! `ids`, `files` and `input_bytes` are refused on both sides of their band.
//!
//! ```text
//!    passes          passes unless above band × baseline        refused
//! ──────────────┼────────────────────────────────────────┼──────────────
//!             floor                                     cap
//! ```

use std::collections::BTreeMap;

use bloomsday_common::day::Day;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use serde::{Deserialize, Serialize};

/// The number of accepted earlier days in a baseline: the newest ones.
pub const BASELINE_DAYS: usize = 7;
/// The greatest age of a day in a baseline. It is large because a bad day is most likely after an
/// outage of weeks, and an old baseline is better than none. Earlier pointers have the same limit.
pub const MAX_BASELINE_AGE_DAYS: u32 = 400;
/// After this many days with the same number of files, fewer files cause a warning.
const STABLE_FILES_DAYS: usize = 3;
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
/// use bloomsday_builder::gates::{Baseline, Counts, Gates, Limits, evaluate};
///
/// let gates = Gates { ids: Limits { floor: 1_000.0, band: 2.0, cap: 1e9 }, ..Gates::default() };
/// gates.check().unwrap();
///
/// // Yesterday had 1,000,000 IDs; today has 400,000, which is less than half.
/// let baseline = Baseline::default().or_ids(1_000_000);
/// let counts = Counts { rows: 500_000, ids: 400_000, ..Counts::default() };
/// let verdicts = evaluate(&counts, &baseline, &gates);
/// let ids = verdicts.iter().find(|verdict| verdict.gate == "ids").unwrap();
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
    /// Checks that the limits are possible.
    ///
    /// # Errors
    /// The key, and what is wrong with its limits.
    pub fn check(&self) -> Result<(), String> {
        let named = [
            ("ids", self.ids),
            ("nulls", self.nulls),
            ("invalid", self.invalid),
            ("duplicates", self.duplicates),
            ("overlap", self.overlap),
            ("files", self.files),
            ("input_bytes", self.input_bytes),
        ];
        for (name, Limits { floor, band, cap }) in named {
            if band.is_nan() || band < 1.0 {
                return Err(format!("gates.{name}: band is {band}, and must be at least 1"));
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

/// The numbers of a day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Rows read.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID is empty or too long.
    pub invalid: u64,
    /// Distinct IDs.
    pub ids: u64,
    /// Share of the IDs that the newest earlier filter contains, and its standard deviation.
    pub overlap: Option<(f64, f64)>,
    /// Files read.
    pub files: Option<u64>,
    /// The size of these files.
    pub input_bytes: Option<u64>,
}

/// The result of one gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The name of the gate.
    pub gate: &'static str,
    /// The day's number.
    pub value: f64,
    /// The baseline; `None` without earlier days.
    pub norm: Option<f64>,
    /// The gate refuses less than this.
    pub low: f64,
    /// The gate refuses more than this.
    pub high: f64,
    /// Whether the day passed.
    pub passed: bool,
}

/// What is normal, from earlier days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    ids: Option<f64>,
    nulls: Option<f64>,
    invalid: Option<f64>,
    /// Of the newest earlier day.
    duplicates: Option<f64>,
    overlap: Option<f64>,
    files: Option<f64>,
    input_bytes: Option<f64>,
    /// The number of files, if several days all had the same.
    stable_files: Option<f64>,
}

impl Baseline {
    /// Computes the medians of the newest [`BASELINE_DAYS`] accepted days before `day`, if they are
    /// not older than [`MAX_BASELINE_AGE_DAYS`]. The last accepted build of each day counts. A day
    /// whose pointer an operator moved to another day's blob does not count. If the record of a day
    /// lacks a number, the median is that of the other days.
    pub fn of(day: Day, history: &[HistoryEvent]) -> Baseline {
        let mut acts: Vec<&HistoryEvent> = history.iter().collect();
        acts.sort_by_key(|act| act.at);
        let mut accepted: BTreeMap<Day, &HistoryEvent> = BTreeMap::new();
        let oldest = day.minus(MAX_BASELINE_AGE_DAYS);
        for act in &acts {
            let Some(of) = act.day.filter(|of| *of < day && *of >= oldest) else { continue };
            match (act.act, act.outcome) {
                (EventKind::Build, Outcome::Published) => drop(accepted.insert(of, act)),
                (EventKind::Repoint, Outcome::Published) => {
                    let built = |build: &&&HistoryEvent| {
                        build.act == EventKind::Build
                            && build.day == Some(of)
                            && build.blob == act.blob
                    };
                    match acts.iter().rev().find(built) {
                        Some(build) => drop(accepted.insert(of, build)),
                        None => drop(accepted.remove(&of)),
                    }
                }
                _ => {}
            }
        }
        let newest = accepted.values().rev().take(BASELINE_DAYS);
        // From the newest day to the oldest.
        let days: Vec<Numbers> = newest.map(|act| Numbers::of_act(act)).collect();
        let median_of =
            |number: fn(&Numbers) -> Option<f64>| median(days.iter().filter_map(number));
        let files = median_of(|day| day.files);
        let all_had = |files: &f64| days.iter().all(|day| day.files == Some(*files));
        Baseline {
            ids: median_of(|day| Some(day.ids)),
            nulls: median_of(|day| day.nulls),
            invalid: median_of(|day| day.invalid),
            duplicates: days.first().and_then(|day| day.duplicates),
            overlap: median_of(|day| day.overlap),
            files,
            input_bytes: median_of(|day| day.input_bytes),
            stable_files: files.filter(all_had).filter(|_| days.len() >= STABLE_FILES_DAYS),
        }
    }

    /// Whether no earlier day has a number of IDs.
    pub fn lacks_ids(&self) -> bool {
        self.ids.is_none()
    }

    /// Uses the number of IDs of an earlier filter if the history has none.
    pub fn or_ids(self, ids: u64) -> Baseline {
        Baseline { ids: self.ids.or(Some(ids as f64)), ..self }
    }

    /// Returns a warning if there are fewer files than on each earlier day: a file may be missing,
    /// unless the writer was changed.
    pub fn fewer_files(&self, files: u64) -> Option<String> {
        let stable = self.stable_files.filter(|stable| (files as f64) < *stable)?;
        Some(format!(
            "{files} files were read, and each of the days before had {stable}: is one missing?"
        ))
    }
}

/// The numbers of the gates, from a day's counts.
struct Numbers {
    ids: f64,
    nulls: Option<f64>,
    invalid: Option<f64>,
    duplicates: Option<f64>,
    overlap: Option<f64>,
    files: Option<f64>,
    input_bytes: Option<f64>,
}

impl Numbers {
    fn of(counts: &Counts) -> Numbers {
        let Counts { rows, nulls, invalid, ids, overlap, files, input_bytes } = *counts;
        // An imported filter has no rows, and no shares of them.
        let share = |n: u64| (rows > 0).then(|| n as f64 / rows as f64);
        let with_id = rows.saturating_sub(nulls).saturating_sub(invalid);
        Numbers {
            ids: ids as f64,
            nulls: share(nulls),
            invalid: share(invalid),
            duplicates: (with_id > 0 && ids > 0).then(|| with_id as f64 / ids as f64),
            overlap: overlap.map(|(share, _)| share),
            files: files.map(|files| files as f64),
            input_bytes: input_bytes.map(|bytes| bytes as f64),
        }
    }

    fn of_act(act: &HistoryEvent) -> Numbers {
        Numbers::of(&Counts {
            rows: act.rows.unwrap_or(0),
            nulls: act.nulls.unwrap_or(0),
            invalid: act.invalid.unwrap_or(0),
            ids: act.ids.unwrap_or(0),
            overlap: act.overlap.map(|share| (share, 0.0)),
            files: act.files,
            input_bytes: act.input_bytes,
        })
    }
}

/// Evaluates all gates for a day. A gate without a number, such as `overlap` without an earlier
/// day, has no verdict.
pub fn evaluate(counts: &Counts, baseline: &Baseline, gates: &Gates) -> Vec<Verdict> {
    let numbers = Numbers::of(counts);
    let too_much = |gate, value: Option<f64>, norm: Option<f64>, limits: Limits| {
        let Limits { floor, band, cap } = limits;
        // Without a baseline only the cap counts.
        let high = norm.map_or(cap, |norm| (band * norm).clamp(floor, cap));
        value.map(|value| verdict(gate, value, 0.0, norm, (0.0, high)))
    };
    let around = |gate, value: Option<f64>, norm: Option<f64>, limits: Limits| {
        let Limits { floor, band, cap } = limits;
        let between = norm.map_or((floor, cap), |norm| {
            ((norm / band).clamp(floor, cap), (norm * band).clamp(floor, cap))
        });
        value.map(|value| verdict(gate, value, 0.0, norm, between))
    };

    let Limits { floor, band, cap } = gates.overlap;
    let low = baseline.overlap.map_or(floor, |norm| (norm / band).clamp(floor, cap));
    let overlap = counts.overlap.map(|(share, deviation)| {
        let tolerance = OVERLAP_DEVIATIONS * deviation;
        verdict("overlap", share, tolerance, baseline.overlap, (low, 1.0))
    });
    [
        around("ids", Some(numbers.ids), baseline.ids, gates.ids),
        too_much("nulls", numbers.nulls, baseline.nulls, gates.nulls),
        too_much("invalid", numbers.invalid, baseline.invalid, gates.invalid),
        too_much("duplicates", numbers.duplicates, baseline.duplicates, gates.duplicates),
        overlap,
        around("files", numbers.files, baseline.files, gates.files),
        around("input_bytes", numbers.input_bytes, baseline.input_bytes, gates.input_bytes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn verdict(
    gate: &'static str,
    value: f64,
    tolerance: f64,
    norm: Option<f64>,
    (low, high): (f64, f64),
) -> Verdict {
    let passed = value + tolerance >= low && value <= high;
    Verdict { gate, value, norm, low, high, passed }
}

impl std::fmt::Display for Verdict {
    /// Formats the numbers in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { gate, value, norm, low, high, passed } = self;
        let what = match *gate {
            "ids" => "distinct IDs",
            "nulls" => "share of rows without an ID",
            "invalid" => "share of rows with an empty or too long ID",
            "duplicates" => "rows per distinct ID",
            "files" => "files read",
            "input_bytes" => "bytes of input",
            _ => "overlap with the day before",
        };
        let number = |value: f64| match value {
            value if value.fract() == 0.0 => format!("{value:.0}"),
            value => format!("{value:.4}"),
        };
        let verdict = if *passed { "lies within" } else { "lies outside" };
        let (value, low, high) = (number(*value), number(*low), number(*high));
        write!(f, "{gate}: {what} {value} {verdict} {low} to {high}")?;
        match norm {
            Some(norm) => write!(f, " (normal: {})", number(*norm)),
            None => write!(f, " (no day before to compare with)"),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::digest::Digest;
    use bloomsday_common::key::BlobKey;

    use super::*;

    fn day() -> Day {
        "2026-11-19".parse().unwrap()
    }

    fn blob(digit: u8) -> BlobKey {
        let digest = Digest::new([digit; 32]);
        BlobKey { filter: "rt".parse().unwrap(), day: day(), digest }
    }

    /// An act `back` days before, `hour` hours into that day.
    fn act(kind: EventKind, outcome: Outcome, back: u32, hour: i64, ids: u64) -> HistoryEvent {
        let of = day().minus(back);
        let at = of.minus(0).end() + jiff::SignedDuration::from_hours(hour);
        HistoryEvent {
            day: Some(of),
            blob: Some(blob(ids as u8)),
            rows: Some(2 * ids),
            nulls: Some(ids / 10),
            invalid: Some(0),
            ids: Some(ids),
            overlap: Some(0.8),
            files: Some(24),
            input_bytes: Some(1_000_000),
            ..HistoryEvent::new(kind, outcome, at, "test")
        }
    }

    fn built(back: u32, ids: u64) -> HistoryEvent {
        act(EventKind::Build, Outcome::Published, back, 1, ids)
    }

    fn week() -> Baseline {
        Baseline::of(
            day(),
            &(1..=7).map(|back| built(back, 990 + u64::from(back))).collect::<Vec<_>>(),
        )
    }

    fn normal() -> Counts {
        Counts {
            rows: 2_000,
            nulls: 100,
            invalid: 0,
            ids: 1_000,
            overlap: Some((0.8, 0.01)),
            files: Some(24),
            input_bytes: Some(1_000_000),
        }
    }

    fn refused(counts: Counts, baseline: &Baseline) -> Vec<&'static str> {
        let verdicts = evaluate(&counts, baseline, &Gates::default());
        verdicts.iter().filter(|verdict| !verdict.passed).map(|verdict| verdict.gate).collect()
    }

    #[test]
    fn a_day_like_those_before_passes() {
        assert_eq!(refused(normal(), &week()), [""; 0]);
    }

    #[test]
    fn a_first_day_passes_on_the_floors() {
        let first = Counts { overlap: None, ..normal() };
        assert_eq!(refused(first, &Baseline::default()), [""; 0]);
        assert_eq!(refused(Counts { ids: 0, ..first }, &Baseline::default()), ["ids"]);
        assert_eq!(refused(Counts { nulls: 1_001, ..first }, &Baseline::default()), ["nulls"]);
        assert_eq!(refused(Counts { invalid: 201, ..first }, &Baseline::default()), ["invalid"]);
        let copied = Counts { rows: 2_000_000, ..first };
        assert_eq!(refused(copied, &Baseline::default()), ["duplicates"]);
    }

    #[test]
    fn each_number_is_refused_just_outside_its_band() {
        let baseline = week();
        for (ids, expected) in
            [(496, vec!["ids"]), (497, vec![]), (1_988, vec![]), (1_989, vec!["ids"])]
        {
            // Rows follow, so that only the count is unusual.
            let rows = 2 * ids;
            let day = Counts { ids, rows, nulls: ids / 10, ..normal() };
            assert_eq!(refused(day, &baseline), expected, "{ids}");
        }
        // The median share of nulls is 0.0495 or so: three times that is the band.
        assert_eq!(refused(Counts { nulls: 290, ..normal() }, &baseline), [""; 0]);
        assert_eq!(refused(Counts { nulls: 310, ..normal() }, &baseline), ["nulls"]);
        // The norm of invalid IDs is none at all: the floor is what passes.
        assert_eq!(refused(Counts { invalid: 2, ..normal() }, &baseline), [""; 0]);
        assert_eq!(refused(Counts { invalid: 3, ..normal() }, &baseline), ["invalid"]);
        // 1.9 rows an ID on the newest day before.
        assert_eq!(refused(Counts { rows: 5_700, ..normal() }, &baseline), [""; 0]);
        assert_eq!(refused(Counts { rows: 5_900, ..normal() }, &baseline), ["duplicates"]);
        let overlap = |share| Counts { overlap: Some((share, 0.01)), ..normal() };
        assert_eq!(refused(overlap(0.371), &baseline), [""; 0], "within three deviations of half");
        assert_eq!(refused(overlap(0.369), &baseline), ["overlap"]);
    }

    #[test]
    fn a_high_overlap_passes_whatever_the_norm_and_none_at_all_never() {
        let gates =
            Gates { overlap: Limits { floor: 0.01, band: 1.0, cap: 0.9 }, ..Gates::default() };
        let baseline = Baseline { overlap: Some(0.999), ..Baseline::default() };
        let at = |share| Counts { overlap: Some((share, 0.0)), ..normal() };
        let passed =
            |share| evaluate(&at(share), &baseline, &gates).iter().all(|verdict| verdict.passed);
        assert!(passed(0.9) && !passed(0.89));
        assert_eq!(refused(at(0.0), &Baseline::default()), ["overlap"]);
    }

    #[test]
    fn norms_come_from_the_last_accepted_build_of_each_of_seven_days_however_old() {
        let norm = |acts: &[HistoryEvent]| Baseline::of(day(), acts).ids;
        assert_eq!(norm(&[]), None);
        assert_eq!(norm(&[built(401, 100), built(0, 200)]), None, "too old, and the day itself");
        assert_eq!(norm(&[built(400, 100), built(8, 200), built(20, 300)]), Some(200.0));
        let eight: Vec<HistoryEvent> =
            (1..=8).map(|back| built(back, 10 * u64::from(back))).collect();
        assert_eq!(norm(&eight), Some(40.0), "the newest seven");
        assert_eq!(norm(&[built(1, 100), built(2, 200), built(7, 900)]), Some(200.0));
        assert_eq!(norm(&[built(1, 100), built(2, 200)]), Some(150.0));
        let mended = act(EventKind::Build, Outcome::Published, 1, 5, 140);
        assert_eq!(norm(&[mended.clone(), built(1, 100)]), Some(140.0), "in any order");
        for outcome in [Outcome::Refused, Outcome::Superseded, Outcome::Pending] {
            assert_eq!(norm(&[act(EventKind::Build, outcome, 1, 1, 100)]), None);
        }
    }

    #[test]
    fn a_day_that_was_rolled_back_is_no_norm() {
        let rollback = act(EventKind::Repoint, Outcome::Published, 1, 3, 7);
        let mut acts = vec![built(1, 100), built(2, 200), rollback];
        assert_eq!(Baseline::of(day(), &acts).ids, Some(200.0));
        let forward = HistoryEvent {
            blob: Some(blob(100)),
            ..act(EventKind::Repoint, Outcome::Published, 1, 4, 7)
        };
        acts.push(forward);
        assert_eq!(Baseline::of(day(), &acts).ids, Some(150.0), "pointed forward again");
    }

    #[test]
    fn files_and_bytes_are_judged_on_both_sides_of_wide_bands() {
        let baseline = week();
        let of = |files, bytes| {
            let counts = Counts { files: Some(files), input_bytes: Some(bytes), ..normal() };
            refused(counts, &baseline)
        };
        assert_eq!(of(2, 250_000), [""; 0], "compacted into fewer files, by a better codec");
        assert_eq!(of(288, 4_000_000), [""; 0]);
        assert_eq!(of(1, 249_999), ["files", "input_bytes"]);
        assert_eq!(of(289, 4_000_001), ["files", "input_bytes"]);
        // Older records do not have these numbers.
        let old = |back| HistoryEvent { files: None, input_bytes: None, ..built(back, 1_000) };
        let baseline = Baseline::of(day(), &[old(1), old(2), built(3, 1_000)]);
        assert_eq!((baseline.files, baseline.stable_files), (Some(24.0), None));
        let none = Baseline::of(day(), &[old(1)]);
        assert_eq!(refused(Counts { files: Some(9_000), ..normal() }, &none), [""; 0]);
    }

    #[test]
    fn a_file_less_than_on_every_day_before_is_worth_a_word() {
        assert_eq!(week().fewer_files(24), None);
        assert!(week().fewer_files(23).unwrap().contains("23 files were read"));
        let two = [built(1, 1_000), built(2, 1_000)];
        assert_eq!(Baseline::of(day(), &two).fewer_files(23), None, "two days are no habit");
        let odd = HistoryEvent { files: Some(20), ..built(3, 1_000) };
        assert_eq!(Baseline::of(day(), &[two.to_vec(), vec![odd]].concat()).fewer_files(19), None);
    }

    #[test]
    fn a_filter_alone_gives_the_normal_number_of_ids() {
        assert!(Baseline::default().lacks_ids());
        let baseline = Baseline::default().or_ids(10_000);
        assert_eq!(refused(Counts { overlap: None, ..normal() }, &baseline), ["ids"]);
        assert_eq!(week().or_ids(10_000), week(), "the history goes first");
    }

    #[test]
    fn impossible_limits_are_named() {
        let with = |ids| Gates { ids, ..Gates::default() }.check();
        let limits = |floor, band, cap| Limits { floor, band, cap };
        assert_eq!(Gates::default().check(), Ok(()));
        assert!(with(limits(1.0, 0.5, 2.0)).unwrap_err().contains("gates.ids: band"));
        assert!(with(limits(3.0, 2.0, 2.0)).unwrap_err().contains("0 <= floor <= cap"));
        assert!(
            with(limits(f64::NAN, 2.0, 2.0)).is_err() && with(limits(0.0, f64::NAN, 1.0)).is_err()
        );
    }

    #[test]
    fn a_refusal_says_its_numbers() {
        let verdicts = evaluate(
            &Counts { ids: 10, rows: 20, nulls: 1, ..normal() },
            &week(),
            &Gates::default(),
        );
        assert_eq!(
            verdicts[0].to_string(),
            "ids: distinct IDs 10 lies outside 497 to 1988 (normal: 994)"
        );
    }
}
