//! [`Clock`]: the time of day. Nothing else in this crate reads it from the system, so that a test
//! can step it and run a month in a second.
//!
//! Durations are measured by tokio's clock, which never steps.

use std::sync::Arc;

use jiff::Timestamp;

/// The time of day, which people and time servers may change at any moment. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub(crate) fn system() -> Clock {
        Clock(Arc::new(Timestamp::now))
    }

    /// A clock that a test moves.
    #[cfg(test)]
    pub(crate) fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The time in milliseconds since 1970.
    #[cfg(feature = "live")]
    pub(crate) fn now_ms(&self) -> u64 {
        ms_of(self.now())
    }
}

/// A time in milliseconds since 1970; before that, 0.
#[cfg(feature = "live")]
pub(crate) fn ms_of(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}
