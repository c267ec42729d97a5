//! [`RespState`]: what all connections of an address share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::live::Live;

/// What all connections share.
pub(crate) struct RespState {
    pub(crate) live: Live,
    pub(crate) address: SocketAddr,
    pub(crate) allow_flush: bool,
    pub(crate) started: Instant,
    pub(crate) accepted: AtomicU64,
    /// Those accepted before the last CONFIG RESETSTAT.
    pub(crate) accepted_before: AtomicU64,
    pub(crate) commands: AtomicU64,
    /// Connections that were refused, or closed for others, since all were in use.
    pub(crate) rejected: AtomicU64,
    /// The connections, by their numbers.
    pub(crate) clients: Mutex<BTreeMap<u64, Arc<ClientEntry>>>,
}

impl RespState {
    pub(super) fn new(live: Live, address: SocketAddr, allow_flush: bool) -> RespState {
        RespState {
            live,
            address,
            allow_flush,
            started: Instant::now(),
            accepted: AtomicU64::new(0),
            accepted_before: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            clients: Mutex::default(),
        }
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientEntry>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the oldest connection that has not logged in, whatever it does or waits for. Returns
    /// whether there was one.
    pub(super) fn end_oldest_stranger(&self) -> bool {
        let mut clients = self.clients();
        let mut strangers = clients.iter().filter(|(_, client)| !client.is_authenticated());
        let Some(oldest) = strangers.next().map(|(id, _)| *id) else { return false };
        if let Some(client) = clients.remove(&oldest) {
            client.make_way.notify_one();
        }
        true
    }
}

/// What other connections may know of one.
pub(crate) struct ClientEntry {
    pub(crate) id: u64,
    pub(crate) address: String,
    /// The server's end of the connection.
    pub(crate) local: String,
    since: Instant,
    /// When its last bytes came, in seconds from `since`.
    last_used: AtomicU64,
    info: Mutex<ClientInfo>,
    /// Whether it has presented the token, or needs none.
    is_authenticated: AtomicBool,
    /// Notified by CLIENT KILL: this connection ends when what it runs is answered.
    pub(crate) killed: Notify,
    /// Notified when this connection is to end at once, for a new one.
    pub(super) make_way: Notify,
}

/// What a connection tells of itself, for CLIENT LIST and INFO.
#[derive(Clone, Default)]
pub(crate) struct ClientInfo {
    pub(crate) name: Vec<u8>,
    pub(crate) library: (Vec<u8>, Vec<u8>),
    pub(crate) database: u8,
    pub(crate) is_v3: bool,
    /// How many commands wait for EXEC, if there was a MULTI.
    pub(crate) queued: Option<usize>,
}

impl ClientEntry {
    pub(super) fn new(id: u64, address: String, local: String) -> ClientEntry {
        let (info, killed, make_way) = (Mutex::default(), Notify::new(), Notify::new());
        let (since, last_used) = (Instant::now(), AtomicU64::new(0));
        let is_authenticated = AtomicBool::new(false);
        ClientEntry {
            id,
            address,
            local,
            since,
            last_used,
            info,
            is_authenticated,
            killed,
            make_way,
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    pub(crate) fn set_authenticated(&self, is_authenticated: bool) {
        self.is_authenticated.store(is_authenticated, Ordering::Relaxed);
    }

    pub(crate) fn info(&self) -> MutexGuard<'_, ClientInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how many seconds it is there.
    pub(crate) fn age(&self) -> u64 {
        self.since.elapsed().as_secs()
    }

    /// For how many seconds it has sent nothing.
    pub(crate) fn idle(&self) -> u64 {
        self.age().saturating_sub(self.last_used.load(Ordering::Relaxed))
    }

    /// Requests of it arrived.
    pub(super) fn note_used(&self) {
        self.last_used.store(self.age(), Ordering::Relaxed);
    }
}
