//! A random number, as the seed of the jitter of polls and of the guard's sample. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A random number: the standard library seeds its hash maps from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A uniformly random fraction of an interval.
pub(crate) fn random_fraction(interval: Duration, random: u64) -> Duration {
    interval.mul_f64((random % 10_000) as f64 / 10_000.0)
}
