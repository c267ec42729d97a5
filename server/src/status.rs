//! What is live and why: [`FilterStatus`], the answer of `/status` and the source of the metrics.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, FollowedBy};
use jiff::Timestamp;
use serde::Serialize;

use crate::guard::{Guard, Verdict};
use crate::handle::Slot;

/// A pointer may normally be this many days old: yesterday's day is built in the small hours.
const FRESH_DAYS: u32 = 2;

/// How a filter is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing answers yet.
    Loading,
    /// All is well.
    Ok,
    /// It answers from a day older than the day before yesterday.
    Stale,
    /// The pointer names a blob of another day.
    RolledBack,
    /// A pin decides.
    Pinned,
    /// The guard holds a new filter back.
    Held,
    /// The last look or load failed; the last good filter answers.
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

    /// Its name in reports.
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

/// Everything about one filter in this process.
#[derive(Clone, Debug, Serialize)]
pub struct FilterStatus {
    /// The filter.
    #[serde(skip)]
    pub filter: FilterName,
    /// How it is doing.
    pub state: State,
    /// Whether the pointer names a blob of another day.
    pub rolled_back: bool,
    /// Whether a pin decides.
    pub pinned: bool,
    /// When the pin ends by itself.
    pub pin_until: Option<Timestamp>,
    /// Why it was set.
    pub pin_reason: Option<String>,
    /// What happens to a newer day that answers recent questions quite differently.
    pub guard: Guard,
    /// Whether the guard holds a newer day back; [`FilterStatus::state`] may have worse to say.
    pub held: bool,
    /// What the guard made of the newest day that it judged.
    pub judged: Option<Judged>,
    /// The day of the blob that answers.
    pub day: Option<Day>,
    /// The day of the pointer that named it.
    pub pointer_day: Option<Day>,
    /// The digest of the blob that answers.
    pub digest: Option<Digest>,
    /// How many distinct IDs it holds.
    pub ids: Option<u64>,
    /// Its size in memory.
    pub bytes: Option<u64>,
    /// How many of them lie in huge pages, by the kernel; with few of them lookups are slower.
    pub huge_bytes: Option<u64>,
    /// How its bits are arranged.
    pub layout: Option<&'static str>,
    /// The code that tests its bits.
    pub kernel: Option<&'static str>,
    /// The rate it was sized for.
    pub fpp_target: Option<f64>,
    /// The rate that was measured.
    pub fpp_measured: Option<f64>,
    /// When it began to answer.
    pub loaded_at: Option<Timestamp>,
    /// Seconds since the end of the blob's day.
    pub age_seconds: Option<i64>,
    /// When the store was last looked at.
    pub last_poll: Option<Timestamp>,
    /// When a look last went well.
    pub last_success: Option<Timestamp>,
    /// What went wrong at the last look; absent when nothing did.
    pub last_error: Option<String>,
    /// Questions answered "yes".
    pub hits: u64,
    /// Questions answered "no".
    pub misses: u64,
    /// What looks and loads came to.
    #[serde(skip)]
    pub counts: Counts,
}

/// How often each result was seen since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Looks that went well.
    pub polls_ok: u64,
    /// Looks that did not.
    pub polls_failed: u64,
    /// Loads that were swapped in.
    pub loads_ok: u64,
    /// Loads that failed for a passing reason.
    pub loads_failed: u64,
    /// Blobs that did not verify.
    pub loads_rejected: u64,
    /// How long the last load took.
    pub load_seconds: f64,
    /// The guard's verdicts, in the order of [`Verdict::ALL`]; a filter held is judged at each look.
    pub verdicts: [u64; Verdict::ALL.len()],
}

/// What the guard made of a newer day's filter. Never a question.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// What became of it.
    pub verdict: Verdict,
    /// The day of its blob.
    pub day: Day,
    /// The digest of its blob.
    pub digest: Digest,
    /// How many distinct IDs were asked lately and put to both filters.
    pub questions: u64,
    /// The share of them that the filter which answered called seen; absent for too few.
    pub hit_ratio_old: Option<f64>,
    /// The share of them that the new filter calls seen.
    pub hit_ratio_new: Option<f64>,
    /// By how much the share of known IDs changes: the hit rates less each filter's false positives.
    pub difference: Option<f64>,
    /// By how much it may change, up or down.
    pub allowed: Option<f64>,
    /// When it was judged last.
    pub at: Timestamp,
    /// Since when it, or one before it, has been held back.
    pub held_since: Option<Timestamp>,
    /// When it answers at the latest.
    pub held_until: Option<Timestamp>,
}

/// What a reload did to one filter.
#[derive(Clone, Debug, Serialize)]
pub struct Reloaded {
    /// The filter.
    pub filter: FilterName,
    /// What happened.
    pub outcome: ReloadOutcome,
    /// The digest that answered before.
    pub old: Option<Digest>,
    /// The digest that answers now.
    pub new: Option<Digest>,
    /// Why, when it failed or was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a reload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReloadOutcome {
    /// Another filter answers now.
    Swapped,
    /// The right one already answered.
    Unchanged,
    /// The guard holds the new one back.
    Held,
    /// It could not be done; the last good filter answers.
    Failed,
}

/// The part of a status that the poller writes.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) followed: Option<Followed>,
    pub(crate) last_poll: Option<Timestamp>,
    pub(crate) last_success: Option<Timestamp>,
    pub(crate) last_error: Option<String>,
    pub(crate) guard: Guard,
    pub(crate) judged: Option<Judged>,
    /// Whether the guard holds a filter back.
    pub(crate) held: bool,
    pub(crate) counts: Counts,
}

impl Core {
    pub(crate) fn new(guard: Guard) -> Core {
        Core {
            followed: None,
            last_poll: None,
            last_success: None,
            last_error: None,
            guard,
            judged: None,
            held: false,
            counts: Counts::default(),
        }
    }
}

impl FilterStatus {
    pub(crate) fn of(slot: &Slot, now: Timestamp) -> FilterStatus {
        let core = slot.core();
        let generation = slot.shown();
        let (hits, misses) = slot.lookups();
        let followed = core.followed.as_ref();
        let pin = followed.and_then(|followed| match &followed.by {
            FollowedBy::Pin { until, reason } => Some((*until, reason.clone())),
            FollowedBy::Pointer { .. } => None,
        });
        let pinned = pin.is_some();
        let (pin_until, pin_reason) = pin.unwrap_or_default();
        let rolled_back = followed.is_some_and(Followed::is_rolled_back);
        let pointer_day = followed.and_then(Followed::pointer_day);
        let header = generation.as_ref().map(|generation| &generation.header);
        let day = header.map(|header| header.day);
        let fresh = Day::of(now).minus(FRESH_DAYS);
        let state = match () {
            () if generation.is_none() => State::Loading,
            () if core.last_error.is_some() => State::Failing,
            () if core.held => State::Held,
            () if pinned => State::Pinned,
            () if rolled_back => State::RolledBack,
            () if day.is_some_and(|day| day < fresh) => State::Stale,
            () => State::Ok,
        };
        FilterStatus {
            filter: slot.name().clone(),
            state,
            rolled_back,
            pinned,
            pin_until,
            pin_reason,
            guard: core.guard,
            held: core.held,
            judged: core.judged.clone(),
            day,
            pointer_day,
            digest: generation.as_ref().map(|generation| generation.key.digest),
            ids: header.map(|header| header.ids),
            bytes: generation.as_ref().map(|generation| generation.bytes),
            huge_bytes: generation.as_ref().and_then(|generation| generation.huge_bytes),
            layout: header.map(|header| header.shape.layout().name()),
            kernel: generation.as_ref().map(|generation| generation.filter.kernel().name()),
            fpp_target: header.map(|header| header.fpp_target),
            fpp_measured: header.map(|header| header.fpp_measured()),
            loaded_at: generation.as_ref().map(|generation| generation.loaded_at),
            age_seconds: day.map(|day| now.as_second() - day.end().as_second()),
            last_poll: core.last_poll,
            last_success: core.last_success,
            last_error: core.last_error.clone(),
            hits,
            misses,
            counts: core.counts,
        }
    }
}
