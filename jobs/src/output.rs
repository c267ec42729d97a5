//! Output: data on stdout, as tables for people or as one line of JSON for each object; progress on
//! stderr, and only on a terminal. A colour never says more than the word that has it.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor;
use bloomsday_builder::Progress;
use bloomsday_common::redact::single_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::error::{Error, exit};

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

    /// Whether `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints an object: as a line of JSON, or as the text that `people` returns.
    pub(crate) fn show(&self, object: &impl Serialize, people: impl FnOnce() -> String) {
        if self.json {
            let line =
                serde_json::to_string(object).expect("reports hold only strings and numbers");
            print(&format!("{line}\n"));
        } else {
            print(&people());
        }
    }

    /// The progress bar of a build; hidden unless stderr is a terminal.
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
                // Nobody knows how many live IDs there are before they are read.
                bar.set_style(style(if total > 0 { unit } else { "" }));
                bar.reset();
                bar.set_message(name);
            }
            if total > 0 {
                bar.set_length(total);
                bar.set_position(done);
            } else if done > 0 {
                bar.set_message(format!("{name} {done} {unit}"));
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
    ProgressStyle::with_template(template).expect("the templates above are well formed")
}

/// Whether something could not be written to stdout, although somebody reads it.
static IS_OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Writes to stdout. The job goes on if that fails: what it does to the store counts more than what
/// it says. A pipe that its reader has closed is no failure; any other one is reported once, and
/// [`exit_code`] knows of it.
pub(crate) fn print(text: &str) {
    let written = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
        && !IS_OUTPUT_LOST.swap(true, Ordering::Relaxed)
    {
        say("error", &format!("cannot write to stdout: {error}"));
    }
}

/// The exit status of a job that ended with `code`: 1 in place of 0 if some of its output was lost.
pub(crate) fn exit_code(code: ExitCode) -> ExitCode {
    if code == ExitCode::SUCCESS && IS_OUTPUT_LOST.load(Ordering::Relaxed) {
        ExitCode::from(exit::FAILED)
    } else {
        code
    }
}

/// Writes `WORD: TEXT` to stderr, the word in its colour if stderr is a terminal. The job goes on
/// if that fails, as [`print()`] does: nobody is left to hear of it.
pub(crate) fn say(word: &str, text: &str) {
    let word = paint("outcome", word, is_coloured(&io::stderr()));
    let _ = writeln!(io::stderr(), "{word}: {text}");
}

/// The error of a command for several filters, which goes on after one: the last. Those before are
/// told at once.
#[derive(Default)]
pub(crate) struct LastError(Option<Error>);

impl LastError {
    pub(crate) fn add(&mut self, error: Error) {
        if let Some(before) = self.0.replace(error) {
            say("error", &before.to_string());
        }
    }

    /// What the command ends with.
    pub(crate) fn into_result(self) -> Result<ExitCode, Error> {
        self.0.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// Whether a stream shows colours: it is a terminal that has them, and `NO_COLOR` is not set.
pub(crate) fn is_coloured<S: RawStream>(stream: &S) -> bool {
    // `CLICOLOR_FORCE` colours no pipe: a program reads what is piped.
    stream.is_terminal() && AutoStream::choice(stream) != ColorChoice::Never
}

/// The word of a state, in its colour, for stdout.
pub(crate) fn state(word: &str) -> String {
    paint("state", word, is_coloured(&io::stdout()))
}

/// The rows and columns whose values are states.
const STATE_NAMES: [&str; 5] = ["gates", "note", "outcome", "standing", "state"];
/// States that need no attention, in green.
const GOOD: &[&str] = &["done", "ok", "passed", "published", "released", "unchanged"];
/// States that differ from the usual one, in yellow.
const NOTABLE: &[&str] = &[
    "empty",
    "held",
    "loading",
    "pinned",
    "pointing",
    "rolled back",
    "rolled_back",
    "stale",
    "superseded",
];
/// States that a person should look at, in red.
const BAD: &[&str] = &["error", "failed", "failing", "given up", "late", "refused"];

/// Colours the state in `text`, if values of the row or column `name` are states.
fn paint(name: &str, text: &str, is_coloured: bool) -> String {
    if !is_coloured || !STATE_NAMES.contains(&name) {
        return text.to_owned();
    }
    let style = |colour: AnsiColor| colour.on_default();
    let bad = || BAD.iter().map(|word| (*word, style(AnsiColor::Red).bold()));
    let others = GOOD.iter().map(|word| (*word, style(AnsiColor::Green)));
    let others = others.chain(NOTABLE.iter().map(|word| (*word, style(AnsiColor::Yellow))));
    // A state comes first; `2 of 5 failed` and `to be built, late` end with it.
    let first = bad().chain(others).find(|(word, _)| is_word_at_start(text, word));
    let found = first.map(|(word, style)| (0, word, style)).or_else(|| {
        let trimmed = text.trim_end();
        let (word, style) = bad().find(|(word, _)| trimmed.ends_with(&format!(" {word}")))?;
        Some((trimmed.len() - word.len(), word, style))
    });
    let Some((at, word, style)) = found else { return text.to_owned() };
    let (before, after) = (&text[..at], &text[at + word.len()..]);
    format!("{before}{style}{word}{style:#}{after}")
}

fn is_word_at_start(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

/// The text of a cell, without control characters: a value may be written to attack a terminal.
fn cell(text: &str) -> String {
    single_line(text, MAX_CELL_CHARS)
}

/// Lines of `name: value`, the values in one column.
pub(crate) fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let is_coloured = is_coloured(&io::stdout());
    let line = |(name, value): &(&str, String)| {
        format!("{name:<width$}  {}\n", paint(name, &cell(value), is_coloured))
    };
    rows.iter().map(line).collect()
}

/// A table: each column as wide as its widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    coloured_table(head, rows, is_coloured(&io::stdout()))
}

fn coloured_table(head: &[&str], rows: &[Vec<String>], is_coloured: bool) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    // Coloured after padding: colour codes have no width.
    let line = |cells: Vec<&str>, is_coloured: bool| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .zip(head)
            .map(|((cell, width), name)| paint(name, &format!("{cell:<width$}"), is_coloured))
            .collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let first = line(head.to_vec(), false);
    rows.iter().fold(first, |page, row| {
        page + &line(row.iter().map(String::as_str).collect(), is_coloured)
    })
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

/// A share in percent, for people. One that would round to zero is a power of ten.
pub(crate) fn small_share(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 0.0001 {
        format!("{percent:.4} %")
    } else {
        format!("{percent:.1e} %")
    }
}

/// Bytes, KiB or MiB, for people.
pub(crate) fn binary_size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// The value, or a dash if there is none.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// The author of an event, user@host. The user comes from the system, so that a cron job or a
/// container without `$USER` has one too.
pub(crate) fn who() -> String {
    let user = whoami::username().ok().filter(|user| !user.is_empty());
    let user = user.or_else(|| std::env::var("USER").ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host())
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
    fn a_tables_columns_begin_where_their_names_do() {
        let rows = [vec!["2026-11-19".into(), "1".into()], vec!["x".into(), "–".into()]];
        assert_eq!(
            coloured_table(&["day", "ids"], &rows, false),
            "day         ids\n2026-11-19  1\nx           –\n"
        );
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        let head = ["outcome", "day", "standing", "why"];
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["published", "1", "done", "failed"]),
            row(["refused", "2", "to be built, late", "ok"]),
            row(["dry run", "3", "okapi", ""]),
        ];
        let coloured = coloured_table(&head, &rows, true);
        let stripped = anstream::adapter::strip_str(&coloured).to_string();
        assert_eq!(stripped, coloured_table(&head, &rows, false));
        let painted = coloured.lines().map(|line| line.matches("\u{1b}[0m").count());
        assert_eq!(painted.collect::<Vec<_>>(), [0, 2, 2, 0], "{coloured:?}");
        assert!(coloured.contains("\u{1b}[32mpublished\u{1b}[0m  1"), "{coloured:?}");
    }
}
