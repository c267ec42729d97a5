//! [`Error`]: why a job failed, and the exit status that says so.

use std::process::ExitCode;

use bloomsday_common::error::Kind;
use bloomsday_common::key::FilterName;

use crate::remedy::explain;

/// The exit statuses that scripts rely on.
pub(crate) mod exit {
    use bloomsday_common::pointer::Outcome;

    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    pub(crate) const MISS: u8 = 3;
    pub(crate) const NOT_FOUND: u8 = 4;
    pub(crate) const SUPERSEDED: u8 = 5;
    pub(crate) const REFUSED: u8 = 6;
    pub(crate) const CORRUPT: u8 = 7;
    pub(crate) const TRY_AGAIN: u8 = 75;

    /// The status of a build or an import that has ended.
    pub(crate) fn of(outcome: Outcome) -> u8 {
        match outcome {
            Outcome::Published | Outcome::Unchanged | Outcome::Pending => 0,
            Outcome::Superseded => SUPERSEDED,
            Outcome::Refused => REFUSED,
            Outcome::Failed => FAILED,
        }
    }

    /// The one of two statuses to end with: a failure before [`TRY_AGAIN`], which systemd may count
    /// as success.
    pub(crate) fn worse(one: u8, other: u8) -> u8 {
        let rank = |status: u8| (status != 0, status != TRY_AGAIN, status);
        if rank(one) > rank(other) { one } else { other }
    }

    #[cfg(test)]
    mod tests {
        use super::{NOT_FOUND, REFUSED, TRY_AGAIN, worse};

        #[test]
        fn a_failure_hides_what_is_to_be_tried_again() {
            assert_eq!(worse(0, TRY_AGAIN), TRY_AGAIN);
            assert_eq!(worse(TRY_AGAIN, REFUSED), REFUSED);
            assert_eq!(worse(REFUSED, TRY_AGAIN), REFUSED);
            assert_eq!(worse(NOT_FOUND, REFUSED), REFUSED);
            assert_eq!(worse(0, 0), 0);
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", explain(.0, .0.remedy()))]
    Common(#[from] bloomsday_common::error::Error),
    #[error("{}", explain(.0, .0.remedy()))]
    Builder(#[from] bloomsday_builder::error::Error),
    #[error("{}", explain(.0, .0.remedy()))]
    Server(#[from] bloomsday_server::error::Error),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error(
        "{filter}: {record} cannot be read, so every blob is kept: `bloomsday status {filter}` says how to mend it"
    )]
    KeptAll { filter: FilterName, record: String },
    #[error("cannot {doing}: {source}")]
    System { doing: String, source: std::io::Error },
    #[error("the sample data could not be written: {0}")]
    Sample(#[from] parquet::errors::ParquetError),
}

impl Error {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_status())
    }

    /// One of [`exit`].
    pub(crate) fn exit_status(&self) -> u8 {
        let kind = match self {
            Error::Common(error) => error.kind(),
            Error::Builder(error) => error.kind(),
            Error::Server(error) => error.kind(),
            Error::Usage(_) => Kind::Usage,
            Error::NotFound(_) => Kind::NotFound,
            Error::KeptAll { .. } => Kind::Corrupt,
            Error::System { .. } | Error::Sample(_) => Kind::Failed,
        };
        match kind {
            Kind::Usage => exit::USAGE,
            Kind::NotFound => exit::NOT_FOUND,
            Kind::Superseded => exit::SUPERSEDED,
            Kind::Corrupt => exit::CORRUPT,
            Kind::Transient => exit::TRY_AGAIN,
            Kind::Failed => exit::FAILED,
        }
    }
}
