//! Tells the store from what this server answers, at every change and now and then.
//!
//! Beside the poller, never in its way: a store that is slow to write delays no look and no swap, and the
//! heartbeat of one filter no other's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::store::heartbeat::Heartbeat;
use futures::future::join_all;
use tokio::time::Instant;

use crate::{Bloomsday, FilterStatus};

/// How often a change is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often an unchanged record is written again, well within the hour after which it expires.
const WRITE_EVERY: Duration = Duration::from_secs(900);
/// The first pause after a write that failed; it doubles up to [`WRITE_EVERY`].
const FIRST_PAUSE: Duration = Duration::from_secs(4);
/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Writes heartbeats of every filter under the name `server` until dropped. What stands in the way is said
/// once, and tried again; only a store that nobody can write to ends it.
pub(crate) async fn beat(bloomsday: Bloomsday, server: String) {
    let refused = AtomicBool::new(false);
    let filters = bloomsday.status().into_iter().map(|status| status.filter);
    join_all(filters.map(|filter| Beating::of(filter).go_on(&bloomsday, &server, &refused))).await;
}

/// The heartbeats of one filter.
struct Beating {
    filter: FilterName,
    written: Option<Heartbeat>,
    /// When it is to be written although nothing changed.
    due: Instant,
    /// The pause after the last write, if that failed; nothing is written before it is over.
    pause: Option<Duration>,
    /// Whether what stands in the way has been said.
    said: bool,
}

impl Beating {
    fn of(filter: FilterName) -> Beating {
        Beating { filter, written: None, due: Instant::now(), pause: None, said: false }
    }

    async fn go_on(mut self, bloomsday: &Bloomsday, server: &str, refused: &AtomicBool) {
        loop {
            let Ok(handle) = bloomsday.filter(self.filter.as_str()) else { return };
            let status = handle.status();
            let beat = heartbeat(&status, server);
            let is_due = self.due <= Instant::now();
            if is_due || (self.pause.is_none() && self.written.as_ref() != Some(&beat)) {
                let put = bloomsday.store().put_heartbeat(&self.filter, &beat);
                match tokio::time::timeout(DEADLINE, put).await {
                    Ok(Ok(())) => self.is_written(beat),
                    Ok(Err(error @ StoreError::ReadOnly { .. })) => {
                        self.say(&error, refused);
                        return;
                    }
                    Ok(Err(error)) => {
                        self.failed();
                        // A store that is down is the poller's to tell.
                        if is_choice(&error) || status.last_error.is_none() {
                            self.say(&error, refused);
                        }
                    }
                    Err(_) => self.failed(),
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn is_written(&mut self, beat: Heartbeat) {
        if self.said {
            tracing::info!(filter = %self.filter, "the store is told again what this server answers");
        }
        (self.written, self.pause, self.said) = (Some(beat), None, false);
        self.due = Instant::now() + WRITE_EVERY;
    }

    fn failed(&mut self) {
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(WRITE_EVERY));
        self.pause = Some(pause);
        self.due = Instant::now() + pause;
    }

    fn say(&mut self, error: &StoreError, refused: &AtomicBool) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        if !is_choice(error) {
            let filter = &self.filter;
            tracing::warn!(
                %filter,
                "the store cannot be told, so `bloomsday status` will not list this server until it \
                 can: {error}"
            );
        } else if !refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the store may not be written to, so `bloomsday status` will not list this \
                 server; `heartbeats = false` in the configuration says that this is meant: {error}"
            );
        }
    }
}

/// Credentials that may only read are a choice.
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
