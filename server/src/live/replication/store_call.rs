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

/// Whether an error says another thing than the last one. How long was tried does not count: errors
/// of S3 say that.
pub(in crate::live) fn is_another_failure(last: Option<&str>, why: &str) -> bool {
    let is_duration = |word: &&str| {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        number.len() < word.len() && number.parse::<f64>().is_ok()
    };
    let words = |error| str::split_whitespace(error).filter(|word| !is_duration(word));
    last.is_none_or(|last| !words(last).eq(words(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_took_longer_is_the_same_and_one_of_another_segment_is_not() {
        let after = |time: &str| format!("503 after 2 retries, in {time}, giving up");
        assert!(!is_another_failure(Some(&after("630.490401ms")), &after("1.2s")));
        assert!(is_another_failure(None, &after("1.2s")));
        let damaged = |seq: u32| format!("rt/live/2026-11-28/1f-1-{seq:08}.seg is damaged");
        assert!(!is_another_failure(Some(&damaged(2)), &damaged(2)));
        assert!(is_another_failure(Some(&damaged(2)), &damaged(4)));
    }
}
