//! The HTTP interface of the daemon: lookups, status and admin, with limits and time limits for
//! each step.
//!
//! It turns requests into lookups in a handle and into requests to the poller. It does not load
//! or swap filters.
//!
//! | module | contents |
//! |---|---|
//! | `listen` | connections, time limits, a graceful stop |
//! | `public`, `admin` | the requests of either address |
//! | `changes` | IDs that are added or deleted (feature `live`) |
//! | `query`, `ids`, `blocks`, `answers` | lookups: bodies, their IDs, their memory, their results |
//! | `page`, `fleet`, `history_cache`, `traffic_history` | the status page and its data |
//! | `metrics`, `live_metrics` | Prometheus text: of filters; of the live layer |
//! | `live_alone` | the address of a process that serves Redis clients alone |
//! | `texts` | an address with texts only, for other programs |
//! | `headers`, `reply` | rules of HTTP; the forms of replies |

// What a request is refused with is a reply, too.
#![allow(clippy::result_large_err)]

mod admin;
mod answers;
mod blocks;
#[cfg(feature = "live")]
mod changes;
mod fleet;
mod headers;
mod history_cache;
mod ids;
mod listen;
#[cfg(feature = "live")]
mod live_alone;
#[cfg(feature = "live")]
mod live_metrics;
mod metrics;
mod page;
mod public;
mod query;
mod reply;
mod texts;
mod traffic_history;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub use self::listen::Server;
#[cfg(feature = "live")]
pub use self::live_alone::serve_live;
pub use self::texts::serve_texts;
use tokio::sync::watch;

use crate::bloomsday::Bloomsday;
use crate::error::Error;
pub use crate::tls::Tls;
pub use crate::token::Token;

/// The settings of the two addresses.
///
/// ```
/// use bloomsday_server::http::HttpConfig;
///
/// let (public, admin) = (([0, 0, 0, 0], 8642).into(), ([127, 0, 0, 1], 8643).into());
/// let config = HttpConfig::new(public, admin);
/// assert!(config.admin_token.is_none()); // none is needed at a loopback address
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Where everybody looks IDs up. IDs of live filters are added and deleted here, too, with the
    /// token of the `LiveConfig`; without one only if this is a loopback address.
    pub public: SocketAddr,
    /// Where operators reload, and see the page.
    pub admin: SocketAddr,
    /// What a request to the admin address has to present. Needed unless that is a loopback
    /// address.
    pub admin_token: Option<Token>,
    /// The certificate with which both addresses speak only HTTPS.
    pub tls: Option<Tls>,
}

impl HttpConfig {
    /// The default settings: no token and no TLS.
    pub fn new(public: SocketAddr, admin: SocketAddr) -> HttpConfig {
        HttpConfig { public, admin, admin_token: None, tls: None }
    }
}

impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpConfig { public, admin, .. } = self;
        let mut fields = f.debug_struct("HttpConfig");
        fields.field("public", public).field("admin", admin).finish_non_exhaustive()
    }
}

/// Opens both addresses and serves until the returned [`Server`] is stopped.
///
/// # Errors
/// [`Error::OpenAdmin`] for an admin address that other machines can reach and that has no token;
/// [`Error::System`] when an address cannot be opened.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest/store.in"));
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (_folder, store) = store_with(&[b"alice"]);
/// use bloomsday_server::http::{HttpConfig, serve};
/// use bloomsday_server::{Config, FilterConfig, start};
///
/// let bloomsday = start(Config::new(&store, vec![FilterConfig::new("rt".parse()?)])).await?;
/// let any_port = "127.0.0.1:0".parse()?;
/// let server = serve(bloomsday, HttpConfig::new(any_port, any_port)).await?;
/// println!("lookups at http://{}/v1/filters/rt/ids/alice", server.public);
/// server.stop().await;
/// # Ok(()) }
/// ```
pub async fn serve(bloomsday: Bloomsday, config: HttpConfig) -> Result<Server, Error> {
    let HttpConfig { public, admin, admin_token: token, tls } = config;
    if !admin.ip().is_loopback() && token.is_none() {
        return Err(Error::OpenAdmin { address: admin });
    }
    let page = Arc::new(page::Page::new(bloomsday.clone()));
    let is_loopback = public.ip().is_loopback();
    let public_service = public::Public::new(bloomsday.clone(), page.clone(), is_loopback);
    let public_service = Arc::new(public_service);
    let (stop, stopping) = watch::channel(false);
    let admin_service = Arc::new(admin::Admin { bloomsday, token, page, stopping });
    let public = listen::bind(public)?;
    let admin = listen::bind(admin)?;
    Ok(Server::start((public, public_service), (admin, admin_service), tls, stop))
}
