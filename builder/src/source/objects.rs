//! Paths and objects of a store: helpers that several files of this module use.

use bloomsday_common::error::Kind;
use bloomsday_common::store::Location;
use jiff::Timestamp;
use object_store::ObjectMeta;

use crate::error::{Error, input_kind};

/// Whether an error says that nothing is there. A local path through a file counts, too.
pub(super) fn is_absent(error: &object_store::Error) -> bool {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return true;
    }
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<std::io::Error>().is_some_and(means_absent) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether the same call may succeed later: then nothing is known of what is there. Some gateways
/// refuse a HEAD of a folder's name for good, with a status that says nothing more.
pub(super) fn may_come_back(error: &object_store::Error) -> bool {
    let text = error.to_string();
    let is_refusal = text.contains("status code: 400") || text.contains("status code: 405");
    !is_absent(error) && !is_refusal && input_kind(error) == Kind::Transient
}

pub(super) fn means_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Joins two paths. If `relative` is empty, returns `base`.
pub(super) fn below(base: &str, relative: &str) -> String {
    match relative {
        "" => base.to_owned(),
        relative => format!("{}/{relative}", base.trim_end_matches('/')),
    }
}

/// When an object was written, by the clock of its store.
pub(super) fn modified(meta: &ObjectMeta) -> Timestamp {
    Timestamp::from_microsecond(meta.last_modified.timestamp_micros()).unwrap_or(Timestamp::MAX)
}

pub(super) fn input_error(
    doing: &'static str,
    location: &Location,
    source: object_store::Error,
) -> Error {
    Error::Input { doing, name: location.name.clone(), source: Box::new(source) }
}
