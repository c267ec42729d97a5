//! The commands of names: which there are, their types, when they end, and that they end now.

use bloomsday_common::random::random;

use super::super::command::{Command, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{NOT_AN_INTEGER, SYNTAX, Session};
use super::glob;
use crate::live::{Kind, LiveSet, SetError};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("del", -2, del).keys(1, -1, 1).frees().slow(),
    Command::write("unlink", -2, del).keys(1, -1, 1).frees(),
    Command::read("exists", -2, exists).keys(1, -1, 1),
    Command::read("touch", -2, exists).keys(1, -1, 1),
    Command::read("randomkey", 1, randomkey).without_keys().slow(),
    Command::read("type", 2, kind),
    Command::write("expire", -3, |s, q, r| expire(s, q, r, 1_000, true)).frees(),
    Command::write("pexpire", -3, |s, q, r| expire(s, q, r, 1, true)).frees(),
    Command::write("expireat", -3, |s, q, r| expire(s, q, r, 1_000, false)).frees(),
    Command::write("pexpireat", -3, |s, q, r| expire(s, q, r, 1, false)).frees(),
    Command::read("ttl", 2, |s, q, r| left(s, q, r, 1_000, true)),
    Command::read("pttl", 2, |s, q, r| left(s, q, r, 1, true)),
    Command::read("expiretime", 2, |s, q, r| left(s, q, r, 1_000, false)),
    Command::read("pexpiretime", 2, |s, q, r| left(s, q, r, 1, false)),
    Command::write("persist", 2, persist).frees(),
    Command::read("scan", -2, scan).without_keys().slow(),
    Command::read("keys", 2, keys).without_keys().slow(),
    Command::read("dbsize", 1, dbsize).without_keys(),
    Command::write("flushdb", -1, flushdb).without_keys().frees().slow(),
    Command::write("flushall", -1, flushall).without_keys().frees().slow(),
];

/// The most names in one answer of SCAN.
const MAX_SCAN_COUNT: usize = 1_000;

/// The name of a set's type.
fn type_of(set: &LiveSet) -> &'static str {
    match set.options().kind {
        Kind::Bloom | Kind::Any => "MBbloom--",
        Kind::Cuckoo => "MBbloomCF",
        Kind::Set => "set",
        Kind::Near => "simhash",
    }
}

fn del(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    for name in &request[1..] {
        let key = session.key(name)?;
        let set = session.live().get(&key, session.now);
        if set.is_some_and(|set| !session.live().may_be_removed(&set)) {
            return Err("ERR a filter of the configuration cannot be deleted".into());
        }
    }
    let mut deleted = 0;
    for name in &request[1..] {
        let key = session.key(name)?;
        deleted += i64::from(session.remove(&key)?);
    }
    reply.integer(deleted);
    Ok(())
}

fn exists(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut found = 0;
    for name in &request[1..] {
        found += i64::from(session.find_set(name)?.is_some());
    }
    reply.integer(found);
    Ok(())
}

fn kind(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let set = session.find_set(request[1])?;
    reply.simple(set.as_deref().map_or("none", type_of));
    Ok(())
}

fn expire(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
    unit_ms: i64,
    is_relative: bool,
) -> Result<(), Fault> {
    let conditions = conditions(&request[3..])?;
    let given = number::<i64>(request[2]).ok_or(NOT_AN_INTEGER)?;
    let now = session.now;
    let begin = if is_relative { now as i64 } else { 0 };
    let at = given.checked_mul(unit_ms).and_then(|ms| ms.checked_add(begin));
    let name = String::from_utf8_lossy(request[0]).to_ascii_lowercase();
    let at = at.ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))?;
    let at = u64::try_from(at).unwrap_or(0);
    let holds = |before: Option<u64>, condition: &Condition| match condition {
        Condition::Nx => before.is_none(),
        Condition::Xx => before.is_some(),
        Condition::Gt => before.is_some_and(|before| at > before),
        Condition::Lt => before.is_none_or(|before| at < before),
    };
    let done = session.change_if(
        |session| {
            let set = session.find_set(request[1])?;
            Ok(set.filter(|set| conditions.iter().all(|c| holds(set.expires_at(), c))))
        },
        |session, set| {
            if at <= now && set.is_of_clients() {
                session.remove(set.key()).map(|_| Ok(()))
            } else {
                end_at(session, set, Some(at))
            }
        },
    )?;
    reply.integer(i64::from(done.is_some()));
    Ok(())
}

/// When an end is set only under a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Nx,
    Xx,
    Gt,
    Lt,
}

fn conditions(words: &[&[u8]]) -> Result<Vec<Condition>, Fault> {
    let known = [
        ("NX", Condition::Nx),
        ("XX", Condition::Xx),
        ("GT", Condition::Gt),
        ("LT", Condition::Lt),
    ];
    let condition = |word: &&[u8]| {
        let found = known.iter().find(|(name, _)| is(word, name));
        found.map(|(_, condition)| *condition).ok_or_else(|| {
            let word = String::from_utf8_lossy(&word[..word.len().min(64)]);
            Fault::from(format!("ERR Unsupported option {word}"))
        })
    };
    let found = words.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
    let has = |condition| found.contains(&condition);
    if has(Condition::Nx) && found.iter().any(|other| *other != Condition::Nx) {
        let why = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(why.into());
    }
    if has(Condition::Gt) && has(Condition::Lt) {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(found)
}

fn end_at(
    session: &mut Session,
    set: &LiveSet,
    at: Option<u64>,
) -> Result<Result<(), SetError>, Fault> {
    if !set.is_of_clients() {
        return Err("ERR the live IDs of a day's filter have no end".into());
    }
    let (ticket, result) = set.expire_at(session.now, at);
    session.await_later(ticket);
    Ok(result)
}

fn left(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
    unit_ms: u64,
    is_relative: bool,
) -> Result<(), Fault> {
    let now = session.now;
    let Some(set) = session.find_set(request[1])? else {
        reply.integer(-2);
        return Ok(());
    };
    let Some(at) = set.expires_at() else {
        reply.integer(-1);
        return Ok(());
    };
    let ms = if is_relative { at.saturating_sub(now) } else { at };
    // To the nearest second, as Redis has it.
    reply.integer(((ms + unit_ms / 2) / unit_ms) as i64);
    Ok(())
}

fn persist(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let done = session.change_if(
        |session| Ok(session.find_set(request[1])?.filter(|set| set.expires_at().is_some())),
        |session, set| end_at(session, set, None),
    )?;
    reply.integer(i64::from(done.is_some()));
    Ok(())
}

fn scan(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cursor = cursor(request[1]).ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut wanted) = (None, 10, None);
    let mut words = request[2..].iter();
    while let Some(word) = words.next() {
        let value = *words.next().ok_or(SYNTAX)?;
        if is(word, "MATCH") {
            pattern = Some(glob::checked(value)?);
        } else if is(word, "COUNT") {
            let given = number::<i64>(value);
            let given = given.ok_or(NOT_AN_INTEGER)?;
            count = usize::try_from(given).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if is(word, "TYPE") {
            wanted = Some(value);
        } else {
            return Err(SYNTAX);
        }
    }
    let mut sets = session.live().list(session.database, session.now);
    sets.sort_by_key(|set| place(set));
    let mut sets = sets.into_iter().skip_while(|set| place(set) < cursor);
    let some: Vec<_> = sets.by_ref().take(count.min(MAX_SCAN_COUNT)).collect();
    let next = sets.next().map_or(0, |set| place(&set));
    let is_wanted = |set: &LiveSet| {
        pattern.is_none_or(|pattern| glob::fits(pattern, &set.key().name))
            && wanted.is_none_or(|wanted| is(wanted, type_of(set)))
    };
    let some: Vec<_> = some.iter().filter(|set| is_wanted(set)).collect();
    reply.array(2);
    reply.text(&next.to_string());
    reply.array(some.len());
    some.iter().for_each(|set| reply.bulk(&set.key().name));
    Ok(())
}

/// The place of a set in the order of SCAN: a number that a name always has, so that SCAN returns
/// every key that is there from the first call to the last. It has 53 bits, since some clients take
/// a cursor for a float; and is not 0, which is the end.
fn place(set: &LiveSet) -> u64 {
    (set.number() >> 11).max(1)
}

/// Where SCAN goes on. As in Redis what C's `strtoul` takes is a cursor.
fn cursor(word: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match word {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let cursor: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { cursor.wrapping_neg() } else { cursor })
}

fn randomkey(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let sets = session.live().list(session.database, session.now);
    match sets.len() {
        0 => reply.null(),
        many => reply.bulk(&sets[random() as usize % many].key().name),
    }
    Ok(())
}

fn keys(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let pattern = glob::checked(request[1])?;
    let mut sets = session.live().list(session.database, session.now);
    sets.retain(|set| glob::fits(pattern, &set.key().name));
    reply.array(sets.len());
    sets.iter().for_each(|set| reply.bulk(&set.key().name));
    Ok(())
}

fn dbsize(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.integer(session.live().list(session.database, session.now).len() as i64);
    Ok(())
}

fn flushdb(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    flush(session, request, reply, session.database..=session.database)
}

fn flushall(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    flush(session, request, reply, 0..=u8::MAX)
}

fn flush(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
    databases: std::ops::RangeInclusive<u8>,
) -> Result<(), Fault> {
    match &request[1..] {
        [] => {}
        [word] if is(word, "ASYNC") || is(word, "SYNC") => {}
        _ => return Err(SYNTAX),
    }
    if !session.shared.allow_flush {
        let name = String::from_utf8_lossy(request[0]).to_ascii_uppercase();
        return Err(format!(
            "ERR {name} is off on this server, because it deletes every filter: allow_flush \
             turns it on"
        )
        .into());
    }
    for key in session.live().list_removable(databases) {
        session.remove(&key)?;
    }
    reply.ok();
    Ok(())
}
