//! What the server says of itself: INFO, CONFIG GET, MEMORY USAGE, ROLE, TIME, MODULE LIST.

use std::sync::atomic::Ordering;

use super::super::command::{Command, is, number, unknown_subcommand};
use super::super::reply::{Fault, Reply};
use super::super::session::{NOT_AN_INTEGER, SYNTAX, Session, wrong_number};
use super::glob;
use crate::connections::MAX_CONNECTIONS;
use crate::live::{Ack, Kind, Options};

/// The version of Redis whose commands and errors these are: clients choose what they send by it.
pub(super) const REDIS_VERSION: &str = "7.4.0";
/// The version of the module whose commands these are.
const MODULE_VERSION: i64 = 80_200;

pub(super) const COMMANDS: &[Command] = &[
    Command::plain("info", -1, info),
    Command::plain("config", -2, config),
    Command::read("memory", -2, memory).keys(2, 2, 1),
    Command::plain("role", 1, role),
    Command::plain("time", 1, time),
    Command::plain("module", -2, modules),
];

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let words = &request[1..];
    let wants = |name: &str| {
        let everything = ["all", "everything", "default"];
        words.is_empty()
            || words.iter().any(|word| is(word, name) || everything.iter().any(|all| is(word, all)))
    };
    let shared = &session.shared;
    let live = session.live();
    let (used, most) = live.memory();
    let uptime = shared.started.elapsed().as_secs();
    let version = env!("CARGO_PKG_VERSION");
    let (ack, address) = (live.ack().name(), shared.address);
    let port = address.port();
    let (clients, accepted, commands) = (
        shared.connections.load(Ordering::Relaxed),
        shared.accepted.load(Ordering::Relaxed),
        shared.commands.load(Ordering::Relaxed),
    );
    let on_disk = i32::from(live.ack() != Ack::Memory);
    let mut text = String::new();
    let mut section = |name: &str, lines: String| {
        if wants(name) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            text += &format!("{gap}# {name}\r\n{}", lines.replace('\n', "\r\n"));
        }
    };
    section(
        "Server",
        format!(
            "redis_version:{REDIS_VERSION}\nbloomsday_version:{version}\nredis_mode:standalone\n\
         os:{os}\narch_bits:64\nprocess_id:{pid}\ntcp_port:{port}\nuptime_in_seconds:{uptime}\n\
         uptime_in_days:{days}\n",
            os = std::env::consts::OS,
            pid = std::process::id(),
            days = uptime / 86_400,
        ),
    );
    section("Clients", format!("connected_clients:{clients}\nblocked_clients:0\n"));
    section(
        "Memory",
        format!("used_memory:{used}\nmaxmemory:{most}\nmaxmemory_policy:noeviction\n"),
    );
    section(
        "Persistence",
        format!(
            "loading:0\nasync_loading:0\naof_enabled:{on_disk}\nacknowledged:{ack}\n\
         rdb_bgsave_in_progress:0\naof_rewrite_in_progress:0\n"
        ),
    );
    section(
        "Stats",
        format!("total_connections_received:{accepted}\ntotal_commands_processed:{commands}\n"),
    );
    section("Replication", "role:master\nconnected_slaves:0\n".into());
    section("Modules", format!("module:name=bf,ver={MODULE_VERSION},api=1,filters=0\n"));
    section("Cluster", "cluster_enabled:0\n".into());
    let mut keyspace = String::new();
    for database in 0..16 {
        let sets = live.list(database, session.now);
        if !sets.is_empty() {
            let expiring = sets.iter().filter(|set| set.expires_at().is_some()).count();
            let keys = sets.len();
            keyspace += &format!("db{database}:keys={keys},expires={expiring},avg_ttl=0\n");
        }
    }
    section("Keyspace", keyspace);
    reply.verbatim(&text);
    Ok(())
}

fn config(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !is(request[1], "GET") {
        return Err(unknown_subcommand("CONFIG", request[1]));
    }
    if request.len() < 3 {
        return Err(wrong_number("config|get"));
    }
    let ack = session.live().ack();
    let append = if ack == Ack::Memory { "no" } else { "yes" };
    let sync = if ack == Ack::Synced { "always" } else { "everysec" };
    let (bloom, cuckoo) = (Options::of(Kind::Bloom), Options::of(Kind::Cuckoo));
    let known = [
        ("maxmemory", session.live().memory().1.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("save", String::new()),
        ("appendonly", append.into()),
        ("appendfsync", sync.into()),
        ("databases", "16".into()),
        ("maxclients", MAX_CONNECTIONS.to_string()),
        ("bf-error-rate", bloom.error.to_string()),
        ("bf-initial-size", bloom.capacity.to_string()),
        ("bf-expansion-factor", bloom.expansion.to_string()),
        ("cf-initial-size", cuckoo.capacity.to_string()),
        ("cf-bucket-size", cuckoo.bucket.to_string()),
        ("cf-max-iterations", cuckoo.iterations.to_string()),
        ("cf-expansion-factor", cuckoo.expansion.to_string()),
    ];
    let is_requested = |name: &str| {
        request[2..].iter().any(|p| glob::fits(&p.to_ascii_lowercase(), name.as_bytes()))
    };
    let found: Vec<_> = known.iter().filter(|(name, _)| is_requested(name)).collect();
    reply.map(found.len());
    for (name, value) in found {
        reply.text(name);
        reply.text(value);
    }
    Ok(())
}

fn memory(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !is(request[1], "USAGE") {
        return Err(unknown_subcommand("MEMORY", request[1]));
    }
    match request[2..] {
        [_] => {}
        // Nothing is sampled: the size is known.
        [_, word, n] if is(word, "SAMPLES") => {
            number::<u64>(n).ok_or(NOT_AN_INTEGER)?;
        }
        [] => return Err(wrong_number("memory|usage")),
        _ => return Err(SYNTAX),
    }
    let now = session.now;
    match session.set(request[2])? {
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
    reply.array(2);
    reply.text(&(session.now / 1_000).to_string());
    reply.text(&(session.now % 1_000 * 1_000).to_string());
    Ok(())
}

fn modules(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    match request {
        [_, word] if is(word, "LIST") => {
            reply.array(1);
            module(reply);
            Ok(())
        }
        [_, word] => Err(unknown_subcommand("MODULE", word)),
        _ => Err(SYNTAX),
    }
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
