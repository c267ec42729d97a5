//! The admin address: reload means "look again now". It takes no URL and no path from the caller.

use std::fmt;
use std::sync::Arc;

use bloomsday_common::error::Kind;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use serde_json::json;

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

/// What to say where nothing is.
const NOTHING: &str = "only POST /admin/reload, the page and GET /v1/filters/{filter}/why are here";

pub(crate) struct Admin {
    pub(super) bloomsday: Bloomsday,
    pub(super) token: Option<Token>,
    pub(super) page: Arc<Page>,
}

impl Admin {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Reply {
        // The page itself holds nothing: it is where the token is typed.
        if request.method() == Method::GET && request.uri().path() == "/" {
            return self.page.html();
        }
        if request.method() == Method::POST && reply::has_origin(&request) && !self.is_own(&request)
        {
            return reply::forbidden_origin();
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
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/admin/reload") => self.reload(request.uri().query()).await,
            (_, "/admin/reload") => reply::only("POST"),
            (&Method::GET, "/page.json") => self.page.data(true).await,
            (&Method::GET, path) => match why_of(path) {
                Some(filter) => self.page.why(filter, request.uri().query().unwrap_or("")).await,
                None => error(StatusCode::NOT_FOUND, NOTHING),
            },
            _ => error(StatusCode::NOT_FOUND, NOTHING),
        }
    }

    /// Whether a `POST` comes from our own page, opened from this very address. Only a token makes
    /// that enough: without one, a name that its owner points at loopback would look the same.
    fn is_own(&self, request: &Request<Incoming>) -> bool {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let origin = header(ORIGIN).and_then(|origin| origin.split_once("://"));
        let same = origin.is_some_and(|(_, host)| header(HOST) == Some(host));
        self.token.is_some() && same
    }

    async fn reload(&self, query: Option<&str>) -> Reply {
        let (mut filter, mut force) = (None, false);
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("filter", name)) => filter = Some(name),
                Some(("force", value @ ("true" | "false"))) => force = value == "true",
                _ => {
                    return error(
                        StatusCode::BAD_REQUEST,
                        "only ?filter=NAME and &force=true are known",
                    );
                }
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
