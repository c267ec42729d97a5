//! A random part of an interval, for the jitter of polls.

use std::time::Duration;

/// A uniformly random fraction of an interval.
pub(crate) fn random_fraction(interval: Duration, random: u64) -> Duration {
    interval.mul_f64((random % 10_000) as f64 / 10_000.0)
}
