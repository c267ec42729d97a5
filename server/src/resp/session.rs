//! [`Session`]: the state of one connection, and how its requests find the sets they name.

use std::sync::{Arc, Weak};

use bloomsday_common::id_form::IdForm;
use futures::FutureExt;

use super::reply::{Fault, error};
use super::shared::{ClientEntry, ClientInfo, RespState};
use crate::live::{
    CreateError, Key, Kind, Live, LiveSet, MAX_KEY_BYTES, Options, SetError, Ticket,
};

/// The most retries when a set is dropped while a command uses it.
const MAX_DROPPED_RETRIES: usize = 8;

pub(crate) const WRONGTYPE: Fault =
    fault("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const SYNTAX: Fault = fault("ERR syntax error");
const DROPPED_AGAIN: Fault = fault("ERR the filter is dropped again and again: try again");
/// A number that is none, or too large.
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

const fn fault(text: &'static str) -> Fault {
    Fault(std::borrow::Cow::Borrowed(text))
}

/// The state of one connection.
pub(crate) struct Session {
    pub(crate) shared: Arc<RespState>,
    /// What others know of it: kept up by [`Session::publish`].
    pub(crate) known: Arc<ClientEntry>,
    pub(crate) is_v3: bool,
    pub(crate) database: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) library: (Vec<u8>, Vec<u8>),
    pub(crate) transaction: Option<Transaction>,
    /// Whether requests of a transaction run.
    pub(crate) is_executing: bool,
    pub(crate) is_closing: bool,
    /// What WAITAOF waits for: when this is set, the batch is interrupted.
    pub(crate) awaited: Option<Awaited>,
    /// The time of this batch, in milliseconds since 1970.
    pub(crate) now: u64,
    /// What the replies of this batch wait for.
    pub(crate) tickets: Vec<Ticket>,
    /// Where replies to changes are.
    pub(crate) spans: Vec<ReplySpan>,
    /// The sets that this connection changed, for WAITAOF. Weak, because a set that was dropped
    /// keeps memory of the tables until nobody has it.
    pub(crate) changed: Vec<Weak<LiveSet>>,
    /// The last set that was used, and the state of all names then. Weak, too.
    last: Option<(u64, Weak<LiveSet>)>,
    pub(crate) hashes: Vec<u64>,
}

/// Replies to changes that follow each other.
pub(crate) struct ReplySpan {
    /// The first byte of them in what is sent, and the byte after the last one.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// The number of replies.
    pub(crate) replies: usize,
}

/// How many databases there are: a database is a part of each key.
pub(crate) const DATABASES: u8 = 16;

/// What WAITAOF waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) locals: i64,
    pub(crate) timeout_ms: u64,
}

/// Requests between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) requests: Vec<Vec<Vec<u8>>>,
    pub(crate) bytes: usize,
    pub(crate) is_wrong: bool,
}

impl Session {
    pub(crate) fn new(shared: Arc<RespState>, known: Arc<ClientEntry>) -> Session {
        known.set_authenticated(shared.live.token().is_none());
        Session {
            shared,
            known,
            is_v3: false,
            database: 0,
            name: Vec::new(),
            library: (Vec::new(), Vec::new()),
            transaction: None,
            is_executing: false,
            is_closing: false,
            awaited: None,
            now: 0,
            tickets: Vec::new(),
            spans: Vec::new(),
            changed: Vec::new(),
            last: None,
            hashes: Vec::new(),
        }
    }

    /// The state of a new connection, but for the name of the client's library. With a token, the
    /// client has to log in again.
    pub(crate) fn reset(&mut self) {
        (self.is_v3, self.database, self.transaction) = (false, 0, None);
        self.name.clear();
        self.known.set_authenticated(self.live().token().is_none());
    }

    /// Whether the client has presented the token, or needs none.
    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.known.is_authenticated()
    }

    /// Lets other connections see what this one tells of itself.
    pub(crate) fn publish(&self) {
        *self.known.info() = ClientInfo {
            name: self.name.clone(),
            library: self.library.clone(),
            database: self.database,
            is_v3: self.is_v3,
            queued: self.transaction.as_ref().map(|transaction| transaction.requests.len()),
        };
    }

    pub(crate) fn live(&self) -> &Live {
        &self.shared.live
    }

    /// The name of a set as a request has it.
    pub(crate) fn key(&self, name: &[u8]) -> Result<Key, Fault> {
        if name.len() > MAX_KEY_BYTES {
            let why =
                format!("ERR a key has at most {MAX_KEY_BYTES} bytes, this one {}", name.len());
            return Err(why.into());
        }
        Ok(Key { database: self.database, name: name.into() })
    }

    /// The set of a name, if there is one.
    pub(crate) fn find_set(&mut self, name: &[u8]) -> Result<Option<Arc<LiveSet>>, Fault> {
        let changes = self.live().changes();
        if let Some((seen, set)) = &self.last
            && *seen == changes
            && let Some(set) = set.upgrade()
            && *set.key().name == *name
            && set.key().database == self.database
            && set.expires_at().is_none()
        {
            return Ok(Some(set));
        }
        let key = self.key(name)?;
        if self.live().is_reserved(&key) {
            let name = String::from_utf8_lossy(name);
            return Err(format!(
                "ERR `{name}` is a filter of the configuration that has no live IDs on this server: set its \
                 `live`, and let this server serve it"
            )
            .into());
        }
        let set = self.live().get(&key, self.now);
        self.last = set.as_ref().map(|set| (changes, Arc::downgrade(set)));
        Ok(set)
    }

    /// What is hashed of the IDs of a name. If a set with the other form takes the name before the
    /// change, that change adds the other hash. This is accepted: nobody adds to a name while it is
    /// made anew.
    pub(crate) fn id_form_of(&mut self, name: &[u8]) -> Result<IdForm, Fault> {
        Ok(self.find_set(name)?.map_or(IdForm::Bytes, |set| set.options().id_form))
    }

    /// Counts the domains of URLs that are about to be added.
    pub(crate) fn count_domains<'a>(
        &mut self,
        name: &[u8],
        ids: impl IntoIterator<Item = &'a [u8]>,
    ) {
        if let Ok(Some(set)) = self.find_set(name) {
            set.count_domains(ids);
        }
    }

    /// The set of a name, for commands of this kind.
    pub(crate) fn find_set_of(
        &mut self,
        name: &[u8],
        kind: Kind,
    ) -> Result<Option<Arc<LiveSet>>, Fault> {
        let set = self.find_set(name)?;
        match &set {
            Some(found) if !takes(found.options().kind, kind) => Err(WRONGTYPE),
            _ => Ok(set),
        }
    }

    /// As [`Session::find_set_of`], for lookups: `BF.*` and `CF.*` find nothing in a set of another
    /// kind.
    pub(crate) fn find_set_for_lookup(
        &mut self,
        name: &[u8],
        kind: Kind,
    ) -> Result<Option<Arc<LiveSet>>, Fault> {
        match kind {
            Kind::Bloom | Kind::Cuckoo => {
                Ok(self.find_set(name)?.filter(|set| takes(set.options().kind, kind)))
            }
            _ => self.find_set_of(name, kind),
        }
    }

    /// The set of a name, made if there is none.
    pub(crate) fn find_or_make(
        &mut self,
        name: &[u8],
        kind: Kind,
        options: impl FnOnce() -> Options,
    ) -> Result<Arc<LiveSet>, Fault> {
        if let Some(set) = self.find_set_of(name, kind)? {
            return Ok(set);
        }
        let key = self.key(name)?;
        match self.live().make(&key, options(), self.now) {
            Ok(set) => Ok(set),
            // Another connection made it meanwhile.
            Err(CreateError::Exists) => self.find_set_of(name, kind)?.ok_or(DROPPED_AGAIN),
            // As an add to one that is there.
            Err(CreateError::Memory) => Err(refused(SetError::Memory)),
            Err(other) => Err(self.why_not_made(&other)),
        }
    }

    /// Why a set was not made, as the protocol has it.
    pub(crate) fn why_not_made(&self, why: &CreateError) -> Fault {
        match why {
            CreateError::Exists => "ERR item exists".into(),
            CreateError::Memory => "ERR Insufficient memory to create filter".into(),
            CreateError::TooMany => {
                let most = self.live().max_filters();
                format!("ERR there are {most} filters, which is the most: delete one").into()
            }
            CreateError::Closed => {
                "ERR there is no filter of this name, and clients may not make one \
                 on this server"
                    .into()
            }
        }
    }

    /// Whether the set of a name takes changes now, or can be made: see [`LiveSet::check_change`].
    pub(crate) fn check_change(&mut self, name: &[u8], adds: bool) -> Result<(), Fault> {
        let checked = match self.find_set(name)? {
            Some(set) => set.check_change(self.now, adds),
            None if adds && !self.live().has_memory_for_a_set() => Err(SetError::Memory),
            None => Ok(()),
        };
        match checked {
            // The change finds no set, or makes one.
            Err(SetError::Gone) => Ok(()),
            checked => checked.map_err(refused),
        }
    }

    /// Makes a change in the set of a name, which may be dropped while that is tried.
    pub(crate) fn change<T>(
        &mut self,
        mut set: impl FnMut(&mut Session) -> Result<Arc<LiveSet>, Fault>,
        mut change: impl FnMut(&LiveSet, u64) -> (Ticket, Result<T, SetError>),
    ) -> Result<Result<T, SetError>, Fault> {
        let changed = self.try_change(
            |session| set(session).map(Some),
            |session, set| {
                let (ticket, result) = change(set, session.now);
                session.await_later(ticket);
                Ok(result)
            },
        )?;
        changed.ok_or(DROPPED_AGAIN)
    }

    /// The same in a set that may not be there, or not be one to change: then nothing is changed.
    pub(crate) fn change_if<T>(
        &mut self,
        set: impl FnMut(&mut Session) -> Result<Option<Arc<LiveSet>>, Fault>,
        change: impl FnMut(&mut Session, &LiveSet) -> Result<Result<T, SetError>, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.try_change(set, change)?.transpose().map_err(refused)
    }

    fn try_change<T>(
        &mut self,
        mut set: impl FnMut(&mut Session) -> Result<Option<Arc<LiveSet>>, Fault>,
        mut change: impl FnMut(&mut Session, &LiveSet) -> Result<Result<T, SetError>, Fault>,
    ) -> Result<Option<Result<T, SetError>>, Fault> {
        for _ in 0..MAX_DROPPED_RETRIES {
            let Some(found) = set(self)? else { return Ok(None) };
            let result = change(self, &found)?;
            if !matches!(result, Err(SetError::Gone)) {
                self.note_changed(&found);
                return Ok(Some(result));
            }
            // The next lookup waits until the dropped set is removed.
            self.last = None;
        }
        Err(DROPPED_AGAIN)
    }

    /// Keeps a set for WAITAOF.
    pub(crate) fn note_changed(&mut self, set: &Arc<LiveSet>) {
        if !self.changed.iter().any(|other| std::ptr::eq(other.as_ptr(), &raw const **set)) {
            self.changed.retain(|other| other.strong_count() > 0);
            self.changed.push(Arc::downgrade(set));
        }
    }

    /// The sets that this connection changed and that are still there.
    pub(crate) fn changed(&self) -> impl Iterator<Item = Arc<LiveSet>> {
        self.changed.iter().filter_map(Weak::upgrade).filter(|set| !set.is_dropped())
    }

    /// Whether all that this connection changed is synced by now.
    pub(crate) fn is_synced(&self) -> bool {
        let is_synced =
            |set: Arc<LiveSet>| matches!(set.ticket().wait_synced().now_or_never(), Some(Ok(())));
        self.live().is_on_disk() && self.changed().all(is_synced)
    }

    /// Drops the set of this name, and returns whether there was one.
    pub(crate) fn remove(&mut self, key: &Key) -> Result<bool, Fault> {
        self.last = None;
        let removed = self.live().remove(key, self.now);
        removed.map_err(|why| Fault::from(format!("MISCONF {why}")))
    }

    /// Notes what the replies of this batch wait for.
    pub(crate) fn await_later(&mut self, ticket: Ticket) {
        match self.tickets.last_mut() {
            Some(last) if last.is_covered_by(&ticket) => *last = ticket,
            _ => self.tickets.push(ticket),
        }
    }

    /// Replaces the replies to changes, because these could not be made safe.
    pub(crate) fn replace_change_replies(&mut self, out: &mut Vec<u8>, why: &str) {
        let fault = Fault::from(format!("MISCONF {why}"));
        let (mut replies, mut at) = (Vec::with_capacity(out.len()), 0);
        for span in self.spans.drain(..) {
            replies.extend_from_slice(&out[at..span.begin]);
            (0..span.replies).for_each(|_| error(&mut replies, &fault));
            at = span.end;
        }
        replies.extend_from_slice(&out[at..]);
        *out = replies;
    }
}

/// Whether a set of a kind takes the commands of another.
pub(crate) fn takes(set: Kind, commands: Kind) -> bool {
    match (set, commands) {
        (Kind::Near, _) | (_, Kind::Near) => set == commands,
        (Kind::Any, _) => commands != Kind::Cuckoo,
        (_, Kind::Any) => true,
        _ => set == commands,
    }
}

/// Why a change was refused, as the protocol has it.
pub(crate) fn refused(refusal: SetError) -> Fault {
    match refusal {
        SetError::Memory => "OOM command not allowed when used memory > 'maxmemory'.".into(),
        SetError::Copies => "ERR an item is counted to at most 255".into(),
        SetError::Full => "ERR non scaling filter is full".into(),
        SetError::Gone => "ERR not found".into(),
        // Clients know the first word, and try again.
        SetError::NotLoaded => {
            "LOADING the day's filter and its live IDs are not loaded yet".into()
        }
        SetError::Layout => "ERR the day's filter is not of the layout `blocked`".into(),
        SetError::Log(why) => format!("MISCONF {why}").into(),
        // Clients know this text, and look for another server; /status says more.
        SetError::ReadOnly(_) => "READONLY You can't write against a read only replica.".into(),
    }
}

pub(crate) fn wrong_number(command: &str) -> Fault {
    format!("ERR wrong number of arguments for '{command}' command").into()
}
