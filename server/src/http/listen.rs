//! Listening: bounded connections, header and idle time-outs, and a graceful stop.

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
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::Public;
use super::admin::Admin;
use super::reply::Reply;
use crate::error::Error;

/// How many connections each address serves at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// How long a request's head may take to arrive, which is also how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// How much of a request's head is read.
const MAX_HEAD_BYTES: usize = 64 << 10;
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
        let listener = TcpListener::bind(address).await?;
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
    ) -> Server {
        let (stop, stopped) = watch::channel(false);
        let addresses = (public.address, admin.address);
        let tasks = vec![
            tokio::spawn(accept(public.listener, asked, stopped.clone())),
            tokio::spawn(accept(admin.listener, commanded, stopped)),
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

async fn accept(
    listener: TcpListener,
    service: Arc<impl Answer>,
    mut stopped: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    // Without a timer hyper accepts the time-out and never applies it.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES);
    loop {
        let permit = connections.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
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
        let service = service.clone();
        let answer = service_fn(move |request| {
            let answering = service.clone().answer(request);
            async move { Ok::<_, std::convert::Infallible>(answering.await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), answer);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off is its own business.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_DEADLINE, graceful.shutdown()).await.is_err() {
        tracing::warn!("stopped with requests still under way");
    }
}
