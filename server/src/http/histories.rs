//! [`Histories`]: who did what to each filter and who serves it, as the store tells; read beside whoever
//! asks. However many look at the page, a filter's is read once at a time, and not often.

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

use crate::{Bloomsday, FilterStatus};

/// How old a history may be that is shown, and how many of its records are read.
const AGE: Duration = Duration::from_secs(30);
const RECORDS: usize = 200;
/// How long the store may take to tell one.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a store that did not is left alone.
const HUNG_AGE: Duration = Duration::from_secs(300);
/// How many are read at once.
const AT_ONCE: usize = 8;
/// How long a page waits for all that is being read; then it shows what was told before.
const PATIENCE: Duration = Duration::from_secs(5);

/// Those of all filters.
pub(super) struct Histories {
    shelf: Arc<Shelf>,
    /// Told when one was read.
    news: watch::Receiver<()>,
}

struct Shelf {
    told: Mutex<HashMap<FilterName, Told>>,
    reading: Semaphore,
    news: watch::Sender<()>,
}

/// A history as it was last read, or why it could not be.
#[derive(Clone, Default)]
pub(super) struct Told {
    /// Until when it need not be read again; none while it never was.
    fresh_until: Option<Instant>,
    /// What answered then: a swap makes the history worth another look.
    digest: Option<Digest>,
    is_asked: bool,
    pub(super) acts: Arc<Vec<HistoryEvent>>,
    pub(super) servers: Arc<Servers>,
    pub(super) error: Option<String>,
}

impl Histories {
    pub(super) fn new() -> Histories {
        let (sender, news) = watch::channel(());
        let (told, reading) = (Mutex::default(), Semaphore::new(AT_ONCE));
        Histories { shelf: Arc::new(Shelf { told, reading, news: sender }), news }
    }

    /// What is known of a filter's.
    pub(super) fn told(&self, filter: &FilterName) -> Told {
        self.shelf.with(|all| all.get(filter).cloned()).unwrap_or_default()
    }

    /// Has those read that are not fresh, and waits a little for them.
    pub(super) async fn refresh(&self, bloomsday: &Bloomsday, statuses: &[FilterStatus]) {
        let mut news = self.news.clone();
        for status in statuses {
            if self.shelf.is_to_be_read(status) {
                let reading = read(self.shelf.clone(), bloomsday.clone(), status.filter.clone());
                tokio::spawn(reading);
            }
        }
        let all_there =
            async { while self.shelf.is_any_asked(statuses) && news.changed().await.is_ok() {} };
        tokio::select! {
            () = all_there => {}
            () = sleep(PATIENCE) => {}
        }
    }
}

impl Shelf {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<FilterName, Told>) -> T) -> T {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is the caller's to have a history read.
    fn is_to_be_read(&self, status: &FilterStatus) -> bool {
        self.with(|all| {
            let told = all.entry(status.filter.clone()).or_default();
            let fresh = told.fresh_until.is_some_and(|until| Instant::now() < until);
            if told.is_asked || (fresh && told.digest == status.digest) {
                return false;
            }
            (told.is_asked, told.digest) = (true, status.digest);
            true
        })
    }

    fn is_any_asked(&self, statuses: &[FilterStatus]) -> bool {
        let asked = |told: Option<&Told>| told.is_some_and(|told| told.is_asked);
        self.with(|all| statuses.iter().any(|status| asked(all.get(&status.filter))))
    }
}

async fn read(shelf: Arc<Shelf>, bloomsday: Bloomsday, filter: FilterName) {
    let read = async {
        let _turn = shelf.reading.acquire().await.expect("the semaphore is never closed");
        let store = bloomsday.store();
        let asking = async {
            let acts = store.recent_history(&filter, RECORDS).await?;
            Ok::<_, StoreError>((acts, store.servers(&filter, bloomsday.now()).await?))
        };
        timeout(DEADLINE, asking).await
    };
    let read = read.await;
    shelf.with(|all| {
        let told = all.entry(filter).or_default();
        told.is_asked = false;
        let age = if read.is_err() { HUNG_AGE } else { AGE };
        told.fresh_until = Some(Instant::now() + age);
        match read {
            Ok(Ok((acts, servers))) => {
                (told.acts, told.servers) = (Arc::new(acts), Arc::new(servers));
                told.error = None;
            }
            Ok(Err(why)) => told.error = Some(why.to_string()),
            Err(_) => told.error = Some("the store does not answer".to_owned()),
        }
    });
    shelf.news.send_replace(());
}
