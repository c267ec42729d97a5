//! Accepting connections: what every address of a server does alike, over HTTP and over Redis's
//! protocol.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;

/// The most connections that each address serves at once.
pub(crate) const MAX_CONNECTIONS: usize = 1024;
/// How long a client may read nothing while replies wait for it.
pub(crate) const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// How long a client is silent before the system probes it, how long it waits for each answer, and
/// how often it tries. A client that vanished holds a connection for 10 minutes at most.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(300);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(100);
const KEEPALIVE_PROBES: u32 = 3;
/// How long what runs may still take after a stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);
/// How often it is said that clients hold all connections.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When it was last said that clients hold all connections.
#[derive(Default)]
pub(crate) struct FullWarning(Option<Instant>);

impl FullWarning {
    /// Whether it is time to say so, which is not more often than each [`WARN_INTERVAL`].
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= WARN_INTERVAL);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

/// Opens an address. Returns it with the port that the system chose for port 0. `send_buffer` is
/// the size of the system's buffer for what a client does not read; `None` for the system's own.
pub(crate) fn listen(
    address: SocketAddr,
    send_buffer: Option<u32>,
) -> Result<(TcpListener, SocketAddr), Error> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        // A connection inherits these from the socket that accepts it.
        set_socket_keepalive(&socket, true)?;
        set_tcp_keepidle(&socket, KEEPALIVE_AFTER)?;
        set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        if let Some(bytes) = send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(address)?;
        let listener = socket.listen(MAX_CONNECTIONS as u32)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|source: io::Error| {
        let why = match source.kind() {
            io::ErrorKind::AddrInUse => " (does another server run there?)",
            io::ErrorKind::PermissionDenied => " (ports below 1024 take CAP_NET_BIND_SERVICE)",
            _ => "",
        };
        Error::System { doing: format!("listen on {address}{why}"), source }
    })
}

/// Accepts the next connection; `None` when `stopped` says so.
pub(crate) async fn accept(
    listener: &TcpListener,
    stopped: &mut watch::Receiver<bool>,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = until_stopped(stopped) => return None,
        };
        match accepted {
            Ok((stream, client)) => {
                // Replies are small: to wait for a full packet would cost 40 ms.
                let _ = stream.set_nodelay(true);
                return Some((stream, client));
            }
            Err(error) => {
                // Out of file descriptors, most likely: connections need time to end.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Returns when a server stops, also when the sender was dropped.
pub(crate) async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Waits for the running requests, at most until a deadline.
pub(crate) async fn drain<T>(running: impl Future<Output = T>) {
    if tokio::time::timeout(DRAIN_DEADLINE, running).await.is_err() {
        tracing::warn!("stopped while requests still run");
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};

    use super::*;

    #[tokio::test]
    async fn a_client_that_vanished_is_noticed() {
        let (listener, address) = listen(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (_stop, mut stopped) = watch::channel(false);
        let (stream, _) = accept(&listener, &mut stopped).await.unwrap();
        assert!(socket_keepalive(&stream).unwrap());
        assert_eq!(tcp_keepidle(&stream).unwrap(), KEEPALIVE_AFTER);
        assert_eq!(tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(tcp_keepcnt(&stream).unwrap(), KEEPALIVE_PROBES);
    }
}
