//! The live layer: IDs that count from the moment they are added.
//!
//! [`Live`] has the sets of one process, by name. Each set is an exact table of hashes with a log;
//! `set`, `memory` and `log` do not know how IDs arrive.
//!
//! | module | contents |
//! |---|---|
//! | `set` | one table with its log: every change and every lookup |
//! | `options` | what a set was made with |
//! | `below` | the day's filter that lies below a set |
//! | `memory` | tables of hashes, for lookups without locks, and how much memory they may take |
//! | `log` | changes on disk before they are acknowledged |
//! | `disk` | the data folder: a log for each set, and a set from its log |
//! | `ack`, `ticket` | what the answer to a change promises, and waits for |
//! | `replication` | logs in the store, those of other servers, and the lease of the one that decides |
//! | `stream` | the engine between servers, in Redis; and feeds, from Redis or Kafka |
//! | `status` | what is known of a set, for people and metrics |
//! | `lock` | a mutex whose holder may have panicked |

mod ack;
mod below;
mod disk;
mod lock;
mod log;
mod memory;
mod options;
mod replication;
mod set;
mod status;
mod stream;
mod ticket;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::live::segment::Op;

pub use self::ack::Ack;
pub(crate) use self::below::{Below, NoAnswer};
use self::disk::Disk;
use self::memory::budget::Budget;
pub use self::memory::domains::{DomainShare, MAX_DOMAINS};
use self::memory::near::Near;
pub(crate) use self::memory::near::{MAX_DISTANCE, Neighbour};
#[cfg(feature = "http")]
pub(crate) use self::memory::table::LiveState;
pub(crate) use self::memory::writer::Added;
pub use self::memory::writer::memory_of;
use self::memory::writer::{EMPTY_BYTES, Writer};
pub(crate) use self::options::{Key, Kind, MAX_KEY_BYTES, Options, hash_of};
pub use self::replication::role::LiveRole;
pub(crate) use self::replication::sharing::{SharedSet, Sharing};
pub(crate) use self::replication::ship::Shipper;
use self::set::{Before, End};
pub(crate) use self::set::{DayFilter, LiveSet, SetError};
pub use self::status::{
    ClientFilterStatus, LayerStatus, LiveStatus, MAX_LISTED_FILTERS, ShareStatus,
};
pub use self::stream::feed_status::FeedStatus;
pub use self::stream::{EngineUrl, FeedUrl};
pub(crate) use self::ticket::Ticket;
use crate::clock::Clock;
use crate::error::Error;
use crate::token::Token;

/// The memory of all tables, if nothing else is said.
pub const DEFAULT_MEMORY: u64 = 1 << 30;
/// How often sets whose time has come are dropped, and windows move on without an add.
const TICK: Duration = Duration::from_millis(500);
/// The most sets of a process, whatever its settings say.
pub const MAX_SETS: usize = 512;

/// The settings of the live layer.
///
/// ```
/// use bloomsday_server::live::{Ack, LiveConfig};
///
/// let mut config = LiveConfig::new(Some("/var/lib/bloomsday".into()));
/// assert_eq!(config.ack, Ack::Synced);
/// config.memory = 4 << 30;
/// config.create = false; // only the filters of the configuration
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveConfig {
    /// The folder for the logs. Without one, everything is lost when the process ends.
    pub data_dir: Option<PathBuf>,
    /// What an answer promises.
    pub ack: Ack,
    /// The most bytes of all tables; adds beyond it are refused.
    pub memory: u64,
    /// The most filters, those of the configuration included; at most [`MAX_SETS`]. Those that the
    /// logs have are all read.
    pub max_filters: usize,
    /// Whether clients may make filters that the configuration does not name.
    pub create: bool,
    /// Filters that the configuration names and this server does not serve: Redis clients get an
    /// error for them. Those that it serves without live IDs need not be here.
    pub reserved_names: Vec<FilterName>,
    /// What clients present to add and delete IDs. Without one, only addresses that no other
    /// machine reaches take changes.
    pub token: Option<Token>,
    /// The name of this server in what it writes to the store, for people. A lease has the number
    /// of the log in place of an empty one.
    pub name: String,
}

impl LiveConfig {
    /// The default settings, with the logs in this folder.
    pub fn new(data_dir: Option<PathBuf>) -> LiveConfig {
        let ack = if data_dir.is_some() { Ack::Synced } else { Ack::Memory };
        let (max_filters, create, token) = (MAX_SETS, true, None);
        let memory = DEFAULT_MEMORY;
        let (reserved_names, name) = (Vec::new(), String::new());
        LiveConfig { data_dir, ack, memory, max_filters, create, reserved_names, token, name }
    }
}

/// All sets of one process. Cheap to clone.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (folder, store) = store_with(&[b"alice"]);
/// # let data = folder.path().join("data");
/// use bloomsday_server::live::{Live, LiveConfig};
/// use bloomsday_server::{Config, FilterConfig, start};
///
/// let mut filter = FilterConfig::new("rt".parse()?);
/// filter.live_days = Some(2); // an ID counts today and tomorrow
/// let mut config = Config::new(&store, vec![filter]);
/// config.live = Some(Live::open(LiveConfig::new(Some(data)))?);
/// let seen = start(config).await?.filter("rt")?;
///
/// assert!(seen.add(b"bob").await?); // new
/// assert!(!seen.add(b"bob").await?); // added before
/// assert!(!seen.add(b"alice").await?); // the day's filter has it
/// assert!(seen.contains(b"bob"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Live(Arc<Inner>);

struct Inner {
    sets: RwLock<BTreeMap<Key, Arc<LiveSet>>>,
    budget: Arc<Budget>,
    disk: Option<Disk>,
    ack: Ack,
    max_filters: usize,
    create: bool,
    token: Option<Token>,
    name: String,
    clock: Clock,
    /// Increased whenever a name gets another set, or none.
    changes: AtomicU64,
    /// The names of the filters of the configuration that have no live IDs here: clients get no set
    /// of these.
    reserved_names: RwLock<BTreeSet<Key>>,
}

/// Why a set was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CreateError {
    /// There is one of this name.
    Exists,
    /// The limit on memory is reached.
    Memory,
    /// There are as many as there may be.
    TooMany,
    /// Clients may not make any.
    Closed,
}

impl Live {
    /// Reads all logs of the data folder.
    ///
    /// Cost: one pass over the logs, and an add for each ID in them.
    ///
    /// # Errors
    /// [`Error::Segment`] for a damaged segment, [`Error::LiveMemory`] when the sets need more
    /// memory than the limit, [`Error::System`] for a folder that cannot be used or is in use.
    pub fn open(config: LiveConfig) -> Result<Live, Error> {
        let clock = Clock::system();
        let budget = Arc::new(Budget::starting(config.memory));
        let mut sets = BTreeMap::new();
        let disk = match &config.data_dir {
            Some(folder) if config.ack != Ack::Memory => {
                let opened_ms = clock.now_ms();
                // What is shipped is on the disk first.
                let waits = matches!(config.ack, Ack::Synced | Ack::Shipped);
                Some(Disk::open(&folder.join("live"), waits, opened_ms, &budget, &mut sets)?)
            }
            _ => None,
        };
        budget.started();
        let (sets, changes) = (RwLock::new(sets), AtomicU64::new(0));
        let LiveConfig { ack, create, reserved_names, token, name, .. } = config;
        let max_filters = config.max_filters.min(MAX_SETS);
        let live = Live(Arc::new(Inner {
            sets,
            budget,
            disk,
            ack,
            max_filters,
            create,
            token,
            name,
            clock,
            changes,
            reserved_names: RwLock::default(),
        }));
        live.reserve_names(&reserved_names);
        let weak = Arc::downgrade(&live.0);
        let thread = std::thread::Builder::new().name("live-tick".into());
        let ticking = thread.spawn(move || {
            while let Some(inner) = weak.upgrade() {
                Live(inner).tick();
                std::thread::sleep(TICK);
            }
        });
        let doing = "start the thread of live filters".to_owned();
        ticking.map_err(|source| Error::System { doing, source })?;
        Ok(live)
    }

    /// The set over a filter of the configuration, which is made if there is none. One that only
    /// follows has no log.
    pub(crate) fn declare(
        &self,
        name: &FilterName,
        options: Options,
        role: LiveRole,
        below: Weak<dyn Below>,
    ) -> Result<Arc<LiveSet>, Error> {
        let key = Key::of_filter(name);
        let (now, has_log) = (self.now(), role != LiveRole::Follow);
        let filter = || name.to_string();
        let set = match self.get(&key, now) {
            Some(_) if !has_log => return Err(Error::FollowerWithLog { filter: filter() }),
            Some(set) => set,
            None => {
                self.make_with(&key, options.clone(), now, has_log).map_err(|why| match why {
                    CreateError::Memory => Error::LiveMemory { limit: self.0.budget.limit() },
                    _ => Error::TooManyLiveFilters { filter: filter(), max: self.max_filters() },
                })?
            }
        };
        if *set.options() != options {
            return Err(Error::OtherLiveSettings { filter: filter() });
        }
        if let Some(log) = set.log() {
            // With its number, so that a killed process finds its lease again. Synced, too, so that
            // it is shipped, and written again if the disk is full.
            let _ = log.write();
            log.queue();
        }
        set.put_over(below);
        self.reserved_names_mut().remove(&key);
        Ok(set)
    }

    /// Keeps these names from clients: filters of the configuration have them, without live IDs.
    pub(crate) fn reserve_names<'a>(&self, names: impl IntoIterator<Item = &'a FilterName>) {
        for name in names {
            let key = Key::of_filter(name);
            match self.sets().get(&key).map(|set| set.is_of_clients()) {
                Some(true) => tracing::warn!(
                    "clients have made a filter `{name}`, and the configuration has one of this name without live \
                     IDs: clients reach neither; delete theirs with DEL, or rename yours"
                ),
                Some(false) => tracing::warn!(
                    "`{name}` has a log of live IDs in this data folder, and is not live on this server: what is not \
                     in the store yet comes there when it is"
                ),
                None => {}
            }
            // Locked when the sets are free again: who removes a set locks them, then the names.
            self.reserved_names_mut().insert(key);
        }
        // What connections have found by name before counts no more.
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether a filter of the configuration without live IDs has this name.
    pub(crate) fn is_reserved(&self, key: &Key) -> bool {
        let reserved = self.0.reserved_names.read().unwrap_or_else(PoisonError::into_inner);
        reserved.contains(key)
    }

    /// The time of day in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.0.clock.now_ms()
    }

    /// The same as a point in time.
    #[cfg(feature = "http")]
    pub(crate) fn timestamp(&self) -> jiff::Timestamp {
        self.0.clock.now()
    }

    /// The same in microseconds.
    #[cfg(feature = "resp")]
    pub(crate) fn microseconds(&self) -> u64 {
        u64::try_from(self.0.clock.now().as_microsecond()).unwrap_or(0)
    }

    /// A number that changes when a name gets another set, or none.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// The set of this name. One whose time has come is removed here, with its log.
    pub(crate) fn get(&self, key: &Key, now: u64) -> Option<Arc<LiveSet>> {
        let set = self.sets().get(key).cloned()?;
        if set.expires_at().is_some_and(|at| at <= now) {
            // One that cannot be removed is tried again.
            return match self.remove_if(&set, End::IfExpired { now }) {
                // Its end was set anew.
                Ok(false) => self.sets().get(key).cloned(),
                _ => None,
            };
        }
        Some(set)
    }

    /// Makes a set for a client.
    pub(crate) fn make(
        &self,
        key: &Key,
        options: Options,
        now: u64,
    ) -> Result<Arc<LiveSet>, CreateError> {
        if self.0.create {
            return self.make_with(key, options, now, true);
        }
        let is_there = self.get(key, now).is_some();
        Err(if is_there { CreateError::Exists } else { CreateError::Closed })
    }

    fn make_with(
        &self,
        key: &Key,
        options: Options,
        now: u64,
        has_log: bool,
    ) -> Result<Arc<LiveSet>, CreateError> {
        // Drops one whose time has come.
        if self.get(key, now).is_some() {
            return Err(CreateError::Exists);
        }
        let mut sets = self.sets_mut();
        if sets.contains_key(key) {
            return Err(CreateError::Exists);
        }
        if sets.len() >= self.0.max_filters {
            return Err(CreateError::TooMany);
        }
        let mut writer =
            Writer::new(options.window, self.0.budget.clone()).ok_or(CreateError::Memory)?;
        let mut near = None;
        if options.kind == Kind::Near {
            let made = Near::new(options.window, self.0.budget.clone());
            near.insert(made.ok_or(CreateError::Memory)?).reserve(options.capacity);
        } else {
            writer.reserve(options.capacity);
        }
        writer.tick(now);
        let log = self.0.disk.as_ref().filter(|_| has_log).map(|disk| disk.log(key));
        if let Some(log) = &log {
            log.append_record(now, Op::Reserve, &options.record(key));
        }
        let before = Before::default();
        let set = LiveSet::new(key.clone(), options, writer, near, log, None, before);
        let set = Arc::new(set);
        sets.insert(key.clone(), set.clone());
        self.0.changes.fetch_add(1, Ordering::Release);
        Ok(set)
    }

    /// Whether there is memory for one more set.
    pub(crate) fn has_memory_for_a_set(&self) -> bool {
        self.0.budget.has(EMPTY_BYTES)
    }

    /// Drops the set of this name, and returns whether there was one.
    ///
    /// # Errors
    /// Why its log could not be removed: the set stays, or it may come back with the next start.
    pub(crate) fn remove(&self, key: &Key, now: u64) -> Result<bool, Arc<str>> {
        self.get(key, now).map_or(Ok(false), |set| self.remove_if(&set, End::Anyway))
    }

    /// Whether clients may delete a set: not one that the configuration names, even if it is not
    /// live here now. Its log may have IDs that are nowhere else.
    pub(crate) fn may_be_removed(&self, set: &LiveSet) -> bool {
        !set.is_declared() && (set.is_of_clients() || !self.is_reserved(set.key()))
    }

    /// Drops a set unless an ID was added meanwhile.
    pub(crate) fn remove_empty(&self, set: &Arc<LiveSet>) {
        // One that cannot be removed stays, and is empty.
        let _ = self.remove_if(set, End::IfEmpty);
    }

    fn remove_if(&self, set: &Arc<LiveSet>, when: End) -> Result<bool, Arc<str>> {
        let mut sets = self.sets_mut();
        let is_there = sets.get(set.key()).is_some_and(|other| Arc::ptr_eq(other, set));
        // What clients made ends in its time, also under a name that is reserved now.
        if !is_there || !self.may_be_removed(set) || !set.end(when) {
            return Ok(false);
        }
        let (mut removed, mut gone) = (Ok(true), None);
        // Under the lock: at no time there are two logs of one name.
        if let (Some(log), Some(disk)) = (set.log(), &self.0.disk) {
            match disk.remove(&log) {
                Ok(folder) => gone = folder,
                Err(error) => {
                    removed = Err(log.not_removed(&error));
                    if !log.is_removed() {
                        set.resume();
                        return removed;
                    }
                }
            }
        }
        set.take_log();
        sets.remove(set.key());
        self.0.changes.fetch_add(1, Ordering::Release);
        drop(sets);
        set.free();
        if let Some(gone) = gone {
            disk::delete(&gone);
        }
        removed
    }

    /// The sets of a database that clients reach, by name.
    pub(crate) fn list(&self, database: u8, now: u64) -> Vec<Arc<LiveSet>> {
        let mut sets = self.all();
        sets.retain(|set| {
            set.key().database == database
                && set.expires_at().is_none_or(|at| at > now)
                && !self.is_reserved(set.key())
        });
        sets
    }

    /// The names of the sets of these databases that clients may delete.
    pub(crate) fn list_removable(&self, databases: RangeInclusive<u8>) -> Vec<Key> {
        let mut sets = self.all();
        sets.retain(|set| databases.contains(&set.key().database) && self.may_be_removed(set));
        sets.iter().map(|set| set.key().clone()).collect()
    }

    /// The sets that clients made, and what is known of each.
    pub(crate) fn made_by_clients(&self) -> Vec<(Key, LiveStatus)> {
        let now = self.now();
        let all = self.all();
        let made = all.iter().filter(|set| self.may_be_removed(set));
        made.map(|set| (set.key().clone(), set.status(now))).collect()
    }

    /// What is known of this process's live filters as a whole, and of those that clients made.
    ///
    /// ```
    /// use bloomsday_server::live::{Live, LiveConfig};
    ///
    /// let live = Live::open(LiveConfig::new(None))?;
    /// let status = live.status();
    /// assert_eq!((status.client_filters, status.log_error), (0, None));
    /// # Ok::<(), bloomsday_server::error::Error>(())
    /// ```
    pub fn status(&self) -> LayerStatus {
        let mut made = self.made_by_clients();
        let client_filters = made.len();
        made.sort_by(|(a, x), (b, y)| y.entries.cmp(&x.entries).then_with(|| a.cmp(b)));
        let listed = made.into_iter().take(MAX_LISTED_FILTERS);
        let largest = listed.map(|(key, status)| ClientFilterStatus {
            database: key.database,
            filter: String::from_utf8_lossy(&key.name).into_owned(),
            entries: status.entries,
            memory_bytes: status.memory_bytes,
            added_new: status.added_new,
            added_seen: status.added_seen,
        });
        let (memory_used_bytes, memory_limit_bytes) = self.memory();
        LayerStatus {
            memory_used_bytes,
            memory_limit_bytes,
            log_error: self.log_error().map(|why| why.to_string()),
            client_filters,
            largest: largest.collect(),
        }
    }

    /// Why a log cannot be written or synced, if there is such a log: adds to its set are refused.
    pub(crate) fn log_error(&self) -> Option<Arc<str>> {
        self.all().iter().filter_map(|set| set.log()).find_map(|log| log.failure())
    }

    /// Drops sets whose time has come, and moves the windows of the others.
    fn tick(&self) {
        let now = self.now();
        for set in self.all() {
            if self.get(set.key(), now).is_some() {
                set.tick(now);
            }
        }
    }

    /// Syncs all logs. For the end of a process.
    pub async fn sync(&self) {
        for set in self.all() {
            // The log has reported its failure already.
            let _ = set.ticket().wait_synced().await;
        }
    }

    /// The bytes of all tables, and their limit.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (self.0.budget.taken(), self.0.budget.limit())
    }

    /// The most filters.
    pub(crate) fn max_filters(&self) -> usize {
        self.0.max_filters
    }

    /// What clients present to add and delete IDs.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.0.token.as_ref()
    }

    /// Where logs are.
    #[cfg(any(feature = "redis-streams", feature = "kafka"))]
    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        self.0.disk.as_ref().map(|disk| &*disk.folder)
    }

    /// The name of this server.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// What an answer promises.
    pub(crate) fn ack(&self) -> Ack {
        self.0.ack
    }

    /// Whether changes are written to a disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.0.disk.is_some()
    }

    /// All sets, without the lock on their names.
    fn all(&self) -> Vec<Arc<LiveSet>> {
        self.sets().values().cloned().collect()
    }

    fn sets(&self) -> RwLockReadGuard<'_, BTreeMap<Key, Arc<LiveSet>>> {
        self.0.sets.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserved_names_mut(&self) -> RwLockWriteGuard<'_, BTreeSet<Key>> {
        self.0.reserved_names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn sets_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Key, Arc<LiveSet>>> {
        self.0.sets.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("sets", &self.sets().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
