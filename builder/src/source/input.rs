//! [`Input`]: the files of a build, and [`Window`]: the days whose files it reads.

use std::sync::Arc;

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;
use object_store::{ObjectMeta, ObjectStore};

use super::limits::MAX_WINDOW_DAYS;
use super::template::expand;
use crate::error::Error;

/// The input that means the filter's own live IDs, in its own store.
pub const LIVE: &str = "live:";

/// Whether the input is the filter's own live IDs.
pub fn reads_live_ids(inputs: &[String]) -> bool {
    inputs.iter().any(|input| input == LIVE)
}

/// Refuses another input where one is [`LIVE`].
///
/// # Errors
/// [`Error::LiveInput`].
pub(crate) fn check_live_is_alone(inputs: &[String]) -> Result<(), Error> {
    if inputs.len() <= 1 {
        return Ok(());
    }
    let why = "they are the only input of a build: name no other".to_owned();
    Err(Error::LiveInput { why })
}

/// A file to read, as it was listed.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path or URL, for messages; without passwords.
    pub name: String,
    /// An input that names this file and no other, for another process; without passwords.
    pub address: String,
    /// The store that has it.
    pub objects: Arc<dyn ObjectStore>,
    /// Its place in that store, and its size.
    pub meta: ObjectMeta,
}

/// The days whose inputs a build reads: a number of days that ends with the build's own day.
///
/// ```
/// use bloomsday_builder::Window;
/// use bloomsday_common::day::Day;
///
/// let week = Window { days: 7, may_lack_input: true };
/// let day: Day = "2026-11-19".parse().unwrap();
/// let days: Vec<String> = week.days_up_to(day).map(|day| day.to_string()).collect();
/// assert_eq!((days.len(), days[0].as_str(), days[6].as_str()), (7, "2026-11-19", "2026-11-13"));
///
/// // Without `{day}` the input would be the same on each day.
/// assert!(week.check(&["ids/dt={day}/*.parquet".into()]).is_ok());
/// assert!(week.check(&["ids/*.parquet".into()]).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The number of days; 1 is the day alone.
    pub days: u32,
    /// Whether input may be missing: of earlier days of the window, or segments of live IDs.
    pub may_lack_input: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window { days: 1, may_lack_input: false }
    }
}

impl Window {
    /// Checks that the window is possible for these inputs.
    ///
    /// # Errors
    /// [`Error::Window`]: the window has no days or too many, or an input is the same on every day.
    pub fn check(self, inputs: &[String]) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Window { days: self.days, why });
        if self.days == 0 || self.days > MAX_WINDOW_DAYS {
            return wrong(format!("it has 1 to {MAX_WINDOW_DAYS}"));
        }
        match inputs.iter().find(|input| self.days > 1 && is_same_each_day(input)) {
            None => Ok(()),
            Some(input) => wrong(format!(
                "the input `{}` is the same on two days that follow each other: write {{day}} where \
                 its path has the day",
                redact_url(input)
            )),
        }
    }

    /// The days of the window that ends with `day`, from the newest to the oldest.
    pub fn days_up_to(self, day: Day) -> impl Iterator<Item = Day> {
        (0..self.days).map(move |back| day.minus(back))
    }
}

/// Whether an input is the same on days that follow each other: it has no `{day}`, or only its
/// month.
pub fn is_same_each_day(input: &str) -> bool {
    let days = ["2026-11-18", "2026-11-19"].map(|day| day.parse().expect("a day"));
    let [first, second] = days.map(|day: Day| expand(input, day).ok());
    first.is_some() && first == second && input != LIVE
}

/// The files of a day, or of a window of days.
#[derive(Debug, Default)]
pub struct Input {
    /// The files to read, sorted by name, without duplicates.
    pub files: Vec<InputFile>,
    /// The number of files that are not read because their name, or the name of a folder above, is
    /// hidden.
    pub passed_over: u64,
    /// At most [`MAX_NAMED`](super::MAX_NAMED) of their names. Names that other programs usually
    /// leave come last.
    pub passed_over_names: Vec<String>,
    /// Days of the window for which an input matched nothing, from the oldest to the newest.
    pub missing: Vec<Day>,
    /// Problems of the input that do not prevent the build.
    pub warnings: Vec<String>,
}

impl Input {
    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.meta.size).sum()
    }
}
