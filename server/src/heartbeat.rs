//! Writes to the store which filters this server uses, at every change and at intervals.
//!
//! It runs apart from the poller: a store that is slow to write delays no poll and no swap. Nor
//! does the heartbeat of one filter delay that of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::store::Store;
use bloomsday_common::store::heartbeat::Heartbeat;
use futures::future::join_all;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::handle::ServedFilter;
use crate::status::FilterStatus;

/// How often the status is compared with the last record.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How often an unchanged record is written again: most of what a store costs is writes. A record
/// expires after two hours.
const WRITE_INTERVAL: Duration = Duration::from_secs(45 * 60);
/// The first pause after a write that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
/// The longest of these pauses.
const MAX_PAUSE: Duration = Duration::from_secs(900);
/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// How long the end of a server waits for the store.
const END_DEADLINE: Duration = Duration::from_secs(3);

/// Writes heartbeats of every filter under the name `server` until it is dropped. An error is
/// logged once, and the write is retried; a read-only store ends it.
pub(crate) async fn run(served: &[Arc<ServedFilter>], store: &Store, server: String) {
    let refused = AtomicBool::new(false);
    let writers = served.iter().map(|served| Writer::of(served.clone()));
    join_all(writers.map(|writer| writer.run(store, &server, &refused))).await;
}

/// Deletes the heartbeats of a server that ends, which is no laggard. Credentials that may not
/// delete leave them: they expire.
pub(crate) async fn end(served: &[Arc<ServedFilter>], store: &Store, server: &str) {
    let deletes = served.iter().map(|served| store.delete_heartbeat(served.name(), server));
    let _ = tokio::time::timeout(END_DEADLINE, join_all(deletes)).await;
}

/// The heartbeats of one filter.
struct Writer {
    served: Arc<ServedFilter>,
    written: Option<Heartbeat>,
    /// When the record is written although nothing changed.
    due: Instant,
    /// Whether the last write failed. Nothing is written before its pause ends.
    is_failing: bool,
    backoff: Backoff,
    /// Whether the error was logged.
    is_logged: bool,
}

impl Writer {
    fn of(served: Arc<ServedFilter>) -> Writer {
        Writer {
            served,
            written: None,
            due: Instant::now(),
            is_failing: false,
            backoff: Backoff::new(FIRST_PAUSE, MAX_PAUSE),
            is_logged: false,
        }
    }

    async fn run(mut self, store: &Store, server: &str, refused: &AtomicBool) {
        loop {
            let status = self.served.status();
            let beat = heartbeat(&status, server);
            let is_due = self.due <= Instant::now();
            if is_due || (!self.is_failing && self.written.as_ref() != Some(&beat)) {
                let put = store.put_heartbeat(self.served.name(), &beat);
                match tokio::time::timeout(DEADLINE, put).await {
                    Ok(Ok(())) => self.succeeded(beat),
                    Ok(Err(error @ StoreError::ReadOnly { .. })) => {
                        self.log(&error, refused);
                        return;
                    }
                    Ok(Err(error)) => {
                        self.failed();
                        // The poller reports a store that is down.
                        if is_choice(&error) || status.last_error.is_none() {
                            self.log(&error, refused);
                        }
                    }
                    Err(_) => self.failed(),
                }
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn succeeded(&mut self, beat: Heartbeat) {
        if self.is_logged {
            tracing::info!(filter = %self.served.name(), "heartbeats are written again");
        }
        (self.written, self.is_failing, self.is_logged) = (Some(beat), false, false);
        self.backoff.reset();
        self.due = Instant::now() + WRITE_INTERVAL;
    }

    fn failed(&mut self) {
        self.is_failing = true;
        self.due = Instant::now() + self.backoff.after_failure();
    }

    fn log(&mut self, error: &StoreError, refused: &AtomicBool) {
        if std::mem::replace(&mut self.is_logged, true) {
            return;
        }
        if !is_choice(error) {
            let filter = self.served.name();
            tracing::warn!(
                %filter,
                "a heartbeat cannot be written, so the status of the store does not list this server \
                 until it can: {error}"
            );
        } else if !refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the store may not be written to, so its status does not list this server; \
                 switch heartbeats off if this is intended: {error}"
            );
        }
    }
}

/// Credentials that may only read can be a choice of the operator.
fn is_choice(error: &StoreError) -> bool {
    matches!(error, StoreError::Forbidden { .. } | StoreError::ReadOnly { .. })
}

fn heartbeat(status: &FilterStatus, server: &str) -> Heartbeat {
    Heartbeat {
        server: server.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        digest: status.digest,
        day: status.day,
        loaded_at: status.loaded_at,
        last_error: status.last_error.clone(),
    }
}
