//! Days that pass, days that are refused, and what a baseline is made of.

use std::collections::BTreeMap;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};

use super::*;

fn day() -> Day {
    "2026-11-19".parse().unwrap()
}

fn blob(digit: u8) -> BlobKey {
    let digest = Digest::new([digit; 32]);
    BlobKey { filter: "rt".parse().unwrap(), day: day(), digest }
}

/// An event `back` days before, `hour` hours into that day.
fn event(kind: EventKind, outcome: Outcome, back: u32, hour: i64, ids: u64) -> HistoryEvent {
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
    event(EventKind::Build, Outcome::Published, back, 1, ids)
}

/// What is normal after these events, with pointers that nobody has touched by hand.
fn normal_after(history: &[HistoryEvent]) -> Baseline {
    Baseline::of(day(), history, &BTreeMap::new())
}

/// What is normal, where only these numbers are known.
fn norms<const N: usize>(known: [(Gate, f64); N]) -> Baseline {
    let mut baseline = Baseline::default();
    known.into_iter().for_each(|(gate, norm)| baseline.norms[gate] = Some(norm));
    baseline
}

fn week() -> Baseline {
    normal_after(&(1..=7).map(|back| built(back, 990 + u64::from(back))).collect::<Vec<_>>())
}

fn normal() -> DayCounts {
    DayCounts {
        rows: 2_000,
        nulls: 100,
        invalid: 0,
        ids: 1_000,
        overlap: Some(Overlap { share: 0.8, deviation: 0.01 }),
        files: Some(24),
        input_bytes: Some(1_000_000),
    }
}

fn refused(counts: DayCounts, baseline: &Baseline) -> Vec<&'static str> {
    let verdicts = evaluate(&counts, baseline, &Gates::default());
    verdicts.iter().filter(|verdict| !verdict.passed).map(|verdict| verdict.gate.name()).collect()
}

#[test]
fn a_day_like_those_before_passes() {
    assert_eq!(refused(normal(), &week()), [""; 0]);
}

#[test]
fn a_first_day_passes_on_the_floors() {
    let first = DayCounts { overlap: None, ..normal() };
    assert_eq!(refused(first, &Baseline::default()), [""; 0]);
    assert_eq!(refused(DayCounts { ids: 0, ..first }, &Baseline::default()), ["ids"]);
    assert_eq!(refused(DayCounts { nulls: 1_001, ..first }, &Baseline::default()), ["nulls"]);
    assert_eq!(refused(DayCounts { invalid: 201, ..first }, &Baseline::default()), ["invalid"]);
    let copied = DayCounts { rows: 2_000_000, ..first };
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
        let day = DayCounts { ids, rows, nulls: ids / 10, ..normal() };
        assert_eq!(refused(day, &baseline), expected, "{ids}");
    }
    // The median share of nulls is 0.0495 or so: three times that is the band.
    assert_eq!(refused(DayCounts { nulls: 290, ..normal() }, &baseline), [""; 0]);
    assert_eq!(refused(DayCounts { nulls: 310, ..normal() }, &baseline), ["nulls"]);
    // The norm of invalid IDs is none at all: the floor is what passes.
    assert_eq!(refused(DayCounts { invalid: 2, ..normal() }, &baseline), [""; 0]);
    assert_eq!(refused(DayCounts { invalid: 3, ..normal() }, &baseline), ["invalid"]);
    // 1.9 rows an ID on the newest day before.
    assert_eq!(refused(DayCounts { rows: 5_700, ..normal() }, &baseline), [""; 0]);
    assert_eq!(refused(DayCounts { rows: 5_900, ..normal() }, &baseline), ["duplicates"]);
    let overlap =
        |share| DayCounts { overlap: Some(Overlap { share, deviation: 0.01 }), ..normal() };
    assert_eq!(refused(overlap(0.371), &baseline), [""; 0], "within three deviations of half");
    assert_eq!(refused(overlap(0.369), &baseline), ["overlap"]);
}

#[test]
fn a_high_overlap_passes_whatever_the_norm_and_none_at_all_never() {
    let gates = Gates { overlap: Limits { floor: 0.01, band: 1.0, cap: 0.9 }, ..Gates::default() };
    let baseline = norms([(Gate::Overlap, 0.999)]);
    let at = |share| DayCounts { overlap: Some(Overlap { share, deviation: 0.0 }), ..normal() };
    let passed =
        |share| evaluate(&at(share), &baseline, &gates).iter().all(|verdict| verdict.passed);
    assert!(passed(0.9) && !passed(0.89));
    assert_eq!(refused(at(0.0), &Baseline::default()), ["overlap"]);
}

#[test]
fn norms_come_from_the_last_accepted_build_of_each_of_seven_days_however_old() {
    let norm = |events: &[HistoryEvent]| normal_after(events).norms[Gate::Ids];
    assert_eq!(norm(&[]), None);
    assert_eq!(norm(&[built(401, 100), built(0, 200)]), None, "too old, and the day itself");
    assert_eq!(norm(&[built(400, 100), built(8, 200), built(20, 300)]), Some(200.0));
    let eight: Vec<HistoryEvent> = (1..=8).map(|back| built(back, 10 * u64::from(back))).collect();
    assert_eq!(norm(&eight), Some(40.0), "the newest seven");
    assert_eq!(norm(&[built(1, 100), built(2, 200), built(7, 900)]), Some(200.0));
    assert_eq!(norm(&[built(1, 100), built(2, 200)]), Some(150.0));
    let mended = event(EventKind::Build, Outcome::Published, 1, 5, 140);
    assert_eq!(norm(&[mended.clone(), built(1, 100)]), Some(140.0), "in any order");
    for outcome in [Outcome::Refused, Outcome::Superseded, Outcome::Pending] {
        assert_eq!(norm(&[event(EventKind::Build, outcome, 1, 1, 100)]), None);
    }
}

#[test]
fn a_day_that_was_rolled_back_is_no_norm() {
    let rollback = event(EventKind::Repoint, Outcome::Published, 1, 3, 7);
    let mut events = vec![built(1, 100), built(2, 200), rollback];
    assert_eq!(normal_after(&events).norms[Gate::Ids], Some(200.0));
    let forward = HistoryEvent {
        blob: Some(blob(100)),
        ..event(EventKind::Repoint, Outcome::Published, 1, 4, 7)
    };
    events.push(forward);
    assert_eq!(normal_after(&events).norms[Gate::Ids], Some(150.0), "pointed forward again");
}

#[test]
fn a_day_that_was_rolled_back_by_hand_is_no_norm_either() {
    let history = [built(1, 100), built(2, 200), built(3, 250)];
    let named = |digit: u8| [(day().minus(1), PointerNow::Blob(blob(digit)))].into();
    let ids =
        |named: &BTreeMap<Day, PointerNow>| Baseline::of(day(), &history, named).norms[Gate::Ids];
    assert_eq!(ids(&named(100)), Some(200.0), "what its build published");
    assert_eq!(ids(&named(200)), Some(225.0), "another day's");
    assert_eq!(
        Baseline::days_to_read(day(), &history, &named(200)),
        [2, 3].map(|back| day().minus(back))
    );
    assert_eq!(
        ids(&[(day().minus(1), PointerNow::Removed)].into()),
        Some(225.0),
        "its pointer is gone"
    );
    assert_eq!(
        ids(&[(day().minus(1), PointerNow::Unknown)].into()),
        Some(200.0),
        "by prune, perhaps"
    );
    let again = [&history[..], &[event(EventKind::Build, Outcome::Published, 1, 5, 40)]].concat();
    let earlier = Baseline::of(day(), &again, &named(100));
    assert_eq!(earlier.norms[Gate::Ids], Some(200.0), "an earlier build of the day");
}

#[test]
fn a_build_that_was_killed_after_its_pointer_counts_whoever_runs_it_again() {
    let pending = event(EventKind::Build, Outcome::Pending, 1, 1, 100);
    let unchanged = event(EventKind::Build, Outcome::Unchanged, 1, 3, 100);
    // What the scheduler records of its run, which began before the build's own record.
    let short = HistoryEvent {
        rows: None,
        nulls: None,
        ..event(EventKind::Build, Outcome::Unchanged, 1, 2, 100)
    };
    let (here, other) = (PointerNow::Blob(blob(100)), PointerNow::Blob(blob(200)));
    for history in [vec![pending.clone()], vec![pending, short, unchanged]] {
        assert_eq!(Baseline::days_to_read(day(), &history, &BTreeMap::new()), [day().minus(1)]);
        let of = |named: &PointerNow| {
            Baseline::of(day(), &history, &[(day().minus(1), named.clone())].into())
        };
        assert_eq!(
            (of(&here).norms[Gate::Ids], of(&here).norms[Gate::Nulls].is_some()),
            (Some(100.0), true)
        );
        assert_eq!(
            (of(&other), of(&PointerNow::Unknown)),
            (Baseline::default(), Baseline::default())
        );
        let read = [(day().minus(1), other.clone())].into();
        assert_eq!(
            Baseline::days_to_read(day(), &history, &read),
            [],
            "it makes way for an older one"
        );
    }
}

#[test]
fn files_and_bytes_are_judged_on_both_sides_of_wide_bands() {
    let baseline = week();
    let of = |files, bytes| {
        let counts = DayCounts { files: Some(files), input_bytes: Some(bytes), ..normal() };
        refused(counts, &baseline)
    };
    assert_eq!(of(2, 250_000), [""; 0], "compacted into fewer files, by a better codec");
    assert_eq!(of(288, 4_000_000), [""; 0]);
    assert_eq!(of(1, 249_999), ["files", "input_bytes"]);
    assert_eq!(of(289, 4_000_001), ["files", "input_bytes"]);
    // Older records do not have these numbers.
    let old = |back| HistoryEvent { files: None, input_bytes: None, ..built(back, 1_000) };
    let baseline = normal_after(&[old(1), old(2), built(3, 1_000)]);
    assert_eq!((baseline.norms[Gate::Files], baseline.stable_files), (Some(24.0), None));
    let none = normal_after(&[old(1)]);
    assert_eq!(refused(DayCounts { files: Some(9_000), ..normal() }, &none), [""; 0]);
}

#[test]
fn half_of_the_ids_passes_unless_half_of_the_files_are_missing() {
    let baseline = norms([(Gate::Ids, 5_000.0), (Gate::Files, 2.0)]);
    let of = |ids, files| {
        let counts = DayCounts { ids, rows: ids, nulls: 0, overlap: None, files, ..normal() };
        let verdicts = evaluate(&counts, &baseline, &Gates::default());
        (verdicts[0].passed, verdicts[0].to_string())
    };
    assert!(of(2_500, Some(2)).0 && of(2_500, None).0 && of(2_501, Some(1)).0);
    let (passed, says) = of(2_500, Some(1));
    assert!(!passed);
    assert_eq!(
        says,
        "ids: distinct IDs 2500 lies, with half of the files missing, on the lower end of 2500 to 10000 \
         (usual: 5000)"
    );
}

#[test]
fn a_file_less_than_on_every_day_before_is_worth_a_word() {
    assert_eq!(week().fewer_files(24), None);
    assert!(week().fewer_files(23).unwrap().contains("23 files were read"));
    let two = [built(1, 1_000), built(2, 1_000)];
    assert_eq!(normal_after(&two).fewer_files(23), None, "two days are no habit");
    let odd = HistoryEvent { files: Some(20), ..built(3, 1_000) };
    assert_eq!(normal_after(&[two.to_vec(), vec![odd]].concat()).fewer_files(19), None);
}

#[test]
fn a_filter_alone_gives_the_normal_number_of_ids() {
    assert!(Baseline::default().lacks_ids());
    let baseline = Baseline::default().or_ids(10_000);
    assert_eq!(refused(DayCounts { overlap: None, ..normal() }, &baseline), ["ids"]);
    assert_eq!(week().or_ids(10_000), week(), "the history goes first");
}

#[test]
fn impossible_limits_are_named() {
    let with = |ids| Gates { ids, ..Gates::default() }.check();
    let limits = |floor, band, cap| Limits { floor, band, cap };
    assert_eq!(Gates::default().check(), Ok(()));
    assert!(with(limits(1.0, 0.5, 2.0)).unwrap_err().contains("gates.ids: band"));
    assert!(with(limits(3.0, 2.0, 2.0)).unwrap_err().contains("0 <= floor <= cap"));
    assert!(with(limits(f64::NAN, 2.0, 2.0)).is_err() && with(limits(0.0, f64::NAN, 1.0)).is_err());
}

#[test]
fn a_refusal_says_its_numbers() {
    let verdicts = evaluate(
        &DayCounts { ids: 10, rows: 20, nulls: 1, ..normal() },
        &week(),
        &Gates::default(),
    );
    assert_eq!(
        verdicts[0].to_string(),
        "ids: distinct IDs 10 lies outside 497 to 1988 (usual: 994)"
    );
}

#[test]
fn the_list_of_all_gates_is_in_the_order_of_their_numbers() {
    assert!(Gate::ALL.into_iter().enumerate().all(|(number, gate)| gate as usize == number));
}
