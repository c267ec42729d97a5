//! [`Public`]: the public address, with lookups, health, status, metrics, and the page without the
//! history.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::blocks::Blocks;
#[cfg(feature = "live")]
use super::changes::{self, ChangeKind};
use super::listen::Service;
use super::page::{self, Page};
use super::reply::{self, Reply, error, json as json_reply, text};
use super::{headers, metrics, query};
use crate::bloomsday::Bloomsday;
use crate::handle::Readiness;

pub(super) struct Public {
    bloomsday: Bloomsday,
    blocks: Blocks,
    started: Instant,
    page: Arc<Page>,
    /// Whether only this machine reaches the address.
    #[cfg(feature = "live")]
    is_loopback: bool,
}

impl Service for Public {
    fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        Box::pin(async move { self.route(request).await })
    }
}

impl Public {
    #[cfg_attr(not(feature = "live"), expect(unused_variables, reason = "nothing is changed here"))]
    pub(super) fn new(bloomsday: Bloomsday, page: Arc<Page>, is_loopback: bool) -> Public {
        Public {
            bloomsday,
            blocks: query::blocks(),
            started: Instant::now(),
            page,
            #[cfg(feature = "live")]
            is_loopback,
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        if request.method() == Method::POST && reply::has_origin(&request) {
            return reply::forbidden_origin();
        }
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let method = headers::read_method(request.method());
        if request.uri().query().is_some()
            && let Some(why) = headers::ignored_query(&segments)
        {
            return reply::wrong(why);
        }
        match (method, segments.as_slice()) {
            (&Method::GET, ["livez"]) => text(StatusCode::OK, "live\n"),
            (&Method::GET, ["readyz"]) => self.readiness(),
            (&Method::GET, ["status"]) => self.status(),
            (&Method::GET, ["version"]) => version(self.started),
            (&Method::GET, ["metrics"]) => metrics::render(&self.bloomsday, self.started()),
            (&Method::GET, [""]) => page::html(),
            (&Method::GET, ["page.json"]) => self.page.data(false).await,
            (&Method::GET, ["v1", "filters", filter, "ids", id]) => {
                reply::of_either(query::one(&self.bloomsday, filter, id))
            }
            (&Method::POST, ["v1", "filters", filter, "query"]) => {
                let many = query::many(&self.bloomsday, &self.blocks, filter, request);
                reply::of_either(many.await)
            }
            #[cfg(feature = "live")]
            (&Method::POST, ["v1", "filters", filter, change @ ("add" | "forget")]) => {
                let change = if *change == "add" { ChangeKind::Add } else { ChangeKind::Forget };
                let changed = async {
                    changes::check_client(&self.bloomsday, self.is_loopback, &request)?;
                    changes::change(&self.bloomsday, &self.blocks, filter, change, request).await
                };
                reply::of_either(changed.await)
            }
            #[cfg(feature = "live")]
            (_, ["v1", "filters", _, "add" | "forget"]) => reply::only("POST"),
            (_, ["livez" | "readyz" | "status" | "version" | "metrics" | "page.json" | ""])
            | (_, ["v1", "filters", _, "ids", _]) => reply::only(reply::READ),
            (_, ["v1", "filters", _, "query"]) => reply::only("POST"),
            (_, ["v1", "filters", _, "" | "ids"]) => reply::wrong(query::NO_ID),
            (_, ["v1", "filters", _, "ids", _, ..]) => {
                reply::wrong("the ID in the path has a /: write it as %2F")
            }
            _ => error(StatusCode::NOT_FOUND, "there is nothing here; see /status"),
        }
    }

    fn readiness(&self) -> Reply {
        if !self.bloomsday.is_polling() {
            let ended = "not ready: the polling thread has ended; restart this process\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, ended);
        }
        let of = |wanted: Readiness| {
            let readiness = self.bloomsday.readiness();
            let waiting = readiness.filter(|(_, readiness)| *readiness == wanted);
            let names: Vec<&str> = waiting.map(|(name, _)| name.as_str()).collect();
            (!names.is_empty()).then(|| format!("{} {}", names.join(", "), wanted.words()))
        };
        let waiting = [Readiness::NotLoaded, Readiness::WithoutOthersLiveIds];
        let waiting: Vec<String> = waiting.into_iter().filter_map(of).collect();
        if waiting.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        let waiting = format!("not ready: {}\n", waiting.join("; "));
        text(StatusCode::SERVICE_UNAVAILABLE, &waiting)
    }

    fn status(&self) -> Reply {
        let filters: serde_json::Map<String, serde_json::Value> = self
            .bloomsday
            .status()
            .into_iter()
            .map(|status| (status.filter.to_string(), json!(status)))
            .collect();
        let status = json!({ "filters": filters, "live": self.page.live() });
        json_reply(StatusCode::OK, &status)
    }

    /// When this process started, by the clock of now.
    fn started(&self) -> Timestamp {
        let uptime = SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        self.bloomsday.now().saturating_sub(uptime).unwrap_or_default()
    }
}

/// The version of a program that runs since `started`.
pub(super) fn version(started: Instant) -> Reply {
    let version = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "format": bloomsday_common::blob::VERSION,
        "uptime_seconds": started.elapsed().as_secs(),
    });
    json_reply(StatusCode::OK, &version)
}
