//! [`serve_texts`]: a few texts on one address, such as the metrics of a program that serves no
//! lookups. It has the connections and the limits of the daemon.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::headers;
use super::listen::{self, Service};
use super::metrics::PROMETHEUS_TEXT;
use super::reply::{self, Reply};
use crate::error::Error;
use crate::tls::Tls;

struct Texts<F>(F);

impl<F> Service for Texts<F>
where
    F: Fn(&str) -> Result<Vec<u8>, &'static str> + Send + Sync + 'static,
{
    fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        let is_read = headers::read_method(request.method()) == Method::GET;
        let reply = match self.0(if is_read { request.uri().path() } else { "" }) {
            Ok(text) => reply::of(StatusCode::OK, PROMETHEUS_TEXT, text),
            Err(why) => reply::text(StatusCode::NOT_FOUND, why),
        };
        Box::pin(async { reply })
    }
}

/// Answers `GET` on one address for as long as the program runs; with `tls`, only over HTTPS.
/// `text` returns what a path has, or says what there is instead. Returns the address, with the
/// port that the system chose for port 0.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bloomsday_server::http;
///
/// let text = |path: &str| match path {
///     "/livez" => Ok(b"live\n".to_vec()),
///     _ => Err("GET /livez\n"),
/// };
/// let address = http::serve_texts("127.0.0.1:0".parse()?, None, text).await?;
/// assert_ne!(address.port(), 0);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::System`] when the address cannot be opened.
pub async fn serve_texts(
    address: SocketAddr,
    tls: Option<Tls>,
    text: impl Fn(&str) -> Result<Vec<u8>, &'static str> + Send + Sync + 'static,
) -> Result<SocketAddr, Error> {
    listen::serve_always(address, Arc::new(Texts(text)), tls)
}
