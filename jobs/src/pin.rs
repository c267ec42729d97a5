//! `bloomsday pin` and `bloomsday unpin`: keep the whole fleet on one blob, and release it.

use std::process::ExitCode;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome, Pin as PinRecord, reason};
use bloomsday_common::protocol::{RecordState, Retention};
use bloomsday_common::store::{Store, Versioned};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::config::{self, Settings};
use crate::error::Error;
use crate::filters::filters;
use crate::output::{Output, or_dash, pairs, who};
use crate::pointing::{NEXT, NEXT_DRY, check_survives_prune, mark, record, verified_target};
use crate::remedy::flags;

/// Keep the whole fleet on one blob, whatever the pointers say, until the pin is removed or
/// expires.
///
/// Builds still publish blobs and write pointers.
///
/// Example: bloomsday pin rt --to 2026-11-18 --until 24h --reason 'campaign weekend'
#[derive(Args)]
pub(crate) struct Pin {
    /// The name of the filter.
    filter: FilterName,
    /// A day, meaning that day's own blob; or a blob's key or URL.
    #[arg(long, value_name = "DAY|BLOB")]
    to: String,
    /// When the pin ends by itself: a time (2026-11-21T06:00:00Z) or a duration from now (24h).
    #[arg(long, value_name = "TIME", value_parser = parse_until)]
    until: Option<Timestamp>,
    /// Why, for the records.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Verify, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Remove a pin: servers follow the pointers again.
///
/// Example: bloomsday unpin rt
#[derive(Args)]
pub(crate) struct Unpin {
    /// The name of the filter.
    filter: FilterName,
    /// Why, for the records.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Print what would be removed, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Pin {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let (filter, now) = (&self.filter, Timestamp::now());
        if let Some(until) = self.until.filter(|until| *until <= now) {
            return Err(Error::Usage(format!("--until {until} is in the past")));
        }
        store.check_pointers(filter).await?;
        let read = store.pin(filter).await?;
        if config::is_hdfs(settings.store()?) && read.state != RecordState::Absent {
            return Err(Error::Usage(format!(
                "{filter} is pinned already, and HDFS cannot replace a pin safely: first run `bloomsday unpin \
                 {filter}{}`, after which servers that poll follow the pointers",
                flags()
            )));
        }
        let before = read.state.found().map(|pin| pin.blob.clone());
        let retention = settings.retention(filter);
        let verified = verified_target(&store, filter, &self.to, None, retention).await?;
        let blob = verified.key;
        if !self.dry_run {
            self.write(&store, &blob, &read, retention, now).await?;
            let event = HistoryEvent {
                blob: Some(blob.clone()),
                previous: before.clone(),
                reason: self.reason.clone(),
                ids: Some(verified.ids),
                ..HistoryEvent::new(EventKind::Pin, Outcome::Published, now, &who())
            };
            record(&store, filter, &event).await;
        }
        let report = json!({
            "filter": filter, "pinned": !self.dry_run, "blob": blob, "until": self.until,
            "previous": before, "dry_run": self.dry_run,
        });
        output.show(&report, || {
            pairs(&[
                (if self.dry_run { "would pin" } else { "pinned" }, filter.to_string()),
                ("to", blob.to_string()),
                (
                    "until",
                    self.until.map_or("released by `unpin`".into(), |until| format!("{until:.0}")),
                ),
                ("next", if self.dry_run { NEXT_DRY } else { NEXT }.into()),
            ])
        });
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the pin, and takes it back if the blob has been deleted.
    async fn write(
        &self,
        store: &Store,
        blob: &BlobKey,
        read: &Versioned<PinRecord>,
        retention: Retention,
        now: Timestamp,
    ) -> Result<(), Error> {
        let pin = PinRecord {
            blob: blob.clone(),
            until: self.until,
            pinned_at: Some(now),
            pinned_by: Some(who()),
            reason: self.reason.clone(),
        };
        mark(store, &self.filter).await?;
        store.put_pin(&self.filter, &pin, &read.version).await?;
        crash_point("pinned");
        // A prune that read the records before the pin was written may have deleted the blob.
        let named = check_survives_prune(store, blob, retention).await;
        if let Err(StoreError::NotFound { .. }) = &named {
            let before = read.state.found();
            let taken_back = if before.is_some_and(|before| before.blob == *blob) {
                // The same command, which was ended before it looked.
                store.remove_pin(&self.filter).await
            } else {
                store.take_back_pin(&self.filter, &pin, &read.version).await
            };
            if let Err(error) = taken_back
                && error.kind() != Kind::Superseded
            {
                tracing::warn!("the pin of {} names a blob that is gone: {error}", self.filter);
            }
        }
        Ok(named?)
    }
}

impl Unpin {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let filter = &self.filter;
        store.check_pointers(filter).await?;
        let read = store.pin(filter).await?;
        let was_pinned = !matches!(read.state, RecordState::Absent);
        if !was_pinned {
            filters(&store, Some(filter), settings).await?;
        }
        let blob = read.state.found().map(|pin| pin.blob.clone());
        if was_pinned && !self.dry_run {
            store.remove_pin(filter).await?;
            let event = HistoryEvent {
                previous: blob.clone(),
                reason: self.reason.clone(),
                ..HistoryEvent::new(EventKind::Unpin, Outcome::Published, Timestamp::now(), &who())
            };
            record(&store, filter, &event).await;
        }
        let outcome = match (was_pinned, self.dry_run) {
            (false, _) => "there was no pin",
            (true, true) => "dry run",
            (true, false) => "released",
        };
        let report = json!({
            "filter": filter, "outcome": outcome, "released": was_pinned && !self.dry_run,
            "previous": blob, "dry_run": self.dry_run,
        });
        output.show(&report, || {
            pairs(&[
                ("outcome", outcome.to_owned()),
                ("filter", filter.to_string()),
                ("was pinned to", or_dash(blob.as_ref())),
            ])
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// A time, or a duration from now.
fn parse_until(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let wrong =
        || format!("`{text}` is neither a time (2026-11-21T06:00:00Z) nor a duration (24h)");
    let from_now = humantime::parse_duration(text).map_err(|_| wrong())?;
    let from_now = SignedDuration::try_from(from_now).map_err(|_| wrong())?;
    Timestamp::now().checked_add(from_now).map_err(|_| wrong())
}
