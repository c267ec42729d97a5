//! `bloomsday trace`: which of the last days contain an ID, and how likely a false positive is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::{DayLookup, chance_of_at_least};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

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
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
}

/// The result over all days.
#[derive(Serialize)]
struct Summary {
    days_searched: usize,
    days_found: usize,
    /// The chance that an ID that is in none of these days has at least this many hits.
    chance_if_absent: f64,
}

impl Trace {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let id = self.id.into_vec();
        let today = Day::of(Timestamp::now());
        let mut lookups = Vec::new();
        for back in 0..self.days {
            let Some(answer) = store.lookup_day(&self.filter, today.minus(back), &id).await? else {
                continue;
            };
            output.show(&answer, String::new);
            lookups.push(answer);
        }
        if lookups.is_empty() {
            let (filter, store, days) = (&self.filter, store.name(), self.days);
            return Err(Error::NotFound(format!(
                "`{filter}` has no blob of the last {days} days in {store}"
            )));
        }
        let summary = summary(&lookups);
        output.show(&summary, || describe(&lookups, &summary));
        Ok(if summary.days_found > 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }
}

fn summary(lookups: &[DayLookup]) -> Summary {
    let rates: Vec<f64> =
        lookups.iter().filter(|a| a.contains.is_some()).filter_map(|a| a.false_positive).collect();
    let days_found = lookups.iter().filter(|answer| answer.contains == Some(true)).count();
    Summary {
        days_searched: rates.len(),
        days_found,
        chance_if_absent: chance_of_at_least(days_found, &rates),
    }
}

fn describe(lookups: &[DayLookup], summary: &Summary) -> String {
    let rows: Vec<Vec<String>> = lookups
        .iter()
        .map(|answer| {
            let contains = match answer.contains {
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            };
            let chance = answer.false_positive.filter(|_| answer.contains == Some(true));
            let mut note = answer.error.clone().unwrap_or_default();
            if answer.rolled_back {
                note += "rolled back: this is the day's own blob";
            }
            vec![
                answer.day.to_string(),
                contains.to_owned(),
                or_dash(chance.map(|chance| format!("{:.4} %", chance * 100.0))),
                note,
            ]
        })
        .collect();
    let Summary { days_searched, days_found, chance_if_absent } = summary;
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
