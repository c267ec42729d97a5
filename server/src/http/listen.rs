//! Connections: their maximum, a time limit for each thing that a client can be slow at, and a
//! graceful stop. A TLS handshake has a time limit of its own and counts as a connection from its
//! start.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::headers;
use super::reply::{self, Reply};
use crate::connections::{self, FullWarning, MAX_CONNECTIONS, WRITE_DEADLINE};
use crate::error::Error;
use crate::tls::{self, Tls};

/// How many connections more each address serves when clients hold all others, each for one
/// request: health checks and scrapes are answered.
const MAX_SHORT_CONNECTIONS: usize = 32;
/// How long a request's head may take to arrive, which is also how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// The largest head of a request; also the buffer of a connection for a body, and for a reply.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The system's buffer for replies that a client does not read. Its default of 4 MB counts against
/// the limit of a container. Linux takes twice as much, with what it needs for each packet.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// What a client that used http:// gets.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 37\r\nConnection: close\r\n\r\nthis address speaks HTTPS, not HTTP\r\n";

/// The protocol that is spoken under TLS.
pub(super) const HTTP1: &[u8] = b"http/1.1";

/// An address with its open socket.
pub(super) struct Address {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
}

/// Both addresses, while they are served. [`serve`](super::serve) makes one.
///
/// ```no_run
/// # async fn run(bloomsday: bloomsday_server::Bloomsday) -> Result<(), Box<dyn std::error::Error>> {
/// use bloomsday_server::http::{HttpConfig, serve};
///
/// let (public, admin) = ("0.0.0.0:8080".parse()?, "127.0.0.1:8081".parse()?);
/// let server = serve(bloomsday, HttpConfig::new(public, admin)).await?;
/// println!("lookups at http://{}, the page at http://{}", server.public, server.admin);
/// tokio::signal::ctrl_c().await?;
/// server.stop().await; // answers what has begun
/// # Ok(()) }
/// ```
pub struct Server {
    /// The address for lookups.
    pub public: SocketAddr,
    /// The address for reloads and the operator's page.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

pub(super) fn bind(address: SocketAddr) -> Result<Address, Error> {
    let (listener, address) = connections::listen(address, Some(SEND_BUFFER_BYTES))?;
    Ok(Address { listener, address })
}

/// Replies to the requests of one address.
pub(super) trait Service: Send + Sync + 'static {
    fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>>;
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("public", &self.public)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn start<P: Service, A: Service>(
        (public, public_service): (Address, Arc<P>),
        (admin, admin_service): (Address, Arc<A>),
        tls: Option<Tls>,
        stop: watch::Sender<bool>,
    ) -> Server {
        let stopped = stop.subscribe();
        let addresses = (public.address, admin.address);
        let tls = tls.map(|tls| tls.acceptor(Some(HTTP1)));
        let tasks = vec![
            tokio::spawn(accept(public.listener, public_service, tls.clone(), stopped.clone())),
            tokio::spawn(accept(admin.listener, admin_service, tls, stopped)),
        ];
        Server { public: addresses.0, admin: addresses.1, stop, tasks }
    }

    /// Accepts no more connections, and returns when the running requests are done, or after 20 s.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            // A task that panicked has nothing left to drain.
            let _ = task.await;
        }
    }
}

/// Serves one address for as long as the program runs. Returns it, with the port that the system
/// chose for port 0.
pub(super) fn serve_always<S: Service>(
    address: SocketAddr,
    service: Arc<S>,
    tls: Option<Tls>,
) -> Result<SocketAddr, Error> {
    let Address { listener, address } = bind(address)?;
    let (stop, stopped) = watch::channel(false);
    let tls = tls.map(|tls| tls.acceptor(Some(HTTP1)));
    tokio::spawn(async move {
        accept(listener, service, tls, stopped).await;
        // Until here: without its sender the loop would end.
        drop(stop);
    });
    Ok(address)
}

/// Serves connections until `stopped` says so.
pub(super) async fn accept<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let [permits, short] =
        [MAX_CONNECTIONS, MAX_SHORT_CONNECTIONS].map(Semaphore::new).map(Arc::new);
    let graceful = GracefulShutdown::new();
    let mut full = FullWarning::default();
    loop {
        // The permit first: a client without one waits in the system's queue.
        let (permit, is_short) = tokio::select! {
            biased;
            () = connections::until_stopped(&mut stopped) => break,
            permit = permits.clone().acquire_owned() => (permit, false),
            permit = short.clone().acquire_owned() => (permit, true),
        };
        let permit = permit.expect("the semaphore is never closed");
        let Some((stream, _)) = connections::accept(&listener, &mut stopped).await else { break };
        // Others may have gone while this client was waited for.
        let (permit, is_short) = match is_short.then(|| permits.clone().try_acquire_owned()) {
            Some(Ok(freed)) => (freed, false),
            _ => (permit, is_short),
        };
        if is_short && full.is_due() {
            tracing::warn!(
                "{MAX_CONNECTIONS} clients are connected to one address: others get one request \
                 for each connection; let clients share connections, or add servers"
            );
        }
        let (service, watcher) = (service.clone(), graceful.watcher());
        let (tls, mut stopped) = (tls.clone(), stopped.clone());
        tokio::spawn(async move {
            match tls {
                None => serve_connection(stream, service, watcher, is_short).await,
                Some(tls) => {
                    let stream = tls::accept(&tls, stream, PLAIN_HTTP, &mut stopped).await;
                    if let Some(stream) = stream {
                        serve_connection(stream, service, watcher, is_short).await;
                    }
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    connections::drain(graceful.shutdown()).await;
}

/// Serves the requests of one connection, one after the other, until either side closes it; of a
/// short one the first.
async fn serve_connection<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: Arc<S>,
    watcher: Watcher,
    is_short: bool,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_DEADLINE));
    let service = service_fn(move |request| {
        let wrong = headers::wrong_host(&request);
        let reply = service.clone().reply(request);
        async move {
            let reply = match wrong {
                Some(why) => reply::wrong(why),
                None => reply.await,
            };
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let mut builder = http1::Builder::new();
    // Without a timer hyper accepts the time-out and never applies it.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .keep_alive(!is_short)
        .max_buf_size(MAX_HEAD_BYTES);
    let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
    // A client may close its connection at any time; that is no error.
    let _ = watcher.watch(connection).await;
}
