//! [`Timer`]: how long each step of a build takes.

use std::time::Instant;

/// Measures steps that follow one another.
#[derive(Debug)]
pub(crate) struct Timer {
    began: Instant,
}

impl Timer {
    pub(crate) fn start() -> Timer {
        Timer { began: Instant::now() }
    }

    /// The seconds since the start or the last lap.
    pub(crate) fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let seconds = now.duration_since(self.began).as_secs_f64();
        self.began = now;
        seconds
    }
}
