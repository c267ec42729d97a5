//! [`Error`]: everything that can go wrong between a blob and its reader or writer.
//!
//! Each message names the thing, what was expected, what was found, and the remedy.

use crate::digest::Digest;
use crate::filter::layout::Layout;
use crate::id_form::IdForm;
use crate::redact::describe_error;
use crate::remedy::Remedy;

/// The error of this crate. [`Error::kind`] says what to do about it; never parse the text.
///
/// ```
/// use bloomsday_common::error::Kind;
/// use bloomsday_common::filter::{Layout, Shape};
///
/// let error = Shape::for_ids(Layout::Blocked, 1_000, 1e-9).unwrap_err();
/// assert_eq!(error.kind(), Kind::Usage);
/// assert!(!error.is_transient());
/// assert_eq!(
///     error.to_string(),
///     "a `blocked` filter cannot have an fpp of 0.000000001: choose the layout `guava`, which needs \
///      fewer bits there",
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that is not a day.
    #[error("`{text}` is not a day: write it as YYYY-MM-DD, for example 2026-11-19")]
    NotADay {
        /// The text, cut.
        text: String,
    },
    /// A template that cannot be expanded.
    #[error("the template `{template}` cannot be expanded: {why}")]
    Template {
        /// The template.
        template: String,
        /// What is wrong with it.
        why: String,
    },
    /// A target rate that the layout cannot be sized for.
    #[error("a `{layout}` filter cannot have an fpp of {fpp}: {remedy}")]
    Fpp {
        /// The target.
        fpp: f64,
        /// The layout.
        layout: Layout,
        /// What to choose instead.
        remedy: &'static str,
    },
    /// A size no filter can have.
    #[error(
        "a `{layout}` filter has 1 to {max_units} units and 1 to {max_probes} probes, \
         not {units} and {probes}{}",
        if units > max_units { ": split the IDs over several filters" } else { "" }
    )]
    TooLarge {
        /// The layout.
        layout: Layout,
        /// The requested number of blocks or words.
        units: u64,
        /// The requested number of probes.
        probes: u32,
        /// The most units that the layout can address.
        max_units: u64,
        /// The most probes that it can have.
        max_probes: u32,
    },
    /// A filter name that cannot be part of a key.
    #[error(
        "`{name}` is not a filter name: use 1 to 64 of a-z, 0-9, `_` and `-`, beginning with a \
         letter or digit"
    )]
    FilterName {
        /// The text.
        name: String,
    },
    /// A text that does not name a blob of the filter.
    #[error("`{text}` does not name a blob of `{filter}`: {why}")]
    BlobKey {
        /// The text.
        text: String,
        /// The filter whose blob it had to be.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// A pointer or pin that exists but cannot be parsed.
    #[error("{key} cannot be read: {why}; mend it by hand, or {remedy}")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: String,
        /// What replaces it.
        remedy: Box<Remedy>,
    },
    /// A record of the history that exists but cannot be parsed.
    #[error(
        "{key} cannot be read: {why}. A rollback may hang on it: restore it (or upgrade, if a newer version wrote it)"
    )]
    Event {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// A blob whose length is not what its header states.
    #[error(
        "{key} is damaged: it should have {expected} bytes and has {got}; fetch it again, and if \
         it repeats, rebuild that day or repoint"
    )]
    Length {
        /// The blob.
        key: String,
        /// Its length according to its header.
        expected: u64,
        /// Its actual length.
        got: u64,
    },
    /// A blob whose bytes do not have the digest in its name.
    #[error(
        "{key} is damaged: its digest should be {expected} and is {got}; fetch it again, and if \
         it repeats, rebuild that day or repoint"
    )]
    Digest {
        /// The blob.
        key: String,
        /// The digest it must have.
        expected: Digest,
        /// The digest of its bytes.
        got: Digest,
    },
    /// A blob of a format version that this program does not know.
    #[error(
        "{key} has format version {version}; this program reads up to version {known}: upgrade it"
    )]
    Version {
        /// The blob.
        key: String,
        /// Its version.
        version: u16,
        /// The newest version that this program reads.
        known: u16,
    },
    /// A blob whose IDs are of another form than the lookups.
    #[error(
        "{key} has IDs of the form `{got}`, and lookups here are of the form `{expected}`, so that they would \
         miss: configure the filter with id = \"{got}\", or build the day again with id = \"{expected}\""
    )]
    IdForm {
        /// The blob.
        key: String,
        /// That of the lookups.
        expected: IdForm,
        /// That of the blob.
        got: IdForm,
    },
    /// A segment of live IDs that is damaged.
    #[error("{key} is not a sound segment: {why}; put back a sound copy")]
    Segment {
        /// The segment.
        key: String,
        /// What does not fit.
        why: String,
    },
    /// A blob whose header contradicts itself, its name or its body.
    #[error("{key} is not a sound blob: {why}; in a store, rebuild that day or repoint")]
    Malformed {
        /// The blob.
        key: String,
        /// What does not fit.
        why: String,
    },
    /// A delta that is damaged, or does not belong to these blobs.
    #[error("{key} cannot be used: {why}; the full blob takes its place")]
    Delta {
        /// The delta.
        key: String,
        /// What does not fit.
        why: String,
    },
    /// An address that cannot be used as a store.
    #[error("`{url}` cannot be used: {why}")]
    StoreUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A local store whose folder does not exist.
    #[error("there is no store at {path}: check the path; {}", Remedy::BuildFirst)]
    NoStore {
        /// The folder.
        path: String,
    },
    /// An object that does not exist.
    #[error("there is no {key} in {store}")]
    NotFound {
        /// What was requested.
        key: String,
        /// The store.
        store: String,
    },
    /// The store refused for lack of rights.
    #[error("{store} forbids to {doing} {key}: {}: {}", rights(.source), describe_error(.source.as_ref()))]
    Forbidden {
        /// The operation, as a verb.
        doing: &'static str,
        /// The key.
        key: String,
        /// The store.
        store: String,
        /// The store's error.
        source: Box<object_store::Error>,
    },
    /// An operation other than reading an object, on a plain HTTP server.
    #[error(
        "cannot {doing} {key} in {store}: over HTTP a store is only read, by servers that follow its \
         pointers; name it by the address it is written at"
    )]
    ReadOnly {
        /// The operation, as a verb.
        doing: &'static str,
        /// The key.
        key: String,
        /// The store.
        store: String,
    },
    /// The store failed.
    #[error("cannot {doing} {key} in {store}: {}", describe_error(.source.as_ref()))]
    Store {
        /// The operation, as a verb.
        doing: &'static str,
        /// The key.
        key: String,
        /// The store.
        store: String,
        /// The store's error.
        source: Box<object_store::Error>,
    },
    /// The Redis with the pointers failed or refused.
    #[error("cannot {doing} {key} in {store}: {why}")]
    Pointers {
        /// The operation, as a verb.
        doing: &'static str,
        /// The key.
        key: String,
        /// The store.
        store: String,
        /// Its error.
        why: String,
        /// Whether a later try may succeed.
        transient: bool,
    },
    /// The store's marker says that its pointers live in another place than this program is
    /// configured for.
    #[error(
        "{key} in {store} says that the pointers {there}, and this program is configured as if they {here}: \
         {remedy}. Nothing was read or written. If they are to move on purpose: copy each of them there \
         first, then delete {key}; the next build leaves a new one"
    )]
    OtherPointers {
        /// The marker.
        key: String,
        /// The store.
        store: String,
        /// What the marker says of the pointers.
        there: String,
        /// What the configuration says of them.
        here: String,
        /// What to configure.
        remedy: Box<Remedy>,
    },
    /// Another program keeps the lock of a local folder for too long.
    #[error(
        "{lock} is held by {holder} for more than {seconds} s, so nothing was written: if that program \
         stands still (ps, `kill -CONT PID`), let it go on or end it with `kill -9 PID`, which loses \
         nothing, then try again"
    )]
    Locked {
        /// The lock's file.
        lock: String,
        /// Who has it, according to the lock file.
        holder: String,
        /// How long this program waited.
        seconds: u64,
    },
    /// A filter with blobs and without a single pointer.
    #[error(
        "`{filter}` has not one pointer in {place}, and {blobs} blobs that would go: none was deleted. {}; \
         if they were lost, repoint the days that were built before, or build one; if the filter is no longer \
         wanted, delete its folder with the store's own tools",
        Remedy::NamePointers
    )]
    NoPointers {
        /// The name of the filter whose blobs would go.
        filter: String,
        /// Where pointers were looked for.
        place: String,
        /// How many blobs are old enough to be deleted.
        blobs: usize,
    },
    /// A local file could not be read or written.
    #[error("cannot {doing} {path}: {source}{}", rights_of(.source))]
    File {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path of the file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// More bytes than allowed.
    #[error("{key} has {bytes} bytes, more than the {limit} allowed for it")]
    TooManyBytes {
        /// The key of the object.
        key: String,
        /// How many bytes it has.
        bytes: u64,
        /// The most bytes that are read.
        limit: u64,
    },
    /// A record that no reader would accept.
    #[error(
        "{key} was not written: it would have {bytes} bytes, and readers accept {limit}: give the reason, \
         or the name of who writes, in fewer words"
    )]
    RecordTooLong {
        /// Its key.
        key: String,
        /// How many bytes it would have.
        bytes: u64,
        /// The most bytes that a reader accepts.
        limit: u64,
    },
    /// A store whose bucket or container does not exist.
    #[error(
        "{store}: there is no such bucket or container: check its name, region and account, or make it"
    )]
    NoBucket {
        /// The store.
        store: String,
    },
    /// Not enough memory for a filter.
    #[error("no memory for a filter of {bytes} bytes: {source}")]
    Memory {
        /// The size of the filter in bytes.
        bytes: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// Something changed between reading and writing.
    #[error("{key} changed while this command ran ({now}); {}", Remedy::ReadAgain)]
    Changed {
        /// What changed.
        key: String,
        /// What it says now.
        now: String,
    },
    /// A blob that prune may be deleting now.
    #[error(
        "{key} was uploaded at {uploaded:.0}, more than {keep_days} days ago, and neither a pin nor a \
         pointer that prune keeps names it: prune may be deleting it now; {}, build its day again, which \
         uploads it anew, or name another blob",
        Remedy::KeepLonger
    )]
    Expiring {
        /// The blob.
        key: String,
        /// When it was uploaded.
        uploaded: jiff::Timestamp,
        /// How long blobs are kept.
        keep_days: u32,
    },
    /// A day with several blobs, none of which a pointer names.
    #[error("{day} has several blobs; name the one you mean:\n  {}", .blobs.join("\n  "))]
    SeveralBlobs {
        /// The day that was named.
        day: String,
        /// The keys of its blobs.
        blobs: Vec<String>,
    },
}

/// What an error means for the person or program that has to act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call or the configuration is wrong: the same call will fail again.
    Usage,
    /// The requested thing does not exist.
    NotFound,
    /// Somebody else changed it first.
    Superseded,
    /// The bytes are damaged.
    Corrupt,
    /// A later try may succeed.
    Transient,
    /// Another failure.
    Failed,
}

impl Error {
    /// What can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::NotADay { .. }
            | Error::Template { .. }
            | Error::Fpp { .. }
            | Error::TooLarge { .. }
            | Error::FilterName { .. }
            | Error::BlobKey { .. }
            | Error::IdForm { .. }
            | Error::SeveralBlobs { .. }
            | Error::RecordTooLong { .. }
            | Error::ReadOnly { .. }
            | Error::OtherPointers { .. }
            | Error::StoreUrl { .. } => Kind::Usage,
            Error::NotFound { .. } | Error::NoStore { .. } | Error::NoBucket { .. } => {
                Kind::NotFound
            }
            Error::Changed { .. } => Kind::Superseded,
            Error::Record { .. }
            | Error::Event { .. }
            | Error::Length { .. }
            | Error::Digest { .. }
            | Error::Version { .. }
            | Error::TooManyBytes { .. }
            | Error::Delta { .. }
            | Error::Segment { .. }
            | Error::Malformed { .. } => Kind::Corrupt,
            Error::Store { source, .. } if is_transient(source) => Kind::Transient,
            Error::Pointers { transient: true, .. } => Kind::Transient,
            Error::Pointers { .. } => Kind::Failed,
            Error::Memory { .. } | Error::Locked { .. } => Kind::Transient,
            Error::NoPointers { .. } => Kind::Failed,
            Error::Store { .. }
            | Error::Forbidden { .. }
            | Error::File { .. }
            | Error::Expiring { .. } => Kind::Failed,
        }
    }

    /// What a person can do about it, where that takes more than words.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Error::Record { remedy, .. } | Error::OtherPointers { remedy, .. } => {
                Some((**remedy).clone())
            }
            Error::NoStore { .. } => Some(Remedy::BuildFirst),
            Error::NoPointers { .. } => Some(Remedy::NamePointers),
            Error::Expiring { .. } => Some(Remedy::KeepLonger),
            Error::Changed { .. } => Some(Remedy::ReadAgain),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without any repair.
    pub fn is_transient(&self) -> bool {
        self.kind() == Kind::Transient
    }

    /// Whether the store failed or refused: then nothing is known of what is there.
    pub fn is_inconclusive(&self) -> bool {
        let is_refusal = matches!(self, Error::Forbidden { .. } | Error::Pointers { .. });
        is_refusal || matches!(self, Error::Store { .. }) && self.is_transient()
    }

    /// The same error of a blob, named by the file in which it is.
    pub fn of_file(self, name: &str) -> Error {
        let key = name.to_owned();
        match self {
            Error::Length { expected, got, .. } => Error::Length { key, expected, got },
            Error::Digest { expected, got, .. } => Error::Digest { key, expected, got },
            Error::Version { version, known, .. } => Error::Version { key, version, known },
            Error::Malformed { why, .. } => Error::Malformed { key, why },
            other => other,
        }
    }

    /// Whether a cache on the way may be why a blob did not arrive: it has damaged bytes, or parts
    /// of the same blob from before it was uploaded again.
    /// [`Store::fetch_uncached`](crate::store::Store::fetch_uncached) goes past it.
    pub fn may_be_of_a_cache(&self) -> bool {
        matches!(self, Error::Digest { .. }) || self.was_replaced()
    }

    /// Whether an object was replaced while it was read: the next try may read it completely.
    pub fn was_replaced(&self) -> bool {
        let Error::Store { source, .. } = self else { return false };
        matches!(**source, object_store::Error::Precondition { .. })
    }

    /// The error of a call of the store: only a missing key is [`Error::NotFound`].
    pub(crate) fn from_store(
        doing: &'static str,
        key: &str,
        store: &str,
        source: object_store::Error,
    ) -> Error {
        let (key, store, source) = (key.to_owned(), store.to_owned(), Box::new(source));
        match *source {
            _ if is_missing_bucket(&source) => Error::NoBucket { store },
            object_store::Error::NotFound { .. } => Error::NotFound { key, store },
            _ if is_forbidden(&source) => Error::Forbidden { doing, key, store, source },
            _ => Error::Store { doing, key, store, source },
        }
    }
}

/// What to check when a store refuses for lack of rights.
pub fn rights(error: &object_store::Error) -> &'static str {
    let text = error.to_string();
    if is_forbidden_by_the_system(error) {
        LOCAL_RIGHTS
    } else if WRONG_CLOCK.iter().any(|code| text.contains(code)) {
        "the clock of this machine is wrong: set it"
    } else if is_expired(&text) {
        "the credentials have expired, or the clock of this machine is wrong: renew them; a process that has \
         them in its environment has to be started again"
    } else {
        "check the credentials and their rights (on S3 a missing key also looks like this without the \
         right s3:ListBucket)"
    }
}

/// How S3 and Azure refuse a request that was made at another time than theirs.
const WRONG_CLOCK: [&str; 2] = ["RequestTimeTooSkewed", "Request date header too old"];

/// Whether S3 refused a session token for its age, with status 400, or Azure a shared access
/// signature or the secret of an application.
fn is_expired(text: &str) -> bool {
    let codes =
        ["ExpiredToken", "Signature not valid in the specified time frame", "AADSTS7000222"];
    codes.iter().any(|code| text.contains(code))
}

const LOCAL_RIGHTS: &str = "check owner and mode of the file and of the folders above it";

/// What to check when the system refuses, after its error.
fn rights_of(error: &std::io::Error) -> String {
    let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
    if is_refused { format!(": {LOCAL_RIGHTS}") } else { String::new() }
}

/// Whether the store refused for lack of rights, also where only the source of the error says so.
///
/// For a refused *listing*,
/// object_store 0.14 keeps the HTTP status in a private type, so that only the text has it.
pub fn is_forbidden(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    if matches!(error, E::PermissionDenied { .. } | E::Unauthenticated { .. }) {
        return true;
    }
    let text = error.to_string();
    is_forbidden_by_the_system(error)
        || matches!(error, E::Generic { .. })
            && (is_expired(&text)
                || ["403 Forbidden", "401 Unauthorized"]
                    .iter()
                    .any(|status| text.contains(&format!("status code: {status}"))))
}

/// Of local files the system's error is in the chain of sources.
fn is_forbidden_by_the_system(error: &object_store::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether the store says that the bucket or container does not exist: a retry will not help. Only
/// the response's body says so, which object_store keeps only in the text.
pub fn is_missing_bucket(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    // By S3, Azure and Google Cloud Storage.
    const CODES: [&str; 3] =
        ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"];
    let (E::NotFound { .. } | E::Generic { .. }) = error else { return false };
    let text = error.to_string();
    text.contains("404") && CODES.iter().any(|code| text.contains(code))
}

fn is_transient(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    !matches!(
        error,
        E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::InvalidPath { .. }
            | E::UnknownConfigurationKey { .. }
    )
}
