//! [`Config`] and [`FilterConfig`]: what a server serves, and how it follows the store.

use std::path::PathBuf;
use std::time::Duration;

use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::MAX_BLOB_BYTES;

use crate::guard::Guard;

// What `new` sets where the name of the field does not say it all.
const POLL_INTERVAL: Duration = Duration::from_secs(600);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// For a load, and for a start.
const DEADLINE: Duration = Duration::from_secs(300);
const GUARD_MAX_HOLD: Duration = Duration::from_secs(6 * 3600);
/// After a crash a successor waits this long. A store outage longer than this stops adds.
#[cfg(feature = "live")]
const LEASE: Duration = Duration::from_secs(10);
/// The one that answers, one that idle readers keep, and the next.
const GENERATIONS: usize = 3;

/// The settings of a server. [`limits`](crate::limits) has the range of each.
///
/// ```
/// use std::time::Duration;
/// use bloomsday_server::{Config, FilterConfig};
///
/// let filters = vec![FilterConfig::new("rt".parse()?)];
/// let mut config = Config::new("s3://ads-filters/prod", filters);
/// config.poll_interval = Duration::from_secs(300);
/// config.cache_dir = Some("/var/cache/bidder".into());
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The URL or the local path of the store.
    pub store: String,
    /// The filters to serve.
    pub filters: Vec<FilterConfig>,
    /// The time between two polls of a filter's pointers. Jitter changes it by up to 10 %.
    pub poll_interval: Duration,
    /// The time between two polls of a filter that is not loaded yet. It grows with the time
    /// already waited.
    pub retry_interval: Duration,
    /// The time limit of one poll, and of one load.
    pub load_deadline: Duration,
    /// How long [`start`](crate::start) waits until every filter is loaded.
    pub start_deadline: Duration,
    /// What a lookup returns until a filter is loaded, if the program does not wait for that
    /// ([`start_unloaded`](crate::start_unloaded)).
    pub answer_until_loaded: bool,
    /// The folder for verified blobs, from which a server starts when the store is away.
    pub cache_dir: Option<PathBuf>,
    /// The most loaded filters of one name in memory, including those that idle readers keep.
    pub max_generations: usize,
    /// The largest blob that is loaded.
    pub max_blob_bytes: u64,
    /// How errors of the store say what to do, in the status and in the answers to a reload. The
    /// default is the text of [`Remedy`]; a program may name its own commands.
    pub remedy_words: fn(&Remedy) -> String,
    /// The live sets of this process, for filters with `live_days`. Without it, filters with
    /// `LiveRole::Follow` are kept in memory, with the default limit; other roles are an error.
    #[cfg(feature = "live")]
    pub live: Option<crate::live::Live>,
}

/// The settings of one filter.
///
/// ```
/// use bloomsday_server::{FilterConfig, Guard};
///
/// let mut filter = FilterConfig::new("rt".parse()?);
/// filter.max_age_days = 7;
/// filter.guard = Guard::Hold;
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FilterConfig {
    /// The name of the filter.
    pub name: FilterName,
    /// What is hashed of the IDs. A blob that was built otherwise is refused: lookups would miss.
    pub id_form: IdForm,
    /// The oldest pointer that is followed, in days before today.
    pub max_age_days: u32,
    /// What happens to a newer day whose hit rate on recent lookups differs too much.
    pub guard: Guard,
    /// The longest time that [`Guard::Hold`] keeps a newer day back.
    pub guard_max_hold: Duration,
    /// For how many days an ID that was added is a hit, unless the day's filter has it by then;
    /// `None` for a filter without live IDs.
    #[cfg(feature = "live")]
    pub live_days: Option<u8>,
    /// Whether a live ID that the day's filter has stays in memory, too, until its days are over.
    /// Without it, an ID that the filter has by mistake (its false positives) is a miss again with
    /// the next day's filter.
    #[cfg(feature = "live")]
    pub live_keep_confirmed: bool,
    /// Whether this process takes IDs, or reads from the store what others added.
    #[cfg(feature = "live")]
    pub live_role: crate::live::LiveRole,
    /// A Redis that tells other processes at once what is added here, besides the store.
    #[cfg(feature = "live")]
    pub live_engine: Option<crate::live::EngineUrl>,
    /// A stream of Redis, or a topic of Kafka, whose IDs are added while this process takes IDs.
    #[cfg(feature = "live")]
    pub live_from: Option<crate::live::FeedUrl>,
    /// The length of the lease of the process that takes IDs; zero for none, and then nothing
    /// refuses a second one.
    #[cfg(feature = "live")]
    pub live_lease: Duration,
}

impl FilterConfig {
    /// A filter with the default settings: three days of age, and a guard that warns.
    pub fn new(name: FilterName) -> FilterConfig {
        let (max_age_days, guard) = (Retention::DEFAULT.max_age_days, Guard::default());
        FilterConfig {
            name,
            id_form: IdForm::Bytes,
            max_age_days,
            guard,
            guard_max_hold: GUARD_MAX_HOLD,
            #[cfg(feature = "live")]
            live_days: None,
            #[cfg(feature = "live")]
            live_keep_confirmed: false,
            #[cfg(feature = "live")]
            live_role: crate::live::LiveRole::default(),
            #[cfg(feature = "live")]
            live_engine: None,
            #[cfg(feature = "live")]
            live_from: None,
            #[cfg(feature = "live")]
            live_lease: LEASE,
        }
    }

    /// Whether this process takes IDs for the filter, and does not only read what others added.
    #[cfg(feature = "live")]
    pub fn takes_ids(&self) -> bool {
        self.live_days.is_some() && self.live_role != crate::live::LiveRole::Follow
    }

    /// Refuses an engine in a process without a log on disk: what is sent there is read from the
    /// log. Refuses a feed whose certificates or key cannot be read.
    ///
    /// # Errors
    /// [`Error::EngineWithoutLog`](crate::error::Error::EngineWithoutLog),
    /// [`Error::Setting`](crate::error::Error::Setting).
    #[cfg(feature = "live")]
    pub fn check_streams(&self, has_log: bool) -> Result<(), crate::error::Error> {
        use crate::error::Error;
        if self.takes_ids() && self.live_engine.is_some() && !has_log {
            return Err(Error::EngineWithoutLog { filter: self.name.to_string() });
        }
        match self.live_from.as_ref().filter(|_| self.takes_ids()) {
            Some(feed) => feed.check_files().map_err(|wrong| Error::Setting {
                name: "live_from",
                value: feed.name(),
                allowed: format!("files that can be read: {wrong}"),
            }),
            None => Ok(()),
        }
    }
}

impl Config {
    /// These filters from this store, with the default settings.
    pub fn new(store: &str, filters: Vec<FilterConfig>) -> Config {
        Config {
            store: store.to_owned(),
            filters,
            poll_interval: POLL_INTERVAL,
            retry_interval: RETRY_INTERVAL,
            load_deadline: DEADLINE,
            start_deadline: DEADLINE,
            answer_until_loaded: false,
            cache_dir: None,
            max_generations: GENERATIONS,
            max_blob_bytes: MAX_BLOB_BYTES,
            remedy_words: Remedy::to_string,
            #[cfg(feature = "live")]
            live: None,
        }
    }
}
