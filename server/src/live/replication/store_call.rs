//! [`in_time`]: a call of the store that may take only so long.

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
