//! `bloomsday status`: which blobs the pointers name, and why.

use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::live::head::Head;
use bloomsday_common::live::lease::Lease;
use bloomsday_common::pointer::{HistoryEvent, Pointer};
use bloomsday_common::protocol::{
    Followed, FollowedBy, Past, RecordState, Retention, days_to_follow,
};
use bloomsday_common::store::heartbeat::{Heartbeat, Servers};
use bloomsday_common::store::{Following, Store};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::Settings;
use crate::error::Error;
use crate::filters::filters;
use crate::output::{LastError, Output, binary_size, or_dash, pairs, table, thousands};

/// The most pointers, and the most laggards, that are listed.
const MAX_LISTED: usize = 14;

/// Show which blobs the store's pointers name, and why.
///
/// Example: bloomsday status rt --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct Status {
    /// One filter [default: every filter in the store].
    filter: Option<FilterName>,
}

#[derive(Serialize)]
struct FilterReport {
    filter: FilterName,
    /// What a server that starts now would report: `ok`, `rolled_back`, `pinned`, `failing`,
    /// `empty`.
    state: &'static str,
    rolled_back: bool,
    pinned: bool,
    day: Option<Day>,
    pointer_day: Option<Day>,
    blob: Option<String>,
    reason: Option<String>,
    pinned_until: Option<Timestamp>,
    pointers: Vec<PointerReport>,
    /// Which server has loaded which blob, as their heartbeats report; `None` if the store did not
    /// say.
    fleet: Option<Servers>,
    /// The logs of live IDs in the store; `None` if the store did not say.
    live: Option<Vec<LiveLog>>,
    /// Which server decides which live IDs are new, and until when.
    live_lease: Option<Lease>,
}

/// How much of a log of live IDs is in the store.
#[derive(Serialize)]
struct LiveLog {
    node: String,
    #[serde(flatten)]
    head: Head,
    /// Seconds since what was in the store was all that there was.
    lag_seconds: i64,
}

#[derive(Serialize)]
struct PointerReport {
    pointer_day: Day,
    rolled_back: bool,
    /// Whether a person wrote the pointer, by `repoint` or by hand, and not a build of the day.
    by_hand: bool,
    /// The size of the delta from the day before, and how much less that is than the blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_saved: Option<u64>,
    #[serde(flatten)]
    pointer: Option<Pointer>,
    error: Option<String>,
}

impl Status {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let filters = filters(&store, self.filter.as_ref(), settings).await?;
        if filters.is_empty() {
            return Err(Error::NotFound(format!("there is no filter in {}", store.name())));
        }
        let mut failed = LastError::default();
        for (i, filter) in filters.iter().enumerate() {
            match report(&store, filter, settings.retention(filter)).await {
                Ok(report) => {
                    let gap = if i > 0 { "\n" } else { "" };
                    output.show(&report, || gap.to_owned() + &describe(&report));
                }
                // The other filters are shown all the same.
                Err(error) => failed.add(error),
            }
        }
        failed.into_result()
    }
}

async fn report(
    store: &Store,
    filter: &FilterName,
    retention: Retention,
) -> Result<FilterReport, Error> {
    let now = Timestamp::now();
    let pointers = pointers(store, filter, retention, now).await?;
    let days = days_to_follow(Day::of(now), None, retention.max_age_days);
    let following = match store.follow(filter, &days, now).await {
        // A folder or a link in place of a record: servers keep what they have.
        Err(error @ StoreError::StoreUrl { .. }) => Following::Keep(error),
        following => following?,
    };
    let (followed, error) = match following {
        Following::Blob(followed) => {
            // A pointer may outlive its blob, or name one that these credentials may not read; a
            // server then stays as it is.
            let head = store.blob_info(&followed.blob).await;
            (Some(followed), head.err().map(|error| Error::from(error).to_string()))
        }
        Following::Keep(error) => (None, Some(Error::from(error).to_string())),
        Following::NotFound(_) => (None, None),
    };
    let (pinned_until, pin_reason) = match followed.as_ref().map(|followed| followed.by.clone()) {
        Some(FollowedBy::Pin { until, reason }) => (until, reason),
        _ => (None, None),
    };
    let pinned = followed.as_ref().is_some_and(|f| matches!(f.by, FollowedBy::Pin { .. }));
    let rolled_back = followed.as_ref().is_some_and(Followed::is_rolled_back);
    let state = match (&followed, &error) {
        (_, Some(_)) => "failing",
        (None, None) => "empty",
        _ if pinned => "pinned",
        _ if rolled_back => "rolled_back",
        _ => "ok",
    };
    let pointer_day = followed.as_ref().and_then(Followed::pointer_day);
    let pointed = pointers.iter().find(|report| Some(report.pointer_day) == pointer_day);
    let pointer_reason = pointed.and_then(|report| report.pointer.as_ref()?.reason.clone());
    Ok(FilterReport {
        filter: filter.clone(),
        state,
        rolled_back,
        pinned,
        day: followed.as_ref().map(|followed| followed.blob.day),
        pointer_day,
        blob: followed.as_ref().map(|followed| followed.blob.to_string()),
        reason: error.or(pin_reason).or(pointer_reason),
        pinned_until,
        pointers,
        fleet: known("servers", store.servers(filter, now).await),
        live: known("logs of live IDs", store.heads(filter).await)
            .map(|heads| live_logs(&heads, now)),
        live_lease: known("lease of live IDs", store.lease(filter).await)
            .and_then(|lease| readable(filter, lease.state)),
    })
}

/// What the store says, or `None` and a warning: in an outage the pointers are reported, too.
fn known<T>(what: &str, read: Result<T, StoreError>) -> Option<T> {
    read.map_err(|error| tracing::warn!("the report is without the {what}: {error}")).ok()
}

/// The lease, or a warning: one that cannot be read is not none.
fn readable(filter: &FilterName, lease: RecordState<Lease>) -> Option<Lease> {
    match lease {
        RecordState::Found(lease) => Some(lease),
        RecordState::Unreadable(why) => {
            tracing::warn!("the lease of live IDs of {filter} cannot be read: {why}");
            None
        }
        RecordState::Absent => None,
    }
}

/// The newest pointers of a filter, the newest first.
async fn pointers(
    store: &Store,
    filter: &FilterName,
    retention: Retention,
    now: Timestamp,
) -> Result<Vec<PointerReport>, Error> {
    let mut pointers = Vec::new();
    let history =
        known("notes on pointers that were changed by hand", store.pointer_history(filter).await)
            .unwrap_or_default();
    for day in store.pointer_days(filter).await?.into_iter().rev().take(MAX_LISTED) {
        let pointer = store.pointer_state(filter, day).await?;
        let by_hand = Past::of(day, &history, &pointer, Day::of(now), retention).is_by_hand();
        let (pointer, error) = match pointer {
            RecordState::Found(pointer) => (Some(with_ids_of(pointer, &history)), None),
            RecordState::Unreadable(why) => (None, Some(why)),
            RecordState::Absent => continue,
        };
        let rolled_back = pointer.as_ref().is_some_and(|pointer| pointer.day != day);
        let delta_bytes = pointer.as_ref().and_then(|pointer| delta_of(pointer, &history));
        let blob_bytes = pointer.as_ref().and_then(|pointer| pointer.bytes);
        let bytes_saved =
            delta_bytes.zip(blob_bytes).map(|(delta, blob)| blob.saturating_sub(delta));
        pointers.push(PointerReport {
            pointer_day: day,
            rolled_back,
            by_hand,
            delta_bytes,
            bytes_saved,
            pointer,
            error,
        });
    }
    Ok(pointers)
}

/// The logs of live IDs, the newest first.
fn live_logs(heads: &[(u64, Head)], now: Timestamp) -> Vec<LiveLog> {
    let log = |(node, head): &(u64, Head)| LiveLog {
        node: format!("{node:016x}"),
        lag_seconds: now.as_second() - head.through.as_second(),
        head: head.clone(),
    };
    let mut logs: Vec<LiveLog> = heads.iter().map(log).collect();
    logs.sort_by_key(|log| log.lag_seconds);
    logs
}

fn describe_live(logs: &[LiveLog]) -> String {
    let row = |log: &LiveLog| {
        let LiveLog { node, head, lag_seconds } = log;
        let (through, seq) = (format!("{:.0}", head.through), thousands(head.seq));
        vec![node.clone(), head.server.clone(), through, format!("{lag_seconds} s ago"), seq]
    };
    let rows: Vec<Vec<String>> = logs.iter().take(MAX_LISTED).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    "\n".to_owned() + &table(&["live log", "server", "in the store up to", "", "frames"], &rows)
}

/// Takes the number of IDs from the history: a person who edits the blob of a pointer may leave the
/// number of another blob.
fn with_ids_of(pointer: Pointer, history: &[HistoryEvent]) -> Pointer {
    let built =
        |event: &&HistoryEvent| event.blob.as_ref() == Some(&pointer.blob) && event.ids.is_some();
    let ids = history.iter().find(built).and_then(|event| event.ids).or(pointer.ids);
    Pointer { ids, ..pointer }
}

/// The size of the delta from the day before to the blob that a pointer names.
fn delta_of(pointer: &Pointer, history: &[HistoryEvent]) -> Option<u64> {
    let built = history.iter().filter(|event| event.blob.as_ref() == Some(&pointer.blob));
    built.filter_map(|event| event.delta_bytes).next()
}

fn describe(report: &FilterReport) -> String {
    let mut rows = vec![
        ("filter", report.filter.to_string()),
        ("state", report.state.to_owned()),
        ("day", or_dash(report.day)),
        ("by pointer", or_dash(report.pointer_day)),
        ("blob", or_dash(report.blob.as_ref())),
    ];
    if let Some(until) = report.pinned_until {
        rows.push(("pinned until", format!("{until:.0}")));
    }
    if let Some(reason) = &report.reason {
        rows.push(("because", reason.clone()));
    }
    if let Some(Lease { decider, epoch, until, .. }) = &report.live_lease {
        let ended = if *until < Timestamp::now() { " (over: no server decides)" } else { "" };
        let lease = format!("decided by {decider} until {until:.0}, epoch {epoch}{ended}");
        rows.push(("live IDs", lease));
    }
    let pointers: Vec<Vec<String>> = report.pointers.iter().map(line).collect();
    let head = ["pointer", "blob of", "digest", "IDs", "delta", "written", "by", "note"];
    let (fleet, live) =
        (describe_fleet(report), describe_live(report.live.as_deref().unwrap_or_default()));
    pairs(&rows) + &fleet + "\n" + &table(&head, &pointers) + &live
}

/// How many servers have loaded the blob to follow, and which lag.
fn describe_fleet(report: &FilterReport) -> String {
    let Some(Servers { servers, more, unreadable, .. }) = &report.fleet else {
        return "servers  unknown\n".to_owned();
    };
    if servers.is_empty() {
        return String::new();
    }
    let expected = report.blob.as_deref().unwrap_or_default();
    let follows = |beat: &&Heartbeat| {
        beat.digest.is_some_and(|digest| expected.contains(&digest.to_string()))
    };
    let laggards: Vec<&Heartbeat> = servers.iter().filter(|beat| !follows(beat)).collect();
    let up_to_date = servers.len() - laggards.len();
    let mut page = format!("servers  {up_to_date} of {} answer from this blob", servers.len());
    if more + unreadable > 0 {
        page += &format!(" ({more} more were not read, {unreadable} cannot be read)");
    }
    page.push('\n');
    let rows: Vec<Vec<String>> = laggards
        .iter()
        .take(MAX_LISTED)
        .map(|beat| {
            vec![
                beat.server.clone(),
                or_dash(beat.day),
                or_dash(beat.digest.map(|digest| digest.short())),
                or_dash(beat.loaded_at.map(|at| format!("{at:.0}"))),
                beat.last_error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return page;
    }
    let head = ["laggard", "day", "digest", "since", "last error"];
    page + "\n" + &table(&head, &rows)
}

fn line(report: &PointerReport) -> Vec<String> {
    let pointer = report.pointer.as_ref();
    let note = match (&report.error, report.rolled_back, report.by_hand) {
        (Some(error), ..) => error.clone(),
        (None, true, _) => "rolled back".to_owned(),
        // It names a blob of the day that an operator chose: a build does not undo that.
        (None, false, true) => "put there by an operator".to_owned(),
        (None, false, false) => String::new(),
    };
    vec![
        report.pointer_day.to_string(),
        or_dash(pointer.map(|p| p.day)),
        or_dash(pointer.map(|p| p.digest.short())),
        or_dash(pointer.and_then(|p| p.ids).map(thousands)),
        or_dash(report.delta_bytes.map(binary_size)),
        or_dash(pointer.and_then(|p| p.published_at).map(|at| format!("{at:.0}"))),
        or_dash(pointer.and_then(|p| p.published_by.as_ref())),
        note,
    ]
}
