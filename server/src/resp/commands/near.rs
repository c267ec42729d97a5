//! SIM.*: the commands of near duplicates: 64-bit fingerprints of texts, of which those within a
//! few bits of another are not added. The texts themselves are not sent: who has them computes the
//! simhash.

use bloomsday_common::live::entry::Repeat;

use super::super::command::{Command, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{SYNTAX, Session, refused};
use super::items::{MAX_CAPACITY, make};
use super::window::WindowWords;
use crate::live::{Kind, MAX_DISTANCE, Neighbour, Options};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("sim.reserve", -2, reserve),
    Command::write("sim.add", -3, add),
    Command::read("sim.query", -3, query).slow(),
    Command::read("sim.card", 2, card),
    Command::read("sim.info", 2, info),
];

/// How many neighbours one reply has if nothing else is said, and at most.
const DEFAULT_COUNT: usize = 100;
const MAX_COUNT: usize = 1_000;

fn reserve(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = Options::of(Kind::Near);
    let mut size = WindowWords::new(MAX_CAPACITY);
    let (words, rest) = request[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    for [word, value] in words {
        if !size.take(word, value)? {
            return Err(SYNTAX);
        }
    }
    options.capacity = size.capacity.unwrap_or(options.capacity);
    // From the day on which a text was new, whatever resembles it later.
    options.window = size.window(Repeat::Keep)?;
    make(session, request[1], options)?;
    reply.ok();
    Ok(())
}

fn add(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = Wanted::parse(request, false)?;
    let found = session
        .change(
            |session| session.find_or_make(request[1], Kind::Near, || Options::of(Kind::Near)),
            |set, now| set.add_near(now, wanted.fingerprint, wanted.max),
        )?
        .map_err(refused)?;
    match found {
        None => reply.null(),
        Some(found) => pair(found, reply),
    }
    Ok(())
}

fn query(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = Wanted::parse(request, true)?;
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Near)?;
    let all = set.map(|set| set.neighbours(now, wanted.fingerprint, wanted.max));
    let all = all.unwrap_or_default();
    let some = &all[..all.len().min(wanted.count)];
    reply.array(some.len());
    some.iter().for_each(|found| pair(*found, reply));
    Ok(())
}

/// A fingerprint, and how many of its bits differ.
fn pair(found: Neighbour, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.text(&format!("{:016x}", found.fingerprint));
    reply.integer(i64::from(found.distance));
}

/// What an add or a query looks for.
struct Wanted {
    fingerprint: u64,
    max: u32,
    count: usize,
}

impl Wanted {
    fn parse(request: &[&[u8]], may_count: bool) -> Result<Wanted, Fault> {
        let (max, count) = (MAX_DISTANCE, DEFAULT_COUNT);
        let mut wanted = Wanted { fingerprint: fingerprint(request[2])?, max, count };
        let (words, rest) = request[3..].as_chunks::<2>();
        for [word, value] in words {
            if is(word, "MAX") {
                let max = number::<u32>(value).filter(|max| *max <= MAX_DISTANCE);
                wanted.max = max.ok_or("ERR MAX is 0, 1, 2 or 3: how many bits may differ")?;
            } else if is(word, "COUNT") && may_count {
                let count = number::<usize>(value).filter(|n| (1..=MAX_COUNT).contains(n));
                wanted.count = count.ok_or_else(|| format!("ERR COUNT is 1 to {MAX_COUNT}"))?;
            } else {
                return Err(SYNTAX);
            }
        }
        if rest.is_empty() { Ok(wanted) } else { Err(SYNTAX) }
    }
}

/// The 16 digits of a fingerprint: fewer would be a number that lost its zeros, or is decimal.
fn fingerprint(word: &[u8]) -> Result<u64, Fault> {
    let is_hex = word.len() == 16 && word.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(word).ok().filter(|_| is_hex);
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| "ERR a fingerprint has 16 hex digits, with leading zeros".into())
}

fn card(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Near)?;
    reply.integer(set.map_or(0, |set| set.size(now).entries as i64));
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Near)?.ok_or("ERR not found")?;
    let (options, size) = (set.options(), set.size(now));
    let window = options.window;
    let step = window.step_ms.get() / 1_000;
    let steps = window.steps.map(u64::from);
    let fields = [
        ("Capacity", Some(options.capacity)),
        ("Size", Some(size.bytes)),
        ("Number of fingerprints", Some(size.entries)),
        ("Window seconds", steps.map(|steps| steps * step)),
        ("Step seconds", steps.map(|_| step)),
    ];
    reply.map(fields.len());
    for (name, value) in fields {
        reply.simple(name);
        match value {
            Some(value) => reply.integer(value as i64),
            None => reply.null(),
        }
    }
    Ok(())
}
