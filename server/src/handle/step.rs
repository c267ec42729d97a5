//! A hook for tests: where other threads may come between two steps of a swap. A program has none.

/// A point between two steps of a swap, at which a test may run code. Does nothing outside of
/// tests.
#[inline(always)]
pub(super) fn step_done() {
    #[cfg(test)]
    if let Some(act) = MID_SWAP.take() {
        act();
    }
}

#[cfg(test)]
thread_local! {
    /// What a test does at the next step of this thread, where no test would get by chance.
    pub(super) static MID_SWAP: std::cell::RefCell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::RefCell::new(None) };
}
