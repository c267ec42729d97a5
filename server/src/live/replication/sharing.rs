//! [`Sharing`]: the thread that follows other servers' logs and keeps leases, for all sets of a process. No
//! lookup and no add waits for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;
use futures::FutureExt;
use tokio::sync::{mpsc, watch};

use super::access::WriteAccess;
use super::follow::LogFollower;
use super::lease::LeaseRenewer;
use super::role::LiveRole;
use super::stored_logs::StoredLogs;
use super::task_thread::{TaskThread, TaskThreadBuilder, Tasks};
use crate::clock::Clock;
use crate::error::Error;
use crate::live::Live;
#[cfg(feature = "redis-streams")]
use crate::live::ack::Ack;
#[cfg(feature = "redis-streams")]
use crate::live::log::tail::Tail;
use crate::live::set::LiveSet;
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
use crate::live::stream::FeedReader;
#[cfg(feature = "redis-streams")]
use crate::live::stream::{EnginePublisher, EngineReader};
use crate::live::stream::{EngineUrl, Entry, FeedUrl};
use crate::random::random;

/// How long a start waits until it is known which server decides.
const START_WAIT: Duration = Duration::from_secs(5);
/// How long the end of a process waits until its leases are given back.
const FINISH_DEADLINE: Duration = Duration::from_secs(3);

/// How many entries of an engine wait to be applied: each has at most 9 MiB.
const MAX_ENTRIES: usize = 8;

/// A set that is shared.
pub(crate) struct SharedSet {
    pub(crate) filter: FilterName,
    pub(crate) set: Arc<LiveSet>,
    pub(crate) role: LiveRole,
    /// For how many days an ID is a hit.
    pub(crate) days: u8,
    /// The length of the lease; zero for none.
    pub(crate) lease: Duration,
    /// What tells others at once, besides the store.
    pub(crate) engine: Option<EngineUrl>,
    /// What IDs are added from.
    pub(crate) from: Option<FeedUrl>,
}

/// The thread. It ends soon after this is dropped.
pub(crate) struct Sharing(TaskThread);

/// The streams of one set.
#[cfg_attr(not(all(feature = "redis-streams", feature = "kafka")), allow(dead_code))] // of what is left out
struct Streams {
    engine: Option<EngineUrl>,
    from: Option<FeedUrl>,
    entries: mpsc::Sender<Entry>,
}

/// Which set, and whether it may be changed.
type Which = (FilterName, Arc<LiveSet>, Arc<WriteAccess>);

// No address of what is left out can be made.
#[cfg_attr(
    not(all(feature = "redis-streams", feature = "kafka")),
    allow(unused_variables, unused_mut)
)]
impl Streams {
    fn tasks(
        self,
        which: &Which,
        (store, clock): &(Store, Clock),
        live: &Live,
        stopping: &watch::Receiver<bool>,
    ) -> Tasks {
        let mut tasks = Tasks::new();
        #[cfg(any(feature = "redis-streams", feature = "kafka"))]
        if let Some(feed) = self.from {
            let (filter, set, access) = which.clone();
            let file = live.folder().map(|folder| folder.join(format!("{filter}.from")));
            let (clock, warned) = (clock.clone(), Default::default());
            let feeding = FeedReader { filter, set, access, feed, file, clock, warned };
            tasks.push(feeding.run(stopping.clone()).boxed());
        }
        #[cfg(feature = "redis-streams")]
        if let Some(engine) = self.engine {
            let (filter, set, access) = which.clone();
            if let Some(log) = set.log() {
                let (last, shipped) = watch::channel(0);
                if live.ack() == Ack::Shipped {
                    log.require_shipped(shipped);
                }
                let ((filter, access), tail) =
                    ((filter.clone(), access.clone()), Tail::new(log.folder()));
                let (store, clock, engine) = (store.clone(), clock.clone(), engine.clone());
                let publishing = EnginePublisher {
                    filter,
                    log,
                    access,
                    store,
                    clock,
                    engine,
                    last,
                    tail,
                    in_engine: None,
                    is_lost: false,
                };
                tasks.push(publishing.run(stopping.clone()).boxed());
            }
            let to = self.entries;
            tasks.push(EngineReader { filter, access, engine, to }.run(stopping.clone()).boxed());
        }
        tasks
    }
}

impl Sharing {
    /// Shares these sets from now on. Waits a few seconds at most until it is known which server decides.
    ///
    /// # Errors
    /// [`Error::OtherDecider`] when another one does, for a set whose role is [`LiveRole::Decide`].
    pub(crate) fn start(
        store: &Store,
        shared: Vec<SharedSet>,
        live: &Live,
        clock: &Clock,
    ) -> Result<Sharing, Error> {
        let thread = TaskThreadBuilder::new("live-share", "start the thread that shares live IDs");
        let stopping = thread.stopping();
        let mut accesses = Vec::new();
        let mut tasks = Tasks::new();
        for SharedSet { filter, set, role, days, lease, engine, from } in shared {
            let access = Arc::new(WriteAccess::new(filter.clone(), role, !lease.is_zero()));
            let own = set.log().map(|log| log.node());
            let place = (store.clone(), clock.clone());
            let is_incomplete = Arc::<AtomicBool>::default();
            let others = StoredLogs {
                filter: filter.clone(),
                place: place.clone(),
                own,
                days,
                is_incomplete: is_incomplete.clone(),
            };
            set.share(access.clone(), Arc::new(others));
            accesses.push((filter.clone(), access.clone()));
            if access.has_lease() {
                let who = (live.name().to_owned(), own.unwrap_or_else(|| random().max(1)));
                let of = (filter.clone(), access.clone());
                tasks.push(
                    LeaseRenewer::new(of, place.clone(), who, lease).run(stopping.clone()).boxed(),
                );
            }
            let (entries, received) = mpsc::channel(MAX_ENTRIES);
            let streams = Streams { engine, from, entries };
            let which = (filter.clone(), set.clone(), access.clone());
            tasks.extend(streams.tasks(&which, &place, live, &stopping));
            let mut following = LogFollower::new(which, place, own, u32::from(days), is_incomplete);
            following.entries = Some(received);
            tasks.push(following.run(stopping.clone()).boxed());
        }
        let thread = thread.start(tasks)?;
        let until = Instant::now() + START_WAIT;
        for (filter, access) in
            accesses.iter().filter(|(_, access)| access.role() == LiveRole::Decide)
        {
            let other = access.wait(until.saturating_duration_since(Instant::now()));
            if let Some(lease) = other {
                let (filter, decider) = (filter.to_string(), lease.decider);
                return Err(Error::OtherDecider { filter, decider, until: lease.until });
            }
        }
        Ok(Sharing(thread))
    }

    /// Gives the leases back, and ends; waits at most a few seconds.
    pub(crate) async fn finish(&self) {
        // A lease that is not given back ends by itself.
        let _ = self.0.finish(FINISH_DEADLINE).await;
    }
}
