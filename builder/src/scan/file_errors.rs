//! What is wrong with a file, as errors that name it.

use crate::error::Error;
use crate::source::InputFile;

pub(super) fn corrupt(file: &InputFile, why: String) -> Error {
    Error::Corrupt { file: file.name.clone(), why }
}

pub(super) fn unsupported(file: &InputFile, what: impl Into<String>) -> Error {
    Error::Unsupported { file: file.name.clone(), what: what.into() }
}

pub(super) fn unreadable(file: &InputFile, source: object_store::Error) -> Error {
    match source {
        object_store::Error::Precondition { .. } => replaced(file),
        source => Error::Input { doing: "read", name: file.name.clone(), source: Box::new(source) },
    }
}

pub(super) fn replaced(file: &InputFile) -> Error {
    Error::Replaced { file: file.name.clone() }
}
