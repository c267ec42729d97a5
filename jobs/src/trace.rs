//! `bloomsday trace`: which of the last days contain an ID, and how likely a false positive is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::day::Day;
use bloomsday_common::hash::Xxh3;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::{DEFAULT_TRACE_DAYS, DayLookup, Store, TraceSummary};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::config::Settings;
use crate::defaults;
use crate::error::{Error, exit};
use crate::filters::unknown;
use crate::output::{Output, or_dash, say, small_share, table};
use crate::query::note_invalid;

/// Show which of the last days contain an ID, and the chance that each hit is a false positive; and
/// whether the ID is live.
///
/// A miss is certain. A hit is false with the day's measured rate: over many days, an ID that was
/// never there has some hits.
///
/// Ends with 0 when a day that could be read contains the ID, or it is live; with 3 when every day
/// could be read and none contains it; and with 1 when none does and at least one could not be
/// read, or when the live IDs could not be. An ID that was deleted from the live filter counts as
/// one that no day contains.
///
/// Fetches one blob for each day: the one that the day's pointer names, or the day's only blob if
/// it has no pointer. Of a live filter it also reads the segments of its last days, which servers
/// write about every second: an ID that was added is live until `live_for` is over, confirmed when
/// the newest day's filter that should have it does, and unconfirmed when that does not.
///
/// Example: bloomsday trace rt 0f8fad5bd9cb469fa16570867728950e --days 7
#[derive(Args)]
pub(crate) struct Trace {
    /// The name of the filter.
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
        note_invalid(&id);
        let show = |lookup: &DayLookup| output.show(lookup, String::new);
        let trace = store.trace(&self.filter, today, self.days, &id, show).await?;
        let live = live(settings, &store, &self.filter, &id, &trace.days).await;
        let live = match live {
            Err(error) if error.exit_status() == exit::CORRUPT => {
                say("warning", &format!("the live IDs could not be read: {error}"));
                Some(LiveLookup::of(State::Unreadable))
            }
            read => read?,
        };
        if let Some(live) = &live {
            output.show(live, String::new);
        }
        if trace.days.is_empty() && live.is_none() {
            if let Some(unknown) = unknown(&store, &self.filter).await {
                return Err(unknown);
            }
            let (filter, store, days) = (&self.filter, store.name(), self.days);
            return Err(Error::NotFound(format!(
                "`{filter}` has no blob of the last {days} days in {store}"
            )));
        }
        output.show(&trace.summary, || {
            let live = live.as_ref().map_or(String::new(), LiveLookup::describe);
            describe(&trace.days, &trace.summary) + &live
        });
        let found = match live.map(|live| live.live) {
            Some(State::Deleted) => false,
            Some(State::Confirmed | State::Unconfirmed | State::Waiting) => true,
            Some(State::No | State::Expired) | None => trace.summary.days_found > 0,
            // It may have been deleted.
            Some(State::Unreadable) => return Ok(ExitCode::from(exit::FAILED)),
        };
        let unread = trace.summary.days_unreadable;
        if !found && unread > 0 {
            say("warning", &format!("{unread} of {} days could not be read", trace.days.len()));
            return Ok(ExitCode::from(exit::FAILED));
        }
        Ok(if found { ExitCode::SUCCESS } else { ExitCode::from(exit::MISS) })
    }
}

/// What is known of an ID in the logs of live IDs.
#[derive(Serialize)]
struct LiveLookup {
    live: State,
    /// When it was added or deleted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// The day of the filter that has it, or lacks it and should have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<Day>,
}

/// What an ID is to servers with live IDs.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It was not added in the last days.
    No,
    /// It was added, and its `live_for` is over.
    Expired,
    /// It was added, and no filter of that day or later is there yet.
    Waiting,
    /// It was added, and the newest day's filter that should have it has it.
    Confirmed,
    /// It was added, and that filter lacks it: the day's input lost it, or is late.
    Unconfirmed,
    /// It was deleted, which hides it also from the day's filters.
    Deleted,
    /// A log is damaged: nobody knows.
    Unreadable,
}

/// Looks an ID up in the segments; `None` for a filter without any.
async fn live(
    settings: &Settings,
    store: &Store,
    filter: &FilterName,
    id: &[u8],
    days: &[DayLookup],
) -> Result<Option<LiveLookup>, Error> {
    if store.segment_days(filter).await?.is_empty() {
        return Ok(None);
    }
    let (file, today) = (settings.filter(filter), Day::of(Timestamp::now()));
    let hash = file.id.unwrap_or_default().hash::<Xxh3>(id).0;
    // A deletion hides an ID for longer than an add shows it.
    let searched = settings.retention(filter).keep_days.max(settings.segment_days(filter));
    let Some(change) = store.live_change(filter, today, searched, hash).await? else {
        return Ok(Some(LiveLookup::of(State::No)));
    };
    let added = Day::of(change.at);
    let covers = |lookup: &&DayLookup| {
        // Servers load no other blobs.
        let is_followed = lookup.has_pointer && !lookup.rolled_back;
        lookup.day >= added && is_followed && lookup.contains.is_some()
    };
    let covering = days.iter().find(covers);
    let is_over = added < today.minus(file.live_for.unwrap_or(defaults::LIVE_DAYS));
    let live = match covering.and_then(|lookup| lookup.contains) {
        _ if change.deleted => State::Deleted,
        Some(true) => State::Confirmed,
        _ if is_over => State::Expired,
        Some(false) => State::Unconfirmed,
        None => State::Waiting,
    };
    let day = covering.map(|lookup| lookup.day).filter(|_| !change.deleted);
    Ok(Some(LiveLookup { live, since: Some(change.at), day }))
}

impl LiveLookup {
    fn of(live: State) -> LiveLookup {
        LiveLookup { live, since: None, day: None }
    }

    fn describe(&self) -> String {
        let since = self.since.map_or(String::new(), |at| format!("{at:.0}"));
        let day = or_dash(self.day);
        match self.live {
            State::No => "It was not added to the live filter in these days.\n".into(),
            State::Expired => format!("Live: no more; it was added last at {since}.\n"),
            State::Waiting => {
                format!("Live since {since}: a hit at once; no filter of that day is there yet.\n")
            }
            State::Confirmed => {
                format!("Live since {since}, confirmed: the filter of {day} has it.\n")
            }
            State::Unconfirmed => format!(
                "Live since {since}, unconfirmed: the filter of {day} lacks it. Its input lost it, or is \
                 late.\n"
            ),
            State::Deleted => format!("Deleted at {since}: a miss, whatever the days contain.\n"),
            State::Unreadable => {
                "The live IDs could not be read: it may be live, or deleted.\n".into()
            }
        }
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
            let mut notes: Vec<&str> = lookup.error.iter().map(String::as_str).collect();
            if lookup.rolled_back {
                notes.push("rolled back: this is the day's own blob");
            }
            if !lookup.has_pointer {
                notes.push("this day has no pointer that can be read");
            }
            vec![
                lookup.day.to_string(),
                contains.to_owned(),
                or_dash(chance.map(small_share)),
                notes.join("; "),
            ]
        })
        .collect();
    let TraceSummary { days_searched, days_found, days_unreadable, max_chance_if_absent } = summary;
    let mut all = if *days_found == 0 && *days_unreadable > 0 {
        "No day that could be read contains it.".to_owned()
    } else if *days_found == 0 {
        "No day contains it. This is certain.".to_owned()
    } else {
        let chance = small_share(*max_chance_if_absent);
        format!(
            "{days_found} of {days_searched} days contain it. Of the IDs that were never there, at most \
             {chance} are hits on as many."
        )
    };
    if *days_unreadable > 0 {
        all += &format!(" {days_unreadable} of {} days could not be read.", lookups.len());
    }
    table(&["day", "contains", "chance of a false positive", "note"], &rows) + "\n" + &all + "\n"
}
