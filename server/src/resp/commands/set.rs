//! The commands of Redis's sets that a set of hashes can answer: they need no module in a client.
//! Those that return members are not here: the IDs themselves are not kept.

use super::super::command::Command;
use super::super::reply::{Fault, Reply};
use super::super::session::{Session, refused};
use super::items::{hashes, look_up};
use crate::live::{Added, Kind, Options};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("sadd", -3, sadd),
    Command::write("srem", -3, srem).frees(),
    Command::read("sismember", 3, sismember),
    Command::read("smismember", -3, smismember),
    Command::read("scard", 2, scard),
];

fn sadd(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hashes = hashes(session, request[1], &request[2..])?;
    session.count_domains(request[1], request[2..].iter().copied());
    let mut new = 0;
    session
        .change(
            |session| session.find_or_make(request[1], Kind::Set, || Options::of(Kind::Set)),
            |set, now| {
                new = 0;
                set.add_each(now, &hashes, |_, added| new += i64::from(added == Added::New))
            },
        )?
        .map_err(refused)?;
    reply.integer(new);
    Ok(())
}

fn srem(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hashes = hashes(session, request[1], &request[2..])?;
    let deleted = session.change_if(
        |session| session.find_set_of(request[1], Kind::Set),
        |session, set| {
            let (ticket, result) = set.forget(session.now, &hashes);
            session.await_later(ticket);
            Ok(result)
        },
    )?;
    // A set of Redis without members does not exist.
    if let Some(set) = session.find_set_of(request[1], Kind::Set)?
        && set.options().kind == Kind::Set
        && set.size(session.now).entries == 0
    {
        session.live().remove_empty(&set);
    }
    reply.integer(deleted.unwrap_or(0) as i64);
    Ok(())
}

fn sismember(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], Kind::Set)?;
    reply.integer(i64::from(answers[0]));
    Ok(())
}

fn smismember(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], Kind::Set)?;
    reply.array(answers.len());
    answers.iter().for_each(|answer| reply.integer(i64::from(*answer)));
    Ok(())
}

fn scard(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Set)?;
    reply.integer(set.map_or(0, |set| set.size(now).entries as i64));
    Ok(())
}
