//! A random number, as the seed of the jitter of polls and of the guard's sample. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number: the standard library seeds its hash maps from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
