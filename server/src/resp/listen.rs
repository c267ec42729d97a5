//! Connections: their maximum, what each may make the server keep, and a graceful stop.
//!
//! A connection reads what has arrived, runs all complete requests in it, waits until their changes
//! are as safe as promised, and answers them with one write.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::dispatch::{self, AfterBatch};
use super::reply::{Fault, error};
use super::request::{MAX_REQUEST_BYTES, Request, Scanner};
use super::session::{Awaited, Session};
use super::shared::{ClientEntry, RespState};
use crate::connections::{self, FullWarning, MAX_CONNECTIONS, WRITE_DEADLINE};
use crate::error::Error;
use crate::live::Live;
use crate::tls::{self, Tls};

/// How much is read at once.
const READ_BYTES: usize = 256 << 10;
/// The buffer of a connection at its start, and of one that sends little.
const SMALL_READ_BYTES: usize = 16 << 10;
/// How long a connection may stay without the token, where there is one.
const AUTH_DEADLINE: Duration = Duration::from_secs(30);
/// The most requests that are run before their replies are sent.
const MAX_BATCH: usize = 16 << 10;

/// What a client that does not speak TLS gets from an address that does.
const PLAIN: &[u8] = b"-ERR this address speaks TLS only\r\n";

/// The settings of the protocol's address. Who may connect is the token of the
/// [`LiveConfig`](crate::live::LiveConfig).
///
/// ```
/// use bloomsday_server::resp::RespConfig;
///
/// let mut config = RespConfig::new(([127, 0, 0, 1], 6380).into());
/// config.allow_flush = true; // for tests
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RespConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// The certificate with which the address speaks only TLS.
    pub tls: Option<Tls>,
    /// Whether FLUSHDB and FLUSHALL delete every filter.
    pub allow_flush: bool,
}

impl RespConfig {
    /// The default settings: no TLS, and no FLUSHALL.
    pub fn new(address: SocketAddr) -> RespConfig {
        RespConfig { address, tls: None, allow_flush: false }
    }
}

impl fmt::Debug for RespConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The address while it is served. [`serve`] makes one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bloomsday_server::live::{Live, LiveConfig};
/// use bloomsday_server::resp::{RespConfig, serve};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let live = Live::open(LiveConfig::new(None))?; // in memory only
/// let resp = serve(live, RespConfig::new(([127, 0, 0, 1], 0).into())).await?;
///
/// let mut client = tokio::net::TcpStream::connect(resp.address).await?;
/// client.write_all(b"BF.ADD seen alice\r\n").await?;
/// let mut reply = [0; 4];
/// client.read_exact(&mut reply).await?;
/// assert_eq!(&reply, b":1\r\n");
/// resp.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Resp {
    /// Where it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Opens the address and serves until the returned [`Resp`] is stopped.
///
/// # Errors
/// [`Error::OpenResp`] for an address that other machines can reach without a token;
/// [`Error::System`] when it cannot be opened.
pub async fn serve(live: Live, config: RespConfig) -> Result<Resp, Error> {
    if !config.address.ip().is_loopback() && live.token().is_none() {
        return Err(Error::OpenResp { address: config.address });
    }
    let (listener, address) = connections::listen(config.address, None)?;
    let shared = Arc::new(RespState::new(live, address, config.allow_flush));
    let (stop, stopped) = watch::channel(false);
    let tls = config.tls.map(|tls| tls.acceptor(None));
    let task = tokio::spawn(accept(listener, tls, shared, stopped));
    Ok(Resp { address, stop, task })
}

impl Resp {
    /// Accepts no more connections, and returns when running batches are answered, or after 20 s.
    /// Then all changes are on the disk.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A task that panicked has nothing left to drain.
        let _ = self.task.await;
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<RespState>,
    mut stopped: watch::Receiver<bool>,
) {
    // Dropped by each connection: when all are gone, this ends.
    let (running, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let mut full = FullWarning::default();
    while let Some((mut stream, client)) = connections::accept(&listener, &mut stopped).await {
        if shared.clients().len() >= MAX_CONNECTIONS {
            shared.rejected.fetch_add(1, Ordering::Relaxed);
            if full.is_due() {
                tracing::warn!(
                    "{MAX_CONNECTIONS} clients are connected to {}: a new one takes the place of the oldest that \
                     has not logged in, or is refused; let clients share connections",
                    shared.address
                );
            }
            // Who has no token must not use up the connections.
            if !shared.end_oldest_stranger() {
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                let _ = stream.shutdown().await;
                continue;
            }
        }
        let id = shared.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        // Where the server listens on all addresses, the one that this client reached.
        let local = stream.local_addr().unwrap_or(shared.address);
        let known = Arc::new(ClientEntry::new(id, client.to_string(), local.to_string()));
        shared.clients().insert(id, known.clone());
        let connected = Connected { shared: shared.clone(), id };
        let session = Session::new(shared.clone(), known.clone());
        let (running, mut stopped) = (running.clone(), stopped.clone());
        let tls = tls.clone();
        tokio::spawn(async move {
            tokio::select! {
                // A client may close its connection at any time; that is no error.
                _ = serve_client(stream, tls, session, &mut stopped) => {}
                // At once, also while replies wait for a client that does not read them.
                () = known.make_way.notified() => {}
            }
            drop((connected, running));
        });
    }
    drop((listener, running));
    connections::drain(ended.recv()).await;
    shared.live.sync().await;
}

/// A connection that counts, until this is dropped: also if its task panics.
struct Connected {
    shared: Arc<RespState>,
    id: u64,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.shared.clients().remove(&self.id);
    }
}

/// Serves a connection, after its handshake if the address speaks TLS.
async fn serve_client(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    session: Session,
    stopped: &mut watch::Receiver<bool>,
) -> std::io::Result<()> {
    let Some(tls) = tls else { return serve_connection(stream, session, stopped).await };
    let stream = tokio::select! {
        stream = tls::accept(&tls, stream, PLAIN, stopped) => stream,
        () = session.known.killed.notified() => None,
    };
    match stream {
        Some(stream) => serve_connection(stream, session, stopped).await,
        None => Ok(()),
    }
}

/// Reads, runs and answers until either side closes the connection.
async fn serve_connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    mut session: Session,
    stopped: &mut watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut buffer, mut out) = (BytesMut::with_capacity(SMALL_READ_BYTES), Vec::new());
    let mut scanner = Scanner::default();
    let known = session.known.clone();
    let mut auth_due = Instant::now() + AUTH_DEADLINE;
    loop {
        reserve(&mut buffer);
        let read = tokio::select! {
            () = tokio::time::sleep_until(auth_due), if !session.is_authenticated() => return Ok(()),
            read = stream.read_buf(&mut buffer) => read?,
            () = known.killed.notified() => return Ok(()),
            () = connections::until_stopped(stopped) => return Ok(()),
        };
        if read == 0 {
            return Ok(());
        }
        // Before the requests are run: a RESET may end the login.
        if session.is_authenticated() {
            auth_due = Instant::now() + AUTH_DEADLINE;
        }
        while !buffer.is_empty() {
            let used = batch(&mut stream, &mut session, &mut scanner, &buffer, &mut out).await?;
            let Some(used) = used else {
                stream.shutdown().await?;
                return Ok(());
            };
            if used == 0 {
                break;
            }
            buffer.advance(used);
        }
    }
}

/// Makes room for the next read: more for a client that fills it.
fn reserve(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > READ_BYTES {
        // After a long request.
        *buffer = BytesMut::with_capacity(READ_BYTES);
    }
    let room = buffer.capacity() - buffer.len();
    if room < SMALL_READ_BYTES / 2 {
        let most = MAX_REQUEST_BYTES + READ_BYTES - buffer.len().min(MAX_REQUEST_BYTES);
        buffer.reserve(READ_BYTES.min(most));
    }
}

/// Runs the complete requests at the beginning of `bytes`, and answers them. Returns how many bytes
/// they have, or `None` when the connection is to be closed.
async fn batch(
    stream: &mut (impl AsyncWrite + Unpin),
    session: &mut Session,
    scanner: &mut Scanner,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> std::io::Result<Option<usize>> {
    let (mut arguments, mut ends, mut used) = (Vec::new(), Vec::new(), 0);
    let mut malformed = None;
    let mut inline = None;
    scanner.is_unauthenticated = !session.is_authenticated();
    while ends.len() < MAX_BATCH {
        match scanner.scan(&bytes[used..], &mut arguments) {
            Ok(Some(Request::Array(length))) => {
                used += length;
                if arguments.len() > ends.last().copied().unwrap_or(0) {
                    ends.push(arguments.len());
                }
                // The next request may be one of a client with a password, or none at all.
                if scanner.is_unauthenticated {
                    break;
                }
            }
            Ok(Some(Request::Inline(length, words))) => {
                used += length;
                inline = Some(words);
                break;
            }
            Ok(None) => break,
            Err(why) => {
                malformed = Some(why);
                break;
            }
        }
    }
    let mut is_open = run(stream, session, &arguments, &ends, out).await?;
    if let Some(words) = inline.filter(|words| is_open && !words.is_empty()) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        is_open = run(stream, session, &words, &[words.len()], out).await?;
    }
    if let Some(why) = malformed.filter(|_| is_open) {
        error(out, &Fault::from(format!("ERR Protocol error: {why}")));
        send(stream, out).await?;
        return Ok(None);
    }
    Ok(is_open.then_some(used))
}

/// Runs requests, and sends their replies. Returns whether the connection stays open.
async fn run(
    stream: &mut (impl AsyncWrite + Unpin),
    session: &mut Session,
    arguments: &[&[u8]],
    ends: &[usize],
    out: &mut Vec<u8>,
) -> std::io::Result<bool> {
    session.shared.commands.fetch_add(ends.len() as u64, Ordering::Relaxed);
    session.known.note_used();
    let mut from = 0;
    loop {
        let next = dispatch::run(session, arguments, ends, from, out);
        for ticket in std::mem::take(&mut session.tickets) {
            if let Err(why) = ticket.wait().await {
                // All replies to changes are errors now: the other tickets change none.
                session.replace_change_replies(out, &why);
                break;
            }
        }
        session.spans.clear();
        if let Some(awaited) = session.awaited.take() {
            wait_synced(session, awaited, out).await;
        }
        send(stream, out).await?;
        match next {
            AfterBatch::Flush(number) => from = number,
            AfterBatch::Continue => return Ok(true),
            AfterBatch::Close => return Ok(false),
        }
    }
}

/// Waits until the changes of this connection are synced, and tells whether they are.
async fn wait_synced(session: &mut Session, awaited: Awaited, out: &mut Vec<u8>) {
    let all = async {
        for set in session.changed() {
            set.ticket().wait_synced().await?;
        }
        Ok::<_, Arc<str>>(())
    };
    let done = match awaited {
        Awaited { locals: 0, .. } => session.is_synced(),
        Awaited { timeout_ms: 0, .. } => all.await.is_ok(),
        Awaited { timeout_ms, .. } => {
            let limit = Duration::from_millis(timeout_ms);
            matches!(tokio::time::timeout(limit, all).await, Ok(Ok(())))
        }
    };
    out.extend_from_slice(if done && session.live().is_on_disk() {
        b"*2\r\n:1\r\n:0\r\n"
    } else {
        b"*2\r\n:0\r\n:0\r\n"
    });
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), out: &mut Vec<u8>) -> std::io::Result<()> {
    if !out.is_empty() {
        let write = async {
            stream.write_all(out).await?;
            // TLS has a buffer of its own.
            stream.flush().await
        };
        tokio::time::timeout(WRITE_DEADLINE, write).await??;
        out.clear();
        out.shrink_to(READ_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;
    use crate::live::LiveConfig;
    use crate::token::Token;

    /// A connection to a server with a token.
    fn connect() -> (DuplexStream, JoinHandle<std::io::Result<()>>, watch::Sender<bool>) {
        let mut config = LiveConfig::new(None);
        config.token = Some(Token::new("the-token-of-this-test"));
        let live = Live::open(config).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let shared = Arc::new(RespState::new(live, address, false));
        let session = Session::new(
            shared,
            Arc::new(ClientEntry::new(1, "test".to_owned(), address.to_string())),
        );
        let (client, server) = tokio::io::duplex(1 << 10);
        let (stop, mut stopped) = watch::channel(false);
        let served = async move { serve_connection(server, session, &mut stopped).await };
        (client, tokio::spawn(served), stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_the_token_is_closed_and_one_with_it_may_be_silent() {
        let (mut client, served, _stop) = connect();
        let began = Instant::now();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it is closed");
        assert_eq!(began.elapsed(), AUTH_DEADLINE);
        served.await.unwrap().unwrap();

        let (mut client, _served, _stop) = connect();
        client.write_all(b"AUTH the-token-of-this-test\r\n").await.unwrap();
        let mut ok = [0; 5];
        client.read_exact(&mut ok).await.unwrap();
        assert_eq!(&ok, b"+OK\r\n");
        let silence = tokio::time::timeout(10 * AUTH_DEADLINE, client.read(&mut [0])).await;
        assert!(silence.is_err(), "it is open");
        // After it, the client may log in anew.
        client.write_all(b"RESET\r\n").await.unwrap();
        let mut reset = [0; 8];
        client.read_exact(&mut reset).await.unwrap();
        assert_eq!(&reset, b"+RESET\r\n");
        client.write_all(b"AUTH the-token-of-this-test\r\n").await.unwrap();
        client.read_exact(&mut ok).await.unwrap();
        assert_eq!(&ok, b"+OK\r\n");
    }
}
