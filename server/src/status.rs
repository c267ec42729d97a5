//! [`FilterStatus`]: which filter is current, and why. `/status` returns it and the metrics are
//! made of it.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, FollowedBy};
use jiff::Timestamp;
use serde::Serialize;

use crate::generation::{Generation, Via};
use crate::guard::{Guard, Verdict};

/// A filter of this many days before today is not stale: yesterday's is built in the small hours.
const FRESH_DAYS: u32 = 2;

/// The state of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No filter is loaded yet.
    Loading,
    /// All is well.
    Ok,
    /// The day of the loaded filter is older than the day before yesterday.
    Stale,
    /// The pointer names a blob of another day.
    RolledBack,
    /// A pin names the blob.
    Pinned,
    /// The guard holds a new filter back.
    Held,
    /// The last poll or load failed; lookups use the last good filter.
    Failing,
}

impl State {
    /// Every state.
    pub const ALL: [State; 7] = [
        State::Loading,
        State::Ok,
        State::Stale,
        State::RolledBack,
        State::Pinned,
        State::Held,
        State::Failing,
    ];

    /// The state after `polls`, at `now`; `day` is that of the loaded filter.
    fn of(polls: &PollStatus, day: Option<Day>, now: Timestamp) -> State {
        let Some(day) = day else { return State::Loading };
        let followed = polls.followed.as_ref();
        let is_pinned = matches!(followed, Some(Followed { by: FollowedBy::Pin { .. }, .. }));
        if polls.last_error.is_some() {
            State::Failing
        } else if polls.held {
            State::Held
        } else if is_pinned {
            State::Pinned
        } else if followed.is_some_and(Followed::is_rolled_back) {
            State::RolledBack
        } else if day < Day::of(now).minus(FRESH_DAYS) {
            State::Stale
        } else {
            State::Ok
        }
    }

    /// The name in JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            State::Loading => "loading",
            State::Ok => "ok",
            State::Stale => "stale",
            State::RolledBack => "rolled_back",
            State::Pinned => "pinned",
            State::Held => "held",
            State::Failing => "failing",
        }
    }
}

/// The status of one filter in this process.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::{Config, FilterConfig, State, start};
///
/// let bloomsday = start(Config::new(&store, vec![FilterConfig::new("rt".parse()?)])).await?;
/// let status = bloomsday.filter("rt")?.status();
/// assert_eq!((status.state, status.ids), (State::Ok, Some(1)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FilterStatus {
    /// The name of the filter.
    #[serde(skip)]
    pub filter: FilterName,
    /// The state; of several that apply, the worst.
    pub state: State,
    /// Whether the pointer names a blob of another day.
    pub rolled_back: bool,
    /// Whether a pin names the blob.
    pub pinned: bool,
    /// When the pin ends.
    pub pin_until: Option<Timestamp>,
    /// Why the pin was set.
    pub pin_reason: Option<String>,
    /// What happens to a newer day whose hit rate on recent lookups differs too much.
    pub guard: Guard,
    /// Whether the guard holds a newer day back; [`FilterStatus::state`] may report a worse state.
    pub held: bool,
    /// The guard's verdict on the newest day that it judged.
    pub judged: Option<Judged>,
    /// The day of the loaded blob.
    pub day: Option<Day>,
    /// The day of the pointer that names it.
    pub pointer_day: Option<Day>,
    /// The digest of the loaded blob.
    pub digest: Option<Digest>,
    /// The number of distinct IDs in it.
    pub ids: Option<u64>,
    /// Its size in memory, in bytes.
    pub bytes: Option<u64>,
    /// How many of these bytes are in huge pages, where the kernel reports it. With few of them
    /// lookups are slower.
    pub huge_bytes: Option<u64>,
    /// The layout of its bits.
    pub layout: Option<&'static str>,
    /// The kernel that probes its bits.
    pub kernel: Option<&'static str>,
    /// The false-positive probability that it was sized for.
    pub fpp_target: Option<f64>,
    /// The false-positive probability that was measured.
    pub fpp_measured: Option<f64>,
    /// When it was loaded.
    pub loaded_at: Option<Timestamp>,
    /// How it came: as a `full` blob, as a `delta` from the blob before, or from the `cache` alone.
    pub via: Option<&'static str>,
    /// How many bytes were fetched from the store for it.
    pub bytes_fetched: Option<u64>,
    /// Seconds since the end of the blob's day.
    pub age_seconds: Option<i64>,
    /// When the store was last polled.
    pub last_poll: Option<Timestamp>,
    /// When a poll last succeeded.
    pub last_success: Option<Timestamp>,
    /// The error of the last poll; absent when it succeeded.
    pub last_error: Option<String>,
    /// Lookups of IDs that the filter contains.
    pub hits: u64,
    /// Lookups of IDs that the filter does not contain.
    pub misses: u64,
    /// The live IDs over it; absent for a filter that has none.
    #[cfg(feature = "live")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<crate::live::LiveStatus>,
    /// Counts of polls, loads and verdicts.
    #[serde(skip)]
    pub counts: PollCounts,
}

/// How many polls, loads and verdicts there were since the start.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct PollCounts {
    /// Polls that succeeded.
    pub polls_ok: u64,
    /// Polls that failed.
    pub polls_failed: u64,
    /// Loads that were swapped in.
    pub loads_ok: u64,
    /// Those of them that came by a delta.
    pub loads_by_delta: u64,
    /// Those of them that came from the cache alone.
    pub loads_by_cache: u64,
    /// Deltas that were there and could not be used: the full blob took their place.
    pub deltas_failed: u64,
    /// The bytes of the full blobs that were loaded.
    pub full_bytes: u64,
    /// The bytes of the deltas that were loaded.
    pub delta_bytes: u64,
    /// Loads that failed with a transient error.
    pub loads_failed: u64,
    /// Loads that failed with a permanent error, such as a wrong digest.
    pub loads_rejected: u64,
    /// How long the last load took, in seconds.
    pub load_seconds: f64,
    /// The guard's verdicts, in the order of [`Verdict::ALL`]. A filter on hold is judged at each
    /// poll.
    pub verdicts: [u64; Verdict::ALL.len()],
}

impl PollCounts {
    /// Counts a load.
    pub(crate) fn loaded(&mut self, generation: &Generation) {
        self.loads_ok += 1;
        match generation.via {
            Via::Full => self.full_bytes += generation.bytes_fetched,
            Via::Delta => {
                self.loads_by_delta += 1;
                self.delta_bytes += generation.bytes_fetched;
            }
            Via::Cache => self.loads_by_cache += 1,
        }
    }
}

/// The guard's verdict on a newer day's filter. It contains no ID.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The day of its blob.
    pub day: Day,
    /// The digest of its blob.
    pub digest: Digest,
    /// The number of distinct IDs of recent lookups that were looked up in both filters.
    pub lookups: u64,
    /// The share of hits in the old filter; absent for too few lookups.
    pub hit_ratio_old: Option<f64>,
    /// The share of hits in the new filter.
    pub hit_ratio_new: Option<f64>,
    /// The change of the hit rate, without each filter's false positives.
    pub difference: Option<f64>,
    /// The largest change that is allowed, up or down.
    pub allowed: Option<f64>,
    /// When the guard judged it last.
    pub at: Timestamp,
    /// When the hold of it, or of one before it, began.
    pub held_since: Option<Timestamp>,
    /// When the hold ends at the latest.
    pub held_until: Option<Timestamp>,
}

/// The result of a reload of one filter.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Reloaded {
    /// The name of the filter.
    pub filter: FilterName,
    /// What the reload did.
    pub outcome: ReloadOutcome,
    /// The digest of the filter that was loaded before.
    pub old: Option<Digest>,
    /// The digest of the filter that is loaded now.
    pub new: Option<Digest>,
    /// Why it failed, or why the guard holds the new filter back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a reload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReloadOutcome {
    /// A new filter is the current one.
    Swapped,
    /// The current filter is the right one already.
    Unchanged,
    /// The guard holds the new filter back.
    Held,
    /// An error; lookups use the last good filter.
    Failed,
}

/// The part of a status that the poller writes.
#[derive(Clone, Debug)]
pub(crate) struct PollStatus {
    pub(crate) followed: Option<Followed>,
    pub(crate) last_poll: Option<Timestamp>,
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) last_error: Option<String>,
    pub(crate) guard: Guard,
    pub(crate) judged: Option<Judged>,
    /// Whether the guard holds a filter back.
    pub(crate) held: bool,
    pub(crate) counts: PollCounts,
}

impl PollStatus {
    pub(crate) fn new(guard: Guard) -> PollStatus {
        PollStatus {
            followed: None,
            last_poll: None,
            last_success: None,
            last_error: None,
            guard,
            judged: None,
            held: false,
            counts: PollCounts::default(),
        }
    }
}

/// What a status is made of, read at one moment.
pub(crate) struct Snapshot<'a> {
    pub(crate) name: &'a FilterName,
    pub(crate) polls: &'a PollStatus,
    pub(crate) generation: Option<&'a Generation>,
    /// Hits and misses.
    pub(crate) lookups: (u64, u64),
}

impl FilterStatus {
    pub(crate) fn of(snapshot: Snapshot<'_>, now: Timestamp) -> FilterStatus {
        let Snapshot { name, polls, generation, lookups: (hits, misses) } = snapshot;
        let followed = polls.followed.as_ref();
        let pin = followed.and_then(|followed| match &followed.by {
            FollowedBy::Pin { until, reason } => Some((*until, reason.clone())),
            FollowedBy::Pointer { .. } => None,
        });
        let pinned = pin.is_some();
        let (pin_until, pin_reason) = pin.unwrap_or_default();
        let header = generation.map(|generation| &generation.header);
        let day = header.map(|header| header.day);
        FilterStatus {
            filter: name.clone(),
            state: State::of(polls, day, now),
            rolled_back: followed.is_some_and(Followed::is_rolled_back),
            pinned,
            pin_until,
            pin_reason,
            guard: polls.guard,
            held: polls.held,
            judged: polls.judged.clone(),
            day,
            pointer_day: followed.and_then(Followed::pointer_day),
            digest: generation.map(|generation| generation.key.digest),
            ids: header.map(|header| header.ids),
            bytes: generation.map(|generation| generation.bytes),
            huge_bytes: generation.and_then(|generation| generation.huge_bytes),
            layout: header.map(|header| header.shape.layout().name()),
            kernel: generation.map(|generation| generation.filter.kernel().name()),
            fpp_target: header.map(|header| header.fpp_target),
            fpp_measured: header.map(|header| header.fpp_measured()),
            loaded_at: generation.map(|generation| generation.loaded_at),
            via: generation.map(|generation| generation.via.name()),
            bytes_fetched: generation.map(|generation| generation.bytes_fetched),
            age_seconds: day.map(|day| now.as_second() - day.end().as_second()),
            last_poll: polls.last_poll,
            last_success: polls.last_success,
            last_error: polls.last_error.clone(),
            hits,
            misses,
            #[cfg(feature = "live")]
            live: None,
            counts: polls.counts,
        }
    }
}
