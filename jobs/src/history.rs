//! `bloomsday history`: the events of a filter, newest first.

use std::process::ExitCode;

use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::HistoryEvent;
use bloomsday_common::store::{HistoryRecords, UnreadableRecord};
use clap::Args;

use crate::config::Settings;
use crate::error::Error;
use crate::filters::unknown;
use crate::output::{Output, or_dash, print, say, table, thousands};

/// Show the newest 1,000 events of a filter, newest first.
///
/// Example: bloomsday history rt --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct History {
    /// The name of the filter.
    filter: FilterName,
}

impl History {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        store.check_pointers(&self.filter).await?;
        let HistoryRecords { events, unreadable } = store.history_records(&self.filter).await?;
        for UnreadableRecord { key, why } in &unreadable {
            say("warning", &format!("{key} cannot be read and is left out: {why}"));
        }
        if events.is_empty() && unreadable.is_empty() {
            if let Some(unknown) = unknown(&store, &self.filter).await {
                return Err(unknown);
            }
            let (filter, store) = (&self.filter, store.name());
            return Err(Error::NotFound(format!("`{filter}` has no history in {store}")));
        }
        if output.is_json() {
            events.iter().for_each(|event| output.show(event, String::new));
        } else {
            let rows: Vec<Vec<String>> = events.iter().map(line).collect();
            print(&table(
                &["when", "event", "outcome", "day", "digest", "IDs", "files", "by", "why"],
                &rows,
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(event: &HistoryEvent) -> Vec<String> {
    let why = event.reason.as_deref().unwrap_or_default();
    vec![
        format!("{:.0}", event.at),
        event.kind.name().to_owned(),
        event.outcome.name().to_owned(),
        or_dash(event.day),
        or_dash(event.blob.as_ref().map(|blob| blob.digest.short())),
        or_dash(event.ids.map(thousands)),
        or_dash(event.files.map(|files| files_of(files, event))),
        event.by.clone(),
        why.lines().next().unwrap_or_default().to_owned(),
    ]
}

/// How many files a build read, and how many it skipped for a hidden name.
fn files_of(files: u64, event: &HistoryEvent) -> String {
    match event.files_passed_over.unwrap_or(0) {
        0 => thousands(files),
        passed_over => format!("{}, {} passed over", thousands(files), thousands(passed_over)),
    }
}
