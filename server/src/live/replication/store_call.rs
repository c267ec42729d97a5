//! [`in_time`]: a call of the store that may take only so long. [`is_another_failure`]: whether its
//! error is to be logged.

use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use tokio::time::timeout;

/// How long one call may take. It is tried again later.
const DEADLINE: Duration = Duration::from_secs(20);

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(in crate::live) enum CallError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("the store does not answer")]
    Slow,
}

/// What the call returns, if it ends within 20 s.
pub(in crate::live) async fn in_time<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, CallError> {
    Ok(timeout(DEADLINE, call).await.map_err(|_| CallError::Slow)??)
}

/// Whether an error says more than the last one. Other numbers do not: errors of S3 have the time
/// that was spent on them.
pub(in crate::live) fn is_another_failure(last: Option<&str>, why: &str) -> bool {
    let words = |error: &str| error.replace(|c: char| c.is_ascii_digit(), "");
    last.is_none_or(|last| words(last) != words(why))
}
