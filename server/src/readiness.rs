//! [`Readiness`]: notifies waiting tasks when every filter is loaded.

use std::sync::Arc;

use tokio::sync::watch;

use crate::handle::ServedFilter;

/// The sending side: followers report each load here.
pub(crate) struct Readiness {
    served: Vec<Arc<ServedFilter>>,
    ready: watch::Sender<bool>,
}

impl Readiness {
    /// Of these filters; with the receiver that becomes true when all are loaded.
    pub(crate) fn of(served: Vec<Arc<ServedFilter>>) -> (Readiness, watch::Receiver<bool>) {
        let (sender, ready) = watch::channel(false);
        (Readiness { served, ready: sender }, ready)
    }

    /// A filter was loaded; it may be the last one that was missing.
    pub(crate) fn update(&self) {
        self.ready.send_replace(self.served.iter().all(|served| served.is_loaded()));
    }
}
