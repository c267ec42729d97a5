//! [`route`]: whether a server fetches a blob, or what changed since the one that it has.

use crate::key::{BlobKey, DeltaKey};

/// How a server gets a blob.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// By this delta, if it is there. Any trouble with it means the full blob, in the same round.
    Delta(DeltaKey),
    /// By the blob itself.
    Full,
}

/// Decides how a server that has the blob `have` gets the blob `want`. `failed` is the delta that
/// could not be used since the last load: it is not fetched again.
///
/// ```
/// use bloomsday_common::key::{BlobKey, DeltaKey};
/// use bloomsday_common::protocol::{Route, route};
///
/// let filter = "rt".parse()?;
/// let blob = |day, digit: &str| {
///     BlobKey::parse(&format!("blobs/{day}-{}.bloom", digit.repeat(64)), &filter, &[])
/// };
/// let (have, want) = (blob("2026-11-18", "a")?, blob("2026-11-19", "b")?);
/// let delta = DeltaKey::between(&have, &want);
/// assert_eq!(route(Some(&have), &want, None), Route::Delta(delta.clone()));
/// assert_eq!(route(Some(&have), &want, Some(&delta)), Route::Full);
/// assert_eq!(route(None, &want, None), Route::Full);
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn route(have: Option<&BlobKey>, want: &BlobKey, failed: Option<&DeltaKey>) -> Route {
    let Some(have) = have else { return Route::Full };
    // One set of IDs of two days has two blobs; one blob has no delta to itself.
    if have.filter != want.filter || have.digest == want.digest {
        return Route::Full;
    }
    let delta = DeltaKey::between(have, want);
    if failed == Some(&delta) { Route::Full } else { Route::Delta(delta) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn blob(filter: &str, digit: u8) -> BlobKey {
        let (filter, day) = (filter.parse().unwrap(), "2026-11-19".parse().unwrap());
        BlobKey { filter, day, digest: Digest::new([digit; 32]) }
    }

    #[test]
    fn one_delta_serves_both_directions_and_only_blobs_that_differ() {
        let (a, b) = (blob("rt", 1), blob("rt", 2));
        assert_eq!(route(Some(&a), &b, None), route(Some(&b), &a, None));
        assert_eq!(route(Some(&a), &a, None), Route::Full);
        assert_eq!(route(Some(&blob("other", 1)), &b, None), Route::Full);
    }

    #[test]
    fn another_delta_that_failed_does_not_count() {
        let (a, b) = (blob("rt", 1), blob("rt", 2));
        let other = DeltaKey::between(&a, &blob("rt", 3));
        assert!(matches!(route(Some(&a), &b, Some(&other)), Route::Delta(_)));
    }
}
