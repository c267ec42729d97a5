//! [`serve_live`]: the address of a process that serves Redis clients and no filter of a store.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, json};

use super::listen::{self, Service};
use super::metrics::PROMETHEUS_TEXT;
use super::public::version;
use super::reply::{self, Reply};
use super::{headers, live_metrics, page};
use crate::error::Error;
use crate::live::Live;
use crate::tls::Tls;

/// What the address has.
struct LiveAlone {
    live: Live,
    started: Instant,
}

impl Service for LiveAlone {
    fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        let reply = self.route(request.method(), request.uri().path());
        Box::pin(async { reply })
    }
}

impl LiveAlone {
    fn route(&self, method: &Method, path: &str) -> Reply {
        let status = || json!(self.live.status());
        match (headers::read_method(method), path) {
            (&Method::GET, "/livez") => reply::text(StatusCode::OK, "live\n"),
            // All logs were read before anything listened.
            (&Method::GET, "/readyz") => reply::text(StatusCode::OK, "ready\n"),
            (&Method::GET, "/version") => version(self.started),
            (&Method::GET, "/status") => {
                reply::json(StatusCode::OK, &json!({ "filters": {}, "live": status() }))
            }
            (&Method::GET, "/metrics") => {
                reply::of(StatusCode::OK, PROMETHEUS_TEXT, live_metrics::text(&self.live))
            }
            (&Method::GET, "/") => page::html(),
            (&Method::GET, "/page.json") => {
                let data = page::data(self.live.timestamp(), false, Map::new(), status());
                reply::json(StatusCode::OK, &data)
            }
            (
                _,
                "/livez" | "/readyz" | "/version" | "/status" | "/metrics" | "/" | "/page.json",
            ) => reply::only(reply::READ),
            _ => reply::error(
                StatusCode::NOT_FOUND,
                "no filter of a store is served here; see /status, /metrics, or the page at /",
            ),
        }
    }
}

/// Answers health checks, scrapes and the status page of a process that serves Redis clients and no
/// filter of a store, for as long as it runs; with `tls`, only over HTTPS. A server with filters
/// of a store, which [`serve`](super::serve) opens, has all of this too. Returns the address, with
/// the port that the system chose for port 0.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bloomsday_server::http;
/// use bloomsday_server::live::{Live, LiveConfig};
///
/// let live = Live::open(LiveConfig::new(None))?;
/// let address = http::serve_live(live, "127.0.0.1:0".parse()?, None).await?;
/// println!("the page is at http://{address}/");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::System`] when the address cannot be opened.
pub async fn serve_live(
    live: Live,
    address: SocketAddr,
    tls: Option<Tls>,
) -> Result<SocketAddr, Error> {
    listen::serve_always(address, Arc::new(LiveAlone { live, started: Instant::now() }), tls)
}
