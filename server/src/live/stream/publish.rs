//! [`Publishing`]: the log of one set → the engine, as soon as it is synced. The engine keeps some minutes of it:
//! what is older is in the store. Whatever the engine loses, the log has, and sends again.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::live::shipment::shipments;
use bloomsday_common::store::Store;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::EngineUrl;
use super::read::{connect, describe};
use crate::clock::Clock;
use crate::live::log::Log;
use crate::live::log::tail::Tail;
use crate::live::replication::access::WriteAccess;

/// For how long the engine keeps what is also in the store.
const KEPT_MS: i64 = 10 * 60 * 1000;
/// How often it is checked that the engine still has what it took.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The publishing of one set.
pub(in crate::live) struct Publishing {
    pub(in crate::live) filter: FilterName,
    pub(in crate::live) log: Arc<Log>,
    pub(in crate::live) access: Arc<WriteAccess>,
    pub(in crate::live) store: Store,
    pub(in crate::live) clock: Clock,
    pub(in crate::live) engine: EngineUrl,
    /// Tells the number of the last frame that is in the engine.
    pub(in crate::live) last: watch::Sender<u64>,
    pub(in crate::live) tail: Tail,
}

/// Why something was not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{0}")]
    Redis(String),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("cannot read the log in {0}: {1}")]
    Log(String, std::io::Error),
}

impl Publishing {
    pub(in crate::live) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        loop {
            let ended = tokio::select! {
                ended = self.session() => ended,
                _ = stopping.changed() => return,
            };
            if let Err(error) = ended {
                self.access.set_engine_error("publish", Some(error.to_string()));
                self.tail.restart();
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = stopping.changed() => return,
            }
        }
    }

    /// Publishes over one connection, until that fails.
    async fn session(&mut self) -> Result<(), PublishError> {
        let mut redis = connect(&self.engine).await.map_err(|e| self.failed(&e))?;
        let mut last = self.last_in_engine(&mut redis).await?;
        let mut next = self.next_after(last).await?;
        let mut synced = self.log.synced();
        loop {
            let mut is_lost = self.publish(&mut redis, &mut next, &mut last).await?;
            self.access.set_engine_error("publish", None);
            if !is_lost && timeout(CHECK_INTERVAL, synced.changed()).await.is_err() {
                is_lost = last.is_some() && self.last_in_engine(&mut redis).await? != last;
            }
            if is_lost {
                tracing::warn!(filter = %self.filter, "the engine has lost live IDs: they are sent again");
                // First: else the next session takes what was sent last for all that is before it.
                self.forget_last(&mut redis).await?;
                last = None;
                next = self.next_after(last).await?.min(next);
                self.tail.restart();
            }
        }
    }

    /// Publishes all that is synced from `next` on, where the engine has `last`. Ends early and returns `true` when
    /// the engine has lost what it had.
    async fn publish(
        &mut self,
        redis: &mut MultiplexedConnection,
        next: &mut u64,
        last: &mut Option<u64>,
    ) -> Result<bool, PublishError> {
        let synced = self.log.synced_seq();
        while *next <= synced {
            let folder = || self.log.folder().display().to_string();
            let read = self.tail.read(*next, synced);
            let read = read.map_err(|error| PublishError::Log(folder(), error))?;
            let Some(piece) = read else { break };
            for shipment in shipments(&piece.header, piece.frames(), *next, synced) {
                let oldest = self.clock.now().as_millisecond() - KEPT_MS;
                let mut all = redis::pipe();
                self.ask_last(all.atomic());
                let add = all.cmd("XADD").arg(self.stream());
                let add = add.arg("MINID").arg("~").arg(oldest).arg("*");
                add.arg("segment").arg(&shipment.bytes).ignore();
                let head = all.cmd("HSET").arg(self.heads()).arg(self.node());
                head.arg(shipment.last_seq).ignore();
                let sent: Result<(bool, Option<u64>), _> = all.query_async(redis).await;
                let (is_there, before) = sent.map_err(|e| self.failed(&e))?;
                if last.is_some() && before.filter(|_| is_there) != *last {
                    return Ok(true);
                }
                *last = Some(shipment.last_seq);
                *next = shipment.last_seq + 1;
                self.last.send_replace(shipment.last_seq);
            }
        }
        Ok(false)
    }

    /// The number of the first frame that neither the engine nor the store has for certain.
    async fn next_after(&self, last_in_engine: Option<u64>) -> Result<u64, PublishError> {
        let last = match last_in_engine {
            Some(last) => last,
            None => {
                let head = self.store.head_of(&self.filter, self.log.node()).await?;
                head.map_or(0, |head| head.seq)
            }
        };
        let last = last.min(self.log.last_seq());
        self.last.send_replace(last);
        Ok(last + 1)
    }

    /// The number of the last frame in the engine; `None` when it has none, or has lost the stream.
    async fn last_in_engine(
        &self,
        redis: &mut MultiplexedConnection,
    ) -> Result<Option<u64>, PublishError> {
        let mut both = redis::pipe();
        self.ask_last(&mut both);
        let got: Result<(bool, Option<u64>), _> = both.query_async(redis).await;
        let (is_there, last) = got.map_err(|e| self.failed(&e))?;
        Ok(last.filter(|_| is_there))
    }

    /// Asks whether the stream is there, and for the number of the last frame that was sent.
    fn ask_last(&self, pipeline: &mut redis::Pipeline) {
        pipeline.cmd("EXISTS").arg(self.stream());
        pipeline.cmd("HGET").arg(self.heads()).arg(self.node());
    }

    async fn forget_last(&self, redis: &mut MultiplexedConnection) -> Result<(), PublishError> {
        let mut forget = redis::cmd("HDEL");
        let forgotten = forget.arg(self.heads()).arg(self.node()).query_async(redis).await;
        forgotten.map_err(|e| self.failed(&e))
    }

    fn stream(&self) -> String {
        super::read::stream(&self.filter)
    }

    fn heads(&self) -> String {
        format!("{}:heads", self.stream())
    }

    fn node(&self) -> String {
        format!("{:016x}", self.log.node())
    }

    fn failed(&self, error: &redis::RedisError) -> PublishError {
        PublishError::Redis(describe(&self.engine.name(), error))
    }
}
