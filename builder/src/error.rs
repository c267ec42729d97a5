//! [`Error`]: why a day could not be built.

use bloomsday_common::day::Day;
use bloomsday_common::error::{Kind, is_forbidden, is_missing_bucket};
use bloomsday_common::redact::describe_source;

/// The error of this crate. Ask [`Error::kind`] what to do; never parse the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the contract with the store says.
    #[error(transparent)]
    Common(#[from] bloomsday_common::error::Error),
    /// A day that cannot be over yet.
    #[error("{day} is in the future: the newest day that can be built now (UTC) is {newest}")]
    FutureDay {
        /// The day asked for.
        day: Day,
        /// The newest that is allowed.
        newest: Day,
    },
    /// A filter that is not as good as its IDs should make it.
    #[error("the filter was refused before it was pointed at: {why}")]
    Unsound {
        /// The numbers.
        why: String,
    },
    /// A file of another system that cannot be imported.
    #[error("{file} cannot be imported as a filter of Guava's: {why}")]
    Foreign {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A filter that lost IDs on its way through the store.
    #[error(
        "the published bytes answer \"no\" to {lost} of {of} IDs (and to {lost_samples} of those asked \
         by their bytes): nothing was pointed at; check this machine's memory and the store, and \
         build again"
    )]
    Lost {
        /// Distinct IDs whose hash was answered "no".
        lost: u64,
        /// Distinct IDs.
        of: u64,
        /// Sampled raw IDs that were answered "no".
        lost_samples: u64,
    },
    /// Hashes that are not those that were written.
    #[error(
        "the hashes {read} are not those {written}: nothing was pointed at; check this machine's memory \
         and the disk that --memory spills to, and build again"
    )]
    Changed {
        /// What wrote them.
        written: &'static str,
        /// What read something else.
        read: &'static str,
    },
    /// Not enough memory.
    #[error("no memory for {what} of {bytes} bytes: {source}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The system's words.
        source: std::io::Error,
    },
    /// A filter that would not fit into memory together with its copy.
    #[error(
        "the filter and the copy that is read back need {needed} bytes of memory, and {available} are \
         available ({by}): build where there is more, or with a larger --fpp"
    )]
    TooLarge {
        /// Bytes of both.
        needed: u64,
        /// Bytes there are.
        available: u64,
        /// Who says so.
        by: String,
    },
    /// There was no memory for partitions, or the spill file failed.
    #[error("cannot keep partitions: {source}; free some memory or disk space, or change --memory")]
    Spill {
        /// The system's words.
        source: std::io::Error,
    },
    /// No input at all.
    #[error(
        "nothing matches the input `{input}` of {day}: check that the day's files have arrived, \
         and the path (a glob matches files, not folders: end it with `/*.parquet`, or with \
         `/**/*.parquet` for every folder below)"
    )]
    NoFiles {
        /// The input, with its day filled in.
        input: String,
        /// The day.
        day: Day,
    },
    /// No input on earlier days of a window.
    #[error(
        "the {of} days up to {day} lack {missing} with any input: {days}; bring their files, or build \
         without them: --window-missing allow (`window_missing = \"allow\"`)"
    )]
    NoDays {
        /// The day that is built.
        day: Day,
        /// How many days the window has.
        of: u32,
        /// How many of them have no input.
        missing: usize,
        /// The first of these.
        days: String,
    },
    /// A window that cannot be.
    #[error("a window of {days} days (`window_days`, --window-days) cannot be: {why}")]
    Window {
        /// How many days were asked for.
        days: u32,
        /// What is wrong with it.
        why: String,
    },
    /// Something among the files that can be none.
    #[error("{file} cannot be read: {}; {remedy}", describe_source(.why))]
    NotAFile {
        /// What it is called.
        file: String,
        /// What it is.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An input that cannot be understood.
    #[error("the input `{input}` is not a usable glob: {why}")]
    Glob {
        /// The input, with its day filled in.
        input: String,
        /// What is wrong with it.
        why: String,
    },
    /// Too much of something for one build.
    #[error("{name} has {got} {what}, more than the {limit} allowed: {remedy}")]
    TooMany {
        /// The file or input.
        name: String,
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        got: u64,
        /// The limit.
        limit: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// The store would not list or give an input.
    #[error("cannot {doing} {name}: {}{}", hint(.source), describe_source(.source))]
    Input {
        /// What was tried.
        doing: &'static str,
        /// The file or input.
        name: String,
        /// The store's own words.
        source: Box<object_store::Error>,
    },
    /// A file became another one.
    #[error(
        "{file} was replaced while it was being read: run the build again once its writer is done"
    )]
    Replaced {
        /// The file.
        file: String,
    },
    /// A file that is something else.
    #[error(
        "{file} is not a Parquet file, or only a part of one: {why}; if it belongs to the input, \
         write it again; if not, name the others with a glob such as `*.parquet`"
    )]
    NotParquet {
        /// The file.
        file: String,
        /// How it can be told.
        why: String,
    },
    /// A damaged file.
    #[error("{file} is damaged: {}; write the file again, or leave it out of the input", describe_source(.why))]
    Corrupt {
        /// The file.
        file: String,
        /// What does not fit, and in which row group.
        why: String,
    },
    /// A sound file of a kind that this program does not read.
    #[error("{file} cannot be read: {what}; write the file again without that")]
    Unsupported {
        /// The file.
        file: String,
        /// What is not supported.
        what: String,
    },
    /// A file without the column.
    #[error("{file} has no column `{column}`; it has {}", describe_source(.known))]
    NoColumn {
        /// The file.
        file: String,
        /// The column asked for.
        column: String,
        /// Its columns, cut to a sensible number.
        known: String,
    },
    /// A column that holds no IDs.
    #[error(
        "column `{column}` of {file} cannot be used as an ID: {}; \
         an ID is a string, binary, an integer or a UUID",
        describe_source(.why)
    )]
    NotAnId {
        /// The file.
        file: String,
        /// The column asked for.
        column: String,
        /// Its type, or what else is in the way.
        why: String,
    },
    /// The system refused a thread.
    #[error("cannot start a decoding thread: {source}")]
    Thread {
        /// The system's words.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn spill(source: std::io::Error) -> Error {
        Error::Spill { source }
    }

    /// Sorts the error by what can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Common(error) => error.kind(),
            Error::NoFiles { .. } | Error::NoDays { .. } => Kind::NotFound,
            Error::NotAFile { .. } => Kind::Failed,
            Error::Glob { .. }
            | Error::Window { .. }
            | Error::Unsupported { .. }
            | Error::NoColumn { .. }
            | Error::NotAnId { .. } => Kind::Usage,
            Error::Input { source, .. } => input_kind(source),
            Error::Replaced { .. } | Error::Thread { .. } => Kind::Transient,
            Error::NotParquet { .. } | Error::Corrupt { .. } => Kind::Corrupt,
            Error::TooMany { .. } => Kind::Failed,
            Error::FutureDay { .. } => Kind::Usage,
            Error::Foreign { .. } => Kind::Corrupt,
            Error::Unsound { .. } | Error::Lost { .. } => Kind::Failed,
            Error::Changed { .. } | Error::Spill { .. } => Kind::Failed,
            Error::Memory { .. } | Error::TooLarge { .. } => Kind::Transient,
        }
    }
}

/// What a store's error means for a build: a refusal stays one, an unreachable store may come back.
fn input_kind(error: &object_store::Error) -> Kind {
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

/// The remedy that an operator at night would otherwise have to guess.
fn hint(error: &object_store::Error) -> &'static str {
    match error {
        _ if is_forbidden(error) => {
            "check the credentials and their rights (on S3 a missing key also looks like this \
             without the right s3:ListBucket): "
        }
        _ if is_missing_bucket(error) => {
            "there is no such bucket or container; check its name, region and account: "
        }
        object_store::Error::NotFound { .. } => {
            "it is gone; check its name, and whether something removes it while it is read: "
        }
        _ => "",
    }
}
