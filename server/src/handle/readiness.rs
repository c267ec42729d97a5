//! [`Readiness`]: whether a lookup in a filter has an answer, for the start, `/readyz`, lookups
//! over HTTP and the metrics alike.

/// Whether a lookup in a filter has an answer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It has one, also while the filter is stale.
    Ready,
    /// The day's filter is not loaded; or, of a filter with live IDs, it is not known yet whether
    /// the store has a day.
    NotLoaded,
    /// The live IDs that others added before the start are still being read.
    WithoutOthersLiveIds,
}

impl Readiness {
    /// What a filter that is not ready is.
    #[cfg(feature = "http")]
    pub(crate) fn words(self) -> &'static str {
        match self {
            Readiness::Ready => "ready",
            Readiness::NotLoaded => "not loaded yet",
            Readiness::WithoutOthersLiveIds => "without others' live IDs yet",
        }
    }
}
