//! [`Shipper`]: the log of each set → segments in the store, for builds and for other servers. One
//! thread for all sets of a process; an add never waits for it.
//!
//! Only frames that are synced are shipped, so that no other frame can ever have the number of one
//! that is in the store. The head of a log in the store says what was shipped: a new process goes
//! on from there. What a killed process shipped after its last head is compared with the log, and
//! not written again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::Frames;
use bloomsday_common::live::shipment::{Shipment, shipments};
use bloomsday_common::store::{PutSegment, Store};
use futures::FutureExt;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ship_status::ShipStatus;
use super::store_call::{CallError, in_time};
use super::task_thread::{TaskThread, TaskThreadBuilder};
use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::error::Error;
use crate::live::log::Log;
use crate::live::log::tail::Tail;
use crate::live::set::LiveSet;

/// How often what was added is shipped.
const SHIP_INTERVAL: Duration = Duration::from_secs(1);
/// How often the head of a log is written without a new segment: it tells others that there is
/// none.
const HEAD_INTERVAL: Duration = Duration::from_secs(10);
/// The longest pause after failures; it doubles from [`SHIP_INTERVAL`].
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long the end of a process waits for the last segments.
const FINISH_DEADLINE: Duration = Duration::from_secs(5);
/// By how much a clock may be set back before that is reported.
const MAX_CLOCK_STEP_MS: u64 = 60_000;

/// The thread that ships. It ends soon after this is dropped.
pub(crate) struct Shipper(TaskThread);

impl Shipper {
    /// Ships these sets from now on. A set without a log is left out. `server` is the name in the
    /// heads. Where it is `promised`, acknowledgements wait for the store.
    pub(crate) fn start(
        store: &Store,
        sets: Vec<(FilterName, Arc<LiveSet>)>,
        server: &str,
        clock: &Clock,
        promised: impl Fn(&FilterName) -> bool,
    ) -> Result<Shipper, Error> {
        let thread = TaskThreadBuilder::new("live-ship", "start the thread that ships live IDs");
        let now = clock.now_ms();
        let tasks = sets
            .into_iter()
            .filter_map(|(filter, set)| {
                let log = set.log()?;
                let status = Arc::new(ShipStatus::new(now));
                set.ship_with(status.clone());
                let (store, server, clock) = (store.clone(), server.to_owned(), clock.clone());
                let tail = Tail::new(log.folder());
                let (next, head_due) = (None, Instant::now());
                let (last, shipped) = watch::channel(0);
                if promised(&filter) {
                    log.require_shipped(shipped);
                }
                let shipper = LogShipper {
                    filter,
                    set,
                    log,
                    status,
                    store,
                    server,
                    clock,
                    tail,
                    next,
                    created_ms: None,
                    mark: None,
                    is_clock_behind: false,
                    through_ms: 0,
                    last,
                    head_due,
                };
                Some(shipper.run(thread.stopping()).boxed())
            })
            .collect();
        Ok(Shipper(thread.start(tasks)?))
    }

    /// Returns when the thread has panicked.
    pub(crate) async fn panicked(&self) {
        self.0.panicked().await;
    }

    /// Ships what there is, and ends; waits at most a few seconds.
    pub(crate) async fn finish(&self) {
        if !self.0.finish(FINISH_DEADLINE).await {
            tracing::warn!("not all live IDs are in the store: the next start ships them");
        }
    }
}

/// The shipping of one set.
struct LogShipper {
    filter: FilterName,
    set: Arc<LiveSet>,
    log: Arc<Log>,
    status: Arc<ShipStatus>,
    store: Store,
    server: String,
    clock: Clock,
    tail: Tail,
    /// The number of the next frame to ship; unknown until the head is read.
    next: Option<u64>,
    /// `created_ms` of the segment with the last frame that was shipped.
    created_ms: Option<u64>,
    mark: Option<Mark>,
    /// Whether the last change is far in the future by this clock.
    is_clock_behind: bool,
    /// What was changed before this time is in the store, according to the heads, in milliseconds
    /// since 1970.
    through_ms: u64,
    /// Tells the number of the last frame that others read: it is in the store, and the head of the
    /// log says so.
    last: watch::Sender<u64>,
    /// When the head is written although nothing was shipped.
    head_due: Instant,
}

/// When frame `last_seq` is shipped, so is all that was changed before this time.
#[derive(Clone, Copy)]
struct Mark {
    at_ms: u64,
    last_seq: u64,
}

/// Why something was not shipped.
#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error("{0}")]
    Store(#[from] CallError),
    #[error("cannot read the log in {0}: {1}")]
    Log(String, io::Error),
    #[error("{key} is in the store with other content than the log has: {remedy}")]
    Other { key: String, remedy: String },
    #[error(
        "{0} is damaged in the store: delete it, and it is written again from this server's log"
    )]
    Damaged(String),
}

impl LogShipper {
    async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut backoff = Backoff::new(SHIP_INTERVAL, MAX_PAUSE);
        loop {
            let shipped = self.ship().await;
            let pause = match &shipped {
                Ok(()) => {
                    backoff.reset();
                    SHIP_INTERVAL
                }
                Err(_) => {
                    // More may have been read than was shipped.
                    self.tail.restart();
                    backoff.after_failure()
                }
            };
            let is_over = matches!(
                &shipped,
                Err(ShipError::Store(CallError::Store(StoreError::ReadOnly { .. })))
            );
            self.status.set_error(&self.filter, shipped.err().map(|error| error.to_string()));
            if is_over {
                // This store takes no segments: nothing is left to wait for.
                self.status.shipped_all();
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = stopping.changed() => {
                    if changed.is_ok() {
                        // What was added since, and the head.
                        self.head_due = Instant::now();
                        self.mark = None;
                        let why = match self.ship().await {
                            // The frames of the mark, which is of this moment, are in the store.
                            Ok(()) if self.mark.is_none() => return self.status.shipped_all(),
                            Ok(()) => "not all are synced".to_owned(),
                            Err(error) => error.to_string(),
                        };
                        let filter = &self.filter;
                        tracing::warn!(%filter, "not all live IDs are in the store; the next start tries again: {why}");
                    }
                    return;
                }
            }
        }
    }

    /// Ships all that is synced.
    async fn ship(&mut self) -> Result<(), ShipError> {
        let began = self.clock.now_ms();
        self.set.mark(began);
        self.warn_of_clock(self.set.clock_ahead_ms(began));
        let (last_seq, synced) = (self.log.last_seq(), self.log.synced_seq());
        // While IDs are added there are always frames that are not synced: those of an earlier
        // round say how far it is.
        let mark = *self.mark.get_or_insert(Mark { at_ms: began, last_seq });
        let mut next = match self.next {
            Some(next) => next,
            None => self.find_next().await?,
        };
        while next <= synced {
            let failed = |error| ShipError::Log(self.log.folder().display().to_string(), error);
            let Some(piece) = self.tail.read(next, synced).map_err(failed)? else { break };
            for shipment in shipments(&piece.header, piece.frames(), next, synced) {
                next = self.put(&shipment).await? + 1;
                self.next = Some(next);
                if next != shipment.last_seq + 1 {
                    // A killed process had shipped a part of it, or more.
                    self.tail.restart();
                    break;
                }
            }
            if next <= synced {
                self.put_head(next - 1).await?;
            }
        }
        if next > mark.last_seq {
            self.status.shipped_through(mark.at_ms);
            self.through_ms = self.through_ms.max(mark.at_ms);
            self.mark = None;
        }
        if next - 1 > *self.last.borrow() || self.head_due <= Instant::now() {
            self.put_head(next - 1).await?;
        }
        Ok(())
    }

    /// Says once that the clock was ahead when something was added.
    fn warn_of_clock(&mut self, ahead_ms: u64) {
        let is_behind = ahead_ms > MAX_CLOCK_STEP_MS;
        if is_behind && !self.is_clock_behind {
            let (filter, seconds) = (&self.filter, ahead_ms / 1000);
            tracing::error!(
                %filter,
                "the last change has a time {seconds} s ahead of this clock: until then all adds get that time, and are \
                 in that day's build. Is this clock right, and those of the other servers?"
            );
        }
        self.is_clock_behind = is_behind;
    }

    /// The store has other frames under this key: refuses changes.
    fn other(&self, key: String) -> ShipError {
        ShipError::Other { key, remedy: self.log.refuse_as_older() }
    }

    /// Finds out what was shipped before this process.
    async fn find_next(&mut self) -> Result<u64, ShipError> {
        let node = self.log.node();
        let head = in_time(self.store.head_of(&self.filter, node)).await?;
        let folder = || self.log.folder().display().to_string();
        if let Some(head) = &head {
            let is_older = self.log.is_older_than(head);
            if is_older.map_err(|error| ShipError::Log(folder(), error))? {
                return Err(self.other(format!("{}/live/heads/{node:016x}", self.filter)));
            }
            self.created_ms = head.created_ms;
            // A clock that was ahead for a while may have written it.
            let through = u64::try_from(head.through.as_millisecond()).unwrap_or(0);
            self.through_ms = through.min(self.clock.now_ms());
        }
        let next = head.as_ref().map_or(1, |head| head.seq.saturating_add(1));
        let headed_ms = head.map(|_| self.through_ms);
        if let Some(key) = self.last_without_head(next, headed_ms).await? {
            let bytes = in_time(self.store.segment(&key)).await?;
            let is_ours = match Frames::of_named(&key, &bytes) {
                Ok((there, frames)) => {
                    self.log.last_of_same(&there, frames).map(|last| last.is_some())
                }
                // Nobody can read it; that is said when its frames are shipped.
                Err(_) => Ok(self.log.was_opened_with(key.first_seq)),
            };
            if !is_ours.map_err(|error| ShipError::Log(folder(), error))? {
                return Err(self.other(key.to_string()));
            }
        }
        self.next = Some(next);
        self.last.send_replace(next - 1);
        Ok(next)
    }

    /// The last segment of this log from frame `next` on: a process that was killed wrote it, after
    /// the head of the time `headed_ms`. Its name has the epoch of that process, so that a segment
    /// of this one with the same frames would get another name.
    async fn last_without_head(
        &self,
        next: u64,
        headed_ms: Option<u64>,
    ) -> Result<Option<SegmentKey>, ShipError> {
        let (node, first_seq) = (self.log.node(), next - 1);
        let failed = |error| ShipError::Log(self.log.folder().display().to_string(), error);
        // A day of a busy log has tens of thousands.
        let epoch = match first_seq {
            0 => 0,
            _ => self.log.epoch_of(first_seq).map_err(failed)?.unwrap_or(0),
        };
        // The day before, since the clock may have been set back.
        let oldest = headed_ms.map(|ms| Day::at_unix_ms(ms).minus(1));
        let mut last: Option<SegmentKey> = None;
        for day in in_time(self.store.segment_days(&self.filter)).await? {
            if oldest.is_some_and(|oldest| day < oldest) {
                continue;
            }
            let after = SegmentKey { filter: self.filter.clone(), day, node, epoch, first_seq };
            let listed = self.store.segments_of(&self.filter, day, node, Some(&after));
            let keys = in_time(listed).await?.into_iter().map(|(key, _)| key);
            last = keys.chain(last).max_by_key(|key| key.first_seq);
        }
        Ok(last.filter(|last| last.first_seq >= next))
    }

    /// Writes a segment; returns the number of the last frame that is in the store now.
    async fn put(&mut self, shipment: &Shipment) -> Result<u64, ShipError> {
        let header = &shipment.header;
        let key = SegmentKey {
            filter: self.filter.clone(),
            day: shipment.day,
            node: header.node,
            epoch: header.epoch,
            first_seq: header.first_seq,
        };
        crash_point("shipping");
        let put = self.store.put_segment(&key, shipment.bytes.clone().into());
        let last = match in_time(put).await? {
            PutSegment::Written => shipment.last_seq,
            PutSegment::Other(there) => {
                let folder = || self.log.folder().display().to_string();
                let Ok((there, frames)) = Frames::of_named(&key, &there) else {
                    return Err(ShipError::Damaged(key.to_string()));
                };
                let same = self.log.last_of_same(&there, frames);
                let Some(last) = same.map_err(|error| ShipError::Log(folder(), error))? else {
                    return Err(self.other(key.to_string()));
                };
                last
            }
        };
        self.created_ms = Some(header.created_ms);
        crash_point("shipped");
        self.status.shipped_segment();
        Ok(last)
    }

    /// Tells others how far the log is in the store: they read no further.
    async fn put_head(&mut self, seq: u64) -> Result<(), ShipError> {
        let through = i64::try_from(self.through_ms).ok();
        let through = through.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let (server, through) = (self.server.clone(), through.unwrap_or_default());
        let head = Head { server, seq, through, created_ms: self.created_ms };
        in_time(self.store.put_head(&self.filter, self.log.node(), &head)).await?;
        self.head_due = Instant::now() + HEAD_INTERVAL;
        self.last.send_replace(seq);
        Ok(())
    }
}
