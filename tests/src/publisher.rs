//! [`Publisher`]: runs `bloomsday build` on generated input.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use crate::backend::Backend;
use crate::input::{today, write_users};
use crate::program::{Bloomsday, Run};

/// A build of one day; the default filter is `rt`, and the default column `device_id`.
pub struct Publisher<'a> {
    backend: &'a Backend,
    filter: String,
    day: String,
    input: String,
    column: String,
    more: Vec<String>,
}

impl<'a> Publisher<'a> {
    /// A build of this day.
    pub fn day(backend: &'a Backend, day: impl Display) -> Publisher<'a> {
        let (filter, day) = ("rt".to_owned(), day.to_string());
        let (input, column) = (String::new(), "device_id".to_owned());
        Publisher { backend, filter, day, input, column, more: Vec::new() }
    }

    /// A build of the day this many days before today.
    pub fn days_ago(backend: &'a Backend, back: u32) -> Publisher<'a> {
        Publisher::day(backend, today().minus(back))
    }

    /// Of this filter.
    pub fn filter(mut self, filter: &str) -> Publisher<'a> {
        filter.clone_into(&mut self.filter);
        self
    }

    /// From a new file with these users. Two builds of one range have the same input.
    pub fn users(self, users: Range<u64>) -> Publisher<'a> {
        let folder = self.backend.folder.path().join(format!("in-{}-{}", users.start, users.end));
        let file = folder.join("part-0.parquet");
        if !file.exists() {
            write_users(&file, users);
        }
        self.input(&folder)
    }

    /// From this file, folder or pattern.
    pub fn input(mut self, input: impl AsRef<Path>) -> Publisher<'a> {
        self.input = input.as_ref().display().to_string();
        self
    }

    /// From this column.
    pub fn column(mut self, name: &str) -> Publisher<'a> {
        name.clone_into(&mut self.column);
        self
    }

    /// With more arguments.
    pub fn with<S: AsRef<str>>(mut self, more: &[S]) -> Publisher<'a> {
        self.more.extend(more.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// The build, not yet run.
    pub fn prepare(&self) -> Bloomsday {
        let Publisher { backend, filter, day, input, column, more } = self;
        let words = ["build", filter, "--day", day, "--input", input, "--column", column];
        backend.bloomsday(
            &words.into_iter().chain(more.iter().map(String::as_str)).collect::<Vec<_>>(),
        )
    }

    /// Runs the build to its end.
    pub fn run(&self) -> Run {
        self.prepare().run()
    }

    /// Runs the build, which must end with 0.
    #[track_caller]
    pub fn publish(&self) {
        self.run().expect(0);
    }

    /// Runs the build, which must end with 0. Returns the key of the blob.
    #[track_caller]
    pub fn blob(&self) -> String {
        self.run().expect(0).json()["blob"].as_str().expect("a blob").to_owned()
    }
}
