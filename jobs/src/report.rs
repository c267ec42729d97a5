//! A build's or an import's report, as people read it.

use bloomsday_builder::{PublishedDelta, Report, ShapeSource};
use bloomsday_common::day::Day;

use crate::output::{binary_size, or_dash, pairs, thousands};

/// How many names of files a line for people shows; the JSON has more.
const MAX_LISTED_NAMES: usize = 3;
/// How many days a line for people shows.
const MAX_LISTED_DAYS: usize = 20;

/// The lines of a report.
pub(crate) fn describe(report: &Report) -> String {
    // Of a blob that was imported nothing was read, counted or judged.
    let is_import = report.files == 0 && report.segments == 0;
    let mut lines = vec![
        ("outcome", outcome(report)),
        ("filter", report.filter.to_string()),
        ("day", report.day.to_string()),
    ];
    if report.window_days > 1 {
        lines.push(("window", window_of(report)));
    }
    lines.push(("blob", or_dash(report.blob.as_ref())));
    if is_import {
        lines.push(("IDs", format!("about {}, by its bits", thousands(report.ids))));
    } else {
        lines.extend([
            ("files", files(report)),
            ("rows", rows(report)),
            ("IDs", format!("{} distinct", thousands(report.ids))),
        ]);
    }
    let (bits, layout) = (report.bits_per_id, report.layout);
    let (measured, target) = (report.fpp_measured, target(report.fpp_target));
    lines.push(("size", format!("{}, {bits:.2} bits per ID, {layout}", binary_size(report.bytes))));
    lines.push(("fpp", format!("{} measured, {target} target", short(measured))));
    if !is_import {
        lines.extend([("overlap", overlap(report)), ("gates", gates(report))]);
    }
    if report.shape != ShapeSource::Exact {
        lines.extend([("shape", shape(report)), ("deltas", deltas(report))]);
    }
    lines.push(("seconds", seconds(report)));
    lines.extend(report.warnings.iter().map(|warning| ("warning", warning.clone())));
    pairs(&lines)
}

fn outcome(report: &Report) -> String {
    let dry = if report.dry_run { " (dry run: nothing was written)" } else { "" };
    let pinned = if report.pinned {
        " (pinned: servers stay on the pin until it is removed or expires)"
    } else {
        ""
    };
    format!("{}{dry}{pinned}", report.outcome.name())
}

fn rows(report: &Report) -> String {
    let [rows, nulls, invalid] = [report.rows, report.nulls, report.invalid].map(thousands);
    format!("{rows} ({nulls} null, {invalid} empty or too long)")
}

fn overlap(report: &Report) -> String {
    match report.overlap {
        Some(share) => {
            format!("{:.1} % of these IDs are in the newest earlier filter", share * 100.0)
        }
        None => "– (no earlier day that can be compared)".into(),
    }
}

fn gates(report: &Report) -> String {
    let evaluated: Vec<&str> = report.gates.iter().map(|verdict| verdict.gate.name()).collect();
    match report.gates.iter().filter(|verdict| !verdict.passed).count() {
        _ if evaluated.is_empty() => "– (not evaluated)".into(),
        0 => format!("passed: {}", evaluated.join(", ")),
        failed => format!("{failed} of {} failed", evaluated.len()),
    }
}

fn seconds(report: &Report) -> String {
    let seconds = &report.seconds;
    format!(
        "{:.1}: scan {:.1}, count {:.1}, fill {:.1}, publish {:.1}, verify {:.1}",
        seconds.total, seconds.scan, seconds.count, seconds.fill, seconds.publish, seconds.verify
    )
}

/// A target for the fpp as it was given, or to six digits where it was worked out.
fn target(fpp: f64) -> String {
    const LONGEST: usize = 8;
    let exact = fpp.to_string();
    if exact.len() <= LONGEST { exact } else { short(fpp) }
}

/// A probability with six digits behind the point, or fewer of a small one.
fn short(fpp: f64) -> String {
    if fpp == 0.0 || fpp >= 1e-5 { format!("{fpp:.6}") } else { format!("{fpp:.2e}") }
}

/// How many files were read, and which were passed over.
fn files(report: &Report) -> String {
    if report.segments > 0 {
        let (segments, size) = (thousands(report.segments), binary_size(report.input_bytes));
        return format!(
            "{segments} segments of live IDs, {size}; hashes only: no ID was looked up by its bytes"
        );
    }
    let read = format!("{}, {}", thousands(report.files), binary_size(report.input_bytes));
    if report.files_passed_over == 0 {
        return read;
    }
    let named: Vec<&str> =
        report.passed_over.iter().take(MAX_LISTED_NAMES).map(String::as_str).collect();
    let more = if report.files_passed_over > named.len() as u64 { ", …" } else { "" };
    let count = thousands(report.files_passed_over);
    format!("{read}; {count} passed over for a hidden name: {}{more}", named.join(", "))
}

fn shape(report: &Report) -> String {
    match report.shape_from {
        Some(day) => format!("carried from {day}"),
        None => "new: servers fetch this blob in full once".into(),
    }
}

fn deltas(report: &Report) -> String {
    let of = |made: &PublishedDelta| {
        let share = 100.0 * made.bytes as f64 / report.bytes.max(1) as f64;
        format!("{} from {} ({share:.1} % of the blob)", binary_size(made.bytes), made.from.day)
    };
    let made: Vec<String> = report.deltas.iter().map(of).collect();
    if made.is_empty() { "none".into() } else { made.join(", ") }
}

fn window_of(report: &Report) -> String {
    let days = format!("{} days", report.window_days);
    match report.window_missing.len() {
        0 => days,
        missing => {
            let named = report.window_missing.iter().take(MAX_LISTED_DAYS).map(Day::to_string);
            let named: Vec<String> = named.collect();
            let more = if missing > MAX_LISTED_DAYS { ", …" } else { "" };
            format!("{days}, {missing} of them without input: {}{more}", named.join(", "))
        }
    }
}
