//! [`Error`]: why a day could not be built.

use bloomsday_common::error::Kind;

/// The error of this crate. Ask [`Error::kind`] what to do; never parse the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the contract with the store says.
    #[error(transparent)]
    Common(#[from] bloomsday_common::error::Error),
}

impl Error {
    /// Sorts the error by what can be done about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Common(error) => error.kind(),
        }
    }
}
