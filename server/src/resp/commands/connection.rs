//! The commands of a connection: its version of the protocol, its password, its name.

use super::super::command::{Command, help, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{Awaited, DATABASES, NOT_AN_INTEGER, SYNTAX, Session, wrong_number};

pub(super) const COMMANDS: &[Command] = &[
    Command::plain("hello", -1, hello).without_auth(),
    Command::plain("auth", -2, auth).without_auth(),
    Command::plain("ping", -1, ping),
    Command::plain("echo", 2, echo),
    Command::plain("select", 2, select),
    Command::plain("quit", -1, quit).without_auth().immediate(),
    Command::plain("reset", 1, reset).without_auth().immediate(),
    Command::container("acl", ACL),
    Command::plain("readonly", 1, no_cluster),
    Command::plain("readwrite", 1, no_cluster),
    Command::plain("cluster", -2, no_cluster),
    Command::plain("asking", 1, no_cluster),
    Command::plain("wait", 3, wait).slow(),
    Command::plain("waitaof", 4, waitaof).slow(),
];

const ACL: &[Command] = &[
    Command::plain("acl|help", 2, |_, _, reply| {
        help("ACL", ACL, reply);
        Ok(())
    }),
    Command::plain("acl|whoami", 2, |_, _, reply| {
        reply.text("default");
        Ok(())
    }),
];

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

fn no_cluster(_: &mut Session, _: &[&[u8]], _: &mut Reply<'_>) -> Result<(), Fault> {
    Err("ERR This instance has cluster support disabled".into())
}

/// What HELLO asks for.
struct Hello {
    is_v3: bool,
    name: Option<Vec<u8>>,
    is_authenticated: bool,
}

impl Hello {
    fn parse(session: &Session, request: &[&[u8]]) -> Result<Hello, Fault> {
        let (is_v3, is_authenticated) = (session.is_v3, session.is_authenticated());
        let mut hello = Hello { is_v3, name: None, is_authenticated };
        let mut credentials = None;
        if let Some(version) = request.get(1) {
            let version = number::<i64>(version);
            let version =
                version.ok_or("ERR Protocol version is not an integer or out of range")?;
            hello.is_v3 = match version {
                2 => false,
                3 => true,
                _ => return Err("NOPROTO unsupported protocol version".into()),
            };
        }
        let mut words = request.iter().skip(2);
        while let Some(word) = words.next() {
            if is(word, "AUTH") {
                let (Some(user), Some(password)) = (words.next(), words.next()) else {
                    return Err(syntax_of_hello(word));
                };
                credentials = Some((user, password));
            } else if is(word, "SETNAME") {
                let given = words.next().ok_or_else(|| syntax_of_hello(word))?;
                hello.name = Some(super::client::check_name(given)?);
            } else {
                return Err(syntax_of_hello(word));
            }
        }
        // As Redis does, after all words were read.
        if let Some((user, password)) = credentials {
            check(session, user, password)?;
            hello.is_authenticated = true;
        }
        Ok(hello)
    }
}

fn hello(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Hello { is_v3, name, is_authenticated } = Hello::parse(session, request)?;
    if !is_authenticated {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
             the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
             and select the RESP protocol version at the same time"
                .into(),
        );
    }
    session.known.set_authenticated(true);
    session.is_v3 = is_v3;
    session.name = name.unwrap_or_else(|| session.name.clone());
    session.publish();
    reply.is_v3 = is_v3;
    reply.map(7);
    for (field, value) in [("server", "bloomsday"), ("version", super::info::REDIS_VERSION)] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("proto");
    reply.integer(if is_v3 { 3 } else { 2 });
    reply.text("id");
    reply.integer(session.known.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.text(field);
        reply.text(value);
    }
    reply.text("modules");
    reply.array(1);
    super::info::module(reply);
    Ok(())
}

fn syntax_of_hello(word: &[u8]) -> Fault {
    let word = &word[..word.len().min(64)];
    format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(word)).into()
}

fn auth(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (user, password): (&[u8], _) = match request {
        [_, password] => (b"default", password),
        [_, user, password] => (user, password),
        _ => return Err(SYNTAX),
    };
    if session.live().token().is_none() && request.len() == 2 {
        return Err("ERR AUTH <password> called without any password configured for the default \
             user. Are you sure your configuration is correct?"
            .into());
    }
    check(session, user, password)?;
    session.known.set_authenticated(true);
    reply.ok();
    Ok(())
}

/// Whether this is the token.
fn check(session: &Session, user: &[u8], password: &[u8]) -> Result<(), Fault> {
    let fits = session.live().token().is_none_or(|token| token.is(password));
    if user == b"default" && fits { Ok(()) } else { Err(WRONGPASS.into()) }
}

fn ping(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    match request {
        [_] => reply.simple("PONG"),
        [_, text] => reply.bulk(text),
        _ => return Err(wrong_number("ping")),
    }
    Ok(())
}

fn echo(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.bulk(request[1]);
    Ok(())
}

fn select(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let database = number::<i64>(request[1]).ok_or(NOT_AN_INTEGER)?;
    if i32::try_from(database).is_err() {
        let (least, most) = (i32::MIN, i32::MAX);
        return Err(
            format!("ERR value is out of range, value must between {least} and {most}").into()
        );
    }
    if !(0..i64::from(DATABASES)).contains(&database) {
        return Err("ERR DB index is out of range".into());
    }
    session.database = database as u8;
    session.publish();
    reply.ok();
    Ok(())
}

fn quit(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.is_closing = true;
    reply.ok();
    Ok(())
}

fn reset(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.reset();
    session.publish();
    reply.simple("RESET");
    Ok(())
}

fn wait(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    number::<i64>(request[1]).ok_or(NOT_AN_INTEGER)?;
    timeout(request[2])?;
    // There are no replicas.
    reply.integer(0);
    Ok(())
}

fn timeout(word: &[u8]) -> Result<u64, Fault> {
    let timeout = number::<i64>(word).ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(timeout).map_err(|_| "ERR timeout is negative".into())
}

fn waitaof(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let locals = number::<i64>(request[1]).ok_or(NOT_AN_INTEGER)?;
    if !(0..=1).contains(&locals) {
        return Err("ERR value is out of range, value must between 0 and 1".into());
    }
    if number::<i64>(request[2]).is_none_or(|replicas| replicas < 0) {
        return Err("ERR value is out of range, must be positive".into());
    }
    let timeout_ms = timeout(request[3])?;
    if locals == 1 && !session.live().is_on_disk() {
        return Err(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.".into()
        );
    }
    // In a transaction nothing can wait: the reply is what is synced by now.
    if session.is_executing {
        reply.array(2);
        reply.integer(i64::from(session.is_synced()));
        reply.integer(0);
        return Ok(());
    }
    session.awaited = Some(Awaited { locals, timeout_ms });
    Ok(())
}
