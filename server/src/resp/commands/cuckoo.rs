//! CF.*: the commands of cuckoo filters. An item can be added more than once, and is then deleted as
//! often. To delete a stranger changes nothing.

use super::super::command::{Command, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{Session, refused, wrong_number};
use super::bloom::{hash, hashes, look_up, make};
use crate::live::{Kind, Options, Refusal};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("cf.reserve", -3, reserve),
    Command::write("cf.add", 3, add),
    Command::write("cf.addnx", 3, addnx),
    Command::write("cf.insert", -4, insert),
    Command::write("cf.insertnx", -4, insertnx),
    Command::read("cf.exists", 3, exists),
    Command::read("cf.mexists", -3, mexists),
    Command::read("cf.count", 3, count),
    Command::write("cf.del", 3, del),
    Command::read("cf.info", 2, info),
    Command::write("cf.compact", 2, compact),
];

/// The largest values of the options, as RedisBloom has them.
const MAX_CAPACITY: u64 = 1 << 40;
const MAX_BUCKET: u64 = 255;
const MAX_ITERATIONS: u64 = 65_535;
const MAX_EXPANSION: u64 = 32_768;

fn reserve(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = Options::of(Kind::Cuckoo);
    options.capacity = capacity(request[2])?;
    let mut words = request[3..].iter();
    while let Some(word) = words.next() {
        let mut value =
            |most: u64| words.next().and_then(|word| number::<u64>(word)).filter(|n| *n <= most);
        if is(word, "BUCKETSIZE") {
            let bucket = value(MAX_BUCKET).filter(|bucket| *bucket > 0);
            options.bucket = bucket.ok_or("Couldn't parse BUCKETSIZE")? as u32;
        } else if is(word, "MAXITERATIONS") {
            let iterations = value(MAX_ITERATIONS).filter(|iterations| *iterations > 0);
            options.iterations = iterations.ok_or("Couldn't parse MAXITERATIONS")? as u32;
        } else if is(word, "EXPANSION") {
            let expansion = value(MAX_EXPANSION);
            options.expansion = expansion.ok_or("Couldn't parse EXPANSION")? as u32;
        } else {
            return Err(super::super::session::SYNTAX);
        }
    }
    if options.capacity < 2 * u64::from(options.bucket) {
        return Err("Capacity must be at least (BucketSize * 2)".into());
    }
    make(session, request[1], options)?;
    reply.ok();
    Ok(())
}

fn capacity(word: &[u8]) -> Result<u64, Fault> {
    let capacity = number::<u64>(word).filter(|n| (1..=MAX_CAPACITY).contains(n));
    capacity.ok_or_else(|| "Bad capacity".into())
}

/// Adds one item; with `if_new`, only if there is none. Returns whether it was added.
fn add_one(
    session: &mut Session,
    key: &[u8],
    hash: u64,
    if_new: bool,
    options: &dyn Fn() -> Options,
) -> Result<Result<bool, Refusal>, Fault> {
    session.change(
        |session| session.made(key, Kind::Cuckoo, options),
        |set, now| {
            if if_new {
                return set.add_copy_if_new(now, hash);
            }
            let (ticket, added) = set.add_copy(now, hash);
            (ticket, added.map(|()| true))
        },
    )
}

fn full(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Full => "Filter is full".into(),
        other => refused(other),
    }
}

fn add(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hash = hash(session, request[1], request[2])?;
    let options = || Options::of(Kind::Cuckoo);
    reply.boolean(add_one(session, request[1], hash, false, &options)?.map_err(full)?);
    Ok(())
}

fn addnx(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hash = hash(session, request[1], request[2])?;
    let options = || Options::of(Kind::Cuckoo);
    reply.boolean(add_one(session, request[1], hash, true, &options)?.map_err(full)?);
    Ok(())
}

fn insert(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    insert_all(session, request, false, reply)
}

fn insertnx(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    insert_all(session, request, true, reply)
}

fn insert_all(
    session: &mut Session,
    request: &[&[u8]],
    if_new: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let name = if if_new { "cf.insertnx" } else { "cf.insert" };
    let mut options = Options::of(Kind::Cuckoo);
    let (mut create, mut at) = (true, 2);
    let items = loop {
        let Some(word) = request.get(at) else { return Err(wrong_number(name)) };
        at += 1;
        if is(word, "ITEMS") {
            break &request[at..];
        } else if is(word, "NOCREATE") {
            create = false;
        } else if is(word, "CAPACITY") {
            options.capacity = capacity(request.get(at).ok_or("Bad capacity")?)?;
            at += 1;
        } else {
            return Err("Unknown argument received".into());
        }
    };
    if items.is_empty() {
        return Err(wrong_number(name));
    }
    let hashes = hashes(session, request[1], items)?;
    if !create && session.set_of(request[1], Kind::Cuckoo)?.is_none() {
        return Err("ERR not found".into());
    }
    let make = || options.clone();
    let mut results = Vec::with_capacity(hashes.len());
    for hash in hashes {
        match add_one(session, request[1], hash, if_new, &make)? {
            Err(refusal @ Refusal::Log(_)) => return Err(refused(refusal)),
            result => results.push(result),
        }
    }
    reply.array(results.len());
    for result in results {
        match result {
            Ok(added) if if_new => reply.integer(i64::from(added)),
            Ok(added) => reply.boolean(added),
            Err(_) => reply.integer(-1),
        }
    }
    Ok(())
}

fn exists(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], Kind::Cuckoo)?;
    reply.boolean(answers[0]);
    Ok(())
}

fn mexists(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], Kind::Cuckoo)?;
    reply.array(answers.len());
    answers.iter().for_each(|answer| reply.boolean(*answer));
    Ok(())
}

fn count(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.set_of(request[1], Kind::Cuckoo)?;
    let hash = hash(session, request[1], request[2]);
    let count = set.zip(hash.ok()).map_or(0, |(set, hash)| set.count(now, hash));
    reply.integer(count as i64);
    Ok(())
}

fn del(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hash = hash(session, request[1], request[2])?;
    let deleted = session
        .change(
            |session| session.set_of(request[1], Kind::Cuckoo)?.ok_or_else(|| "Not found".into()),
            |set, now| set.forget(now, &[hash]),
        )?
        .map_err(refused)?;
    reply.boolean(deleted == 1);
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.set_of(request[1], Kind::Cuckoo)?.ok_or("ERR not found")?;
    let (options, size) = (set.options(), set.size(now));
    let buckets = options.capacity.div_ceil(u64::from(options.bucket.max(1))).next_power_of_two();
    let filters = size.entries.div_ceil(options.capacity.max(1)).max(1);
    let fields = [
        ("Size", size.bytes),
        ("Number of buckets", buckets),
        ("Number of filters", filters),
        ("Number of items inserted", size.entries),
        ("Number of items deleted", size.deleted),
        ("Bucket size", u64::from(options.bucket)),
        ("Expansion rate", u64::from(options.expansion)),
        ("Max iterations", u64::from(options.iterations)),
    ];
    reply.map(fields.len());
    for (name, value) in fields {
        reply.simple(name);
        reply.integer(value as i64);
    }
    Ok(())
}

fn compact(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.set_of(request[1], Kind::Cuckoo)?.ok_or("ERR not found")?;
    reply.ok();
    Ok(())
}
