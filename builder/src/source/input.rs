//! [`Input`]: the files of a build, and [`Window`]: the days whose files it reads.

use std::sync::Arc;

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;
use object_store::{ObjectMeta, ObjectStore};

use super::limits::MAX_WINDOW_DAYS;
use crate::error::Error;

/// A file to read, as it was when it was listed.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path or URL, for messages.
    pub name: String,
    /// The store that has it.
    pub objects: Arc<dyn ObjectStore>,
    /// Where in that store it lies, and its size.
    pub meta: ObjectMeta,
}

/// The days whose inputs a build reads: so many, up to and with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many; 1 is the day alone.
    pub days: u32,
    /// Whether the days before its own may have no input.
    pub may_lack_days: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window { days: 1, may_lack_days: false }
    }
}

impl Window {
    /// Says whether these inputs can have such a window.
    ///
    /// # Errors
    /// [`Error::Window`]: no days or too many, or an input that is the same on every day.
    pub fn check(self, inputs: &[String]) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Window { days: self.days, why });
        if self.days == 0 || self.days > MAX_WINDOW_DAYS {
            return wrong(format!("it has 1 to {MAX_WINDOW_DAYS}"));
        }
        match inputs.iter().find(|input| self.days > 1 && !input.contains("{day")) {
            None => Ok(()),
            Some(input) => wrong(format!(
                "the input `{}` holds no {{day}}, so it is the same on each of them: write {{day}} \
                 where its path has the day",
                redact_url(input)
            )),
        }
    }

    /// Its days, the newest first.
    pub fn days_up_to(self, day: Day) -> impl Iterator<Item = Day> {
        (0..self.days).map(move |back| day.minus(back))
    }
}

/// What the inputs of a day hold, or of a window of days.
#[derive(Debug, Default)]
pub struct Input {
    /// The files to read, sorted by name, each of them once.
    pub files: Vec<InputFile>,
    /// How many files were passed over because their name, or that of a folder they lie in, is hidden.
    pub passed_over: u64,
    /// At most [`MAX_NAMED`] of these, first those that look least like what other programs leave.
    pub passed_over_names: Vec<String>,
    /// Days of the window for which an input matched nothing, oldest first.
    pub missing: Vec<Day>,
    /// What somebody should know of the input, although it can be read.
    pub warnings: Vec<String>,
}

impl Input {
    /// The size of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.meta.size).sum()
    }
}
