//! `bloomsday history`: every act on a filter, newest first.

use std::process::ExitCode;

use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::HistoryEvent;
use clap::Args;

use crate::config::Settings;
use crate::error::Error;
use crate::output::{Output, or_dash, print, table, thousands};

/// Show every act on a filter, newest first.
///
/// Example: bloomsday history rt --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct History {
    /// The filter.
    filter: FilterName,
}

impl History {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        store.check_pointers(&self.filter).await?;
        let acts = store.history(&self.filter).await?;
        if acts.is_empty() {
            let (filter, store) = (&self.filter, store.name());
            return Err(Error::NotFound(format!("`{filter}` has no history in {store}")));
        }
        if output.is_json() {
            acts.iter().for_each(|act| output.show(act, String::new));
        } else {
            let rows: Vec<Vec<String>> = acts.iter().map(line).collect();
            print(&table(
                &["when", "act", "outcome", "day", "digest", "IDs", "files", "by", "why"],
                &rows,
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn line(act: &HistoryEvent) -> Vec<String> {
    let why = act.reason.as_deref().unwrap_or_default();
    vec![
        format!("{:.0}", act.at),
        act.act.name().to_owned(),
        act.outcome.name().to_owned(),
        or_dash(act.day),
        or_dash(act.blob.as_ref().map(|blob| blob.digest.short())),
        or_dash(act.ids.map(thousands)),
        or_dash(act.files.map(|files| files_of(files, act))),
        act.by.clone(),
        why.lines().next().unwrap_or_default().to_owned(),
    ]
}

/// How many files a build read, and how many it passed over.
fn files_of(files: u64, act: &HistoryEvent) -> String {
    match act.files_passed_over.unwrap_or(0) {
        0 => thousands(files),
        passed_over => format!("{}, {} passed over", thousands(files), thousands(passed_over)),
    }
}
