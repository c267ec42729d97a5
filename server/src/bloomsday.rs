//! [`Bloomsday`]: the filters of one process, and the functions that start it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;

use crate::cache;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::handle::{FilterHandle, Readiness, ServedFilter};
use crate::heartbeat;
#[cfg(feature = "live")]
use crate::live::{Ack, Live, LiveConfig, Options, SharedSet, Sharing, Shipper};
use crate::poller::{Poller, ReloadRequest};
use crate::status::{FilterStatus, Reloaded};

/// How often it is tried to learn where the pointers are, until the store was read once.
const POINTERS_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Loaded filters, which a background thread keeps up to date. Cheap to clone; the thread ends when
/// the last clone is dropped.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::{Config, FilterConfig, ReloadOutcome, State, start};
///
/// let bloomsday = start(Config::new(&store, vec![FilterConfig::new("rt".parse()?)])).await?;
/// assert!(bloomsday.is_ready());
/// assert_eq!(bloomsday.status()[0].state, State::Ok);
/// assert_eq!(bloomsday.reload().await?[0].outcome, ReloadOutcome::Unchanged);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Bloomsday {
    served: Arc<[Arc<ServedFilter>]>,
    poller: Arc<Poller>,
    store: Store,
    #[cfg(feature = "http")]
    clock: Clock,
    /// Ships live IDs, if there are any.
    #[cfg(feature = "live")]
    shipper: Option<Arc<Shipper>>,
    /// Follows other servers' live IDs, and keeps leases.
    #[cfg(feature = "live")]
    sharing: Option<Arc<Sharing>>,
    /// The live filters of this process, if it has any.
    #[cfg(all(feature = "http", feature = "live"))]
    live: Option<Live>,
}

/// Starts a server, and returns when every filter is ready: it is loaded, or the store has no day
/// yet and its live IDs are known; and the live IDs of other servers are here or cannot be read.
///
/// # Errors
/// [`Error::NotReady`] when a filter is not ready before `start_deadline`: the address of the
/// store may be wrong. The error of [`Bloomsday::other_pointers`], at once, when the store keeps
/// its pointers in another place. The errors of [`start_unloaded`].
pub async fn start(config: Config) -> Result<Bloomsday, Error> {
    let deadline = config.start_deadline;
    let bloomsday = start_unloaded(config)?;
    let ready = async {
        tokio::select! {
            ready = bloomsday.poller.ready() => ready?,
            wrong = bloomsday.other_pointers() => return Err(wrong),
        }
        for served in &*bloomsday.served {
            tokio::select! {
                () = served.wait_for_others_live_ids() => {}
                () = bloomsday.stopped() => return Err(Error::Stopped),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(deadline, ready).await {
        Ok(ready) => ready.map(|()| bloomsday.clone()),
        Err(_) => {
            let mut readiness = bloomsday.served.iter().map(|served| (served, served.readiness()));
            let waiting = readiness.find(|(_, readiness)| *readiness != Readiness::Ready);
            // It became ready at the last moment, or while no poll was due.
            let Some((served, waits)) = waiting else { return Ok(bloomsday.clone()) };
            let why = match waits {
                Readiness::WithoutOthersLiveIds => {
                    "the live IDs of other servers are still being read".into()
                }
                _ => {
                    let error = served.status().last_error;
                    error.unwrap_or_else(|| "the store has not answered yet".into())
                }
            };
            Err(Error::NotReady { filter: served.name().to_string(), deadline, why })
        }
    }
}

/// Starts a server without waiting. Until a filter is loaded, each lookup returns
/// [`Config::answer_until_loaded`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::{Config, FilterConfig, start_unloaded};
///
/// let mut config = Config::new(&store, vec![FilterConfig::new("rt".parse()?)]);
/// // A bidder that must not buy twice treats every ID as known until it knows better.
/// config.answer_until_loaded = true;
/// let bloomsday = start_unloaded(config)?;
/// assert!(bloomsday.filter("rt")?.contains(b"alice"));
/// # Ok(()) }
/// ```
///
/// # Errors
/// The store cannot be opened, the cache folder cannot be used, a setting is outside its
/// [`limits`](crate::limits), or `filters` is empty.
pub fn start_unloaded(config: Config) -> Result<Bloomsday, Error> {
    start_on(open_store(&config)?, config)
}

/// Opens the store of a configuration. A local folder may be missing if the cache has copies from
/// it: then it was there before, and may be on a disk that is not mounted yet.
///
/// # Errors
/// Those of [`Store::open`].
pub fn open_store(config: &Config) -> Result<Store, Error> {
    let missing = match Store::open(&config.store) {
        Err(missing @ StoreError::NoStore { .. }) => missing,
        opened => return Ok(opened?),
    };
    let Ok(store) = Store::open_unmounted(&config.store) else { return Err(missing.into()) };
    let names: Vec<&FilterName> = config.filters.iter().map(|filter| &filter.name).collect();
    let has_copies = |folder: &PathBuf| cache::has_copies_of(folder, &store, &names);
    if !config.cache_dir.as_ref().is_some_and(has_copies) {
        return Err(missing.into());
    }
    tracing::warn!("{missing}; until it is there, lookups use the copies in the cache");
    Ok(store)
}

/// As [`start_unloaded`], with a store that is already open; `config.store` is not used.
///
/// # Errors
/// The cache folder cannot be used, a setting is outside its [`limits`](crate::limits), or
/// `filters` is empty.
pub fn start_on(store: Store, mut config: Config) -> Result<Bloomsday, Error> {
    if config.filters.is_empty() {
        return Err(Error::NoFilters);
    }
    config.check()?;
    // With a filter named twice, a lookup would use the first and the status would show the last.
    let mut names = std::collections::BTreeSet::new();
    config.filters.retain(|filter| names.insert(filter.name.clone()));
    let clock = Clock::system();
    let served: Vec<Arc<ServedFilter>> = config
        .filters
        .iter()
        .map(|filter| {
            Arc::new(ServedFilter::new(filter, config.answer_until_loaded, clock.clone()))
        })
        .collect();
    #[cfg(feature = "live")]
    let live = live_of(&config)?;
    #[cfg(feature = "live")]
    let (shipper, sharing) = put_live(&config, live.as_ref(), &served, &store, &clock)?;
    let poller = Poller::start(config, store.clone(), served.clone(), clock.clone())?;
    let bloomsday = Bloomsday::of(served, poller, store, clock);
    #[cfg(feature = "live")]
    let bloomsday = Bloomsday { shipper, sharing, ..bloomsday };
    #[cfg(all(feature = "http", feature = "live"))]
    let bloomsday = Bloomsday { live, ..bloomsday };
    Ok(bloomsday)
}

/// What ships live IDs, and what follows those of other servers.
#[cfg(feature = "live")]
type LiveThreads = (Option<Arc<Shipper>>, Option<Arc<Sharing>>);

/// The live filters of this process: those of the configuration, or new ones if all of its filters
/// only follow.
#[cfg(feature = "live")]
fn live_of(config: &Config) -> Result<Option<Live>, Error> {
    if config.live.is_some() || config.filters.iter().all(|filter| filter.live_days.is_none()) {
        return Ok(config.live.clone());
    }
    match config.filters.iter().find(|filter| filter.takes_ids()) {
        Some(filter) => Err(Error::NoLiveLayer { filter: filter.name.to_string() }),
        None => Ok(Some(Live::open(LiveConfig::new(None))?)),
    }
}

/// Puts live IDs over the filters that have them, ships them, and follows those of other servers.
#[cfg(feature = "live")]
fn put_live(
    config: &Config,
    live: Option<&Live>,
    served: &[Arc<ServedFilter>],
    store: &Store,
    clock: &Clock,
) -> Result<LiveThreads, Error> {
    let Some(live) = live else { return Ok((None, None)) };
    let without_live = config.filters.iter().filter(|filter| filter.live_days.is_none());
    live.reserve_names(without_live.map(|filter| &filter.name));
    if config.filters.iter().all(|filter| filter.live_days.is_none()) {
        return Ok((None, None));
    }
    config.filters.iter().try_for_each(|filter| filter.check_streams(live.is_on_disk()))?;
    let (mut shipped, mut shared) = (Vec::new(), Vec::new());
    for (filter, served) in config.filters.iter().zip(served) {
        let Some(days) = filter.live_days else { continue };
        let (name, role, lease) = (filter.name.clone(), filter.live_role, filter.live_lease);
        let below = Arc::downgrade(served) as _;
        let set = live.declare(&name, Options::over_day(days, filter.id_form), role, below)?;
        if filter.live_keep_confirmed {
            set.keep_confirmed();
        }
        served.put_live(set.clone());
        shipped.push((name.clone(), set.clone()));
        let (engine, from) = (filter.live_engine.clone(), filter.live_from.clone());
        shared.push(SharedSet { filter: name, set, role, days, lease, engine, from });
    }
    // With an engine, what is in that counts as shipped.
    let has_engine = |filter: &FilterName| {
        shared.iter().any(|shared| shared.filter == *filter && shared.engine.is_some())
    };
    let promised = |filter: &FilterName| live.ack() == Ack::Shipped && !has_engine(filter);
    let shipper = Shipper::start(store, shipped, live.name(), clock, promised)?;
    let sharing = Sharing::start(store, shared, live, clock)?;
    Ok((Some(Arc::new(shipper)), Some(Arc::new(sharing))))
}

impl Bloomsday {
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "only the page uses it"))]
    fn of(served: Vec<Arc<ServedFilter>>, poller: Poller, store: Store, clock: Clock) -> Bloomsday {
        Bloomsday {
            served: served.into(),
            poller: Arc::new(poller),
            store,
            #[cfg(feature = "http")]
            clock,
            #[cfg(feature = "live")]
            shipper: None,
            #[cfg(feature = "live")]
            sharing: None,
            #[cfg(all(feature = "http", feature = "live"))]
            live: None,
        }
    }

    /// The handle of one filter.
    ///
    /// # Errors
    /// [`Error::UnknownFilter`], with the names of the filters that are served.
    pub fn filter(&self, name: &str) -> Result<FilterHandle, Error> {
        match self.served.iter().find(|served| served.name().as_str() == name) {
            Some(served) => Ok(FilterHandle::new(served.clone())),
            None => Err(Error::UnknownFilter {
                name: name.chars().take(64).collect(),
                served: self.served.iter().map(|served| served.name().to_string()).collect(),
            }),
        }
    }

    /// Polls the store now, and returns what each filter did.
    ///
    /// The result comes from a poll that began after this call. Each filter runs one poll and
    /// queues one more, however many callers wait. The call returns when the slowest filter is
    /// done; [`Bloomsday::reload_filter`] waits for one filter only.
    ///
    /// # Errors
    /// [`Error::Busy`] when too many reloads wait; [`Error::Stopped`].
    pub async fn reload(&self) -> Result<Vec<Reloaded>, Error> {
        self.poller.reload(ReloadRequest::default()).await
    }

    /// [`Bloomsday::reload`] for one filter.
    ///
    /// # Errors
    /// Those of [`Bloomsday::reload`], and [`Error::UnknownFilter`].
    pub async fn reload_filter(&self, name: &str) -> Result<Vec<Reloaded>, Error> {
        let filter = self.filter(name)?;
        self.poller
            .reload(ReloadRequest { filter: Some(filter.name().clone()), force: false })
            .await
    }

    /// [`Bloomsday::reload`] of one filter or of all, past the guard: a day that the guard holds
    /// back, or would hold back, is swapped in.
    ///
    /// # Errors
    /// Those of [`Bloomsday::reload`], and [`Error::UnknownFilter`].
    pub async fn force_reload(&self, name: Option<&str>) -> Result<Vec<Reloaded>, Error> {
        let filter = name.map(|name| self.filter(name)).transpose()?;
        let filter = filter.map(|filter| filter.name().clone());
        self.poller.reload(ReloadRequest { filter, force: true }).await
    }

    /// The status of every filter.
    pub fn status(&self) -> Vec<FilterStatus> {
        self.served.iter().map(|served| served.status()).collect()
    }

    /// Writes to the store which filters this server uses, so that `bloomsday status` can list it.
    ///
    /// `server` is the name of this server, such as its host and port. Runs until the returned
    /// future is dropped; it ends at once when the store is read-only. A failed write is logged
    /// once and retried.
    pub async fn heartbeats(&self, server: String) {
        heartbeat::run(&self.served, &self.store, server).await;
    }

    /// Deletes the records of [`Bloomsday::heartbeats`], before this server ends: after that no
    /// status counts it as one that answers from an older blob. Waits for the store for 3 s at
    /// most.
    pub async fn end_heartbeats(&self, server: &str) {
        heartbeat::end(&self.served, &self.store, server).await;
    }

    /// Returns an error when the store says that a filter's pointers are in another place than the
    /// one this server reads. Otherwise it never returns: a store that cannot be read is reported
    /// by the polls.
    pub async fn other_pointers(&self) -> Error {
        let mut unchecked: Vec<&FilterName> = self.served.iter().map(|s| s.name()).collect();
        loop {
            let mut failed = Vec::new();
            for filter in unchecked {
                match self.store.check_pointers(filter).await {
                    Err(error @ StoreError::OtherPointers { .. }) => return error.into(),
                    // A folder that is not mounted has no record, either.
                    Ok(()) if self.store.folder().is_none_or(Path::is_dir) => {}
                    _ => failed.push(filter),
                }
            }
            if failed.is_empty() {
                return std::future::pending().await;
            }
            unchecked = failed;
            tokio::time::sleep(POINTERS_CHECK_INTERVAL).await;
        }
    }

    /// Ships what was added to live filters, ships no more after that, and lets another server
    /// decide. For the end of a process; waits at most a few seconds for the store. If not
    /// all of a filter is shipped by then, its lease is not given back, and runs out by itself; the
    /// next start ships the rest.
    #[cfg(feature = "live")]
    pub async fn finish_shipping(&self) {
        if let Some(shipper) = &self.shipper {
            shipper.finish().await;
        }
        // After it: a successor finds all that was added.
        if let Some(sharing) = &self.sharing {
            sharing.finish().await;
        }
    }

    /// The live filters of this process, if it has any.
    #[cfg(all(feature = "http", feature = "live"))]
    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// The time of day, by the clock that the poller uses.
    #[cfg(feature = "http")]
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The store, for the status page.
    #[cfg(feature = "http")]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether the polling thread runs, every filter is loaded or answers from live IDs alone, and
    /// the live IDs of other servers are here. A stale filter counts as ready.
    pub fn is_ready(&self) -> bool {
        self.is_polling() && self.readiness().all(|(_, readiness)| readiness == Readiness::Ready)
    }

    /// Of each filter, whether a lookup in it has an answer now.
    pub(crate) fn readiness(&self) -> impl Iterator<Item = (&FilterName, Readiness)> {
        self.served.iter().map(|served| (served.name(), served.readiness()))
    }

    /// Whether the polling thread runs.
    pub(crate) fn is_polling(&self) -> bool {
        self.poller.is_alive()
    }

    /// Returns when the polling thread, or one of those for live IDs, has ended, which only a
    /// defect of this library can cause. The filters then stay as they are until a restart, so a
    /// daemon should end, too.
    pub async fn stopped(&self) {
        tokio::select! {
            () = self.poller.stopped() => {}
            () = self.live_thread_panicked() => {}
        }
    }

    async fn live_thread_panicked(&self) {
        #[cfg(feature = "live")]
        if let (Some(shipper), Some(sharing)) = (&self.shipper, &self.sharing) {
            tokio::select! {
                () = shipper.panicked() => return,
                () = sharing.panicked() => return,
            }
        }
        std::future::pending().await
    }
}

impl fmt::Debug for Bloomsday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters: Vec<&str> = self.served.iter().map(|served| served.name().as_str()).collect();
        let store = self.store.name();
        f.debug_struct("Bloomsday")
            .field("store", &store)
            .field("filters", &filters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FilterConfig;

    #[tokio::test]
    async fn a_server_whose_polling_thread_has_ended_is_not_ready_and_says_so() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::open(&folder.path().display().to_string()).unwrap();
        let filter = FilterConfig::new("rt".parse().unwrap());
        let served = vec![Arc::new(ServedFilter::new(&filter, true, Clock::system()))];
        let config = Config::new("", vec![filter]);
        let (clock, panics) = (Clock::system(), || panic!("a defect of ours"));
        let poller =
            Poller::start_with(config, store.clone(), served.clone(), clock.clone(), panics)
                .unwrap();
        poller.stopped().await;
        assert!(!poller.is_alive());
        assert!(matches!(poller.ready().await, Err(Error::Stopped)));
        assert!(matches!(poller.reload(ReloadRequest::default()).await, Err(Error::Stopped)));
        let bloomsday = Bloomsday::of(served, poller, store, clock);
        bloomsday.stopped().await;
        assert!(!bloomsday.is_ready());
    }
}
