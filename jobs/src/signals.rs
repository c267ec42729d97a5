//! [`Signals`]: what a daemon does at SIGHUP, SIGTERM and Ctrl-C; [`EndSignals`], for what has
//! nothing to reload.

use bloomsday_server::{Bloomsday, Tls};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// SIGTERM and Ctrl-C.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(crate) fn new() -> Result<EndSignals, Error> {
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(EndSignals { terminate, interrupt })
    }

    /// Waits for either.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    let doing = "listen for signals".to_owned();
    signal(kind).map_err(|source| Error::System { doing, source })
}

/// The signals a daemon acts on. Made before it says that it listens: by default SIGHUP ends a
/// process.
pub(crate) struct Signals {
    end: EndSignals,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Error> {
        Ok(Signals { end: EndSignals::new()?, hangup: listen(SignalKind::hangup())? })
    }

    /// Reads the certificate again at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_ended(mut self, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                () = self.end.recv() => return,
                _ = self.hangup.recv() => reload_certificate(tls),
            }
        }
    }

    /// Reloads filters and certificate at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_stopped(mut self, bloomsday: &Bloomsday, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                () = self.end.recv() => return,
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
