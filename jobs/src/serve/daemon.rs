//! [`Daemon`]: a running server, what ends it, and the order in which it stops.

use bloomsday_server::http::Server;
use bloomsday_server::live::Live;
use bloomsday_server::resp::Resp;
use bloomsday_server::{Bloomsday, Tls};
use serde_json::json;
use tokio::task::JoinHandle;

use super::live;
use crate::error::Error;
use crate::output::{Output, host};
use crate::signals::Signals;

/// A server that listens.
pub(super) struct Daemon {
    pub(super) bloomsday: Bloomsday,
    pub(super) server: Server,
    /// What answers Redis clients.
    pub(super) resp: Option<Resp>,
    /// The live filters.
    pub(super) sets: Option<Live>,
    pub(super) heartbeats: Option<Heartbeats>,
}

impl Daemon {
    /// Returns at SIGTERM and Ctrl-C.
    ///
    /// # Errors
    /// Why the server must end: its poller has ended, or the pointers are in another place.
    pub(super) async fn until_stopped(
        &self,
        signals: Signals,
        tls: Option<&Tls>,
    ) -> Result<(), Error> {
        tokio::select! {
            () = signals.until_stopped(&self.bloomsday, tls) => Ok(()),
            () = self.bloomsday.stopped() => Err(bloomsday_server::error::Error::Stopped.into()),
            wrong = self.bloomsday.other_pointers() => Err(wrong.into()),
        }
    }

    /// Finishes the running requests, then what they added: first on the disk, then in the store.
    pub(super) async fn stop(self) {
        // While this server still has its port: another one of the same name may begin as soon as
        // that is free.
        if let Some(heartbeats) = self.heartbeats {
            heartbeats.end(&self.bloomsday).await;
        }
        self.server.stop().await;
        if let Some(resp) = self.resp {
            resp.stop().await;
        }
        if let Some(sets) = self.sets {
            sets.sync().await;
        }
        self.bloomsday.finish_shipping().await;
    }
}

/// The task that tells the store that this server is there.
pub(super) struct Heartbeats {
    /// The name of this server: its host and port.
    name: String,
    task: JoinHandle<()>,
}

impl Heartbeats {
    pub(super) fn start(bloomsday: &Bloomsday, port: u16) -> Heartbeats {
        let name = format!("{}-{port}", host());
        let (bloomsday, as_server) = (bloomsday.clone(), name.clone());
        let task = tokio::spawn(async move { bloomsday.heartbeats(as_server).await });
        Heartbeats { name, task }
    }

    async fn end(self, bloomsday: &Bloomsday) {
        self.task.abort();
        // It has ended, or was aborted. A write that is under way may still come after the
        // deletion, and expires.
        let _ = self.task.await;
        bloomsday.end_heartbeats(&self.name).await;
    }
}

/// Prints where the daemon listens.
pub(super) fn announce(server: &Server, resp: Option<&Resp>, tls: Option<&Tls>, output: &Output) {
    let (public, admin) = (server.public, server.admin);
    let mut at = json!({ "listen": public.to_string(), "admin": admin.to_string() });
    if let Some(resp) = resp {
        at["resp"] = resp.address.to_string().into();
    }
    output.show(&at, || {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let resp = resp.map_or(String::new(), |resp| {
            format!(", Redis clients at {}://{}", live::scheme(tls), resp.address)
        });
        format!("lookups at {scheme}://{public}, admin at {scheme}://{admin}{resp}\n")
    });
}
