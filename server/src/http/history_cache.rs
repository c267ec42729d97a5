//! [`HistoryCache`]: the history of each filter and the servers that use it, as the store has them.
//! A task of its own reads them: however many pages are open, one read of a filter runs at a time,
//! and not often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bloomsday_common::digest::Digest;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::HistoryEvent;
use bloomsday_common::store::heartbeat::Servers;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::bloomsday::Bloomsday;
use crate::status::FilterStatus;

/// The oldest history that is used without another read.
const MAX_AGE: Duration = Duration::from_secs(30);
/// The most records that are read of a history.
const MAX_EVENTS: usize = 200;
/// The time limit of one read.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time to the next read after one that reached the time limit.
const RETRY_AFTER_TIMEOUT: Duration = Duration::from_secs(300);
/// The most reads at once.
const MAX_CONCURRENT_READS: usize = 8;
/// How long a page waits for running reads; then it uses the last results.
const PAGE_WAIT: Duration = Duration::from_secs(5);

/// The histories of all filters.
pub(super) struct HistoryCache {
    shared: Arc<CacheState>,
    /// Changes after each read.
    changed: watch::Receiver<()>,
}

struct CacheState {
    cached: Mutex<HashMap<FilterName, CachedHistory>>,
    reading: Semaphore,
    changed: watch::Sender<()>,
}

/// A history as it was last read, or the error of the read.
#[derive(Clone, Default)]
pub(super) struct CachedHistory {
    /// When the next read is due; none before the first.
    fresh_until: Option<Instant>,
    /// The digest of the filter that was current then: after a swap the history is read again.
    digest: Option<Digest>,
    is_reading: bool,
    pub(super) events: Arc<Vec<HistoryEvent>>,
    pub(super) servers: Arc<Servers>,
    pub(super) error: Option<String>,
}

impl HistoryCache {
    pub(super) fn new() -> HistoryCache {
        let (sender, changed) = watch::channel(());
        let (cached, reading) = (Mutex::default(), Semaphore::new(MAX_CONCURRENT_READS));
        HistoryCache { shared: Arc::new(CacheState { cached, reading, changed: sender }), changed }
    }

    /// The last result of a filter.
    pub(super) fn get(&self, filter: &FilterName) -> CachedHistory {
        self.shared.with(|all| all.get(filter).cloned()).unwrap_or_default()
    }

    /// Starts the reads that are due, and waits a little for them.
    pub(super) async fn refresh(&self, bloomsday: &Bloomsday, statuses: &[FilterStatus]) {
        let mut changed = self.changed.clone();
        for status in statuses {
            if self.shared.claim_read(status) {
                let reading = read(self.shared.clone(), bloomsday.clone(), status.filter.clone());
                tokio::spawn(reading);
            }
        }
        let all_read = async {
            while self.shared.is_any_reading(statuses) && changed.changed().await.is_ok() {}
        };
        tokio::select! {
            () = all_read => {}
            () = sleep(PAGE_WAIT) => {}
        }
    }
}

impl CacheState {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<FilterName, CachedHistory>) -> T) -> T {
        look(&mut self.cached.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a read is due; the caller must then start it.
    fn claim_read(&self, status: &FilterStatus) -> bool {
        self.with(|all| {
            let cached = all.entry(status.filter.clone()).or_default();
            let fresh = cached.fresh_until.is_some_and(|until| Instant::now() < until);
            if cached.is_reading || (fresh && cached.digest == status.digest) {
                return false;
            }
            (cached.is_reading, cached.digest) = (true, status.digest);
            true
        })
    }

    fn is_any_reading(&self, statuses: &[FilterStatus]) -> bool {
        let is_reading =
            |cached: Option<&CachedHistory>| cached.is_some_and(|cached| cached.is_reading);
        self.with(|all| statuses.iter().any(|status| is_reading(all.get(&status.filter))))
    }
}

async fn read(shared: Arc<CacheState>, bloomsday: Bloomsday, filter: FilterName) {
    let before = shared.with(|all| all.get(&filter).map(|cached| cached.servers.clone()));
    let before = before.unwrap_or_default();
    let read = async {
        let _permit = shared.reading.acquire().await.expect("the semaphore is never closed");
        let store = bloomsday.store();
        let reading = async {
            let events = store.recent_history(&filter, MAX_EVENTS).await?;
            let servers = store.servers_again(&filter, bloomsday.now(), &before).await?;
            Ok::<_, StoreError>((events, servers))
        };
        timeout(DEADLINE, reading).await
    };
    let read = read.await;
    shared.with(|all| {
        let cached = all.entry(filter).or_default();
        cached.is_reading = false;
        let age = if read.is_err() { RETRY_AFTER_TIMEOUT } else { MAX_AGE };
        cached.fresh_until = Some(Instant::now() + age);
        match read {
            Ok(Ok((events, servers))) => {
                (cached.events, cached.servers) = (Arc::new(events), Arc::new(servers));
                cached.error = None;
            }
            Ok(Err(why)) => cached.error = Some(why.to_string()),
            Err(_) => cached.error = Some("the store does not answer".to_owned()),
        }
    });
    shared.changed.send_replace(());
}
