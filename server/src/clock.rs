//! [`Clock`]: where the time of day comes from. Nothing else in this crate asks the system for it, so
//! that a test can step it, and play a month in a second.
//!
//! How long something takes is measured by tokio's clock, which never steps.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time of day, which people and time servers may change under our feet. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's.
    pub(crate) fn system() -> Clock {
        Clock(Arc::new(Timestamp::now))
    }

    /// One that a test moves.
    #[cfg(test)]
    pub(crate) fn of(tell: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(tell))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}
