//! `bloomsday trace`: which of the last days contain an ID, and how likely a false positive is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::{DEFAULT_TRACE_DAYS, DayLookup, TraceSummary};
use clap::Args;
use jiff::Timestamp;

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::output::{Output, or_dash, table};

/// Show which of the last days contain an ID, and the chance that each hit is a false positive.
///
/// A miss is certain. A hit is false with the day's measured rate: over many days, an ID that was never
/// there has some hits. Ends with 3 when no day contains the ID.
///
/// Fetches one blob for each day: the one that the day's pointer names, or the day's only blob if it has no
/// pointer.
///
/// Example: bloomsday trace rt 0f8fad5bd9cb469fa16570867728950e --days 7
#[derive(Args)]
pub(crate) struct Trace {
    /// The filter.
    filter: FilterName,
    /// The ID to look up.
    id: OsString,
    /// How many days to search, including today.
    #[arg(long, default_value_t = DEFAULT_TRACE_DAYS, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
}

impl Trace {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let id = self.id.into_vec();
        let today = Day::of(Timestamp::now());
        let show = |lookup: &DayLookup| output.show(lookup, String::new);
        let trace = store.trace(&self.filter, today, self.days, &id, show).await?;
        if trace.days.is_empty() {
            let (filter, store, days) = (&self.filter, store.name(), self.days);
            return Err(Error::NotFound(format!(
                "`{filter}` has no blob of the last {days} days in {store}"
            )));
        }
        output.show(&trace.summary, || describe(&trace.days, &trace.summary));
        let found = trace.summary.days_found > 0;
        Ok(if found { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }
}

fn describe(lookups: &[DayLookup], summary: &TraceSummary) -> String {
    let rows: Vec<Vec<String>> = lookups
        .iter()
        .map(|lookup| {
            let contains = match lookup.contains {
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            };
            let chance = lookup.false_positive.filter(|_| lookup.contains == Some(true));
            let mut note = lookup.error.clone().unwrap_or_default();
            if lookup.rolled_back {
                note += "rolled back: this is the day's own blob";
            }
            vec![
                lookup.day.to_string(),
                contains.to_owned(),
                or_dash(chance.map(|chance| format!("{:.4} %", chance * 100.0))),
                note,
            ]
        })
        .collect();
    let TraceSummary { days_searched, days_found, chance_if_absent } = summary;
    let all = if *days_found == 0 {
        "No day contains it. This is certain.".to_owned()
    } else {
        format!(
            "{days_found} of {days_searched} days contain it. An ID that was never there has {days_found} or \
             more hits with a chance of {:.3e}.",
            chance_if_absent
        )
    };
    table(&["day", "contains", "chance of a false positive", "note"], &rows) + "\n" + &all + "\n"
}
