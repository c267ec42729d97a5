//! [`Remedy`]: what a person can do about an error, as data. Only a program knows its own commands
//! and settings, so it may say the same in its words: [`Remedy::reword`].

use std::fmt;

/// What a person can do about an error. It displays as the words that the error's text has.
///
/// ```
/// use bloomsday_common::error::Error;
/// use bloomsday_common::remedy::Remedy;
///
/// let error = Error::NoStore { path: "/srv/filters".into() };
/// assert_eq!(error.remedy(), Some(Remedy::BuildFirst));
/// let text = Remedy::BuildFirst.reword(&error.to_string(), |_| "run `make filters`".into());
/// assert_eq!(text, "there is no store at /srv/filters: check the path; run `make filters`");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Remedy {
    /// Replace a pointer that cannot be read.
    ReplacePointer {
        /// The name of the filter whose pointer it is.
        filter: String,
        /// The day of the pointer.
        day: String,
        /// The key of the blob to name, if it is known.
        to: Option<String>,
    },
    /// Remove a pin that cannot be read.
    RemovePin {
        /// The name of the filter that is pinned.
        filter: String,
    },
    /// Repoint a day to a blob that was kept.
    UseBlob {
        /// The name of the filter that the blob belongs to.
        filter: String,
        /// The day to repoint.
        day: String,
        /// The key of the blob.
        blob: String,
    },
    /// Publish a first day, which makes the store's folder.
    BuildFirst,
    /// Read the state again, and repeat.
    ReadAgain,
    /// Name the place of the pointers, if that is not the store.
    NamePointers,
    /// Use the pointers in the store.
    PointersInStore,
    /// Use another key for the pointers in Redis.
    PointersKey {
        /// The template of the key.
        key: String,
    },
    /// Use the pointers in Redis.
    PointersInRedis {
        /// The address, as the program that wrote the marker reached it.
        address: String,
        /// The template of the key.
        key: String,
    },
    /// Keep pointers and blobs for more days.
    KeepLonger,
    /// The store needs a newer version of this library.
    Upgrade,
    /// Repair the record that says where pointers live.
    MendMarker {
        /// The record's key.
        key: String,
    },
    /// Let a build use more memory.
    MoreMemory,
    /// Let a build use more or less memory.
    OtherMemory,
    /// Build with a larger target fpp.
    LargerFpp,
    /// Build without input that is missing: earlier days of the window, or segments of live IDs.
    AllowMissingInput,
    /// Accept the change, with a reason for the record.
    AcceptChange,
}

impl Remedy {
    /// Says this remedy in other words wherever `text`, an error's, has it.
    pub fn reword(&self, text: &str, words: impl Fn(&Remedy) -> String) -> String {
        text.replace(&self.to_string(), &words(self))
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::ReplacePointer { filter, day, to } => {
                let to = to.as_deref().unwrap_or("another blob");
                write!(f, "repoint {day} of `{filter}` to {to}")
            }
            Remedy::RemovePin { filter } => write!(f, "remove the pin of `{filter}`"),
            Remedy::UseBlob { filter, day, blob } => {
                write!(f, "repoint {day} of `{filter}` to {blob}")
            }
            Remedy::BuildFirst => {
                f.write_str("a build makes the folder with the first day it publishes")
            }
            Remedy::ReadAgain => f.write_str("look at its status and repeat"),
            Remedy::NamePointers => {
                f.write_str("If the pointers are in another place, open the store with that place")
            }
            Remedy::PointersInStore => {
                f.write_str("open the store without another place for pointers")
            }
            Remedy::PointersKey { key } => {
                write!(f, "open the store with the key `{key}` for pointers")
            }
            Remedy::PointersInRedis { address, key } => {
                write!(f, "open the store with its pointers at {address} under the key `{key}`")
            }
            Remedy::KeepLonger => f.write_str("keep blobs for more days"),
            Remedy::Upgrade => f.write_str("use a program that knows such a place"),
            Remedy::MendMarker { key } => {
                write!(f, "mend it, or delete {key} if this program is right")
            }
            Remedy::MoreMemory => f.write_str("give the build more memory"),
            Remedy::OtherMemory => f.write_str("change the memory that the build may use"),
            Remedy::LargerFpp => f.write_str("with a larger fpp"),
            Remedy::AllowMissingInput => f.write_str("allow missing input"),
            Remedy::AcceptChange => f.write_str("accept the change, and say why"),
        }
    }
}
