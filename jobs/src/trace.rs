//! `bloomsday trace`: which of the last days hold an ID, and how sure that is.

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

/// Show which of the last days hold an ID, and the chance that each "yes" is false.
///
/// "No" is certain. "Yes" is wrong with the day's measured rate: an ID that was never there is still
/// found in some of many days. Ends with 3 when no day holds it.
///
/// This fetches a blob a day, one after the other, each day of its pointer or, without one, its only
/// blob.
///
/// Example: bloomsday trace rt 0f8fad5bd9cb469fa16570867728950e --days 7
#[derive(Args)]
pub(crate) struct Trace {
    /// The filter.
    filter: FilterName,
    /// The ID.
    id: OsString,
    /// How many days to ask, today's included.
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
}

/// All days together.
#[derive(Serialize)]
struct Summary {
    days_searched: usize,
    days_found: usize,
    /// The chance that an ID that is in none of these days is found in at least so many.
    chance_if_absent: f64,
}

impl Trace {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store(false)?;
        let id = self.id.into_vec();
        let today = Day::of(Timestamp::now());
        let mut answers = Vec::new();
        for back in 0..self.days {
            let Some(answer) = store.lookup_day(&self.filter, today.minus(back), &id).await? else {
                continue;
            };
            output.show(&answer, String::new);
            answers.push(answer);
        }
        if answers.is_empty() {
            let (filter, store, days) = (&self.filter, store.name(), self.days);
            return Err(Error::NotFound(format!(
                "`{filter}` has no blob of the last {days} days in {store}"
            )));
        }
        let summary = summary(&answers);
        output.show(&summary, || describe(&answers, &summary));
        Ok(if summary.days_found > 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }
}

fn summary(answers: &[DayLookup]) -> Summary {
    let asked: Vec<f64> =
        answers.iter().filter(|a| a.contains.is_some()).filter_map(|a| a.false_positive).collect();
    let days_found = answers.iter().filter(|answer| answer.contains == Some(true)).count();
    Summary {
        days_searched: asked.len(),
        days_found,
        chance_if_absent: chance_of_at_least(days_found, &asked),
    }
}

fn describe(answers: &[DayLookup], summary: &Summary) -> String {
    let rows: Vec<Vec<String>> = answers
        .iter()
        .map(|answer| {
            let seen = match answer.contains {
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
                seen.to_owned(),
                or_dash(chance.map(|chance| format!("{:.4} %", chance * 100.0))),
                note,
            ]
        })
        .collect();
    let Summary { days_searched, days_found, chance_if_absent } = summary;
    let all = if *days_found == 0 {
        "In none of them, for certain.".to_owned()
    } else {
        format!(
            "In {days_found} of {days_searched} days. An ID that was never there is found in {days_found} \
             or more of them with a chance of {:.3e}.",
            chance_if_absent
        )
    };
    table(&["day", "contains", "chance that it is false", "note"], &rows) + "\n" + &all + "\n"
}
