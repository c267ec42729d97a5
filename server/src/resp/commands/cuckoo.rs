//! CF.*: the commands of cuckoo filters. An item can be added more than once, and is then deleted
//! as often. Deleting an item that was never added changes nothing.

use super::super::command::{Command, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{SYNTAX, Session, refused, wrong_number};
use super::items::{MAX_CAPACITY, MAX_EXPANSION, exists, hash, hashes, make, mexists};
use crate::live::{Kind, Options, SetError};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("cf.reserve", -3, reserve),
    Command::write("cf.add", 3, add),
    Command::write("cf.addnx", 3, addnx),
    Command::write("cf.insert", -4, insert),
    Command::write("cf.insertnx", -4, insertnx),
    Command::read("cf.exists", 3, |session, request, reply| {
        exists(session, request, Kind::Cuckoo, reply)
    }),
    Command::read("cf.mexists", -3, |session, request, reply| {
        mexists(session, request, Kind::Cuckoo, reply)
    }),
    Command::read("cf.count", 3, count),
    Command::write("cf.del", 3, del).frees(),
    Command::read("cf.info", 2, info),
    Command::read("cf.compact", 2, compact),
    Command::read("cf.debug", 2, debug),
];

/// The largest values of the options, as RedisBloom has them.
const MAX_BUCKET: u32 = 255;
const MAX_ITERATIONS: u32 = 65_535;

fn reserve(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    // Each option has a value.
    let (words, []) = request[3..].as_chunks() else { return Err(wrong_number("cf.reserve")) };
    let mut options = Options::of(Kind::Cuckoo);
    let capacity = number::<i64>(request[2]).ok_or("Bad capacity")?;
    let names = ["MAXITERATIONS", "BUCKETSIZE", "EXPANSION"];
    if words.iter().any(|[word, _]| !names.iter().any(|name| is(word, name))) {
        return Err(SYNTAX);
    }
    // In this order, and of one that is given twice the first, as in RedisBloom.
    let given = |name, least, most| {
        let value = words.iter().find(|[word, _]| is(word, name));
        value.map(|[_, value]| option(name, value, least, most)).transpose()
    };
    let [iterations, bucket, expansion] = names;
    if let Some(value) = given(iterations, 1, MAX_ITERATIONS)? {
        options.iterations = value;
    }
    if let Some(value) = given(bucket, 1, MAX_BUCKET)? {
        options.bucket = value;
    }
    if let Some(value) = given(expansion, 0, MAX_EXPANSION)? {
        // As in RedisBloom; 0 stays 0.
        options.expansion = if value == 0 { 0 } else { value.next_power_of_two() };
    }
    options.capacity = in_range(capacity, options.bucket, "2 * BUCKETSIZE")?;
    make(session, request[1], options)?;
    reply.ok();
    Ok(())
}

/// The value of an option of CF.RESERVE.
fn option(name: &str, value: &[u8], least: u32, most: u32) -> Result<u32, Fault> {
    let value = number::<i64>(value).ok_or_else(|| format!("Couldn't parse {name}"))?;
    let value = u32::try_from(value).ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("{name}: value must be in the range [{least}, {most}]").into())
}

/// The capacity, if there is room for two buckets; `least` is how RedisBloom writes that.
fn in_range(capacity: i64, bucket: u32, least: &str) -> Result<u64, Fault> {
    let capacity = u64::try_from(capacity).ok();
    capacity
        .filter(|capacity| (2 * u64::from(bucket)..=MAX_CAPACITY).contains(capacity))
        .ok_or_else(|| format!("Capacity must be in the range [{least}, {MAX_CAPACITY}]").into())
}

/// Adds one item; with `if_new`, only if there is none. Returns whether it was added.
fn add_one(
    session: &mut Session,
    key: &[u8],
    hash: u64,
    if_new: bool,
    options: &dyn Fn() -> Options,
) -> Result<Result<bool, SetError>, Fault> {
    session.change(
        |session| session.find_or_make(key, Kind::Cuckoo, options),
        |set, now| {
            if if_new {
                return set.add_copy_if_new(now, hash);
            }
            let (ticket, added) = set.add_copy(now, hash);
            (ticket, added.map(|()| true))
        },
    )
}

fn full(refusal: SetError) -> Fault {
    match refusal {
        SetError::Full => "Filter is full".into(),
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
    let Insert { options, create, items } = Insert::of(&request[2..], name)?;
    let hashes = hashes(session, request[1], items)?;
    if !create && session.find_set_of(request[1], Kind::Cuckoo)?.is_none() {
        return Err("ERR not found".into());
    }
    let make = || options.clone();
    let mut results = Vec::with_capacity(hashes.len());
    for hash in hashes {
        match add_one(session, request[1], hash, if_new, &make)? {
            Err(refusal @ (SetError::Log(_) | SetError::ReadOnly(_) | SetError::NotLoaded)) => {
                return Err(refused(refusal));
            }
            result => results.push(result),
        }
    }
    reply.array(results.len());
    for result in results {
        match result {
            Ok(added) if if_new => reply.integer(i64::from(added)),
            Ok(added) => reply.boolean(added),
            Err(_) if reply.is_v3 && !if_new => reply.boolean(false),
            Err(_) => reply.integer(-1),
        }
    }
    Ok(())
}

/// What CF.INSERT and CF.INSERTNX have after the key.
struct Insert<'r, 'a> {
    options: Options,
    create: bool,
    /// At least one.
    items: &'r [&'a [u8]],
}

impl<'r, 'a> Insert<'r, 'a> {
    /// Reads the words that follow the key of the command `name`.
    fn of(words: &'r [&'a [u8]], name: &str) -> Result<Insert<'r, 'a>, Fault> {
        let (mut options, mut create) = (Options::of(Kind::Cuckoo), true);
        let mut rest = words;
        loop {
            let (word, after) = rest.split_first().ok_or_else(|| wrong_number(name))?;
            rest = after;
            if is(word, "ITEMS") {
                break;
            } else if is(word, "NOCREATE") {
                create = false;
            } else if is(word, "CAPACITY") {
                let (given, after) = rest.split_first().ok_or_else(|| wrong_number(name))?;
                let capacity = number::<i64>(given).ok_or("Bad capacity")?;
                options.capacity = in_range(capacity, options.bucket, "cf-bucket-size * 2")?;
                rest = after;
            } else {
                return Err("Unknown argument received".into());
            }
        }
        if rest.is_empty() {
            return Err(wrong_number(name));
        }
        Ok(Insert { options, create, items: rest })
    }
}

fn count(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_for_lookup(request[1], Kind::Cuckoo)?;
    let hash = hash(session, request[1], request[2]);
    let count = set.zip(hash.ok()).map_or(0, |(set, hash)| set.count(now, hash));
    reply.integer(count as i64);
    Ok(())
}

fn del(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hash = hash(session, request[1], request[2])?;
    let deleted = session
        .change(
            |session| {
                let set = session.find_set_for_lookup(request[1], Kind::Cuckoo)?;
                set.ok_or_else(|| "Not found".into())
            },
            |set, now| set.forget(now, &[hash]),
        )?
        .map_err(refused)?;
    reply.boolean(deleted == 1);
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Cuckoo)?.ok_or("ERR not found")?;
    let (options, size) = (set.options(), set.size(now));
    let (buckets, filters) = scaled(options, size.entries);
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
    let set = session.find_set_for_lookup(request[1], Kind::Cuckoo)?;
    set.ok_or("Cuckoo filter was not found")?;
    reply.ok();
    Ok(())
}

fn debug(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Cuckoo)?.ok_or("ERR not found")?;
    let (options, size) = (set.options(), set.size(now));
    let (buckets, filters) = scaled(options, size.entries);
    reply.text(&format!(
        "bktsize:{} buckets:{buckets} items:{} deletes:{} filters:{filters} max_iterations:{} \
         expansion:{}",
        options.bucket, size.entries, size.deleted, options.iterations, options.expansion,
    ));
    Ok(())
}

/// The most buckets that `CF.INFO` reports. No client can reserve as many, but a log may say so.
const MAX_BUCKETS: u64 = 1 << 62;

/// The buckets of a cuckoo filter's first part, and of how many parts it would consist by now. A
/// part is full when no bucket for an item can be freed: sooner if buckets are small.
fn scaled(options: &Options, entries: u64) -> (u64, u64) {
    let bucket = u64::from(options.bucket.max(1));
    let buckets = (options.capacity / bucket).clamp(1, MAX_BUCKETS).next_power_of_two();
    let full = match bucket {
        1 => 0.87,
        2 => 0.95,
        _ => 0.98,
    };
    let mut part = buckets as f64 * bucket as f64 * full;
    let (mut capacity, mut parts) = (part, 1);
    match options.expansion {
        0 => return (buckets, 1),
        // There may be millions.
        1 => return (buckets, ((entries as f64 / part).ceil() as u64).max(1)),
        _ => {}
    }
    while capacity < entries as f64 {
        part *= f64::from(options.expansion);
        capacity += part;
        parts += 1;
    }
    (buckets, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RedisBloom 8.2 answers after 1,000 items.
    #[test]
    fn a_filter_shows_as_many_parts_as_a_cuckoo_filter_would_have() {
        for (capacity, bucket, expansion, shown) in [
            (64, 2, 1, (32, 17)),
            (64, 2, 2, (32, 5)),
            (64, 2, 4, (32, 3)),
            (64, 1, 1, (64, 18)),
            (256, 4, 1, (64, 4)),
            (9, 2, 0, (4, 1)),
            (u64::MAX, 1, 1, (MAX_BUCKETS, 1)),
        ] {
            let options = Options { capacity, bucket, expansion, ..Options::of(Kind::Cuckoo) };
            assert_eq!(scaled(&options, 1_000), shown, "{capacity} {bucket} {expansion}");
        }
        assert_eq!(scaled(&Options::of(Kind::Cuckoo), 0), (512, 1));
    }
}
