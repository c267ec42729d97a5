//! The admin address: reload means "look again now". It takes no URL and no path from the caller, and
//! answers nothing to a page that is not ours, reads included.

use std::fmt;
use std::sync::Arc;

use bloomsday_common::error::Kind;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use super::letter;
use super::page::Page;
use super::reply::{self, Reply, error, json as json_reply};
use crate::status::ReloadOutcome;
use crate::{Bloomsday, Reloaded};

/// What an admin call must present as `Authorization: Bearer …`. Never shown.
pub struct Token(blake3::Hash);

impl Token {
    /// The token with this text.
    pub fn new(text: &str) -> Token {
        Token(blake3::hash(text.as_bytes()))
    }

    /// Whether `text` is it, in a time that does not depend on how much of it fits: BLAKE3 hashes
    /// compare in constant time.
    fn is(&self, text: &str) -> bool {
        self.0 == blake3::hash(text.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// How browsers say whose page sends a request, and what for.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What to say where nothing is.
const NOTHING: &str = "only POST /admin/reload, the page and GET /v1/filters/{filter}/why are here";

pub(crate) struct Admin {
    pub(super) bloomsday: Bloomsday,
    pub(super) token: Option<Token>,
    pub(super) page: Arc<Page>,
}

impl Admin {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Reply {
        if let Some(why) = self.stranger(&request) {
            return error(StatusCode::FORBIDDEN, why);
        }
        let (method, path) = (letter::reading(request.method()), request.uri().path());
        // The page itself holds nothing: it is where the token is typed.
        if method == Method::GET && path == "/" {
            return self.page.html();
        }
        if let Some(token) = &self.token {
            let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let given = given.and_then(|value| value.split_once(' '));
            let fits = given.is_some_and(|(scheme, text)| {
                scheme.eq_ignore_ascii_case("Bearer") && token.is(text.trim())
            });
            if !fits {
                return unauthorized();
            }
        }
        match (method, path) {
            (&Method::POST, "/admin/reload") => self.reload(request.uri().query()).await,
            (_, "/admin/reload") => reply::only("POST"),
            (&Method::GET, "/page.json") => self.page.data(true).await,
            (_, "/" | "/page.json") => reply::only(reply::READ),
            (&Method::GET, path) => match why_of(path) {
                Some(filter) => self.page.why(filter, request.uri().query().unwrap_or("")).await,
                None => error(StatusCode::NOT_FOUND, NOTHING),
            },
            (_, path) if why_of(path).is_some() => reply::only(reply::READ),
            _ => error(StatusCode::NOT_FOUND, NOTHING),
        }
    }

    /// Why a request is not to be answered, whatever it asks: a browser sends it for a page that is not
    /// ours, or for a name that its owner points at this machine.
    ///
    /// A request with an `Origin` comes from our own page if that was opened from this very address, and
    /// a token is needed. Without one, such a name would look the same; our page then sends none.
    fn stranger(&self, request: &Request<Incoming>) -> Option<&'static str> {
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or(""));
        let by_name = request.uri().authority().map(|authority| authority.as_str());
        let named = [by_name, header(HOST)].into_iter().flatten();
        if self.token.is_none() && !named.clone().all(letter::is_loopback) {
            return Some(
                "without a token this address answers only to localhost and loopback addresses: ask \
                 by one of those, or give --admin-token-file",
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
        // What has no origin, as an image, says so much.
        let opened = header(SEC_FETCH_MODE) == Some("navigate")
            && letter::reading(request.method()) == Method::GET
            && request.uri().path() == "/";
        let own_site = |site: &str| matches!(site, "same-origin" | "none");
        if header(SEC_FETCH_SITE).is_some_and(|site| !own_site(site)) && !opened {
            return Some("a request sent by another site's page is refused: see Sec-Fetch-Site");
        }
        None
    }

    async fn reload(&self, query: Option<&str>) -> Reply {
        let [filter, force] = match letter::pairs(query.unwrap_or_default(), ["filter", "force"]) {
            Ok(values) => values,
            Err(why) => return reply::wrong(&why),
        };
        let force = match force {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return reply::wrong("force is true or false"),
        };
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

fn unauthorized() -> Reply {
    let why = "send the token as Authorization: Bearer TOKEN";
    let mut reply = error(StatusCode::UNAUTHORIZED, why);
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    reply
}

/// The filter of `/v1/filters/{filter}/why`.
fn why_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/filters/")?.strip_suffix("/why").filter(|name| !name.contains('/'))
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
