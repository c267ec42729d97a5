//! A published blob → an answer: the library a bidder links.
//!
//! A blob's way: `store → loader → generation → handle`; each question `handle → filter`.
//!
//! | module | holds |
//! |---|---|
//! | [`start`], [`Bloomsday`] | the way in |
//! | [`handle`] | [`FilterHandle`] and [`Reader`]: the hot path |
//! | `loader` | a blob from cache or store, checked, within a deadline |
//! | `cache` | the local copy that answers when the store is down at start |
//! | `room` | whether there is memory for one more filter |
//! | `generations` | what to do with what was read: a pure state machine |
//! | `sample`, `guard`, `watch` | recent questions; what two filters say of them; a filter held back |
//! | `heartbeat` | tells the store from what this server answers |
//! | `poller` | the thread, and each filter's own pace on it |
//! | `follower` | one filter's way through a round: the one owner of its swaps |
//! | [`limits`] | what may be configured |
//! | `pin` | warns before a pin ends |
//! | `random` | chance, never for secrets |
//! | `clock` | the time of day, for all of them |
//! | [`status`] | what is live and why, for people and metrics |
//! | `http` | questions, status, admin (feature `http`) |
//! | [`error`] | why a server could not start or reload |
//!
//! ```no_run
//! # async fn example() -> Result<(), bloomsday_server::error::Error> {
//! use bloomsday_server::{Config, FilterConfig};
//!
//! let filters = vec![FilterConfig::new("rt".parse()?)];
//! let bloomsday = bloomsday_server::start(Config::new("s3://ads-filters/prod", filters)).await?;
//! let rt = bloomsday.filter("rt")?;
//! let mut reader = rt.reader();
//! if reader.contains(b"0f8fad5bd9cb469fa16570867728950e") { /* has been in the app before */ }
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod cache;
mod clock;
pub mod error;
mod follower;
mod generations;
mod guard;
pub mod handle;
mod heartbeat;
#[cfg(feature = "http")]
pub mod http;
pub mod limits;
mod loader;
mod pin;
mod poller;
mod random;
mod room;
mod sample;
#[cfg(test)]
mod simulation;
pub mod status;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::{MAX_BLOB_BYTES, Store};

use clock::Clock;
use error::Error;
pub use guard::{Guard, Verdict};
use handle::Slot;
pub use handle::{FilterHandle, Reader};
use poller::{Poller, Wish};
pub use status::{FilterStatus, Judged, ReloadOutcome, Reloaded, State};

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store's URL or local path.
    pub store: String,
    /// The filters to serve.
    pub filters: Vec<FilterConfig>,
    /// How long from one look at the pointers to the next; each is jittered by ± 10 %.
    pub poll_interval: Duration,
    /// How long until the next look while a filter does not answer yet.
    pub retry_interval: Duration,
    /// How long one look and load may take.
    pub load_deadline: Duration,
    /// How long [`start`] waits for every filter to answer.
    pub start_deadline: Duration,
    /// Where verified blobs are kept for a start without the store.
    pub cache_dir: Option<PathBuf>,
    /// How many loaded filters of one name may exist at once, those still held by readers included.
    pub max_generations: usize,
    /// A larger blob is not loaded.
    pub max_blob_bytes: u64,
}

/// How one filter is followed.
#[derive(Clone, Debug)]
pub struct FilterConfig {
    /// Its name.
    pub name: FilterName,
    /// A pointer of today or of so many days before is followed.
    pub max_age_days: u32,
    /// What happens to a newer day that answers recent questions quite differently.
    pub guard: Guard,
    /// How long [`Guard::Hold`] keeps a newer day back at most.
    pub guard_max_hold: Duration,
}

impl FilterConfig {
    /// A filter with every default: an age of three days, and a guard that warns.
    pub fn new(name: FilterName) -> FilterConfig {
        let guard_max_hold = Duration::from_secs(6 * 3600);
        FilterConfig { name, max_age_days: 3, guard: Guard::default(), guard_max_hold }
    }
}

impl Config {
    /// Serves these filters from this store, with every default.
    pub fn new(store: &str, filters: Vec<FilterConfig>) -> Config {
        Config {
            store: store.to_owned(),
            filters,
            poll_interval: Duration::from_secs(600),
            retry_interval: Duration::from_secs(5),
            load_deadline: Duration::from_secs(300),
            start_deadline: Duration::from_secs(300),
            cache_dir: None,
            max_generations: 3,
            max_blob_bytes: MAX_BLOB_BYTES,
        }
    }
}

/// Filters that answer, kept up to date by a thread of their own. Cheap to clone; the thread ends
/// when the last clone is dropped.
#[derive(Clone)]
pub struct Bloomsday {
    slots: Arc<[Arc<Slot>]>,
    poller: Arc<Poller>,
    store: Store,
    #[cfg(feature = "http")]
    clock: Clock,
}

/// Starts serving, and returns once every filter answers.
///
/// # Errors
/// [`Error::NotReady`] when one does not within `start_deadline`; the store's address may be wrong. At once
/// where the store says that a filter's pointers live elsewhere.
pub async fn start(config: Config) -> Result<Bloomsday, Error> {
    let deadline = config.start_deadline;
    let bloomsday = start_unloaded(config, false)?;
    let ready = async {
        tokio::select! {
            ready = bloomsday.poller.ready() => ready,
            wrong = bloomsday.other_pointers() => Err(wrong),
        }
    };
    match tokio::time::timeout(deadline, ready).await {
        Ok(ready) => ready.map(|()| bloomsday.clone()),
        Err(_) => {
            let waiting = bloomsday.slots.iter().find(|slot| !slot.is_loaded());
            let (filter, why) = waiting.map_or((String::new(), String::new()), |slot| {
                let status = slot.status();
                (status.filter.to_string(), status.last_error.unwrap_or_default())
            });
            Err(Error::NotReady { filter, deadline, why })
        }
    }
}

/// Starts serving without waiting: until a filter is loaded, every question gets the answer `meanwhile`.
///
/// # Errors
/// The store's address or the cache folder cannot be used, a setting lies outside its [`limits`], or there is
/// no filter to serve.
pub fn start_unloaded(config: Config, meanwhile: bool) -> Result<Bloomsday, Error> {
    let store = Store::open(&config.store)?;
    start_on(store, config, meanwhile)
}

/// As [`start_unloaded`], on a store that is already open; `config.store` is not looked at.
///
/// # Errors
/// The cache folder cannot be used, a setting lies outside its [`limits`], or there is no filter to serve.
pub fn start_on(store: Store, mut config: Config, meanwhile: bool) -> Result<Bloomsday, Error> {
    if config.filters.is_empty() {
        return Err(Error::NoFilters);
    }
    config.check()?;
    // Of a filter that is named twice a question would find the first and the status show the last.
    let mut names = std::collections::BTreeSet::new();
    config.filters.retain(|filter| names.insert(filter.name.clone()));
    let clock = Clock::system();
    let slots: Vec<Arc<Slot>> = config
        .filters
        .iter()
        .map(|filter| Arc::new(Slot::new(filter, meanwhile, clock.clone())))
        .collect();
    let poller = Poller::start(config, store.clone(), slots.clone(), clock.clone())?;
    Ok(Bloomsday::of(slots, poller, store, clock))
}

impl Bloomsday {
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "only the page tells it"))]
    fn of(slots: Vec<Arc<Slot>>, poller: Poller, store: Store, clock: Clock) -> Bloomsday {
        Bloomsday {
            slots: slots.into(),
            poller: Arc::new(poller),
            store,
            #[cfg(feature = "http")]
            clock,
        }
    }

    /// The handle of one filter.
    ///
    /// # Errors
    /// [`Error::UnknownFilter`], naming those that are served.
    pub fn filter(&self, name: &str) -> Result<FilterHandle, Error> {
        match self.slots.iter().find(|slot| slot.name().as_str() == name) {
            Some(slot) => Ok(FilterHandle::new(slot.clone())),
            None => Err(Error::UnknownFilter {
                name: name.chars().take(64).collect(),
                served: self.slots.iter().map(|slot| slot.name().to_string()).collect(),
            }),
        }
    }

    /// Looks again now, and returns when every filter that should answer does.
    ///
    /// Its answer comes from rounds that began after this call: of each filter one runs, one waits, however
    /// many ask. It comes when the slowest has ended; a reload of one filter waits for no other.
    ///
    /// # Errors
    /// [`Error::Busy`] when too many reloads wait; [`Error::UnknownFilter`].
    pub async fn reload(&self) -> Result<Vec<Reloaded>, Error> {
        self.poller.reload(Wish::default()).await
    }

    /// [`Bloomsday::reload`] for one filter.
    ///
    /// # Errors
    /// As [`Bloomsday::reload`].
    pub async fn reload_filter(&self, name: &str) -> Result<Vec<Reloaded>, Error> {
        let filter = self.filter(name)?;
        self.poller.reload(Wish { filter: Some(filter.name().clone()), force: false }).await
    }

    /// [`Bloomsday::reload`] of one filter or of all, past the guard: what it holds back, or would,
    /// is swapped in.
    ///
    /// # Errors
    /// As [`Bloomsday::reload`].
    pub async fn force_reload(&self, name: Option<&str>) -> Result<Vec<Reloaded>, Error> {
        let filter = name.map(|name| self.filter(name)).transpose()?;
        let filter = filter.map(|filter| filter.name().clone());
        self.poller.reload(Wish { filter, force: true }).await
    }

    /// What is live and why, filter by filter.
    pub fn status(&self) -> Vec<FilterStatus> {
        self.slots.iter().map(|slot| slot.status()).collect()
    }

    /// Tells the store from what this server answers, so that `bloomsday status` can name the laggards.
    /// `server` names it: a host and a port, say. Runs until the returned future is dropped, or at once
    /// ends for a store that can only be read. A write that fails is one warning, and tried again.
    pub async fn heartbeats(&self, server: String) {
        heartbeat::beat(self.clone(), server).await;
    }

    /// Ends when the store says that a filter's pointers live elsewhere than where this server was told to
    /// look; never when it says nothing of that or cannot be asked: then the looks at it tell.
    pub async fn other_pointers(&self) -> Error {
        for slot in self.slots.iter() {
            if let Err(error @ StoreError::OtherPointers { .. }) =
                self.store.check_pointers(slot.name()).await
            {
                return error.into();
            }
        }
        std::future::pending().await
    }

    /// The time of day, by the clock that the poller goes by.
    #[cfg(feature = "http")]
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The store, for what the status page tells of it.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether every filter answers and is followed; a stale one does.
    pub fn is_ready(&self) -> bool {
        self.is_followed() && self.slots.iter().all(|slot| slot.is_loaded())
    }

    /// Whether the polling thread lives.
    pub(crate) fn is_followed(&self) -> bool {
        self.poller.is_alive()
    }

    /// Returns when the polling thread has ended, which only a bug of ours can make it: what answers then
    /// answers for ever, so a daemon should end too.
    pub async fn stopped(&self) {
        self.poller.stopped().await;
    }
}
