//! [`AllLoaded`]: notifies waiting tasks when every filter is loaded, or needs no day.

use std::sync::Arc;

use tokio::sync::watch;

use crate::handle::{Readiness, ServedFilter};

/// The sending side: followers report here what may have loaded a filter.
pub(crate) struct AllLoaded {
    served: Vec<Arc<ServedFilter>>,
    loaded: watch::Sender<bool>,
}

impl AllLoaded {
    /// Of these filters; with the receiver that becomes true when all are loaded.
    pub(crate) fn of(served: Vec<Arc<ServedFilter>>) -> (AllLoaded, watch::Receiver<bool>) {
        let (sender, loaded) = watch::channel(false);
        (AllLoaded { served, loaded: sender }, loaded)
    }

    /// A filter was loaded, or needs no day any more; it may be the last one that was missing.
    pub(crate) fn update(&self) {
        let is_loaded = |served: &Arc<ServedFilter>| served.readiness() != Readiness::NotLoaded;
        self.loaded.send_replace(self.served.iter().all(is_loaded));
    }
}
