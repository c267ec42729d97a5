//! Inputs → files: finds the files of a day's build with one listing per input.
//!
//! Nothing is skipped silently: each file is read, refused by name, or reported in [`Input`]. This
//! module does not read the content of a file; [`scan`](crate::scan) detects files that are not
//! Parquet.
//!
//! | module | does |
//! |---|---|
//! | `find` | the inputs of a day, or of a window of days → their files |
//! | `input` | [`Input`], [`InputFile`] and [`Window`] |
//! | `lookup` | one input of one day → the files that it matches |
//! | `pattern` | decides which names an input matches |
//! | `listing` | collects the entries below a folder |
//! | `walk` | lists a local folder |
//! | `tables` | detects a Delta or Iceberg table around the input |
//! | `template` | fills the day into an input |
//! | `completeness` | checks the markers that say that a day's input is complete |
//! | `limits` | the limits of an input |
//! | `objects` | helpers for paths and objects of a store |

mod completeness;
mod find;
mod input;
mod limits;
mod listing;
mod lookup;
mod objects;
mod pattern;
mod tables;
mod template;
mod walk;

pub use self::completeness::{Completeness, check_complete};
pub use self::find::{check_inputs, find, find_window};
pub(crate) use self::input::check_live_is_alone;
pub use self::input::{Input, InputFile, LIVE, Window, is_same_each_day, reads_live_ids};
pub use self::limits::{MAX_FILES, MAX_FOLDERS, MAX_LISTED, MAX_NAMED, MAX_WINDOW_DAYS};
pub use self::walk::MAX_DEPTH;

#[cfg(test)]
mod tests;
