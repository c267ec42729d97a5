//! `bloomsday prune`: deletes old pointers, and blobs that nothing needs.

use std::process::ExitCode;

use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::MAX_KEEP_DAYS;
use bloomsday_common::store::{Pruned, PrunedSegments, Store};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::Settings;
use crate::error::Error;
use crate::filters::filters;
use crate::output::{LastError, Output, binary_size, pairs, who};

/// Delete old pointers, and blobs that nothing needs.
///
/// A pointer is deleted after keep_days, except the newest max_age_days + 1. A blob is deleted a
/// day later, unless a pointer, its `previous` or the pin names it; a delta when one of its blobs
/// goes, or after max_age_days + 1. A filter without any pointer keeps every blob. A segment of
/// live IDs is deleted if its day is older than keep_days, live_for and the window that is built
/// from them, and older than every blob that a pointer, its `previous` or the pin names. Safe while
/// builds, rollbacks and another prune run.
///
/// Example: bloomsday prune rt --dry-run
#[derive(Args)]
pub(crate) struct Prune {
    /// One filter [default: every filter in the store].
    filter: Option<FilterName>,
    /// How many days pointers are kept [default: keep_days of the configuration, else 14]. If this
    /// is fewer than the configuration has, nobody may build a day older than that, nor repoint or
    /// pin to one, while prune runs.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_KEEP_DAYS)))]
    keep_days: Option<u32>,
    /// Print what would be deleted, but delete nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct PruneReport {
    filter: FilterName,
    #[serde(flatten)]
    pruned: Pruned,
    #[serde(flatten)]
    live: PrunedSegments,
    /// How many heartbeats of ended servers were deleted.
    servers: usize,
    keep_days: u32,
    dry_run: bool,
}

impl Prune {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let filters = filters(&store, self.filter.as_ref(), settings).await?;
        let mut failed = LastError::default();
        for filter in filters {
            match self.prune(filter, &store, settings).await {
                Ok(report) => {
                    output.show(&report, || describe(&report));
                    if let Some(record) = report.pruned.unreadable.first() {
                        failed
                            .add(Error::KeptAll { filter: report.filter, record: record.clone() });
                    }
                }
                // The other filters are pruned all the same.
                Err(error) => failed.add(error),
            }
        }
        failed.into_result()
    }

    async fn prune(
        &self,
        filter: FilterName,
        store: &Store,
        settings: &Settings,
    ) -> Result<PruneReport, Error> {
        let (dry_run, by) = (self.dry_run, who());
        let mut retention = settings.retention(&filter);
        retention.keep_days = self.keep_days.unwrap_or(retention.keep_days);
        let keep_days = retention.keep_days;
        let pruned = store.prune(&filter, retention, &by, dry_run).await?;
        let servers = store.forget_servers(&filter, Timestamp::now(), dry_run).await?;
        let segment_days = settings.segment_days(&filter).max(keep_days);
        let live = store.prune_segments(&filter, retention, segment_days, &by, dry_run).await?;
        Ok(PruneReport { filter, pruned, live, servers, keep_days, dry_run })
    }
}

fn describe(report: &PruneReport) -> String {
    let Pruned { pointers, blobs, deltas, abandoned, bytes, unreadable } = &report.pruned;
    let verb = if report.dry_run { "would delete" } else { "deleted" };
    let mut rows = vec![
        ("filter", report.filter.to_string()),
        ("keeps", format!("{} days", report.keep_days)),
        (
            verb,
            format!("{} pointers, {} blobs, {} deltas", pointers.len(), blobs.len(), deltas.len()),
        ),
        ("freed", binary_size(*bytes)),
        ("servers gone", report.servers.to_string()),
    ];
    let PrunedSegments { days, segments } = &report.live;
    if let (Some(first), Some(last)) = (days.first(), days.last()) {
        rows.push(("live", format!("{segments} segments of {first} to {last}")));
    }
    rows.extend(pointers.iter().map(|day| ("pointer", day.to_string())));
    rows.extend(blobs.iter().map(|blob| ("blob", blob.to_string())));
    rows.extend(deltas.iter().map(|delta| ("delta", delta.to_string())));
    rows.extend(abandoned.iter().map(|name| ("killed upload", name.clone())));
    let kept = |record: &String| ("kept every blob", format!("{record} cannot be read"));
    rows.extend(unreadable.iter().map(kept));
    pairs(&rows)
}
