//! How things are shown: data on stdout, people's tables or one line of JSON an object; progress on
//! stderr, and only on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use bloomsday_builder::Progress;
use bloomsday_common::shown::plain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

/// The most characters of a value in a table.
const MAX_CELL_CHARS: usize = 500;

#[derive(Clone)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Shows an object: as a line of JSON, or as what `people` makes of it.
    pub(crate) fn show(&self, object: &impl Serialize, people: impl FnOnce() -> String) {
        if self.json {
            let line =
                serde_json::to_string(object).expect("reports hold only strings and numbers");
            print(&format!("{line}\n"));
        } else {
            print(&people());
        }
    }

    /// A bar for a build, which shows itself on a terminal only.
    pub(crate) fn build_progress(&self) -> impl Fn(Progress) + Sync + use<> {
        let bar = ProgressBar::with_draw_target(None, self.target());
        bar.set_style(style(""));
        bar.set_message("open");
        bar.enable_steady_tick(Duration::from_millis(100));
        let stage: Mutex<&'static str> = Mutex::new("");
        move |progress| {
            let mut stage = stage.lock().expect("drawing a bar does not panic");
            let (name, done, total, unit) = match progress {
                Progress::Scan(scan) => ("read", scan.rows_done, scan.rows_total, "rows"),
                Progress::Count => ("count", 0, 0, ""),
                Progress::Fill => ("fill", 0, 0, ""),
                Progress::Upload(done, total) => ("upload", done, total, "bytes"),
                Progress::Verify => ("verify", 0, 0, ""),
            };
            if *stage != name {
                *stage = name;
                bar.set_style(style(unit));
                bar.reset();
                bar.set_message(name);
            }
            if total > 0 {
                bar.set_length(total);
                bar.set_position(done);
            }
        }
    }

    fn target(&self) -> ProgressDrawTarget {
        if self.quiet || !io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        }
    }
}

fn style(unit: &str) -> ProgressStyle {
    let template = match unit {
        "rows" => "{msg:>8} {wide_bar} {human_pos} of {human_len} rows, {per_sec}, {eta} left",
        "bytes" => "{msg:>8} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        _ => "{msg:>8} {spinner} {elapsed}",
    };
    let style =
        ProgressStyle::with_template(template).expect("the templates above are well formed");
    style.with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A bar that cannot be written is no reason to stop.
        let _ = write!(out, "{:.1} M/s", state.per_sec() / 1e6);
    })
}

/// Writes to stdout; a reader that closed the pipe has seen enough.
pub(crate) fn print(text: &str) {
    if io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()).is_err() {
        std::process::exit(0);
    }
}

/// What a cell shows of a text, which somebody may have written to drive a terminal.
fn cell(text: &str) -> String {
    plain(text, MAX_CELL_CHARS)
}

/// Lines of `name: value`, the values in one column.
pub(crate) fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}\n", cell(value));
    rows.iter().map(line).collect()
}

/// A table: each column as wide as its widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let head = line(head.to_vec());
    rows.iter().fold(head, |page, row| page + &line(row.iter().map(String::as_str).collect()))
}

/// `300000000` as `300,000,000`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(",")
}

/// Bytes in MiB, for people.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Something that may not be known.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// Who acts, for the records: user@host.
pub(crate) fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    format!("{}@{}", user.unwrap_or_else(|_| "unknown".to_owned()), host())
}

/// This machine's name.
pub(crate) fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    host.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(2_189_532_251), "2,189,532,251");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["2026-11-19".into(), "1".into()], vec!["x".into(), "–".into()]];
        assert_eq!(
            table(&["day", "ids"], &rows),
            "day         ids\n2026-11-19  1\nx           –\n"
        );
    }
}
