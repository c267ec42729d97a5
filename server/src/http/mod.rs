//! The daemon's HTTP: questions, status and admin, with limits and time-outs that hold.
//!
//! Turns requests into questions to a handle or requests to the poller; knows nothing of blobs.

mod admin;
mod answers;
mod blocks;
mod histories;
mod ids;
mod letter;
mod listen;
mod metrics;
mod minutes;
mod page;
mod query;
mod reply;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use crate::Bloomsday;
use crate::error::Error;
pub use admin::Token;
pub use listen::{Address, Server};
use reply::{Reply, error, json as json_reply, text};
pub use tls::Tls;

/// The public address: questions and status.
pub(crate) struct Public {
    bloomsday: Bloomsday,
    blocks: blocks::Blocks,
    started: Instant,
    page: Arc<page::Page>,
}

/// Opens both addresses and serves until the returned [`Server`] is stopped; with `tls`, only HTTPS is
/// spoken on either.
///
/// # Errors
/// [`Error::OpenAdmin`] for an admin address that is reachable from elsewhere and has no token;
/// [`Error::System`] when an address cannot be listened on.
pub async fn serve(
    bloomsday: Bloomsday,
    public: SocketAddr,
    admin: SocketAddr,
    token: Option<Token>,
    tls: Option<Tls>,
) -> Result<Server, Error> {
    if !admin.ip().is_loopback() && token.is_none() {
        return Err(Error::OpenAdmin { address: admin });
    }
    let page = Arc::new(page::Page::new(bloomsday.clone()));
    let asked = Arc::new(Public {
        bloomsday: bloomsday.clone(),
        blocks: query::blocks(),
        started: Instant::now(),
        page: page.clone(),
    });
    let commanded = Arc::new(admin::Admin { bloomsday, token, page });
    let public = listen::bind(public).await?;
    let admin = listen::bind(admin).await?;
    Ok(Server::start(public, asked, admin, commanded, tls))
}

impl Public {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        if request.method() == Method::POST && reply::has_origin(&request) {
            return reply::forbidden_origin();
        }
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let method = letter::reading(request.method());
        if request.uri().query().is_some()
            && let Some(why) = letter::passed_over(&segments)
        {
            return reply::wrong(why);
        }
        match (method, segments.as_slice()) {
            (&Method::GET, ["livez"]) => text(StatusCode::OK, "live\n"),
            (&Method::GET, ["readyz"]) => self.readiness(),
            (&Method::GET, ["status"]) => self.status(),
            (&Method::GET, ["version"]) => self.version(),
            (&Method::GET, ["metrics"]) => metrics::render(&self.bloomsday),
            (&Method::GET, [""]) => self.page.html(),
            (&Method::GET, ["page.json"]) => self.page.data(false).await,
            (&Method::GET, ["v1", "filters", filter, "ids", id]) => {
                query::one(&self.bloomsday, filter, id)
            }
            (&Method::POST, ["v1", "filters", filter, "query"]) => {
                query::many(&self.bloomsday, &self.blocks, filter, request).await
            }
            (_, ["livez" | "readyz" | "status" | "version" | "metrics" | "page.json" | ""])
            | (_, ["v1", "filters", _, "ids", _]) => reply::only(reply::READ),
            (_, ["v1", "filters", _, "query"]) => reply::only("POST"),
            _ => error(StatusCode::NOT_FOUND, "there is nothing here; see /status"),
        }
    }

    fn readiness(&self) -> Reply {
        let waiting: Vec<String> = self
            .bloomsday
            .status()
            .iter()
            .filter(|status| status.digest.is_none())
            .map(|status| status.filter.to_string())
            .collect();
        if !self.bloomsday.is_followed() {
            let ended = "not ready: the polling thread has ended; restart this process\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, ended);
        }
        if waiting.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        let waiting = format!("not ready: {} not loaded yet\n", waiting.join(", "));
        text(StatusCode::SERVICE_UNAVAILABLE, &waiting)
    }

    fn status(&self) -> Reply {
        let filters: serde_json::Map<String, serde_json::Value> = self
            .bloomsday
            .status()
            .into_iter()
            .map(|status| (status.filter.to_string(), json!(status)))
            .collect();
        json_reply(StatusCode::OK, &json!({ "filters": filters }))
    }

    fn version(&self) -> Reply {
        let uptime = self.started.elapsed().as_secs();
        json_reply(
            StatusCode::OK,
            &json!({
                "version": env!("CARGO_PKG_VERSION"),
                "format": bloomsday_common::blob::VERSION,
                "uptime_seconds": uptime,
            }),
        )
    }
}
