//! Checks whether a day's input is there and complete. The rules ([`crate::scheduling::rules`])
//! compare one check with the previous one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bloomsday_builder::error::Error as BuilderError;
use bloomsday_builder::{Window, segments, source};
use bloomsday_common::day::Day;
use bloomsday_common::error::Kind;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;

use crate::remedy::explain;
use crate::scheduling::rules::Found;

/// The file that Spark, Hadoop and many others write last.
pub(super) const MARKER: &str = "_SUCCESS";

/// What a check found, and what the day waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InputState {
    pub(super) found: Found,
    pub(super) waits: Option<Waits>,
}

/// Why a day's input is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) reason: Reason,
    /// The reason as a sentence, for people.
    pub(super) why: String,
}

/// The reason in a word, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// An input matches nothing.
    Input,
    /// A folder lacks its marker.
    Marker,
    /// An earlier day of the window has no input.
    Window,
    /// Something in the input is not a file.
    Unreadable,
    /// The input's store could not be read.
    Store,
    /// A build failed and will be retried.
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

/// Checks every input of a day, and whether the other days of its window have any.
///
/// The default marker must not be more than `settle` older than the files next to it. A marker that
/// the configuration names need only exist.
///
/// Cost: one listing for each input and day of the window.
///
/// # Errors
/// The store is unreachable or refuses. Input that is not there is not an error.
pub(super) async fn check_input(
    store: &Store,
    filter: &FilterName,
    inputs: &[String],
    marker: Option<&str>,
    settle: Duration,
    window: Window,
    day: Day,
) -> Result<InputState, BuilderError> {
    let looked = if source::reads_live_ids(inputs) {
        check_live(store, filter, day).await
    } else {
        check_all(inputs, marker, settle, window, day).await
    };
    match looked {
        Ok(looked) => Ok(looked),
        Err(error) => {
            let reason = match &error {
                BuilderError::NoDays { .. } => Reason::Window,
                BuilderError::NotAFile { .. } => Reason::Unreadable,
                error if error.kind() == Kind::NotFound => Reason::Input,
                _ => return Err(error),
            };
            let waits = Some(Waits { reason, why: explain(&error, error.remedy()) });
            Ok(InputState { found: Found::Nothing, waits })
        }
    }
}

/// Whether all that was added to a live filter on a day is in the store. A log whose server is gone
/// for good counts as complete when nothing changes any more.
async fn check_live(
    store: &Store,
    filter: &FilterName,
    day: Day,
) -> Result<InputState, BuilderError> {
    let shipped = segments::check_shipped(store, filter, day).await?;
    Ok(match shipped.late_log {
        None => InputState { found: Found::Complete, waits: None },
        Some(why) => InputState {
            found: Found::Incomplete(shipped.segments as u64),
            waits: Some(Waits { reason: Reason::Marker, why }),
        },
    })
}

async fn check_all(
    inputs: &[String],
    marker: Option<&str>,
    settle: Duration,
    window: Window,
    day: Day,
) -> Result<InputState, BuilderError> {
    let (mut hasher, mut lacks) = (DefaultHasher::new(), None);
    for input in inputs {
        let settle = marker.is_none().then_some(settle);
        let checked = source::check_complete(input, day, marker.unwrap_or(MARKER), settle).await?;
        let Some(files) = checked.files else {
            let why = checked.lacks.unwrap_or_default();
            let waits = Some(Waits { reason: Reason::Input, why });
            return Ok(InputState { found: Found::Nothing, waits });
        };
        files.hash(&mut hasher);
        lacks = lacks.or(checked.lacks);
    }
    if window.days > 1 {
        source::find_window(inputs, day, window).await?;
    }
    Ok(match lacks {
        None => InputState { found: Found::Complete, waits: None },
        Some(mut why) => {
            if marker.is_none() {
                let settle = humantime::format_duration(settle);
                why +=
                    &format!("; it is built all the same, once nothing has changed for {settle}");
            }
            let waits = Some(Waits { reason: Reason::Marker, why });
            InputState { found: Found::Incomplete(hasher.finish()), waits }
        }
    })
}

#[cfg(test)]
mod tests;
