//! The status page: one HTML file without any other asset, and the JSON it shows.
//!
//! On the public address it shows what `/status` and `/metrics` show, and the days. Who did what and
//! why, and which days hold an ID, are the admin address's to say, behind its token. Asking the days
//! fetches a blob a day: one such question at a time, off the threads that answer lookups.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::{EventKind, HistoryEvent};
use bloomsday_common::store::{DayLookup, Store, chance_of_at_least};
use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::histories::Histories;
use super::letter;
use super::minutes::{Counters, Minutes};
use super::reply::{self, Reply, error, json as json_reply, of};
use crate::{Bloomsday, FilterStatus};

const HTML: &str = include_str!("page.html");
/// How many acts and days are shown.
const SHOWN: usize = 30;
/// The most days one question may ask, and how long they may take together.
const MAX_DAYS: u32 = 31;
const WHY_DEADLINE: Duration = Duration::from_secs(120);

/// What both addresses' pages show.
pub(super) struct Page {
    bloomsday: Bloomsday,
    minutes: Minutes,
    histories: Histories,
    asking: Semaphore,
}

impl Page {
    pub(super) fn new(bloomsday: Bloomsday) -> Page {
        let counting = bloomsday.clone();
        let minutes = Minutes::of(move || counting.status().iter().map(counters).collect());
        let histories = Histories::new();
        Page { bloomsday, minutes, histories, asking: Semaphore::new(1) }
    }

    /// The page itself, which holds nothing yet.
    pub(super) fn html(&self) -> Reply {
        let nonce = nonce();
        let html = HTML.replace("NONCE", &nonce);
        let mut reply = of(StatusCode::OK, "text/html; charset=utf-8", html);
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        let policy = HeaderValue::from_str(&policy).expect("the nonce is hexadecimal");
        let headers = reply.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        let opener = HeaderName::from_static("cross-origin-opener-policy");
        headers.insert(opener, HeaderValue::from_static("same-origin"));
        reply
    }

    /// What it shows; with `admin` also who did what, and why.
    pub(super) async fn data(&self, admin: bool) -> Reply {
        let statuses = self.bloomsday.status();
        self.histories.refresh(&self.bloomsday, &statuses).await;
        let mut filters = serde_json::Map::new();
        for status in statuses {
            let told = self.histories.told(&status.filter);
            let mut shown = json!(status);
            shown["lookups"] = json!(self.minutes.last_hour(&counters(&status)));
            shown["days"] = json!(days(&told.acts));
            if admin {
                shown["acts"] = json!(told.acts.iter().take(SHOWN).collect::<Vec<_>>());
                shown["servers"] = json!(*told.servers);
                shown["history_error"] = json!(told.error);
            }
            filters.insert(status.filter.to_string(), shown);
        }
        let now = format!("{:.0}", self.bloomsday.now());
        let page = json!({
            "version": env!("CARGO_PKG_VERSION"), "now": now, "admin": admin, "filters": filters,
        });
        json_reply(StatusCode::OK, &page)
    }

    /// Which of the last days hold an ID: `?id=PERCENT-ENCODED&days=14`.
    pub(super) async fn why(&self, filter: &str, query: &str) -> Reply {
        let handle = match self.bloomsday.filter(filter) {
            Ok(handle) => handle,
            Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
        };
        let [id, days] = match letter::pairs(query, ["id", "days"]) {
            Ok(values) => values,
            Err(why) => return reply::wrong(&why),
        };
        let n = days.map_or(Ok(14), str::parse);
        let (Some(id), Ok(n @ 1..=MAX_DAYS)) = (id, n) else {
            return reply::wrong("ask with ?id=ID&days=N, 1 to 31 days");
        };
        let id: Vec<u8> = percent_decode_str(id).collect();
        let Ok(_alone) = self.asking.try_acquire() else {
            let why = "another such question is being answered; it fetches a blob a day";
            return error(StatusCode::TOO_MANY_REQUESTS, why);
        };
        let (store, name) = (self.bloomsday.store().clone(), handle.name().clone());
        let today = Day::of(self.bloomsday.now());
        let runtime = tokio::runtime::Handle::current();
        let asked = tokio::task::spawn_blocking(move || {
            let asking = ask(store, name, id, today, n);
            runtime.block_on(tokio::time::timeout(WHY_DEADLINE, asking))
        });
        match asked.await {
            Ok(Ok(Ok(answers))) => json_reply(StatusCode::OK, &summary(&answers)),
            Ok(Ok(Err(why))) => error(StatusCode::BAD_GATEWAY, &why),
            Ok(Err(_)) => {
                error(StatusCode::GATEWAY_TIMEOUT, "the blobs did not arrive in two minutes")
            }
            Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "asking panicked"),
        }
    }
}

fn counters(status: &FilterStatus) -> Counters {
    let (seen, absent) = (status.hits, status.misses);
    Counters { filter: status.filter.clone(), seen, absent }
}

/// What became of each day, newest first, by the last build of it.
fn days(acts: &[HistoryEvent]) -> Vec<Value> {
    let mut days: BTreeMap<Day, &HistoryEvent> = BTreeMap::new();
    for act in acts.iter().filter(|act| act.act == EventKind::Build) {
        if let Some(day) = act.day {
            days.entry(day).or_insert(act);
        }
    }
    let shown = days.into_iter().rev().take(SHOWN).map(|(day, act)| {
        json!({
            "day": day, "ids": act.ids, "overlap": act.overlap, "outcome": act.outcome, "at": act.at,
        })
    });
    shown.collect()
}

async fn ask(
    store: Store,
    filter: FilterName,
    id: Vec<u8>,
    today: Day,
    n: u32,
) -> Result<Vec<DayLookup>, String> {
    let mut answers = Vec::new();
    for back in 0..n {
        let answer = store.lookup_day(&filter, today.minus(back), &id).await;
        answers.extend(answer.map_err(|e| e.to_string())?);
    }
    Ok(answers)
}

fn summary(answers: &[DayLookup]) -> Value {
    let asked: Vec<f64> = answers.iter().filter_map(|answer| answer.false_positive).collect();
    let seen = answers.iter().filter(|answer| answer.contains == Some(true)).count();
    json!({
        "days": answers, "days_searched": asked.len(), "days_found": seen,
        "chance_if_absent": chance_of_at_least(seen, &asked),
    })
}

/// A value that nobody can guess: the standard library seeds its hash maps from the system, and this
/// shows nothing of the seed.
fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    let part = || RandomState::new().hash_one(Instant::now());
    format!("{:016x}{:016x}", part(), part())
}
