//! BF.*: the commands of Bloom filters. The set behind is exact: a target of false positives is
//! kept for `BF.INFO`, and the real rate is lower.

use super::super::command::{Command, fraction, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{SYNTAX, Session, refused, wrong_number};
use super::items::{MAX_CAPACITY, MAX_EXPANSION, exists, hash, hashes, make, mexists};
use crate::live::{Added, Kind, Options, SetError};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("bf.reserve", -4, reserve),
    Command::write("bf.add", 3, add),
    Command::write("bf.madd", -3, madd),
    Command::write("bf.insert", -4, insert),
    Command::read("bf.exists", 3, |session, request, reply| {
        exists(session, request, Kind::Bloom, reply)
    }),
    Command::read("bf.mexists", -3, |session, request, reply| {
        mexists(session, request, Kind::Bloom, reply)
    }),
    Command::read("bf.card", 2, card),
    Command::read("bf.info", -2, info),
];

fn reserve(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if request.len() > 7 {
        return Err(wrong_number("bf.reserve"));
    }
    let error = fraction(request[2]).filter(|error| !error.is_nan());
    let error = error.ok_or("ERR bad error rate")?;
    if !(error > 0.0 && error < 1.0) {
        return Err("ERR error rate must be in the range (0.000000, 1.000000)".into());
    }
    let capacity = capacity(request[3])?;
    let (mut expansion, mut is_fixed) = (None, false);
    let mut words = request[4..].iter();
    while let Some(word) = words.next() {
        if is(word, "NONSCALING") {
            is_fixed = true;
        } else if is(word, "EXPANSION") {
            let given = words.next().ok_or("ERR no expansion")?;
            let given = number::<i64>(given).ok_or("ERR bad expansion")?;
            expansion = Some(given);
        } else {
            return Err(SYNTAX);
        }
    }
    if is_fixed && expansion.is_some_and(|expansion| expansion != 0) {
        return Err("Nonscaling filters cannot expand".into());
    }
    let expansion = if is_fixed { 0 } else { expansion.unwrap_or(2) };
    let expansion = u32::try_from(expansion).ok().filter(|given| *given <= MAX_EXPANSION);
    let expansion = expansion.ok_or("ERR expansion must be in the range [0, 32768]")?;
    let options = Options { capacity, error, expansion, ..Options::of(Kind::Bloom) };
    make(session, request[1], options)?;
    reply.ok();
    Ok(())
}

fn capacity(word: &[u8]) -> Result<u64, Fault> {
    let capacity = number::<i64>(word).ok_or("ERR bad capacity")?;
    match u64::try_from(capacity) {
        Ok(capacity @ 1..=MAX_CAPACITY) => Ok(capacity),
        _ => Err("ERR capacity must be in the range [1, 1073741824]".into()),
    }
}

fn add(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hash = hash(session, request[1], request[2])?;
    session.count_domains(request[1], [request[2]]);
    let mut new = false;
    session
        .change(
            |session| session.find_or_make(request[1], Kind::Bloom, || Options::of(Kind::Bloom)),
            |set, now| set.add_each(now, &[hash], |_, added| new = added == Added::New),
        )?
        .map_err(refused)?;
    reply.boolean(new);
    Ok(())
}

fn madd(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    add_all(session, request[1], &request[2..], true, || Options::of(Kind::Bloom), reply)
}

/// Adds items, with one reply for each; the first that is refused is the last reply.
fn add_all(
    session: &mut Session,
    key: &[u8],
    ids: &[&[u8]],
    create: bool,
    options: impl Fn() -> Options,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let hashes = hashes(session, key, ids)?;
    session.count_domains(key, ids.iter().copied());
    let mut answers = Vec::with_capacity(hashes.len());
    let result = session.change(
        |session| {
            if create {
                session.find_or_make(key, Kind::Bloom, &options)
            } else {
                session.find_set_of(key, Kind::Bloom)?.ok_or_else(|| "ERR not found".into())
            }
        },
        |set, now| {
            answers.clear();
            set.add_each(now, &hashes, |_, added| answers.push(added == Added::New))
        },
    )?;
    // What refuses the first item refuses the command: clients look for these errors in its place.
    // A full filter is an error of the item.
    if let Err(refusal) = &result
        && answers.is_empty()
        && *refusal != SetError::Full
    {
        return Err(refused(refusal.clone()));
    }
    reply.array(answers.len() + usize::from(result.is_err()));
    answers.iter().for_each(|new| reply.boolean(*new));
    if let Err(refusal) = result {
        reply.error(&refused(refusal));
    }
    Ok(())
}

fn insert(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = Options::of(Kind::Bloom);
    let (mut create, mut is_fixed, mut expansion) = (true, false, None);
    let mut at = 2;
    let items = loop {
        let Some(word) = request.get(at) else { return Err(wrong_number("bf.insert")) };
        at += 1;
        if is(word, "ITEMS") {
            break &request[at..];
        } else if is(word, "NOCREATE") {
            create = false;
        } else if is(word, "NONSCALING") {
            is_fixed = true;
        } else {
            let value = || request.get(at).copied().ok_or_else(|| wrong_number("bf.insert"));
            if is(word, "CAPACITY") {
                let value = number::<u64>(value()?).filter(|n| (1..=MAX_CAPACITY).contains(n));
                options.capacity = value.ok_or("Bad capacity")?;
            } else if is(word, "ERROR") {
                let value = fraction(value()?).filter(|n| *n > 0.0 && *n < 1.0);
                options.error = value.ok_or("Bad error rate")?;
            } else if is(word, "EXPANSION") {
                let value = number::<u32>(value()?).filter(|n| *n <= MAX_EXPANSION);
                expansion = Some(value.ok_or("Bad expansion")?);
            } else {
                return Err("Unknown argument received".into());
            }
            at += 1;
        }
    };
    if items.is_empty() {
        return Err(wrong_number("bf.insert"));
    }
    options.expansion = if is_fixed { 0 } else { expansion.unwrap_or(options.expansion) };
    add_all(session, request[1], items, create, || options.clone(), reply)
}

fn card(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Bloom)?;
    reply.integer(set.map_or(0, |set| set.size(now).entries as i64));
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if request.len() > 3 {
        return Err(wrong_number("bf.info"));
    }
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Bloom)?.ok_or("ERR not found")?;
    let (options, size) = (set.options(), set.size(now));
    let (capacity, filters) = scaled(options, size.entries);
    let fields = [
        ("CAPACITY", "Capacity", Some(capacity)),
        ("SIZE", "Size", Some(size.bytes)),
        ("FILTERS", "Number of filters", Some(filters)),
        ("ITEMS", "Number of items inserted", Some(size.entries)),
        ("EXPANSION", "Expansion rate", Some(u64::from(options.expansion)).filter(|e| *e > 0)),
    ];
    let value = |reply: &mut Reply<'_>, value: Option<u64>| match value {
        Some(value) => reply.integer(value as i64),
        None => reply.null(),
    };
    if let Some(wanted) = request.get(2) {
        let field = fields.iter().find(|(name, ..)| is(wanted, name));
        let (_, name, found) = field.ok_or("Invalid information value")?;
        if reply.is_v3 {
            reply.map(1);
            reply.simple(name);
        } else {
            reply.array(1);
        }
        value(reply, *found);
        return Ok(());
    }
    reply.map(fields.len());
    for (_, name, found) in fields {
        reply.simple(name);
        value(reply, found);
    }
    Ok(())
}

/// The capacity that a filter which scales would have by now, and of how many parts.
fn scaled(options: &Options, entries: u64) -> (u64, u64) {
    // Nobody named a capacity: one part, as large as it must be.
    if options.capacity == 0 {
        return (entries, 1);
    }
    let (mut part, mut capacity, mut parts) = (options.capacity, options.capacity, 1);
    while capacity < entries && options.expansion > 0 {
        part = part.saturating_mul(u64::from(options.expansion));
        capacity = capacity.saturating_add(part);
        parts += 1;
        // With an expansion of 1 there would be a part for each `capacity` items.
        if options.expansion == 1 {
            parts = entries.div_ceil(part);
            capacity = part.saturating_mul(parts);
        }
    }
    (capacity, parts)
}
