//! [`MemoryCheck`]: whether the system has memory for one more filter, checked before a byte is
//! fetched.
//!
//! The current filter, and those that readers still have, are in memory already. So the available
//! memory must be enough for the new filter and for the bytes in flight. The system would grant
//! more, and would kill the process at the first touch.

use std::sync::Arc;

use bloomsday_common::memory::{Available, available};

/// What a download needs besides the filter: four parts of 8 MiB.
const IN_FLIGHT_BYTES: u64 = 32 << 20;

/// Knows how much memory is available. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryCheck(Arc<dyn Fn() -> Option<Available> + Send + Sync>);

impl MemoryCheck {
    /// The available memory of the machine or of the cgroup, whichever is less.
    pub(crate) fn system() -> MemoryCheck {
        MemoryCheck(Arc::new(available))
    }

    /// A figure that a test sets.
    #[cfg(test)]
    pub(crate) fn of(available: impl Fn() -> u64 + Send + Sync + 'static) -> MemoryCheck {
        MemoryCheck(Arc::new(move || Some(Available { bytes: available(), by: "the test".into() })))
    }

    /// Checks that a blob of this size fits into the available memory. With `has_spare` there is a
    /// buffer for the filter already.
    ///
    /// # Errors
    /// A sentence with the numbers. Where the system reports no figure, everything fits.
    pub(crate) fn ensure_fits(&self, blob_bytes: u64, has_spare: bool) -> Result<(), String> {
        let Some(available) = (self.0)() else { return Ok(()) };
        let filter = if has_spare { 0 } else { blob_bytes };
        let needed = filter.saturating_add(blob_bytes.min(IN_FLIGHT_BYTES));
        if needed <= available.bytes {
            return Ok(());
        }
        Err(format!(
            "it needs {needed} bytes of memory while the current filter stays loaded, and {} are \
             available ({}): give the process memory for three such filters",
            available.bytes, available.by
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_gives_the_numbers() {
        let check = MemoryCheck::of(|| 1_500);
        assert_eq!(check.ensure_fits(750, false), Ok(()));
        let why = check.ensure_fits(751, false).unwrap_err();
        assert!(why.contains("1502") && why.contains("1500"), "{why}");
        assert_eq!(check.ensure_fits(1_500, true), Ok(()), "only the bytes in flight need memory");
    }
}
