//! [`Sharing`]: the two threads of a process that follow other servers' logs and keep leases, for
//! all sets. No lookup and no add waits for them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bloomsday_common::key::FilterName;
use bloomsday_common::random::random;
use bloomsday_common::store::Store;
use futures::{FutureExt, future};
use tokio::sync::mpsc;
#[cfg(feature = "redis-streams")]
use tokio::sync::watch;

use super::access::WriteAccess;
use super::follow::LogFollower;
use super::lease::{Holder, LeaseRenewer};
use super::role::LiveRole;
use super::stored_logs::StoredLogs;
use super::task_context::TaskContext;
use super::task_thread::{TaskThread, TaskThreadBuilder, Tasks};
use crate::clock::Clock;
use crate::error::Error;
use crate::live::Live;
#[cfg(feature = "redis-streams")]
use crate::live::ack::Ack;
use crate::live::set::LiveSet;
#[cfg(any(feature = "redis-streams", feature = "kafka"))]
use crate::live::stream::FeedReader;
#[cfg(feature = "redis-streams")]
use crate::live::stream::{EnginePublisher, EngineReader};
use crate::live::stream::{EngineUrl, FeedUrl, FromEngine};

/// How long a start waits until it is known which server decides.
const START_WAIT: Duration = Duration::from_secs(5);
/// How long the end of a process waits until its leases are given back.
const FINISH_DEADLINE: Duration = Duration::from_secs(3);

/// How many entries of an engine wait to be applied: each has at most 9 MiB.
const MAX_QUEUED_ENTRIES: usize = 8;

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

/// The threads. They end soon after this is dropped.
pub(crate) struct Sharing {
    tasks: TaskThread,
    /// A thread apart: what others added may be seconds of work, and a lease is renewed in time.
    leases: TaskThread,
}

/// The streams of one set.
#[cfg_attr(
    not(all(feature = "redis-streams", feature = "kafka")),
    allow(dead_code, reason = "parts of streams that are compiled out")
)]
struct Streams {
    engine: Option<EngineUrl>,
    from: Option<FeedUrl>,
    received: mpsc::Sender<FromEngine>,
}

#[cfg_attr(
    not(all(feature = "redis-streams", feature = "kafka")),
    allow(
        unused_variables,
        unused_mut,
        reason = "without a feature nobody can make an address of its streams"
    )
)]
impl Streams {
    fn tasks(self, context: &TaskContext, live: &Live) -> Tasks {
        let mut tasks = Tasks::new();
        #[cfg(any(feature = "redis-streams", feature = "kafka"))]
        if let Some(feed) = self.from {
            let reader = FeedReader::new(context.clone(), feed, live.folder());
            tasks.push(reader.run().boxed());
        }
        #[cfg(feature = "redis-streams")]
        if let Some(engine) = self.engine {
            if let Some(log) = context.set.log() {
                let (last, shipped) = watch::channel(0);
                if live.ack() == Ack::Shipped {
                    log.require_shipped(shipped);
                }
                let publisher = EnginePublisher::new(context.clone(), log, engine.clone(), last);
                tasks.push(publisher.run().boxed());
            }
            let TaskContext { filter, access, .. } = context.clone();
            let reader = EngineReader { filter, access, engine, to: self.received };
            tasks.push(reader.run().boxed());
        }
        tasks
    }
}

/// The tasks of a set, which is shared from now on, but for its lease.
fn tasks_of(shared: SharedSet, context: &TaskContext, live: &Live) -> Tasks {
    let SharedSet { days, engine, from, .. } = shared;
    let TaskContext { filter, set, access, store, clock } = context.clone();
    let (own, is_incomplete) = (set.log().map(|log| log.node()), Arc::<AtomicBool>::default());
    let others = StoredLogs {
        filter: filter.clone(),
        store: store.clone(),
        clock: clock.clone(),
        own,
        days,
        is_incomplete: is_incomplete.clone(),
    };
    set.share(access, Arc::new(others));
    let (received, entries) = mpsc::channel(MAX_QUEUED_ENTRIES);
    let entries = engine.is_some().then_some(entries);
    let mut tasks = Streams { engine, from, received }.tasks(context, live);
    let follower = LogFollower::new(context.clone(), u32::from(days), is_incomplete, entries);
    tasks.push(follower.run().boxed());
    tasks
}

/// Who keeps the lease of a set, where there is one.
fn renewer_of(length: Duration, context: &TaskContext, live: &Live) -> Option<LeaseRenewer> {
    context.access.uses_lease().then(|| {
        let node = context.set.log().map_or_else(|| random().max(1), |log| log.node());
        let holder = Holder { server: live.name().to_owned(), node };
        LeaseRenewer::new(context.clone(), holder, length)
    })
}

/// Waits until it is known which server decides.
///
/// # Errors
/// [`Error::OtherDecider`]: another one decides for a set whose role is [`LiveRole::Decide`].
fn wait_for_deciders(accesses: &[(FilterName, Arc<WriteAccess>)]) -> Result<(), Error> {
    let until = Instant::now() + START_WAIT;
    for (filter, access) in accesses.iter().filter(|(_, access)| access.role() == LiveRole::Decide)
    {
        let other = access.wait_until_decided(until.saturating_duration_since(Instant::now()));
        if let Some(lease) = other {
            let (filter, decider) = (filter.to_string(), lease.decider);
            return Err(Error::OtherDecider { filter, decider, until: lease.until });
        }
    }
    Ok(())
}

impl Sharing {
    /// Shares these sets from now on. Waits a few seconds at most until it is known which server
    /// decides.
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
        let leases = TaskThreadBuilder::new("live-lease", "start the thread that keeps leases");
        let (mut accesses, mut tasks, mut renewers) = (Vec::new(), Tasks::new(), Vec::new());
        for shared in shared {
            let filter = shared.filter.clone();
            let access = WriteAccess::new(filter.clone(), shared.role, !shared.lease.is_zero());
            let access = Arc::new(access);
            accesses.push((filter.clone(), access.clone()));
            let (set, store, clock) = (shared.set.clone(), store.clone(), clock.clone());
            let context = TaskContext { filter, set, access, store, clock };
            renewers.extend(renewer_of(shared.lease, &context, live));
            let of_set = tasks_of(shared, &context, live);
            tasks.extend(of_set.into_iter().map(|task| thread.until_stopped(task)));
        }
        let tasks = thread.start(tasks)?;
        let renew = |renewer: LeaseRenewer| {
            // Who no longer follows the others must not decide for long.
            future::select(renewer.run(leases.stopping()).boxed(), tasks.panicked().boxed())
                .map(drop)
                .boxed()
        };
        let renewers = renewers.into_iter().map(renew).collect();
        let leases = leases.start(renewers)?;
        wait_for_deciders(&accesses)?;
        Ok(Sharing { tasks, leases })
    }

    /// Returns when a thread has panicked.
    pub(crate) async fn panicked(&self) {
        tokio::select! {
            () = self.tasks.panicked() => {}
            () = self.leases.panicked() => {}
        }
    }

    /// Gives the leases back, and ends; waits at most a few seconds.
    pub(crate) async fn finish(&self) {
        // A lease that is not given back ends by itself.
        tokio::join!(self.leases.finish(FINISH_DEADLINE), self.tasks.finish(FINISH_DEADLINE));
    }
}
