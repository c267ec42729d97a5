//! Is a day's input there, and whole? One look, which [`super::decide`] compares with the one before.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bloomsday_builder::error::Error as BuilderError;
use bloomsday_builder::{Window, source};
use bloomsday_common::day::Day;
use bloomsday_common::error::Kind;

use super::decide::Found;

/// The file that Spark, Hadoop and many others write last.
pub(super) const MARKER: &str = "_SUCCESS";

/// What a look found, and what it is that the day waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) found: Found,
    pub(super) waits: Option<Waits>,
}

/// Why a day's input is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) reason: Reason,
    /// For people.
    pub(super) why: String,
}

/// In a word, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// An input matches nothing.
    Input,
    /// A folder lacks its marker.
    Marker,
    /// An earlier day of the window has no input.
    Window,
    /// Something in the input can be no file.
    Unreadable,
    /// The input could not be looked at.
    Store,
    /// A build failed, and will be tried again.
    Failed,
}

impl Reason {
    pub(super) const ALL: [Reason; 6] = [
        Reason::Input,
        Reason::Marker,
        Reason::Window,
        Reason::Unreadable,
        Reason::Store,
        Reason::Failed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Input => "input",
            Reason::Marker => "marker",
            Reason::Window => "window",
            Reason::Unreadable => "unreadable",
            Reason::Store => "store",
            Reason::Failed => "failed",
        }
    }
}

/// Looks at every input of a day, and whether the other days of its window have any.
///
/// The usual marker must not be older than files beside it by more than `settle`. Whoever names a marker
/// says that its being there is enough.
///
/// Cost: a listing an input, for each day of the window.
///
/// # Errors
/// The store is unreachable, or refuses; an input that is not there is no error.
pub(super) async fn look(
    inputs: &[String],
    marker: Option<&str>,
    settle: Duration,
    window: Window,
    day: Day,
) -> Result<Looked, BuilderError> {
    match look_at_all(inputs, marker, settle, window, day).await {
        Ok(looked) => Ok(looked),
        Err(error) => {
            let reason = match &error {
                BuilderError::NoDays { .. } => Reason::Window,
                BuilderError::NotAFile { .. } => Reason::Unreadable,
                error if error.kind() == Kind::NotFound => Reason::Input,
                _ => return Err(error),
            };
            let waits = Some(Waits { reason, why: error.to_string() });
            Ok(Looked { found: Found::Nothing, waits })
        }
    }
}

async fn look_at_all(
    inputs: &[String],
    marker: Option<&str>,
    settle: Duration,
    window: Window,
    day: Day,
) -> Result<Looked, BuilderError> {
    let (mut hasher, mut lacks) = (DefaultHasher::new(), None);
    for input in inputs {
        let settle = marker.is_none().then_some(settle);
        let whole = source::check_complete(input, day, marker.unwrap_or(MARKER), settle).await?;
        let Some(files) = whole.files else {
            let why = whole.lacks.unwrap_or_default();
            let waits = Some(Waits { reason: Reason::Input, why });
            return Ok(Looked { found: Found::Nothing, waits });
        };
        files.hash(&mut hasher);
        lacks = lacks.or(whole.lacks);
    }
    if window.days > 1 {
        source::find_window(inputs, day, window).await?;
    }
    Ok(match lacks {
        None => Looked { found: Found::Complete, waits: None },
        Some(why) => {
            let waits = Some(Waits { reason: Reason::Marker, why });
            Looked { found: Found::Files(hasher.finish()), waits }
        }
    })
}

#[cfg(test)]
mod tests;
