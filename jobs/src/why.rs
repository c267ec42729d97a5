//! `bloomsday why`: which of the last days hold an ID, and how sure that is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::blob;
use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::protocol::Seen;
use bloomsday_common::store::Store;
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
/// Example: bloomsday why rt 0f8fad5bd9cb469fa16570867728950e --days 7
#[derive(Args)]
pub(crate) struct Why {
    /// The filter.
    filter: FilterName,
    /// The ID.
    id: OsString,
    /// How many days to ask, today's included.
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
}

/// One day's answer.
#[derive(Serialize)]
struct Answer {
    day: Day,
    /// `None` when the day could not be asked.
    seen: Option<bool>,
    /// The chance that a "yes" of this day is false, for an ID that is not in it: measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    false_positive: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The day's pointer names another blob now.
    rolled_back: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// All days together.
#[derive(Serialize)]
struct Summary {
    days_asked: usize,
    days_seen: usize,
    /// The chance that an ID that is in none of these days is found in at least so many.
    chance_if_never_there: f64,
}

impl Why {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store(false)?;
        let id = self.id.into_vec();
        let today = Day::of(Timestamp::now());
        let mut answers = Vec::new();
        for back in 0..self.days {
            let Some(answer) = ask(&store, &self.filter, today.minus(back), &id).await? else {
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
        Ok(if summary.days_seen > 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }
}

/// Asks one day's own blob; `None` when the day has none.
async fn ask(
    store: &Store,
    filter: &FilterName,
    day: Day,
    id: &[u8],
) -> Result<Option<Answer>, Error> {
    let pointer = store.pointer(filter, day).await?.seen;
    let own = pointer.found().map(|pointer| pointer.blob.clone()).filter(|blob| blob.day == day);
    let rolled_back = matches!(pointer, Seen::Found(_)) && own.is_none();
    let nothing =
        Answer { day, seen: None, false_positive: None, digest: None, rolled_back, error: None };
    let blob = match own {
        Some(blob) => blob,
        None => match &store.blobs(filter, Some(day)).await?[..] {
            [] => return Ok(None),
            [only] => only.clone(),
            several => {
                let error = format!("{} blobs, and the pointer names none", several.len());
                return Ok(Some(Answer { error: Some(error), ..nothing }));
            }
        },
    };
    let digest = Some(blob.digest.to_string());
    Ok(Some(match open(store, &blob, id).await {
        Ok((seen, fpp)) => {
            Answer { seen: Some(seen), false_positive: Some(fpp), digest, ..nothing }
        }
        // One bad day must not hide what the others say.
        Err(error) => Answer { digest, error: Some(error.to_string()), ..nothing },
    }))
}

async fn open(store: &Store, blob: &BlobKey, id: &[u8]) -> Result<(bool, f64), StoreError> {
    let fetched = store.fetch(blob, u64::MAX).await?;
    let (header, filter) = blob::open(fetched.memory, fetched.digest, blob)?;
    Ok((filter.contains(id), header.fpp_measured()))
}

fn summary(answers: &[Answer]) -> Summary {
    let asked: Vec<f64> =
        answers.iter().filter(|a| a.seen.is_some()).filter_map(|a| a.false_positive).collect();
    let days_seen = answers.iter().filter(|answer| answer.seen == Some(true)).count();
    Summary {
        days_asked: asked.len(),
        days_seen,
        chance_if_never_there: at_least(days_seen, &asked),
    }
}

/// The chance that of independent events with these chances at least `n` happen.
fn at_least(n: usize, chances: &[f64]) -> f64 {
    // exactly[k]: the chance that k of those looked at so far happen.
    let mut exactly = vec![0.0; chances.len() + 1];
    exactly[0] = 1.0;
    for (i, chance) in chances.iter().enumerate() {
        for k in (0..=i + 1).rev() {
            let one_more = if k > 0 { exactly[k - 1] * chance } else { 0.0 };
            exactly[k] = exactly[k] * (1.0 - chance) + one_more;
        }
    }
    exactly.iter().skip(n).sum::<f64>().min(1.0)
}

fn describe(answers: &[Answer], summary: &Summary) -> String {
    let rows: Vec<Vec<String>> = answers
        .iter()
        .map(|answer| {
            let seen = match answer.seen {
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            };
            let chance = answer.false_positive.filter(|_| answer.seen == Some(true));
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
    let Summary { days_asked, days_seen, chance_if_never_there } = summary;
    let all = if *days_seen == 0 {
        "In none of them, for certain.".to_owned()
    } else {
        format!(
            "In {days_seen} of {days_asked} days. An ID that was never there is found in {days_seen} \
             or more of them with a chance of {:.3e}.",
            chance_if_never_there
        )
    };
    table(&["day", "seen", "chance that it is false", "note"], &rows) + "\n" + &all + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_many_false_yeses_is_binomial() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(at_least(0, &[0.03; 14]), 1.0));
        assert!(close(at_least(1, &[0.03; 14]), 1.0 - 0.97f64.powi(14)));
        assert!(close(at_least(14, &[0.5; 14]), 0.5f64.powi(14)));
        assert!(close(at_least(2, &[0.1, 0.2, 0.3]), 0.098));
        assert!(close(at_least(1, &[]), 0.0));
    }
}
