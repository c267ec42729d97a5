//! CLIENT: what is known of connections, and how one ends another.

use std::sync::Arc;

use super::super::command::{Command, help, is, number, quote, wrong_words};
use super::super::reply::{Fault, Reply};
use super::super::session::{NOT_AN_INTEGER, SYNTAX, Session};
use super::super::shared::ClientEntry;

pub(super) const COMMANDS: &[Command] = &[Command::container("client", SUBCOMMANDS)];

const SUBCOMMANDS: &[Command] = &[
    Command::plain("client|caching", 3, caching),
    Command::plain("client|getname", 2, getname),
    Command::plain("client|getredir", 2, getredir),
    Command::plain("client|help", 2, usage),
    Command::plain("client|id", 2, id),
    Command::plain("client|info", 2, info),
    Command::plain("client|kill", -3, kill),
    Command::plain("client|list", -2, list),
    Command::plain("client|no-evict", 3, switch),
    Command::plain("client|no-touch", 3, switch),
    Command::plain("client|reply", 3, answer),
    Command::plain("client|setinfo", 4, setinfo),
    Command::plain("client|setname", 3, setname),
    Command::plain("client|tracking", -3, tracking),
    Command::plain("client|trackinginfo", 2, trackinginfo),
    Command::plain("client|unblock", -3, unblock),
    Command::plain("client|unpause", 2, unpause),
];

/// The longest name of a connection.
const MAX_NAME_BYTES: usize = 256;

/// A name that a client gives itself.
pub(super) fn check_name(name: &[u8]) -> Result<Vec<u8>, Fault> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("ERR Client names have at most {MAX_NAME_BYTES} bytes").into());
    }
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let why = "ERR Client names cannot contain spaces, newlines or special characters.";
    if is_plain { Ok(name.to_vec()) } else { Err(why.into()) }
}

fn usage(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    help("CLIENT", SUBCOMMANDS, reply);
    Ok(())
}

fn id(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.integer(session.known.id as i64);
    Ok(())
}

fn getname(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if session.name.is_empty() {
        reply.null()
    } else {
        reply.bulk(&session.name)
    }
    Ok(())
}

fn setname(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.name = check_name(request[2])?;
    session.publish();
    reply.ok();
    Ok(())
}

fn setinfo(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let option = String::from_utf8_lossy(request[2]);
    let place = if is(request[2], "LIB-NAME") {
        &mut session.library.0
    } else if is(request[2], "LIB-VER") {
        &mut session.library.1
    } else {
        return Err(format!("ERR Unrecognized option '{option}'").into());
    };
    *place = check_name(request[3]).map_err(|_| {
        format!("ERR {option} cannot contain spaces, newlines or special characters.")
    })?;
    session.publish();
    reply.ok();
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.publish();
    reply.verbatim(&description(session, &session.known, "client|info", request));
    Ok(())
}

fn list(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted: Box<dyn Fn(&ClientEntry) -> bool> = match &request[2..] {
        [] => Box::new(|_| true),
        [word, kind] if is(word, "TYPE") => {
            let is_normal = is_normal(kind)?;
            Box::new(move |_| is_normal)
        }
        [word, ids @ ..] if is(word, "ID") && !ids.is_empty() => {
            let ids: Option<Vec<i64>> = ids.iter().map(|id| number(id)).collect();
            let ids = ids.ok_or("ERR Invalid client ID")?;
            Box::new(move |known| ids.contains(&(known.id as i64)))
        }
        _ => return Err(SYNTAX),
    };
    session.publish();
    let clients = session.shared.clients();
    let listed = clients.values().filter(|known| wanted(known));
    let describe = |known| description(session, known, "client|list", request);
    let text: String = listed.map(|known| describe(known)).collect();
    drop(clients);
    reply.verbatim(&text);
    Ok(())
}

/// Whether this type of connections is the one that there is here.
fn is_normal(kind: &[u8]) -> Result<bool, Fault> {
    let others = ["MASTER", "REPLICA", "SLAVE", "PUBSUB"];
    if is(kind, "NORMAL") || others.iter().any(|other| is(kind, other)) {
        return Ok(is(kind, "NORMAL"));
    }
    Err(format!("ERR Unknown client type '{}'", quote(kind)).into())
}

/// Which connections CLIENT KILL ends: those that fit all of these.
#[derive(Default)]
struct Victims<'a> {
    id: Option<i64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    is_normal: Option<bool>,
    least_age: Option<i64>,
    with_self: bool,
}

impl<'a> Victims<'a> {
    fn of(words: &[&'a [u8]]) -> Result<Victims<'a>, Fault> {
        let (pairs, []) = words.as_chunks() else { return Err(SYNTAX) };
        let mut victims = Victims::default();
        for &[word, value] in pairs {
            if is(word, "ID") {
                let id = number(value).filter(|id| *id > 0);
                victims.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if is(word, "ADDR") {
                victims.address = Some(value);
            } else if is(word, "LADDR") {
                victims.local = Some(value);
            } else if is(word, "TYPE") {
                victims.is_normal = Some(is_normal(value)?);
            } else if is(word, "USER") {
                if value != b"default" {
                    return Err(format!("ERR No such user '{}'", quote(value)).into());
                }
            } else if is(word, "MAXAGE") {
                let age = number(value).ok_or("ERR maxage is not an integer or out of range")?;
                victims.least_age = Some(age).filter(|age| *age > 0);
                if victims.least_age.is_none() {
                    return Err("ERR maxage should be greater than 0".into());
                }
            } else if is(word, "SKIPME") && (is(value, "YES") || is(value, "NO")) {
                victims.with_self = is(value, "NO");
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(victims)
    }

    fn has(&self, known: &ClientEntry) -> bool {
        self.id.is_none_or(|id| id == known.id as i64)
            && self.address.is_none_or(|address| address == known.address.as_bytes())
            && self.local.is_none_or(|local| local == known.local.as_bytes())
            && self.is_normal.is_none_or(|is_normal| is_normal)
            && self.least_age.is_none_or(|age| known.age() as i64 >= age)
    }
}

fn kill(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    // An address alone is what clients wrote first.
    let (victims, is_old) = match &request[2..] {
        [address] => {
            (Victims { address: Some(*address), with_self: true, ..Victims::default() }, true)
        }
        words => (Victims::of(words)?, false),
    };
    let mine = session.known.id;
    let mut clients = session.shared.clients();
    let killed: Vec<Arc<ClientEntry>> = clients
        .values()
        .filter(|known| victims.has(known))
        .filter(|known| victims.with_self || known.id != mine)
        .cloned()
        .collect();
    for known in &killed {
        clients.remove(&known.id);
        known.killed.notify_one();
    }
    drop(clients);
    // What this command answers is still sent.
    session.is_closing |= killed.iter().any(|known| known.id == mine);
    match (is_old, killed.len()) {
        (false, many) => reply.integer(many as i64),
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => reply.ok(),
    }
    Ok(())
}

fn switch(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !is(request[2], "ON") && !is(request[2], "OFF") {
        return Err(SYNTAX);
    }
    reply.ok();
    Ok(())
}

/// Every request is answered.
fn answer(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if is(request[2], "ON") {
        reply.ok();
        return Ok(());
    }
    let is_other = is(request[2], "OFF") || is(request[2], "SKIP");
    let why = "ERR CLIENT REPLY OFF and SKIP are not supported: every request is answered";
    Err(if is_other { why.into() } else { SYNTAX })
}

/// No command blocks.
fn unblock(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    match request[3..] {
        [] => {}
        [reason] if is(reason, "TIMEOUT") || is(reason, "ERROR") => {}
        [_] => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
        _ => return Err(wrong_words(request[1], "CLIENT")),
    }
    number::<i64>(request[2]).ok_or(NOT_AN_INTEGER)?;
    reply.integer(0);
    Ok(())
}

/// Nobody is ever paused.
fn unpause(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.ok();
    Ok(())
}

/// Nobody is notified of changes: a client that took OK for an answer would keep what is outdated.
fn tracking(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut words = request[3..].iter();
    while let Some(word) = words.next() {
        let with_value = is(word, "REDIRECT") || is(word, "PREFIX");
        let is_option = ["BCAST", "OPTIN", "OPTOUT", "NOLOOP"].iter().any(|name| is(word, name));
        if !(is_option || with_value && words.next().is_some()) {
            return Err(SYNTAX);
        }
    }
    if is(request[2], "ON") {
        let why = "ERR CLIENT TRACKING ON is not supported: clients are not notified of changes";
        return Err(why.into());
    }
    if !is(request[2], "OFF") {
        return Err(SYNTAX);
    }
    reply.ok();
    Ok(())
}

fn caching(_: &mut Session, _: &[&[u8]], _: &mut Reply<'_>) -> Result<(), Fault> {
    let why = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
               mode enabled";
    Err(why.into())
}

fn getredir(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.integer(-1);
    Ok(())
}

fn trackinginfo(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.map(3);
    reply.text("flags");
    reply.set(1);
    reply.text("off");
    reply.text("redirect");
    reply.integer(-1);
    reply.text("prefixes");
    reply.array(0);
    Ok(())
}

/// A line of CLIENT LIST, with the fields and in the order of Redis. `command` and `request` are
/// those of the connection that asks; of other connections nobody keeps the last ones. What buffers
/// take is not measured.
fn description(session: &Session, known: &ClientEntry, command: &str, request: &[&[u8]]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let info = known.info();
    let asks = known.id == session.known.id;
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 \
         multi={} watch=0 qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
         tot-mem=0 events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
        known.id,
        known.address,
        known.local,
        text(&info.name),
        known.age(),
        known.idle(),
        if info.queued.is_some() { "x" } else { "N" },
        info.database,
        info.queued.map_or(-1, |queued| queued as i64),
        if asks { encoded_len(request) } else { 0 },
        if asks { command } else { "NULL" },
        if info.is_v3 { 3 } else { 2 },
        text(&info.library.0),
        text(&info.library.1),
    )
}

/// How many bytes a request has as an array of bulk strings.
fn encoded_len(request: &[&[u8]]) -> usize {
    let line = |number: usize| format!("*{number}\r\n").len();
    let word = |word: &&[u8]| line(word.len()) + word.len() + 2;
    line(request.len()) + request.iter().map(word).sum::<usize>()
}
