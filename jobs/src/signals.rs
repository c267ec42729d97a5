//! [`Signals`]: what a daemon does at SIGHUP, SIGTERM and Ctrl-C.

use bloomsday_server::{Bloomsday, Tls};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// The signals a daemon acts on. Made before it says that it listens: by default SIGHUP ends a
/// process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Error> {
        let listen = |kind: SignalKind| {
            let doing = "listen for signals".to_owned();
            signal(kind).map_err(|source| Error::System { doing, source })
        };
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Reads the certificate again at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_ended(mut self, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => reload_certificate(tls),
            }
        }
    }

    /// Reloads filters and certificate at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_stopped(mut self, bloomsday: &Bloomsday, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {}
            }
            reload_certificate(tls);
            // The poller logs the outcome, and /status reports it.
            let bloomsday = bloomsday.clone();
            tokio::spawn(async move { bloomsday.reload().await });
        }
    }
}

fn reload_certificate(tls: Option<&Tls>) {
    match tls.map(Tls::reload) {
        Some(Ok(())) => tracing::info!("the certificate was read again"),
        Some(Err(error)) => tracing::error!("the certificate stays as it was: {error}"),
        None => {}
    }
}
