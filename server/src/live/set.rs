//! [`LiveSet`]: one table with its log. Every change is made in the table and appended to the log
//! under one lock, so that the log has the order of the table; waiting for the disk comes after.
//!
//! An add that is answered "seen" waits like the one that is answered "new": otherwise it could be
//! acknowledged for an ID whose only record was lost.

mod absorb;
mod changes;
mod counts;
mod follow;
mod near;
mod over;
mod own_log;
mod state;
mod union;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use bloomsday_common::id_form::IdForm;
use bloomsday_common::live::absorb::day_end_ms;
use bloomsday_common::live::segment::Op;

pub(crate) use self::absorb::DayFilter;
pub(crate) use self::follow::{
    AddVisitor, Deletions, LateDeletions, MAX_CLOCK_SKEW_MS, OtherLogs, drop_if_later,
};
use self::state::{AbsorbState, AddCounts};
use super::below::{Below, NoAnswer};
use super::lock::lock;
use super::log::Log;
use super::memory::domains::Domains;
use super::memory::near::{Full, Near};
use super::memory::table::Table;
use super::memory::writer::{AddError, Writer};
use super::options::{DAY_MS, Key, Options};
use super::replication::access::WriteAccess;
use super::replication::ship_status::ShipStatus;
use super::ticket::Ticket;

/// The `expires_at` of a set that does not end.
const NEVER: u64 = u64::MAX;

/// For how many hashes of a change the memory is kept: it is not counted with the table's.
const KEPT_CHANGES: usize = 1 << 16;

/// Why a call of a set failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetError {
    /// The limit on memory is reached.
    Memory,
    /// There are as many copies of the ID as there may be.
    Copies,
    /// The set does not grow beyond its capacity.
    Full,
    /// The set was dropped meanwhile: look its key up again.
    Gone,
    /// The day's filter, or what others added before the start, is not here yet: nobody knows what
    /// is new.
    NotLoaded,
    /// The day's filter has a layout that cannot be looked up by the hashes of live IDs.
    Layout,
    /// The log cannot be written.
    Log(Arc<str>),
    /// Another server decides, or nobody knows whether this one does.
    ReadOnly(Arc<str>),
}

/// For people; Redis clients get the words of Redis.
impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetError::Memory => {
                "the limit on the memory of live filters is reached: raise `live_memory`"
            }
            SetError::Copies => "there are as many copies of the ID as there may be",
            SetError::Full => "the filter is full, and does not grow",
            SetError::Gone => "the filter was dropped",
            SetError::NotLoaded => {
                "what the day or other servers have is not loaded yet: try again"
            }
            SetError::Layout => {
                "the day's filter has a layout without live IDs: build it with `blocked`"
            }
            SetError::Log(why) | SetError::ReadOnly(why) => why,
        })
    }
}

impl From<NoAnswer> for SetError {
    fn from(why: NoAnswer) -> SetError {
        match why {
            NoAnswer::NotLoaded => SetError::NotLoaded,
            NoAnswer::OtherLayout => SetError::Layout,
        }
    }
}

impl From<Full> for SetError {
    fn from(_: Full) -> SetError {
        SetError::Memory
    }
}

impl From<AddError> for SetError {
    fn from(refused: AddError) -> SetError {
        match refused {
            AddError::Memory => SetError::Memory,
            AddError::Copies => SetError::Copies,
        }
    }
}

/// When a set ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    Anyway,
    /// Unless there is an ID in it.
    IfEmpty,
    /// Unless its time was set anew.
    IfExpired {
        now: u64,
    },
}

/// A set of live IDs.
pub(crate) struct LiveSet {
    key: Key,
    options: Options,
    table: Arc<Table>,
    /// The fingerprints, if this is a set of fingerprints; `None` after it was dropped. Such a set
    /// has an empty `table`. Locked after `state`, or alone.
    near: RwLock<Option<Near>>,
    below: OnceLock<Weak<dyn Below>>,
    state: Mutex<SetState>,
    /// Milliseconds since 1970.
    expires_at: AtomicU64,
    /// Whether this process may change it; a set that is not shared has none.
    access: OnceLock<Arc<WriteAccess>>,
    /// The logs of other servers, of a set that is shared.
    others: OnceLock<Arc<dyn OtherLogs>>,
    /// Whether and how its log is shipped.
    shipping: OnceLock<Arc<ShipStatus>>,
    absorb: AbsorbState,
    added: AddCounts,
    /// The domains of what was added, if IDs are URLs.
    domains: Option<Mutex<Domains>>,
}

/// What happened to a set before this start.
#[derive(Default)]
pub(super) struct Before {
    /// The time of the last change.
    pub(super) last_ms: u64,
    pub(super) deletions: Deletions,
    /// How many IDs were deleted.
    pub(super) deleted: u64,
}

struct SetState {
    writer: Writer,
    log: Option<Arc<Log>>,
    is_dropped: bool,
    /// What there was when the last add was refused for want of memory.
    full_at: Option<FullAt>,
    deleted: u64,
    /// The time of the last change.
    last_ms: u64,
    /// A change that is made now is of this time or later, whatever the clock says, but of no other
    /// day: whoever reads all logs takes it for a later one than those of other servers that were
    /// here before it.
    after_others_ms: u64,
    /// The time of the last [`LiveSet::mark`]: what was changed before it is in the log.
    marked_ms: u64,
    /// The hashes of one call that the log has to have.
    changed: Vec<u64>,
    deletions: Deletions,
    /// Deletions of another log that came later than newer changes, while it is looked up whether
    /// their IDs were seen again. An add removes its IDs.
    late: LateDeletions,
}

/// How old the time may be that a change read from the clock.
const MAX_STALL_MS: u64 = 60_000;

/// What there is when an add is refused for want of memory. With less of it, or in another step of
/// the window, the next add may find a place.
#[derive(Clone, Copy)]
struct FullAt {
    /// What all tables of the process take.
    taken: u64,
    entries: u64,
    step: u64,
}

/// The last millisecond of the day of a time.
fn end_of_day(ms: u64) -> u64 {
    day_end_ms(ms / DAY_MS) - 1
}

impl LiveSet {
    pub(super) fn new(
        key: Key,
        options: Options,
        writer: Writer,
        near: Option<Near>,
        log: Option<Arc<Log>>,
        expires_at: Option<u64>,
        before: Before,
    ) -> LiveSet {
        let table = writer.table().clone();
        let domains = (options.id_form == IdForm::Url).then(Mutex::default);
        let Before { last_ms, deletions, deleted } = before;
        let (is_dropped, changed) = (false, Vec::new());
        LiveSet {
            key,
            options,
            table,
            near: RwLock::new(near),
            below: OnceLock::new(),
            state: Mutex::new(SetState {
                writer,
                log,
                is_dropped,
                full_at: None,
                deleted,
                last_ms,
                after_others_ms: 0,
                marked_ms: 0,
                changed,
                deletions,
                late: LateDeletions::new(),
            }),
            expires_at: AtomicU64::new(expires_at.unwrap_or(NEVER)),
            access: OnceLock::new(),
            others: OnceLock::new(),
            shipping: OnceLock::new(),
            absorb: AbsorbState::default(),
            added: AddCounts::default(),
            domains,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// A number of its key, which never changes.
    pub(crate) fn number(&self) -> u64 {
        self.key.number()
    }

    /// When a hash was last seen: the time at which that step began.
    pub(crate) fn seen_at(&self, now: u64, hash: u64) -> Option<u64> {
        self.tick(now);
        let step = lock(&self.state).writer.step_of(hash)?;
        Some(step.saturating_mul(self.table.window().step_ms.get()))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Makes a change if one can be made, and logs the hashes that it changed.
    fn change<T>(
        &self,
        now: u64,
        change: impl FnOnce(&mut SetState) -> (Op, Result<T, SetError>),
    ) -> (Ticket, Result<T, SetError>) {
        let mut state = lock(&self.state);
        if let Err(refusal) = self.check(&state) {
            return (Ticket::NONE, Err(refusal));
        }
        // The time of the table, which a clock that goes back does not take back.
        let now = now.max(state.last_ms).max(state.after_others_ms.min(end_of_day(now)));
        // A thread may stall after it read the clock. More than that is a clock that was set back.
        let is_stalled = state.marked_ms.saturating_sub(now) <= MAX_STALL_MS;
        let now = if is_stalled { now.max(state.marked_ms) } else { now };
        state.last_ms = now;
        state.writer.tick(now);
        state.changed.clear();
        let (op, result) = change(&mut state);
        if matches!(result, Err(SetError::Memory)) {
            state.full_at = Some(self.memory_now(&state));
        } else if op != Op::Add || !state.changed.is_empty() {
            state.full_at = None;
        }
        let SetState { log, changed, deletions, .. } = &mut *state;
        if self.options.is_over_day {
            deletions.note(op, now, changed.iter().copied());
        }
        let ticket = self.ticket_of(log.as_ref(), |log| log.append(now, op, changed));
        changed.clear();
        changed.shrink_to(KEPT_CHANGES);
        (ticket, result)
    }

    /// What is changed after this call has a time of `now` or later, also if its caller read the
    /// clock up to [`MAX_STALL_MS`] before.
    pub(in crate::live) fn mark(&self, now: u64) {
        let mut state = lock(&self.state);
        if state.marked_ms.saturating_sub(now) > MAX_STALL_MS {
            // The clock was set back.
            state.marked_ms = now;
        }
        state.marked_ms = state.marked_ms.max(now);
    }

    /// Whether a change can be made now.
    fn check(&self, state: &SetState) -> Result<(), SetError> {
        if state.is_dropped {
            return Err(SetError::Gone);
        }
        // First, since a server whose log is an older copy gives its lease back.
        state.log.as_ref().map_or(Ok(()), |log| log.check()).map_err(SetError::Log)?;
        self.access.get().map_or(Ok(()), |access| access.check()).map_err(SetError::ReadOnly)
    }

    fn memory_now(&self, state: &SetState) -> FullAt {
        let (taken, entries) = (state.writer.budget().taken(), state.writer.len());
        FullAt { taken, entries, step: self.table.step() }
    }

    /// Whether changes can be made now, as far as that is known before one is tried. A transaction
    /// asks, because it does all or nothing: with `adds` also whether the last add was refused for
    /// want of memory, and nothing was freed since.
    pub(crate) fn check_change(&self, now: u64, adds: bool) -> Result<(), SetError> {
        self.tick(now);
        let state = lock(&self.state);
        self.check(&state)?;
        let current = self.memory_now(&state);
        let is_full = |then: FullAt| {
            current.taken >= then.taken
                && current.entries >= then.entries
                && current.step == then.step
        };
        if adds && state.full_at.is_some_and(is_full) {
            return Err(SetError::Memory);
        }
        drop(state);
        self.look_up_day_to_change(&[]).map(drop)
    }

    /// Sets when the set ends, or that it does not.
    pub(crate) fn expire_at(&self, now: u64, at: Option<u64>) -> (Ticket, Result<(), SetError>) {
        let state = lock(&self.state);
        if let Err(refusal) = self.check(&state) {
            return (Ticket::NONE, Err(refusal));
        }
        let at = at.unwrap_or(NEVER);
        let log = state.log.as_ref();
        self.expires_at.store(at, Ordering::Release);
        let record = at.to_le_bytes();
        let ticket = self.ticket_of(log, |log| log.append_record(now, Op::Expire, &record));
        (ticket, Ok(()))
    }

    /// When the set ends, in milliseconds since 1970.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        Some(self.expires_at.load(Ordering::Acquire)).filter(|at| *at != NEVER)
    }

    /// Puts the set over a day's filter, once.
    pub(super) fn put_over(&self, below: Weak<dyn Below>) {
        // The first one stays: a filter of the configuration is served once.
        let _ = self.below.set(below);
    }

    /// Whether it belongs to a filter of the configuration that is live here.
    pub(crate) fn is_declared(&self) -> bool {
        self.below.get().is_some()
    }

    /// Whether clients made it, and not a configuration.
    pub(crate) fn is_of_clients(&self) -> bool {
        !self.options.is_over_day
    }

    /// How many copies of a hash there are.
    pub(crate) fn count(&self, now: u64, hash: u64) -> usize {
        self.tick(now);
        self.table.count(hash)
    }

    /// Goes to the step of this time, if it is another.
    pub(crate) fn tick(&self, now: u64) {
        let window = self.table.window();
        if window.steps.is_some() && window.step_at(now) > self.table.step() {
            lock(&self.state).writer.tick(now);
            self.near(|_| ());
        }
    }

    /// Waits for all changes so far.
    pub(crate) fn ticket(&self) -> Ticket {
        let log = lock(&self.state).log.clone();
        self.ticket_of(log.as_ref(), |log| log.last_seq())
    }

    /// Waits for the frame of the log that has this number.
    fn ticket_of(&self, log: Option<&Arc<Log>>, seq: impl FnOnce(&Log) -> u64) -> Ticket {
        log.map_or(Ticket::NONE, |log| Ticket::of(log, seq(log), self.access.get()))
    }

    /// The log, if there is one.
    pub(super) fn log(&self) -> Option<Arc<Log>> {
        lock(&self.state).log.clone()
    }

    /// Notes that the log is shipped.
    pub(super) fn ship_with(&self, status: Arc<ShipStatus>) {
        // A set is shipped by one thread.
        let _ = self.shipping.set(status);
    }

    /// Whether the store has all of its log, once shipping has ended; true if it is not shipped.
    pub(in crate::live) fn is_all_shipped(&self) -> bool {
        self.shipping.get().is_none_or(|status| status.is_all_shipped())
    }

    /// Whether there is such a filter for certain: this process takes its IDs, or others do. The
    /// name of one that is only followed may be wrong.
    pub(crate) fn is_known(&self) -> bool {
        !self.only_follows() || self.access.get().is_some_and(|access| access.has_read_logs())
    }

    /// Whether what others added before the start has been read, or cannot be now.
    pub(crate) fn has_others_ids(&self) -> bool {
        self.access.get().is_none_or(|access| access.is_round_done())
    }

    /// Waits until [`LiveSet::has_others_ids`].
    pub(crate) async fn wait_for_others_ids(&self) {
        if let Some(access) = self.access.get() {
            access.wait_for_round().await;
        }
    }

    /// Whether the set was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.state).is_dropped
    }

    /// Ends the set if `when` is true of it now: then changes are refused. Returns whether it has
    /// ended.
    pub(super) fn end(&self, when: End) -> bool {
        let mut state = lock(&self.state);
        state.is_dropped |= match when {
            End::Anyway => true,
            End::IfEmpty => state.writer.len() == 0,
            End::IfExpired { now } => self.expires_at().is_some_and(|at| at <= now),
        };
        state.is_dropped
    }

    /// Reopens a set that was dropped.
    pub(super) fn resume(&self) {
        lock(&self.state).is_dropped = false;
    }

    /// The log, of a set that has ended.
    pub(super) fn take_log(&self) -> Option<Arc<Log>> {
        lock(&self.state).log.take()
    }
}
