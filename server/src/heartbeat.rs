//! Tells the store from what this server answers, at every change and now and then.
//!
//! Beside the poller, never in its way: a store that is slow to write delays no look and no swap.

use std::time::{Duration, Instant};

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::store::heartbeat::Heartbeat;

use crate::{Bloomsday, FilterStatus};

/// How often a change is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often an unchanged record is written again, well within the hour after which it expires.
const WRITE_EVERY: Duration = Duration::from_secs(900);
/// How long one write may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Writes heartbeats of every filter under the name `server` until dropped; a first refusal ends it with
/// one warning, since credentials that may only read are a choice.
pub(crate) async fn beat(bloomsday: Bloomsday, server: String) {
    let mut written: Vec<(Option<Heartbeat>, Instant)> = Vec::new();
    loop {
        let filters = bloomsday.status();
        written.resize_with(filters.len(), || (None, Instant::now()));
        for (status, (last, at)) in filters.iter().zip(&mut written) {
            let beat = heartbeat(status, &server);
            if last.as_ref() == Some(&beat) && at.elapsed() < WRITE_EVERY {
                continue;
            }
            let put = bloomsday.store().put_heartbeat(&status.filter, &beat);
            match tokio::time::timeout(DEADLINE, put).await {
                Ok(Ok(())) => (*last, *at) = (Some(beat), Instant::now()),
                Ok(Err(
                    StoreError::Forbidden { .. }
                    | StoreError::OverHttp { .. }
                    | StoreError::File { .. },
                )) => {
                    tracing::warn!(
                        "the store may not be written to, so `bloomsday status` will not list this \
                         server; `heartbeats = false` in the configuration says that this is meant"
                    );
                    return;
                }
                // The store is down, which the poller says already: at the next change, or in time.
                Ok(Err(_)) | Err(_) => (*last, *at) = (Some(beat), Instant::now()),
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
