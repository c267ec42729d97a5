//! A random number: for names that no other process has, jitter and samples. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number: the standard library seeds its hash maps from the system.
///
/// ```
/// use bloomsday_common::random::random;
///
/// assert_ne!(random(), random());
/// ```
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
