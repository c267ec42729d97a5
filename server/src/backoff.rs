//! [`Backoff`]: the pauses of a retry loop, each twice as long as the one before, up to a limit.

use std::time::Duration;

#[cfg(any(feature = "redis-streams", feature = "kafka"))]
use bloomsday_common::random::random;

#[cfg(any(feature = "redis-streams", feature = "kafka"))]
use crate::random::random_fraction;

/// The pauses between attempts that fail.
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    /// The pause after the next failure.
    next: Duration,
}

impl Backoff {
    /// `first` after the first failure, and never more than `max`.
    pub(crate) fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, next: first }
    }

    /// The pause after one more failure.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// As [`Backoff::after_failure`], but at random between half of it and all of it, so that
    /// servers that failed together do not come back together.
    #[cfg(any(feature = "redis-streams", feature = "kafka"))]
    pub(crate) fn after_failure_jittered(&mut self) -> Duration {
        let half = self.after_failure() / 2;
        half + random_fraction(half, random())
    }

    /// After a success: the next pause is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(8);

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_again_after_a_success() {
        let mut backoff = Backoff::new(FIRST, MAX);
        let millis: Vec<u128> = (0..7).map(|_| backoff.after_failure().as_millis()).collect();
        assert_eq!(millis, [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
        backoff.reset();
        assert_eq!(backoff.after_failure(), FIRST);
    }

    #[cfg(any(feature = "redis-streams", feature = "kafka"))]
    #[test]
    fn a_random_pause_is_at_least_half_of_the_whole_one() {
        let (mut whole, mut random) = (Backoff::new(FIRST, MAX), Backoff::new(FIRST, MAX));
        for _ in 0..10 {
            let (whole, random) = (whole.after_failure(), random.after_failure_jittered());
            assert!((whole / 2..=whole).contains(&random), "{random:?} of {whole:?}");
        }
    }
}
