//! The admin address: reloads, the operator's page, and traces of IDs. A reload polls the store
//! now; it takes no URL and no path from the caller. No reply goes to the page of another site,
//! reads included.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::error::Kind;
use bloomsday_common::random::random;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::{Method, Request, StatusCode};
use serde_json::json;
use tokio::sync::watch;

use super::headers;
use super::listen::Service;
use super::page::{self, Page};
use super::reply::{self, Reply, error, json as json_reply};
use crate::bloomsday::Bloomsday;
use crate::connections;
use crate::random::random_fraction;
use crate::status::{ReloadOutcome, Reloaded};
use crate::token::Token;

/// The headers in which browsers say which page sends a request, and why.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The longest time over which the reloads of a fleet can be spread.
const MAX_WITHIN: Duration = Duration::from_secs(600);

/// The error for an unknown path.
const NOT_FOUND: &str = "only POST /admin/reload, the page, GET /livez and GET /v1/filters/{filter}/trace are here; lookups, \
     /readyz and /metrics are at the address for lookups";

pub(crate) struct Admin {
    pub(super) bloomsday: Bloomsday,
    pub(super) token: Option<Token>,
    pub(super) page: Arc<Page>,
    /// Says when the server stops.
    pub(super) stopping: watch::Receiver<bool>,
}

impl Service for Admin {
    fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        Box::pin(async move { self.route(request).await })
    }
}

impl Admin {
    async fn route(&self, request: Request<Incoming>) -> Reply {
        if let Some(why) = self.refusal(&request) {
            return error(StatusCode::FORBIDDEN, why);
        }
        let (method, path) = (headers::read_method(request.method()), request.uri().path());
        // The page itself contains no data: it is where the token is typed.
        if method == Method::GET && path == "/" {
            return page::html();
        }
        // For whoever restarts a server that does not live: clients can hold all connections of the
        // public address.
        if method == Method::GET && path == "/livez" {
            return reply::text(StatusCode::OK, "live\n");
        }
        if self.token.as_ref().is_some_and(|token| !headers::has_token(&request, token)) {
            return reply::unauthorized();
        }
        match (method, path) {
            (&Method::POST, "/admin/reload") => self.reload(request.uri().query()).await,
            (_, "/admin/reload") => reply::only("POST"),
            (&Method::GET, "/page.json") => self.page.data(true).await,
            (_, "/" | "/livez" | "/page.json") => reply::only(reply::READ),
            (&Method::GET, path) => match filter_to_trace(path) {
                Some(filter) => {
                    let query = request.uri().query().unwrap_or("");
                    reply::of_either(self.page.trace(filter, query).await)
                }
                None => error(StatusCode::NOT_FOUND, NOT_FOUND),
            },
            (_, path) if filter_to_trace(path).is_some() => reply::only(reply::READ),
            _ => error(StatusCode::NOT_FOUND, NOT_FOUND),
        }
    }

    /// Why a request is refused, whatever its path: a browser sends it for the page of another
    /// site, or for a host name whose owner points it at this machine.
    ///
    /// A request with an `Origin` comes from our own page if the page was opened at this address; a
    /// token is needed for it. Without a token a page of a host name that was pointed here (DNS
    /// rebinding) would look the same, so every `Origin` is refused; our own page sends none.
    fn refusal(&self, request: &Request<Incoming>) -> Option<&'static str> {
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or(""));
        let by_name = request.uri().authority().map(|authority| authority.as_str());
        let named = [by_name, header(HOST)].into_iter().flatten();
        if self.token.is_none() && !named.clone().all(headers::is_loopback) {
            return Some(
                "without a token this address replies only to localhost and loopback addresses: use \
                 one of those, or configure a token",
            );
        }
        let own = |origin: &str| {
            let host = origin.split_once("://").map(|(_, host)| host);
            let same = |name: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(name));
            self.token.is_some() && header(HOST).is_some_and(same)
        };
        if header(ORIGIN).is_some_and(|origin| !own(origin)) {
            return Some("a request sent by a web page is refused: it has an Origin header");
        }
        // A request without an Origin header, such as an image, has this one.
        let opened = header(SEC_FETCH_MODE) == Some("navigate")
            && headers::read_method(request.method()) == Method::GET
            && request.uri().path() == "/";
        let own_site = |site: &str| matches!(site, "same-origin" | "none");
        if header(SEC_FETCH_SITE).is_some_and(|site| !own_site(site)) && !opened {
            return Some("a request sent by another site's page is refused: see Sec-Fetch-Site");
        }
        None
    }

    async fn reload(&self, query: Option<&str>) -> Reply {
        let names = ["filter", "force", "within"];
        let [filter, force, within] = match headers::query_values(query.unwrap_or_default(), names)
        {
            Ok(values) => values,
            Err(why) => return reply::wrong(&why),
        };
        let force = match force {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return reply::wrong("force is true or false"),
        };
        let Some(within) = within.map_or(Some(Duration::ZERO), seconds) else {
            let most = MAX_WITHIN.as_secs();
            return reply::wrong(&format!("within is a time from 0s to {most}s, such as 60s"));
        };
        // A tool that reloads a whole fleet at once would have it fetch at once.
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(random_fraction(within, random())) => {}
            () = connections::until_stopped(&mut stopping) => {
                let why = "this server stops, and loads what is new when it starts";
                return error(StatusCode::SERVICE_UNAVAILABLE, why);
            }
        }
        let reloaded = match (force, filter) {
            (true, name) => self.bloomsday.force_reload(name).await,
            (false, Some(name)) => self.bloomsday.reload_filter(name).await,
            (false, None) => self.bloomsday.reload().await,
        };
        match reloaded {
            Ok(reloaded) => json_reply(status_of(&reloaded), &report(&reloaded)),
            Err(e) if e.kind() == Kind::NotFound => error(StatusCode::NOT_FOUND, &e.to_string()),
            Err(e) => error(StatusCode::SERVICE_UNAVAILABLE, &e.to_string()),
        }
    }
}

/// A time as `60s`, up to [`MAX_WITHIN`].
fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)?;
    (seconds <= MAX_WITHIN).then_some(seconds)
}

/// The filter of `/v1/filters/{filter}/trace`, or of its alias `/v1/filters/{filter}/why`.
fn filter_to_trace(path: &str) -> Option<&str> {
    let (filter, command) = path.strip_prefix("/v1/filters/")?.rsplit_once('/')?;
    (matches!(command, "trace" | "why") && !filter.contains('/')).then_some(filter)
}

fn status_of(reloaded: &[Reloaded]) -> StatusCode {
    let any = |outcome| reloaded.iter().any(|filter| filter.outcome == outcome);
    if any(ReloadOutcome::Failed) {
        StatusCode::BAD_GATEWAY
    } else if any(ReloadOutcome::Held) {
        StatusCode::CONFLICT
    } else {
        StatusCode::OK
    }
}

fn report(reloaded: &[Reloaded]) -> serde_json::Value {
    let filters: serde_json::Map<String, serde_json::Value> =
        reloaded.iter().map(|filter| (filter.filter.to_string(), json!(filter))).collect();
    json!({ "filters": filters })
}
