//! [`Page`]: the status page, one HTML file without any other asset, and its JSON.
//!
//! On the public address it has what `/status` and `/metrics` have, and the days. The history, with
//! its names and reasons, and the trace of an ID are on the admin address only, behind its token. A
//! trace fetches a blob for each day: one trace runs at a time, on a thread that serves no lookups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomsday_common::day::Day;
use bloomsday_common::pointer::{EventKind, HistoryEvent};
use bloomsday_common::store::DEFAULT_TRACE_DAYS;
use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::fleet;
use super::headers;
use super::history_cache::HistoryCache;
use super::ids::decode_id;
use super::query::find;
use super::reply::{self, Reply, error, json as json_reply, of};
use super::traffic_history::{LookupTotals, TrafficHistory};
use crate::bloomsday::Bloomsday;
use crate::handle::FilterHandle;
use crate::status::FilterStatus;

const HTML: &str = include_str!("page.html");
/// The most history events and days on the page.
const MAX_LISTED: usize = 30;
/// The most days of one trace.
const MAX_DAYS: u32 = 31;
/// How long one trace may take.
const TRACE_DEADLINE: Duration = Duration::from_secs(120);

/// The page of both addresses.
pub(super) struct Page {
    bloomsday: Bloomsday,
    traffic_history: TrafficHistory,
    history_cache: HistoryCache,
    /// One trace runs at a time.
    trace_permit: Arc<Semaphore>,
}

impl Page {
    pub(super) fn new(bloomsday: Bloomsday) -> Page {
        let counting = bloomsday.clone();
        let traffic_history =
            TrafficHistory::of(move || counting.status().iter().map(totals).collect());
        let history_cache = HistoryCache::new();
        let trace_permit = Arc::new(Semaphore::new(1));
        Page { bloomsday, traffic_history, history_cache, trace_permit }
    }

    /// The data of the page; with `admin` also the history and the servers.
    pub(super) async fn data(&self, admin: bool) -> Reply {
        let statuses = self.bloomsday.status();
        self.history_cache.refresh(&self.bloomsday, &statuses).await;
        let mut filters = Map::new();
        for status in statuses {
            let history = self.history_cache.get(&status.filter);
            let mut page = json!(&status);
            page["lookups"] = json!(self.traffic_history.last_hour(&totals(&status)));
            page["days"] = json!(days(&history.events));
            if admin {
                page["events"] = json!(history.events.iter().take(MAX_LISTED).collect::<Vec<_>>());
                page["servers"] = fleet::summary(&history.servers, status.digest);
                page["history_error"] = json!(history.error);
            }
            filters.insert(status.filter.to_string(), page);
        }
        json_reply(StatusCode::OK, &data(self.bloomsday.now(), admin, filters, self.live()))
    }

    /// The live layer, if the process has one.
    pub(super) fn live(&self) -> Value {
        #[cfg(feature = "live")]
        return json!(self.bloomsday.live().map(|live| live.status()));
        #[cfg(not(feature = "live"))]
        Value::Null
    }

    /// Which of the last days contain an ID: `?id=PERCENT-ENCODED&days=N`.
    pub(super) async fn trace(&self, filter: &str, query: &str) -> Result<Reply, Reply> {
        let handle = find(&self.bloomsday, filter)?;
        let [id, days] =
            headers::query_values(query, ["id", "days"]).map_err(|why| reply::wrong(&why))?;
        let n = days.map_or(Ok(DEFAULT_TRACE_DAYS), str::parse);
        let (Some(id), Ok(n @ 1..=MAX_DAYS)) = (id, n) else {
            return Err(reply::wrong("give ?id=ID&days=N, 1 to 31 days"));
        };
        let id = decode_id(id).map_err(reply::wrong)?;
        let Ok(permit) = self.trace_permit.clone().try_acquire_owned() else {
            let why = "another trace runs, and it fetches a blob for each day: try again later";
            return Err(error(StatusCode::TOO_MANY_REQUESTS, why));
        };
        let (store, name) = (self.bloomsday.store().clone(), handle.name().clone());
        let today = Day::of(self.bloomsday.now());
        let runtime = tokio::runtime::Handle::current();
        let live = live_state(&handle, &id);
        let trace = tokio::task::spawn_blocking(move || {
            // Until it ends, also when the client has gone.
            let _permit = permit;
            let trace = store.trace(&name, today, n, &id, |_| {});
            runtime.block_on(tokio::time::timeout(TRACE_DEADLINE, trace))
        });
        match trace.await {
            Ok(Ok(Ok(trace))) => {
                let mut trace = json!(trace);
                if let Some(live) = live {
                    trace["live"] = live.into();
                }
                Ok(json_reply(StatusCode::OK, &trace))
            }
            Ok(Ok(Err(why))) => Err(error(StatusCode::BAD_GATEWAY, &why.to_string())),
            Ok(Err(_)) => {
                Err(error(StatusCode::GATEWAY_TIMEOUT, "the blobs did not arrive in two minutes"))
            }
            Err(_) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, "the trace panicked")),
        }
    }
}

/// The page itself, without data.
pub(super) fn html() -> Reply {
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

/// The data of the page, by its filters and its live layer.
pub(super) fn data(now: Timestamp, admin: bool, filters: Map<String, Value>, live: Value) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"), "now": format!("{now:.0}"), "admin": admin,
        "filters": filters, "live": live,
    })
}

/// What an ID is to the live IDs of this server.
fn live_state(handle: &FilterHandle, id: &[u8]) -> Option<&'static str> {
    #[cfg(feature = "live")]
    return handle.live_state(id);
    #[cfg(not(feature = "live"))]
    {
        let _ = (handle, id);
        None
    }
}

fn totals(status: &FilterStatus) -> LookupTotals {
    LookupTotals { filter: status.filter.clone(), hits: status.hits, misses: status.misses }
}

/// The outcome of each day's last build, newest first.
fn days(events: &[HistoryEvent]) -> Vec<Value> {
    let mut days: BTreeMap<Day, Vec<&HistoryEvent>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind == EventKind::Build) {
        event.day.into_iter().for_each(|day| days.entry(day).or_default().push(event));
    }
    let listed = days.into_iter().rev().take(MAX_LISTED).map(|(day, events)| {
        // A run that failed, or found all as it was, has no numbers of its own.
        let ids = events.iter().find_map(|event| event.ids);
        let overlap = events.iter().find_map(|event| event.overlap);
        let (outcome, at) = (events[0].outcome, events[0].at);
        json!({ "day": day, "ids": ids, "overlap": overlap, "outcome": outcome, "at": at })
    });
    listed.collect()
}

/// A value that nobody can guess: the standard library seeds its hash maps from the system, and
/// this value does not reveal the seed.
fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    let part = || RandomState::new().hash_one(Instant::now());
    format!("{:016x}{:016x}", part(), part())
}
