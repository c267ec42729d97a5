//! [`EnginePublisher`]: the log of one set → the engine, as soon as it is synced. The engine keeps
//! some minutes of it: what is older is in the store. Whatever the engine loses, the log has, and
//! sends again.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::live::head::Head;
use bloomsday_common::live::shipment::shipments;
use bloomsday_common::store::Store;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::EngineUrl;
use super::read::{connect, describe};
use crate::live::log::Log;
use crate::live::log::tail::Tail;
use crate::live::replication::access::{StreamTask, WriteAccess};
use crate::live::replication::store_call::{CallError, in_time};
use crate::live::replication::task_context::TaskContext;

/// For how long the engine keeps what is also in the store.
const KEPT_MS: i64 = 10 * 60 * 1000;
/// How often it is checked that the engine still has what it took.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The publishing of one set.
pub(in crate::live) struct EnginePublisher {
    filter: FilterName,
    log: Arc<Log>,
    access: Arc<WriteAccess>,
    store: Store,
    engine: EngineUrl,
    /// Gets the number of the last frame that is in the engine.
    last: watch::Sender<u64>,
    tail: Tail,
    /// The number of the last frame that the engine has, as it has answered; `None` when that is
    /// not known.
    in_engine: Option<u64>,
    /// Whether the engine has lost what it had, and was not sent it again yet.
    is_lost: bool,
    /// Whether it is known that the log was not restored from an older copy.
    is_compared: bool,
    /// When the engine took the last entry, by its own clock, in milliseconds: by another clock its
    /// newest entries could look old, and be trimmed at once.
    taken_ms: Option<i64>,
}

/// Why something was not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{0}")]
    Redis(String),
    #[error("{0}")]
    Store(#[from] CallError),
    #[error("cannot read the log in {0}: {1}")]
    Log(String, std::io::Error),
    #[error("the engine or the store has frames of the log that are not here: {0}")]
    Older(String),
}

impl EnginePublisher {
    /// The publishing of a set's log. `last` gets the number of the last frame in the engine.
    pub(in crate::live) fn new(
        context: TaskContext,
        log: Arc<Log>,
        engine: EngineUrl,
        last: watch::Sender<u64>,
    ) -> EnginePublisher {
        let TaskContext { filter, access, store, .. } = context;
        EnginePublisher {
            filter,
            tail: Tail::new(log.folder()),
            log,
            access,
            store,
            engine,
            last,
            in_engine: None,
            is_lost: false,
            is_compared: false,
            taken_ms: None,
        }
    }

    /// Publishes, over one connection after the other.
    pub(in crate::live) async fn run(mut self) {
        loop {
            if let Err(error) = self.session().await {
                self.access.set_stream_error(StreamTask::Publish, Some(error.to_string()));
                self.tail.restart();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Publishes over one connection, until that fails.
    async fn session(&mut self) -> Result<(), PublishError> {
        let mut redis = connect(&self.engine).await.map_err(|e| self.failed(&e))?;
        self.check(&mut redis).await?;
        let mut next = self.first(&mut redis).await?;
        let mut synced = self.log.synced();
        loop {
            next = self.publish(&mut redis, next).await?;
            self.access.set_stream_error(StreamTask::Publish, None);
            if !self.is_lost && timeout(CHECK_INTERVAL, synced.changed()).await.is_err() {
                self.check(&mut redis).await?;
            }
            if self.is_lost {
                tracing::warn!(filter = %self.filter, "the engine has lost live IDs: they are sent again");
                next = self.first(&mut redis).await?.min(next);
                self.tail.restart();
            }
        }
    }

    /// Publishes all that is synced from a number on, or until the engine turns out to have lost
    /// what it had. Returns the next number.
    async fn publish(
        &mut self,
        redis: &mut MultiplexedConnection,
        mut next: u64,
    ) -> Result<u64, PublishError> {
        let synced = self.log.synced_seq();
        while next <= synced {
            let read = self.tail.read(next, synced);
            let read = read.map_err(|error| PublishError::Log(self.folder(), error))?;
            let Some(piece) = read else { break };
            for shipment in shipments(&piece.header, piece.frames(), next, synced) {
                let mut all = redis::pipe();
                self.ask_last(all.atomic());
                let add = all.cmd("XADD").arg(self.stream());
                if let Some(taken) = self.taken_ms {
                    add.arg("MINID").arg("~").arg(taken - KEPT_MS);
                }
                add.arg("*").arg("segment").arg(&shipment.bytes);
                let head = all.cmd("HSET").arg(self.heads()).arg(self.node());
                head.arg(shipment.last_seq).ignore();
                let sent: Result<(bool, Option<u64>, String), _> = all.query_async(redis).await;
                let (is_there, before, entry) = sent.map_err(|e| self.failed(&e))?;
                let taken = entry.split_once('-').and_then(|(ms, _)| ms.parse().ok());
                self.taken_ms = taken.or(self.taken_ms);
                self.is_lost |= self.has_lost(before.filter(|_| is_there));
                if self.is_lost {
                    return Ok(next);
                }
                self.in_engine = Some(shipment.last_seq);
                next = shipment.last_seq + 1;
                self.last.send_replace(shipment.last_seq);
            }
        }
        Ok(next)
    }

    /// Notes whether the engine has lost what it had.
    async fn check(&mut self, redis: &mut MultiplexedConnection) -> Result<(), PublishError> {
        let last = self.last_in_engine(redis).await?;
        self.is_lost |= self.has_lost(last);
        Ok(())
    }

    /// Whether the engine, which has `last`, lost what it had. A transaction whose answer did not
    /// come counts as a loss, too: before it the engine may have been wiped. What is sent twice
    /// does no harm.
    fn has_lost(&self, last: Option<u64>) -> bool {
        self.in_engine.is_some() && last != self.in_engine
    }

    /// The number of the first frame to send: after the last one in the engine, if that is known
    /// and not lost, else after the last one in the store.
    async fn first(&mut self, redis: &mut MultiplexedConnection) -> Result<u64, PublishError> {
        self.in_engine = self.in_engine.filter(|_| !self.is_lost);
        let last = match self.in_engine {
            Some(last) => last,
            None => match in_time(self.store.head_of(&self.filter, self.log.node())).await {
                Ok(head) => {
                    self.compare(head.as_ref())?;
                    head.map_or(0, |head| head.seq)
                }
                // The engine is for when the store is away, too. At a start it probably has what it
                // says.
                Err(error) => match self.last_in_engine(redis).await? {
                    Some(last) if !self.is_lost => {
                        // What this process adds may have the same numbers.
                        if !self.is_compared && !self.log.was_opened_with(last) {
                            return Err(self.older());
                        }
                        self.in_engine = Some(last);
                        last
                    }
                    _ => return Err(error.into()),
                },
            },
        };
        if last > self.log.last_seq() {
            return Err(self.older());
        }
        self.is_lost = false;
        self.last.send_replace(last);
        Ok(last + 1)
    }

    /// Compares the log with the first head that is read: later ones are of this process.
    fn compare(&mut self, head: Option<&Head>) -> Result<(), PublishError> {
        if self.is_compared {
            return Ok(());
        }
        let is_older = head.map_or(Ok(false), |head| self.log.is_older_than(head));
        if is_older.map_err(|error| PublishError::Log(self.folder(), error))? {
            return Err(self.older());
        }
        self.is_compared = true;
        Ok(())
    }

    fn older(&self) -> PublishError {
        PublishError::Older(self.log.refuse_as_older())
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

    fn folder(&self) -> String {
        self.log.folder().display().to_string()
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
