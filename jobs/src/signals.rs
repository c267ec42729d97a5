//! [`Signals`]: what a server does at SIGHUP, SIGTERM and Ctrl-C; [`EndSignals`], for what has
//! nothing to reload.

use bloomsday_server::{Bloomsday, Tls};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// SIGTERM and Ctrl-C end it, and SIGHUP does not: who reloads a server may reload this, too.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl EndSignals {
    pub(crate) fn new() -> Result<EndSignals, Error> {
        Ok(EndSignals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the end.
    pub(crate) async fn recv(&mut self) {
        while self.is_hangup().await {
            tracing::info!("SIGHUP: there is nothing to reload");
        }
    }

    /// Waits for the next signal, and returns whether it is SIGHUP.
    async fn is_hangup(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => false,
            _ = self.hangup.recv() => true,
        }
    }
}

/// From now on a write beyond the limit on a file's size (`ulimit -f`) fails, as one on a full disk
/// does. By default a signal ends the process without a word. In a runtime.
pub(crate) fn outlive_file_limits() -> Result<(), Error> {
    /// Of Linux and macOS.
    const SIGXFSZ: i32 = 25;
    // Whoever listened once is not ended by it.
    listen(SignalKind::from_raw(SIGXFSZ)).map(drop)
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    let doing = "listen for signals".to_owned();
    signal(kind).map_err(|source| Error::System { doing, source })
}

/// The signals a daemon acts on. Made before it says that it listens: by default SIGHUP ends a
/// process.
pub(crate) struct Signals(EndSignals);

impl Signals {
    pub(crate) fn new() -> Result<Signals, Error> {
        EndSignals::new().map(Signals)
    }

    /// Reads the certificate again at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_ended(mut self, tls: Option<&Tls>) {
        while self.0.is_hangup().await {
            reload_certificate(tls);
        }
    }

    /// Reloads filters and certificate at every SIGHUP; returns at SIGTERM or Ctrl-C.
    pub(crate) async fn until_stopped(mut self, bloomsday: &Bloomsday, tls: Option<&Tls>) {
        while self.0.is_hangup().await {
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
