//! Waits for events.

use std::time::{Duration, Instant};

/// How long an event may take before the test fails: long, because machines are slow at times.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between two checks, so that a wait does not take a processor from what it waits for.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Looks until there is something, and returns it.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(PAUSE);
    }
}
