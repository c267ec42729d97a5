//! [`Room`]: whether the system has memory for one more filter, asked before a byte is fetched.
//!
//! A filter that answers, and those that readers still hold, are in memory already; so what is
//! available must hold the new one, and what is on its way from the store. The system would grant
//! more and kill the process at the first touch.

use std::sync::Arc;

use bloomsday_common::memory::{Available, available};

/// What a download holds beside the filter: four parts of 8 MiB.
const IN_FLIGHT_BYTES: u64 = 32 << 20;

/// Tells how much memory there is. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Room(Arc<dyn Fn() -> Option<Available> + Send + Sync>);

impl Room {
    /// The system's, whichever is less: what the machine has or what the cgroup allows.
    pub(crate) fn system() -> Room {
        Room(Arc::new(available))
    }

    /// A figure of a test's own.
    #[cfg(test)]
    pub(crate) fn of(tell: impl Fn() -> u64 + Send + Sync + 'static) -> Room {
        Room(Arc::new(move || Some(Available { bytes: tell(), by: "the test".into() })))
    }

    /// Whether a blob of so many bytes fits beside what is in memory now; `spare` says that memory for it
    /// is at hand already.
    ///
    /// # Errors
    /// A sentence with the numbers. Where the system does not tell, everything fits.
    pub(crate) fn check(&self, blob_bytes: u64, spare: bool) -> Result<(), String> {
        let Some(available) = (self.0)() else { return Ok(()) };
        let filter = if spare { 0 } else { blob_bytes };
        let needed = filter.saturating_add(blob_bytes.min(IN_FLIGHT_BYTES));
        if needed <= available.bytes {
            return Ok(());
        }
        Err(format!(
            "it needs {needed} bytes of memory beside what answers now, and {} are available ({}): \
             give the process room for two filters",
            available.bytes, available.by
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_gives_the_numbers() {
        let room = Room::of(|| 1_500);
        assert_eq!(room.check(750, false), Ok(()));
        let why = room.check(751, false).unwrap_err();
        assert!(why.contains("1502") && why.contains("1500"), "{why}");
        assert_eq!(room.check(1_500, true), Ok(()), "memory is at hand, but for what is in flight");
    }
}
