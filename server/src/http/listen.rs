//! Listening: bounded connections, a time limit for everything a client can be slow at, and a graceful
//! stop. With TLS the handshake has its own limit, and a place among the connections from the start.

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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::Public;
use super::admin::Admin;
use super::letter;
use super::reply::{self, Reply};
use super::tls::Tls;
use crate::error::Error;

/// How many connections each address serves at once; more wait to be accepted.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// How long a request's head may take to arrive, which is also how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client may read nothing of an answer that waits for it.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// How much of a request's head is read; also how much of a body, and of an answer, a connection holds by itself.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// What the system holds of answers that a connection's client does not read; by itself it holds 4 MB, which
/// count against the limit of a container. Linux takes twice as much, for what it needs beside the bytes.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// How long requests under way may still take after a stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// An address that is being listened on.
pub struct Address {
    listener: TcpListener,
    address: SocketAddr,
}

/// Both addresses, being served.
pub struct Server {
    /// Where questions are answered.
    pub public: SocketAddr,
    /// Where reloads are asked for.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

pub(super) async fn bind(address: SocketAddr) -> Result<Address, Error> {
    let listen = async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        // Each connection's are like those of the socket that accepts it.
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind(address)?;
        let listener = socket.listen(MAX_CONNECTIONS as u32)?;
        let address = listener.local_addr()?;
        Ok(Address { listener, address })
    };
    let doing = format!("listen on {address} (is another one running there?)");
    listen.await.map_err(|source| Error::System { doing, source })
}

/// What answers the requests of one address.
trait Answer: Send + Sync + 'static {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>>;
}

impl Answer for Public {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        Box::pin(async move { Public::answer(&self, request).await })
    }
}

impl Answer for Admin {
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
        Box::pin(async move { Admin::answer(&self, request).await })
    }
}

impl Server {
    pub(super) fn start(
        public: Address,
        asked: Arc<Public>,
        admin: Address,
        commanded: Arc<Admin>,
        tls: Option<Tls>,
    ) -> Server {
        let (stop, stopped) = watch::channel(false);
        let addresses = (public.address, admin.address);
        let tls = tls.map(|tls| tls.acceptor());
        let tasks = vec![
            tokio::spawn(accept(public.listener, asked, tls.clone(), stopped.clone())),
            tokio::spawn(accept(admin.listener, commanded, tls, stopped)),
        ];
        Server { public: addresses.0, admin: addresses.1, stop, tasks }
    }

    /// Accepts no more, and returns when the requests under way are answered or 20 s have passed.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            // A task that panicked has nothing left to drain.
            let _ = task.await;
        }
    }
}

async fn accept<A: Answer>(
    listener: TcpListener,
    service: Arc<A>,
    tls: Option<TlsAcceptor>,
    mut stopped: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            // First room, then the connection: whoever finds none waits in the system's queue.
            let permit = connections.clone().acquire_owned().await;
            (permit.expect("the semaphore is never closed"), listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: give connections time to end.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Answers are small: waiting to fill a packet would cost 40 ms.
        let _ = stream.set_nodelay(true);
        let (service, watcher) = (service.clone(), graceful.watcher());
        let (tls, mut stopped) = (tls.clone(), stopped.clone());
        tokio::spawn(async move {
            match tls {
                None => converse(stream, service, watcher).await,
                Some(tls) => {
                    let stop = async { stopped.wait_for(|stop| *stop).await.is_ok() };
                    let shaken = tokio::select! {
                        stream = shake_hands(&tls, stream) => stream,
                        _ = stop => None,
                    };
                    if let Some(stream) = shaken {
                        converse(stream, service, watcher).await;
                    }
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_DEADLINE, graceful.shutdown()).await.is_err() {
        tracing::warn!("stopped with requests still under way");
    }
}

/// Answers one connection's requests, one after the other, until either side has enough.
async fn converse<A: Answer>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    service: Arc<A>,
    watcher: Watcher,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_DEADLINE));
    let answer = service_fn(move |request| {
        let wrong = letter::wrong_host(&request);
        let answering = service.clone().answer(request);
        async move {
            let reply = match wrong {
                Some(why) => reply::wrong(why),
                None => answering.await,
            };
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let mut builder = http1::Builder::new();
    // Without a timer hyper accepts the time-out and never applies it.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES);
    let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), answer);
    // A client that breaks off is its own business.
    let _ = watcher.watch(connection).await;
}

/// Every TLS connection begins with a record of this type.
const HANDSHAKE_RECORD: u8 = 0x16;

/// A connection's TLS handshake; `None` when it fails or takes too long.
async fn shake_hands(
    tls: &TlsAcceptor,
    mut stream: TcpStream,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let shaking = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
            refuse_plain_http(&mut stream).await?;
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        tls.accept(stream).await
    };
    // Strangers scan ports all day: what they get wrong is no news, and no log line.
    tokio::time::timeout(HANDSHAKE_DEADLINE, shaking).await.ok()?.ok()
}

/// Says to somebody who typed http:// what to type.
async fn refuse_plain_http(stream: &mut TcpStream) -> std::io::Result<()> {
    const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
        Content-Length: 37\r\nConnection: close\r\n\r\nthis address speaks HTTPS, not HTTP\r\n";
    // What is not read when a connection closes makes the system throw away what was written.
    let _ = stream.read(&mut [0; 8 << 10]).await?;
    stream.write_all(REFUSAL).await?;
    stream.shutdown().await
}
