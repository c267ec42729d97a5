//! What the server says of itself: INFO, CONFIG GET, MEMORY USAGE, ROLE, TIME, MODULE LIST.

use std::sync::atomic::Ordering;

use super::super::command::{Command, help, is, number, quote, wrong_words};
use super::super::reply::{Fault, Reply};
use super::super::session::{DATABASES, NOT_AN_INTEGER, SYNTAX, Session};
use super::glob;
use crate::connections::MAX_CONNECTIONS;
use crate::live::{Ack, Kind, Options};

/// The version of Redis whose commands and errors these are: clients choose what they send by it.
pub(super) const REDIS_VERSION: &str = "7.4.0";
/// The version of the module whose commands these are.
const MODULE_VERSION: i64 = 80_200;

/// The most patterns of one CONFIG GET.
const MAX_PATTERNS: usize = 64;

pub(super) const COMMANDS: &[Command] = &[
    Command::plain("info", -1, info).slow(),
    Command::container("config", CONFIG),
    Command::container("memory", MEMORY),
    Command::plain("role", 1, role),
    Command::plain("time", 1, time),
    Command::container("module", MODULE),
    Command::container("function", FUNCTION),
];

const CONFIG: &[Command] = &[
    Command::plain("config|get", -3, config_get),
    Command::plain("config|help", 2, usage_of_config),
    Command::plain("config|resetstat", 2, resetstat),
    Command::plain("config|rewrite", 2, |_, _, _| {
        Err("ERR The server is running without a config file".into())
    }),
    Command::plain("config|set", -4, config_set),
];

const MEMORY: &[Command] = &[
    Command::plain("memory|help", 2, usage_of_memory),
    Command::read("memory|usage", -3, memory_usage).keys(2, 2, 1),
];

const MODULE: &[Command] = &[
    Command::plain("module|help", 2, usage_of_module),
    Command::plain("module|list", 2, module_list),
];

/// There are no functions: programs that clear a server before they use it may say so.
const FUNCTION: &[Command] = &[
    Command::plain("function|flush", -2, |_, request, reply| {
        match request[2..] {
            [] => {}
            [how] if is(how, "SYNC") || is(how, "ASYNC") => {}
            [_] => return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into()),
            _ => return Err(wrong_words(request[1], "FUNCTION")),
        }
        reply.ok();
        Ok(())
    }),
    Command::plain("function|help", 2, |_, _, reply| {
        help("FUNCTION", FUNCTION, reply);
        Ok(())
    }),
    Command::plain("function|list", -2, |_, request, reply| {
        let mut words = request[2..].iter();
        while let Some(word) = words.next() {
            if is(word, "LIBRARYNAME") {
                words.next().ok_or("ERR library name argument was not given")?;
            } else if !is(word, "WITHCODE") {
                return Err(format!("ERR Unknown argument {}", quote(word)).into());
            }
        }
        reply.array(0);
        Ok(())
    }),
];

fn usage_of_config(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    help("CONFIG", CONFIG, reply);
    Ok(())
}

fn usage_of_memory(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    help("MEMORY", MEMORY, reply);
    Ok(())
}

fn usage_of_module(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    help("MODULE", MODULE, reply);
    Ok(())
}

/// The sections of INFO: each one's name, and its lines.
type Section = (&'static str, fn(&Session) -> String);
const SECTIONS: &[Section] = &[
    ("Server", server_section),
    ("Clients", clients_section),
    ("Memory", memory_section),
    ("Persistence", persistence_section),
    ("Stats", stats_section),
    ("Replication", |_| "role:master\nconnected_slaves:0\n".into()),
    ("Modules", |_| format!("module:name=bf,ver={MODULE_VERSION},api=1,filters=0\n")),
    ("Cluster", |_| "cluster_enabled:0\n".into()),
    ("Keyspace", keyspace_section),
];

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let words = &request[1..];
    let wants = |name: &str| {
        let everything = ["all", "everything", "default"];
        words.is_empty()
            || words.iter().any(|word| is(word, name) || everything.iter().any(|all| is(word, all)))
    };
    let sections = SECTIONS.iter().filter(|(name, _)| wants(name));
    let texts: Vec<String> =
        sections.map(|(name, lines)| format!("# {name}\n{}", lines(session))).collect();
    reply.verbatim(&texts.join("\n").replace('\n', "\r\n"));
    Ok(())
}

fn server_section(session: &Session) -> String {
    let uptime = session.shared.started.elapsed().as_secs();
    format!(
        "redis_version:{REDIS_VERSION}\nbloomsday_version:{version}\nredis_mode:standalone\n\
         os:{os}\narch_bits:64\nprocess_id:{pid}\ntcp_port:{port}\nuptime_in_seconds:{uptime}\n\
         uptime_in_days:{days}\n",
        version = env!("CARGO_PKG_VERSION"),
        os = std::env::consts::OS,
        pid = std::process::id(),
        port = session.shared.address.port(),
        days = uptime / 86_400,
    )
}

fn clients_section(session: &Session) -> String {
    let clients = session.shared.clients().len();
    format!("connected_clients:{clients}\nmaxclients:{MAX_CONNECTIONS}\nblocked_clients:0\n")
}

fn memory_section(session: &Session) -> String {
    let (used, most) = session.live().memory();
    format!("used_memory:{used}\nmaxmemory:{most}\nmaxmemory_policy:noeviction\n")
}

fn persistence_section(session: &Session) -> String {
    let ack = session.live().ack();
    let (is_on_disk, ack) = (i32::from(ack != Ack::Memory), ack.name());
    format!(
        "loading:0\nasync_loading:0\naof_enabled:{is_on_disk}\nacknowledged:{ack}\n\
         rdb_bgsave_in_progress:0\naof_rewrite_in_progress:0\n"
    )
}

fn stats_section(session: &Session) -> String {
    let shared = &session.shared;
    let before = shared.accepted_before.load(Ordering::Relaxed);
    let accepted = shared.accepted.load(Ordering::Relaxed) - before;
    let commands = shared.commands.load(Ordering::Relaxed);
    let rejected = shared.rejected.load(Ordering::Relaxed);
    format!(
        "total_connections_received:{accepted}\ntotal_commands_processed:{commands}\n\
         rejected_connections:{rejected}\n"
    )
}

fn keyspace_section(session: &Session) -> String {
    let databases = (0..DATABASES).filter_map(|database| {
        let sets = session.live().list(database, session.now);
        let ends = sets.iter().filter_map(|set| set.expires_at());
        let left: Vec<u64> = ends.map(|end| end.saturating_sub(session.now)).collect();
        let (keys, expires) = (sets.len(), left.len());
        // Each may be nearly as large as the type.
        let avg_ttl = left.iter().map(|ms| u128::from(*ms)).sum::<u128>() / expires.max(1) as u128;
        (keys > 0)
            .then(|| format!("db{database}:keys={keys},expires={expires},avg_ttl={avg_ttl}\n"))
    });
    databases.collect()
}

/// The settings that clients ask for.
fn settings(session: &Session) -> [(&'static str, String); 14] {
    let ack = session.live().ack();
    let append = if ack == Ack::Memory { "no" } else { "yes" };
    let sync = if matches!(ack, Ack::Synced | Ack::Shipped) { "always" } else { "everysec" };
    let (bloom, cuckoo) = (Options::of(Kind::Bloom), Options::of(Kind::Cuckoo));
    [
        ("maxmemory", session.live().memory().1.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("save", String::new()),
        ("appendonly", append.into()),
        ("appendfsync", sync.into()),
        ("databases", DATABASES.to_string()),
        ("maxclients", MAX_CONNECTIONS.to_string()),
        ("bf-error-rate", bloom.error.to_string()),
        ("bf-initial-size", bloom.capacity.to_string()),
        ("bf-expansion-factor", bloom.expansion.to_string()),
        ("cf-initial-size", cuckoo.capacity.to_string()),
        ("cf-bucket-size", cuckoo.bucket.to_string()),
        ("cf-max-iterations", cuckoo.iterations.to_string()),
        ("cf-expansion-factor", cuckoo.expansion.to_string()),
    ]
}

fn config_get(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let known = settings(session);
    if request.len() > 2 + MAX_PATTERNS {
        return Err(format!("ERR CONFIG GET takes at most {MAX_PATTERNS} patterns").into());
    }
    let patterns = request[2..].iter().map(|word| glob::checked(word));
    let patterns = patterns.map(|word| word.map(<[u8]>::to_ascii_lowercase));
    let patterns = patterns.collect::<Result<Vec<_>, Fault>>()?;
    let is_requested =
        |name: &str| patterns.iter().any(|pattern| glob::fits(pattern, name.as_bytes()));
    let found: Vec<_> = known.iter().filter(|(name, _)| is_requested(name)).collect();
    reply.map(found.len());
    for (name, value) in found {
        // A name in the letters of the client, which may look for it in the reply.
        let as_written = request[2..].iter().find(|word| is(word, name));
        match as_written {
            Some(word) => reply.bulk(word),
            None => reply.text(name),
        }
        reply.text(value);
    }
    Ok(())
}

/// Nothing can be set: what holds is in the configuration and the flags.
fn config_set(session: &mut Session, request: &[&[u8]], _: &mut Reply<'_>) -> Result<(), Fault> {
    let (pairs, rest) = request[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    let known = settings(session);
    let is_known = |word: &[u8]| known.iter().any(|(name, _)| is(word, name));
    if let Some([name, _]) = pairs.iter().find(|[name, _]| !is_known(name)) {
        let name = quote(name);
        let why = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
        return Err(why.into());
    }
    let is_double =
        |i: usize| pairs[..i].iter().any(|[name, _]| name.eq_ignore_ascii_case(pairs[i][0]));
    let (name, why) = match (0..pairs.len()).find(|i| is_double(*i)) {
        Some(i) => (quote(pairs[i][0]), "duplicate parameter"),
        None => (quote(pairs[0][0]), "can't set immutable config"),
    };
    Err(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}").into())
}

fn resetstat(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = &session.shared;
    shared.commands.store(0, Ordering::Relaxed);
    shared.rejected.store(0, Ordering::Relaxed);
    shared.accepted_before.store(shared.accepted.load(Ordering::Relaxed), Ordering::Relaxed);
    reply.ok();
    Ok(())
}

fn memory_usage(
    session: &mut Session,
    request: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut words = request[3..].iter();
    while let Some(word) = words.next() {
        let value = words.next().filter(|_| is(word, "SAMPLES")).ok_or(SYNTAX)?;
        // Nothing is sampled: the size is known.
        if number::<i64>(value).ok_or(NOT_AN_INTEGER)? < 0 {
            return Err(SYNTAX);
        }
    }
    let now = session.now;
    match session.find_set(request[2])? {
        Some(set) => reply.integer(set.size(now).bytes as i64),
        None => reply.null(),
    }
    Ok(())
}

fn role(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.array(3);
    reply.text("master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn time(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.live().microseconds();
    reply.array(2);
    reply.text(&(now / 1_000_000).to_string());
    reply.text(&(now % 1_000_000).to_string());
    Ok(())
}

fn module_list(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.array(1);
    module(reply);
    Ok(())
}

/// The module whose commands are here.
pub(super) fn module(reply: &mut Reply<'_>) {
    reply.map(4);
    reply.text("name");
    reply.text("bf");
    reply.text("ver");
    reply.integer(MODULE_VERSION);
    reply.text("path");
    reply.text("");
    reply.text("args");
    reply.array(0);
}
