//! [`Error`]: why a day could not be built.

use bloomsday_common::day::Day;
use bloomsday_common::error::{Kind, is_forbidden, is_missing_bucket, rights};
use bloomsday_common::redact::{describe_error, describe_source};
use bloomsday_common::remedy::Remedy;

/// The error of this crate. [`Error::kind`] says what to do about it; do not parse the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the store, of a record or of a blob.
    #[error(transparent)]
    Common(#[from] bloomsday_common::error::Error),
    /// A day that cannot have ended yet.
    #[error("{day} is in the future: the newest day that can be built now (UTC) is {newest}")]
    FutureDay {
        /// The day of the job.
        day: Day,
        /// The newest day that can be built.
        newest: Day,
    },
    /// A filter whose rate or bits its IDs do not explain.
    #[error("the filter was refused before it was pointed at: {why}")]
    Unsound {
        /// The measured and the expected numbers.
        why: String,
    },
    /// A file of another system that cannot be imported.
    #[error("{file} cannot be imported as a filter of {system}'s: {why}")]
    Foreign {
        /// The other system.
        system: &'static str,
        /// The name of the file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A published filter that lacks IDs.
    #[error(
        "the published filter lacks {lost} of {of} IDs (and {lost_samples} of those looked up by their \
         bytes): nothing was pointed at; check this machine's memory and the store, and \
         build again"
    )]
    Lost {
        /// Distinct IDs whose hash is a miss.
        lost: u64,
        /// The number of distinct IDs.
        of: u64,
        /// Sampled raw IDs that are a miss.
        lost_samples: u64,
    },
    /// Hashes that changed in memory, in a temporary file, or between machines.
    #[error(
        "the hashes {read} are not those {written}: nothing was pointed at; check this machine's memory \
         and the disk with the build's temporary file (of a build in parts: whether its input changed \
         meanwhile), and build again"
    )]
    Changed {
        /// The step that wrote them.
        written: &'static str,
        /// The step that read other hashes.
        read: &'static str,
    },
    /// A job that cannot be built in parts on several machines.
    #[error("this job cannot be built in parts: {why}")]
    NotInParts {
        /// Why not, and what can be done.
        why: String,
    },
    /// A range with too many hashes, because there are more rows than expected.
    #[error(
        "range {range} of {ranges} has more than {} distinct hashes: the day has more rows than expected; \
         state their number (`rows`), or more `ranges`",
        crate::parts::MAX_RANGE_HASHES
    )]
    RangeFull {
        /// The number of the range.
        range: u32,
        /// How many ranges there are.
        ranges: u32,
    },
    /// The system has no memory.
    #[error("no memory for {what} of {bytes} bytes: {source}")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// A filter that does not fit in memory together with its copy.
    #[error(
        "the filter and the copy that is read back need {needed} bytes of memory, and {available} are \
         available ({by}): build where there is more, or {}",
        Remedy::LargerFpp
    )]
    TooLarge {
        /// The bytes of both.
        needed: u64,
        /// The available bytes.
        available: u64,
        /// What limits them: the machine or a cgroup.
        by: String,
    },
    /// There is no memory for partitions, or the temporary file failed.
    #[error(
        "cannot keep partitions: {source}; free some memory or disk space, or {}",
        Remedy::OtherMemory
    )]
    Spill {
        /// The system's error.
        source: std::io::Error,
    },
    /// An input that matches nothing.
    #[error(
        "nothing matches the input `{input}` of {day}: check that the day's files have arrived, \
         and the path (a glob matches files, not folders: end it with `/*.parquet`, or with \
         `/**/*.parquet` for every folder below)"
    )]
    NoFiles {
        /// The input, with its day filled in.
        input: String,
        /// The day whose files were looked for.
        day: Day,
    },
    /// A day without segments of live IDs.
    #[error(
        "`{filter}` has no live IDs of {day} in the store: check that a server takes IDs for this filter, has \
         a folder for them, and reports no error of shipping"
    )]
    NoSegments {
        /// The name of the live filter.
        filter: String,
        /// The day whose segments were looked for.
        day: Day,
    },
    /// A job that segments of live IDs cannot be the input of.
    #[error("live IDs cannot be the input of this build: {why}")]
    LiveInput {
        /// Why not.
        why: String,
    },
    /// A segment of live IDs that is damaged.
    #[error(
        "{key} cannot be used: {why}. If the server that wrote it still has its log: stop that server, delete this \
         object and the server's record in the folder `live/heads`, and start it: it writes the segment again. If \
         not, delete this object; the IDs in it are lost, and builds have to go on without it: {}",
        Remedy::AllowMissingInput
    )]
    Segment {
        /// The key of the segment.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Segments of live IDs that the store does not have.
    #[error(
        "segments of `{filter}` are missing in the store ({gaps} gaps): {logs}. If the server of that log still has \
         its data folder: stop the server, delete its record in the folder `live/heads`, and start it: it writes \
         them again. If not, build without them: {}",
        Remedy::AllowMissingInput
    )]
    MissingSegments {
        /// The filter.
        filter: String,
        /// How many gaps there are.
        gaps: usize,
        /// The first of them, with their logs.
        logs: String,
    },
    /// Earlier days of a window without input.
    #[error(
        "of the {of} days up to {day}, {missing} have no input: {days}; add their files, or build \
         without them: {}",
        Remedy::AllowMissingInput
    )]
    NoDays {
        /// The day of the job.
        day: Day,
        /// The number of days of the window.
        of: u32,
        /// How many of them have no input.
        missing: usize,
        /// The first days without input.
        days: String,
    },
    /// An impossible window.
    #[error("a window of {days} days is not possible: {why}")]
    Window {
        /// The number of days of the window.
        days: u32,
        /// What is wrong with it.
        why: String,
    },
    /// Something among the input that cannot be a file.
    #[error("{} cannot be read: {}; {remedy}", describe_source(.file), describe_source(.why))]
    NotAFile {
        /// The path or URL that was listed.
        file: String,
        /// What it is.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An input that is not a valid glob.
    #[error("the input `{input}` is not a usable glob: {why}")]
    Glob {
        /// The input, with its day filled in.
        input: String,
        /// What is wrong with it.
        why: String,
    },
    /// More of something than a limit.
    #[error("{name} has {got} {what}, more than the {limit} allowed: {remedy}")]
    TooMany {
        /// The file or input.
        name: String,
        /// What exceeds the limit.
        what: &'static str,
        /// The number that was found.
        got: u64,
        /// The limit.
        limit: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that needs more memory than the build may use.
    #[error(
        "{name} has {got} {what}, more than the {limit} allowed: {}, or {otherwise}",
        Remedy::MoreMemory
    )]
    OverBudget {
        /// The file or input.
        name: String,
        /// What exceeds the limit.
        what: &'static str,
        /// The number that was found.
        got: u64,
        /// The limit.
        limit: u64,
        /// What else helps.
        otherwise: &'static str,
    },
    /// The store failed to list or read an input.
    #[error("cannot {doing} {name}: {}{}", hint(.source), describe_error(.source.as_ref()))]
    Input {
        /// The operation.
        doing: &'static str,
        /// The file or input.
        name: String,
        /// The error of the store's client.
        source: Box<object_store::Error>,
    },
    /// A file that changed during the build.
    #[error(
        "{file} was replaced while it was being read: run the build again once its writer is done"
    )]
    Replaced {
        /// The name of the file.
        file: String,
    },
    /// A file that is not Parquet.
    #[error(
        "{file} is not a Parquet file, or only a part of one: {why}; if it belongs to the input, \
         write it again; if not, name the others with a glob such as `*.parquet`"
    )]
    NotParquet {
        /// The name of the file.
        file: String,
        /// What shows it.
        why: String,
    },
    /// A damaged file.
    #[error("{file} is damaged: {}; write the file again, or leave it out of the input", describe_source(.why))]
    Corrupt {
        /// The name of the file.
        file: String,
        /// What contradicts what, and in which row group.
        why: String,
    },
    /// A sound file with a feature that this program does not support.
    #[error("{file} cannot be read: {what}; write the file again without that")]
    Unsupported {
        /// The name of the file.
        file: String,
        /// The feature.
        what: String,
    },
    /// A file without the column.
    #[error("{file} has no column `{column}`; it has {}", describe_source(.known))]
    NoColumn {
        /// The name of the file.
        file: String,
        /// The column of the job.
        column: String,
        /// The first of its columns.
        known: String,
    },
    /// A column whose type is not that of an ID.
    #[error(
        "column `{column}` of {file} cannot be used as an ID: {}; \
         an ID is a string, binary, an integer, a decimal without fraction or a UUID",
        describe_source(.why)
    )]
    NotAnId {
        /// The name of the file.
        file: String,
        /// The column of the job.
        column: String,
        /// Its type, or what else is wrong with it.
        why: String,
    },
    /// The system did not start a thread.
    #[error("cannot start a decoding thread: {source}")]
    Thread {
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn spill(source: std::io::Error) -> Error {
        Error::Spill { source }
    }

    /// What a person can do about it, where that takes more than words.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Common(error) => error.remedy(),
            Error::TooLarge { .. } => Some(Remedy::LargerFpp),
            Error::Spill { .. } => Some(Remedy::OtherMemory),
            Error::NoDays { .. } | Error::MissingSegments { .. } | Error::Segment { .. } => {
                Some(Remedy::AllowMissingInput)
            }
            Error::OverBudget { .. } => Some(Remedy::MoreMemory),
            _ => None,
        }
    }

    /// Classifies the error by what can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Common(error) => error.kind(),
            Error::NoFiles { .. }
            | Error::NoDays { .. }
            | Error::NoSegments { .. }
            | Error::MissingSegments { .. } => Kind::NotFound,
            Error::NotAFile { .. } => Kind::Failed,
            Error::Glob { .. }
            | Error::LiveInput { .. }
            | Error::Window { .. }
            | Error::Unsupported { .. }
            | Error::NoColumn { .. }
            | Error::NotAnId { .. } => Kind::Usage,
            Error::Input { source, .. } => input_kind(source),
            Error::Replaced { .. } | Error::Thread { .. } => Kind::Transient,
            Error::NotParquet { .. } | Error::Corrupt { .. } | Error::Segment { .. } => {
                Kind::Corrupt
            }
            Error::TooMany { .. } | Error::OverBudget { .. } => Kind::Failed,
            Error::FutureDay { .. } | Error::NotInParts { .. } | Error::RangeFull { .. } => {
                Kind::Usage
            }
            Error::Foreign { .. } => Kind::Corrupt,
            Error::Unsound { .. } | Error::Lost { .. } => Kind::Failed,
            Error::Changed { .. } | Error::Spill { .. } => Kind::Failed,
            Error::Memory { .. } | Error::TooLarge { .. } => Kind::Transient,
        }
    }
}

/// Classifies an error of a store: a refusal is permanent, an unreachable store may come back.
pub(crate) fn input_kind(error: &object_store::Error) -> Kind {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => Kind::NotFound,
        _ if is_missing_bucket(error) => Kind::NotFound,
        _ if is_forbidden(error) => Kind::Failed,
        E::NotSupported { .. }
        | E::NotImplemented { .. }
        | E::InvalidPath { .. }
        | E::UnknownConfigurationKey { .. } => Kind::Failed,
        _ => Kind::Transient,
    }
}

/// What to do about an error of a store, before its text.
fn hint(error: &object_store::Error) -> String {
    let remedy = match error {
        _ if is_forbidden(error) => rights(error),
        _ if is_missing_bucket(error) => {
            "there is no such bucket or container; check its name, region and account"
        }
        object_store::Error::NotFound { .. } => {
            "it is gone; check its name, and whether something removes it while it is read"
        }
        object_store::Error::InvalidPath { .. } => "rename or delete that object",
        _ => return String::new(),
    };
    format!("{remedy}: ")
}
