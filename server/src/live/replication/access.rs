//! [`WriteAccess`]: whether this process may change a set now, and why not; with what is known of
//! the lease and of the logs of other servers. Lookups wait for nothing here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bloomsday_common::key::FilterName;
use bloomsday_common::live::lease::{Lease, UNREADABLE};
use tokio::sync::{Notify, watch};

use super::failure::is_another_failure;
use super::role::LiveRole;
use crate::live::lock::lock;
use crate::live::stream::feed_status::{FeedState, FeedStatus};

/// The epoch of a lease that this process has; `None` while it has none.
pub(in crate::live) type LeaseEpoch = Option<u64>;

/// Whether a set may be changed now.
pub(crate) struct WriteAccess {
    filter: FilterName,
    role: LiveRole,
    /// Whether a lease says which server decides.
    uses_lease: bool,
    began: Instant,
    /// Changes are taken before this time, in milliseconds since `began`.
    granted_until: AtomicU64,
    has_read_logs: AtomicBool,
    /// Whether the first round of following has ended, well or not.
    round_done: watch::Sender<bool>,
    state: Mutex<AccessState>,
    /// Tells of the first outcome.
    decided: Condvar,
    /// Notifies the log follower when the lease is acquired.
    lease_changed: Notify,
}

/// What is known.
#[derive(Clone, Default)]
struct AccessState {
    lease: LeaseState,
    /// Why it could not be read, taken or renewed. What was known before still holds.
    lease_error: Option<String>,
    /// In which epoch all that others had added was read.
    caught_up: LeaseEpoch,
    follow_error: Option<String>,
    /// What is wrong with the streams.
    stream_errors: BTreeMap<StreamTask, String>,
    feed: Option<FeedState>,
    segments: u64,
    logs: usize,
    /// What others changed before this time is here, in milliseconds since 1970; 0 for unknown.
    through_ms: u64,
    was_granted: bool,
}

/// Who has the lease, as it was last read or written.
#[derive(Clone, Default)]
enum LeaseState {
    #[default]
    Unknown,
    /// This process, until this time in milliseconds since `began`.
    Own { lease: Lease, until: u64 },
    /// Another process, or nobody.
    NotOwn(Option<Lease>),
}

impl LeaseState {
    fn lease(&self) -> Option<&Lease> {
        match self {
            LeaseState::Own { lease, .. } => Some(lease),
            LeaseState::NotOwn(lease) => lease.as_ref(),
            LeaseState::Unknown => None,
        }
    }

    fn own_epoch(&self) -> LeaseEpoch {
        match self {
            LeaseState::Own { lease, .. } => Some(lease.epoch),
            _ => None,
        }
    }
}

/// What a process does with the streams of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(all(feature = "redis-streams", feature = "kafka")),
    allow(dead_code, reason = "parts of streams that are compiled out")
)]
pub(in crate::live) enum StreamTask {
    /// Adds IDs from a stream of others.
    Feed,
    /// Writes its log to the engine.
    Publish,
    /// Reads from the engine.
    Read,
}

impl StreamTask {
    fn verb(self) -> &'static str {
        match self {
            StreamTask::Feed => "feed",
            StreamTask::Publish => "write to the engine",
            StreamTask::Read => "read the engine",
        }
    }
}

/// What the status says of who may change a set.
pub(crate) struct AccessStatus {
    pub(in crate::live) role: LiveRole,
    pub(in crate::live) decides: bool,
    pub(in crate::live) lease: Option<Lease>,
    pub(in crate::live) lease_error: Option<String>,
    pub(in crate::live) follow_error: Option<String>,
    pub(in crate::live) engine_error: Option<String>,
    pub(in crate::live) feed: Option<FeedStatus>,
    pub(in crate::live) segments: u64,
    pub(in crate::live) logs: usize,
    pub(in crate::live) through_ms: u64,
    /// How long this process has followed.
    pub(in crate::live) running_ms: u64,
}

impl WriteAccess {
    pub(in crate::live) fn new(
        filter: FilterName,
        role: LiveRole,
        uses_lease: bool,
    ) -> WriteAccess {
        WriteAccess {
            filter,
            role,
            uses_lease: uses_lease && role != LiveRole::Follow,
            began: Instant::now(),
            granted_until: AtomicU64::new(0),
            has_read_logs: AtomicBool::new(false),
            round_done: watch::Sender::new(false),
            state: Mutex::default(),
            decided: Condvar::new(),
            lease_changed: Notify::new(),
        }
    }

    /// Whether a change is taken now; else why not.
    pub(in crate::live) fn check(&self) -> Result<(), Arc<str>> {
        if self.is_granted() { Ok(()) } else { Err(self.why().into()) }
    }

    /// Whether this process has decided without a break since this epoch was read.
    pub(in crate::live) fn check_epoch(&self, epoch: LeaseEpoch) -> Result<(), Arc<str>> {
        if self.is_granted() && self.epoch() == epoch {
            Ok(())
        } else {
            let why = "the lease ended before other servers could read it, and another one may have decided \
                       about the same ID: see lease in /status";
            Err(why.into())
        }
    }

    fn is_granted(&self) -> bool {
        self.ms_at(Instant::now()) < self.granted_until.load(Ordering::Acquire)
    }

    fn ms_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Why no change is taken.
    fn why(&self) -> String {
        let state = lock(&self.state);
        let by = |lease: &Lease| format!("`{}` decides", lease.decider);
        if self.role == LiveRole::Follow {
            return match state.lease.lease() {
                Some(lease) => format!("this server only follows; {}: add there", by(lease)),
                None => {
                    "this server only follows: add at the server with `live = \"decide\"`".into()
                }
            };
        }
        match (&state.lease, &state.lease_error, &state.follow_error) {
            (LeaseState::Own { until, .. }, _, error)
                if self.ms_at(Instant::now()) < *until =>
            {
                match error {
                    Some(error) => format!(
                        "this server has the lease, but cannot read all that others added: {error}"
                    ),
                    None => "this server has just begun to decide, and reads what others added: try again".into(),
                }
            }
            (_, Some(error), _) => format!("the lease cannot be renewed or taken: {error}"),
            (LeaseState::NotOwn(Some(lease)), ..) => {
                format!("{} until {:.0} or longer: add there", by(lease), lease.until)
            }
            _ => "this server has no lease yet: try again".into(),
        }
    }

    /// This process took or renewed the lease: it has it until this moment.
    pub(in crate::live) fn lease_acquired(&self, lease: Lease, until: Instant) {
        let mut state = lock(&self.state);
        if state.lease.own_epoch() != Some(lease.epoch) {
            self.lease_changed.notify_one();
        }
        state.lease = LeaseState::Own { lease, until: self.ms_at(until) };
        state.lease_error = None;
        self.update(&mut state);
    }

    /// Another process has the lease, or nobody.
    pub(in crate::live) fn lease_not_acquired(&self, lease: Option<Lease>) {
        let mut state = lock(&self.state);
        (state.lease, state.lease_error) = (LeaseState::NotOwn(lease), None);
        self.update(&mut state);
    }

    /// This process ends, or its log is an older copy: it is about to give its lease back.
    pub(in crate::live) fn stop_deciding(&self) {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.was_granted) {
            tracing::info!(filter = %self.filter, "this server decides no more: it gives the lease back");
        }
        if let LeaseState::Own { until, .. } = &mut state.lease {
            *until = 0;
        }
        self.update(&mut state);
    }

    /// The lease could not be read, taken or renewed. One that this process has stays its own until
    /// its end.
    pub(in crate::live) fn lease_failed(&self, why: String) {
        self.note_lease_error(&mut lock(&self.state), why);
    }

    fn note_lease_error(&self, state: &mut AccessState, why: String) {
        if is_another_failure(state.lease_error.as_deref(), &why) {
            tracing::warn!(filter = %self.filter, "the lease of live IDs: {why}");
        }
        state.lease_error = Some(why);
        self.update(state);
    }

    /// The record of the lease cannot be read: it counts as another process's, for now.
    pub(in crate::live) fn lease_unreadable(&self, why: &str) {
        let seconds = UNREADABLE.as_secs();
        let why = format!(
            "its record cannot be read: {why}; it counts as another server's lease for {seconds} s"
        );
        let mut state = lock(&self.state);
        state.lease = LeaseState::NotOwn(None);
        self.note_lease_error(&mut state, why);
    }

    /// Waits until this process has taken the lease anew.
    pub(in crate::live) async fn wait_for_lease(&self) {
        self.lease_changed.notified().await;
    }

    /// Takes the lease as a follower read it.
    pub(in crate::live) fn lease_observed(&self, lease: Option<Lease>) {
        lock(&self.state).lease = LeaseState::NotOwn(lease);
    }

    /// The epoch in which this process has the lease, before a round of following.
    pub(in crate::live) fn epoch(&self) -> LeaseEpoch {
        if self.uses_lease { lock(&self.state).lease.own_epoch() } else { Some(0) }
    }

    /// A round of following that began in this epoch has succeeded. What was changed before
    /// `through_ms` is here.
    pub(in crate::live) fn round_succeeded(&self, epoch: Option<u64>, through_ms: u64) {
        let mut state = lock(&self.state);
        state.caught_up = epoch.or(state.caught_up);
        self.round_done.send_replace(true);
        state.follow_error = None;
        state.through_ms = state.through_ms.max(through_ms);
        self.update(&mut state);
    }

    /// A round has failed, or not all of what others added can be read.
    pub(in crate::live) fn round_failed(&self, why: String) {
        let mut state = lock(&self.state);
        if is_another_failure(state.follow_error.as_deref(), &why) {
            tracing::warn!(filter = %self.filter, "not all live IDs of other servers are here: {why}");
        }
        state.follow_error = Some(why);
        self.round_done.send_replace(true);
        self.update(&mut state);
    }

    pub(in crate::live) fn count_segment(&self) {
        lock(&self.state).segments += 1;
    }

    pub(in crate::live) fn set_log_count(&self, logs: usize) {
        lock(&self.state).logs = logs;
    }

    /// Notes that the logs that there are have been read, as far as they can be.
    pub(in crate::live) fn note_logs_read(&self) {
        if lock(&self.state).logs > 0 {
            self.has_read_logs.store(true, Ordering::Relaxed);
        }
    }

    /// Whether other servers have live IDs of this filter, or had some since the start, which are
    /// here.
    pub(crate) fn has_read_logs(&self) -> bool {
        self.has_read_logs.load(Ordering::Relaxed)
    }

    /// Whether the first round of following has ended, well or not.
    pub(crate) fn is_round_done(&self) -> bool {
        *self.round_done.borrow()
    }

    /// Waits until the first round of following has ended, well or not.
    pub(crate) async fn wait_for_round(&self) {
        // The sender is in `self`.
        let _ = self.round_done.subscribe().wait_for(|done| *done).await;
    }

    fn update(&self, state: &mut AccessState) {
        let granted_until = match &state.lease {
            _ if self.role == LiveRole::Follow || state.caught_up.is_none() => 0,
            _ if !self.uses_lease => u64::MAX,
            LeaseState::Own { lease, until } if state.caught_up == Some(lease.epoch) => *until,
            _ => 0,
        };
        self.granted_until.store(granted_until, Ordering::Release);
        let is_granted = self.is_granted();
        if is_granted != state.was_granted {
            state.was_granted = is_granted;
            let (filter, by) = (&self.filter, state.lease.lease().map(|lease| &lease.decider));
            if is_granted {
                tracing::info!(%filter, "this server decides which live IDs are new")
            } else {
                tracing::warn!(%filter, ?by, "this server no longer decides: adds are refused")
            }
        }
        self.decided.notify_all();
    }

    /// Waits until it is known whether this process decides. Returns the lease of another one, if
    /// that does.
    pub(in crate::live) fn wait_until_decided(&self, most: Duration) -> Option<Lease> {
        let undecided = |state: &mut AccessState| {
            let is_waiting = match &state.lease {
                LeaseState::Unknown => self.uses_lease && state.lease_error.is_none(),
                LeaseState::Own { lease, .. } => {
                    state.caught_up != Some(lease.epoch) && state.follow_error.is_none()
                }
                LeaseState::NotOwn(_) => false,
            };
            is_waiting || !self.is_round_done()
        };
        let state = lock(&self.state);
        let waited = self.decided.wait_timeout_while(state, most, undecided);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &state.lease {
            LeaseState::NotOwn(lease) if state.lease_error.is_none() => lease.clone(),
            _ => None,
        }
    }

    pub(in crate::live) fn role(&self) -> LiveRole {
        self.role
    }

    pub(in crate::live) fn uses_lease(&self) -> bool {
        self.uses_lease
    }

    pub(in crate::live) fn status(&self) -> AccessStatus {
        let decides = self.is_granted();
        let state = lock(&self.state).clone();
        let (segments, logs, through_ms) = (state.segments, state.logs, state.through_ms);
        let lease = state.lease.lease().cloned();
        let (lease_error, follow_error) = (state.lease_error, state.follow_error);
        let role = self.role;
        let errors =
            state.stream_errors.iter().map(|(task, why)| format!("cannot {}: {why}", task.verb()));
        let engine_error = errors.reduce(|one, other| format!("{one}; {other}"));
        let feed = state.feed.as_ref().map(|feed| feed.status(decides));
        AccessStatus {
            role,
            decides,
            lease,
            lease_error,
            follow_error,
            engine_error,
            feed,
            segments,
            logs,
            through_ms,
            running_ms: self.ms_at(Instant::now()),
        }
    }
}

#[cfg_attr(
    not(all(feature = "redis-streams", feature = "kafka")),
    allow(dead_code, reason = "parts of streams that are compiled out")
)]
impl WriteAccess {
    /// Sets the error of an engine or a feed; `None` when it works.
    pub(in crate::live) fn set_stream_error(&self, task: StreamTask, why: Option<String>) {
        let mut state = lock(&self.state);
        match why {
            Some(why) if state.stream_errors.get(&task) != Some(&why) => {
                tracing::warn!(filter = %self.filter, "live IDs: cannot {}: {why}", task.verb());
                state.stream_errors.insert(task, why);
            }
            Some(_) => {}
            None => _ = state.stream_errors.remove(&task),
        }
    }

    /// Whether there is an error of an engine or a feed.
    pub(in crate::live) fn has_stream_error(&self, task: StreamTask) -> bool {
        lock(&self.state).stream_errors.contains_key(&task)
    }

    /// Begins to count what is read of a feed.
    pub(in crate::live) fn begin_feed(&self, name: String) {
        lock(&self.state).feed = Some(FeedState::new(name));
    }

    fn update_feed(&self, update: impl FnOnce(&mut FeedState)) {
        if let Some(feed) = &mut lock(&self.state).feed {
            update(feed);
        }
    }

    /// Counts IDs of a feed that were added, and messages that had none.
    pub(in crate::live) fn count_fed(&self, read: u64, skipped: u64) {
        self.update_feed(|feed| {
            feed.read += read;
            feed.skipped += skipped;
        });
    }

    /// Counts messages of a feed that were dropped before they were read.
    pub(in crate::live) fn count_lost(&self, messages: u64) {
        self.update_feed(|feed| feed.lost += messages);
    }

    /// Sets how many messages of a feed are still to be read.
    pub(in crate::live) fn set_feed_behind(&self, messages: u64) {
        self.update_feed(|feed| {
            feed.behind = Some(messages);
            if messages == 0 {
                feed.at_end = Instant::now();
            }
        });
    }

    /// Notes that all of a feed has been read by now.
    pub(in crate::live) fn set_feed_at_end(&self) {
        self.update_feed(|feed| feed.at_end = Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_waits_for_others_needs_the_lease_of_the_change() {
        let access = WriteAccess::new("rt".parse().unwrap(), LiveRole::Standby, true);
        let decide = |epoch: u64, seconds: u64| {
            let lease = Lease {
                decider: "a".into(),
                node: "1".into(),
                epoch,
                until: jiff::Timestamp::UNIX_EPOCH,
                seconds,
            };
            access.lease_acquired(lease, Instant::now() + Duration::from_secs(seconds));
            access.round_succeeded(Some(epoch), 0);
        };
        decide(1, 600);
        let changed_in = access.epoch();
        assert_eq!(access.check_epoch(changed_in), Ok(()));
        decide(1, 0);
        access.check_epoch(changed_in).expect_err("the lease has ended");
        decide(3, 600);
        access.check_epoch(changed_in).expect_err("another one had it in between");
    }
}
