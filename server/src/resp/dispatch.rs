//! The requests that arrived together, run in order: the table of commands, transactions, and which
//! replies are of changes. Replies are sent when these are as safe as promised.

use super::command::{Command, MAX_QUOTED_BYTES, help, is, quote, unknown_subcommand};
use super::commands::{TABLES, glob};
use super::pipeline;
use super::reply::{Fault, Reply, error};
use super::session::{ReplySpan, SYNTAX, Session, Transaction, wrong_number};

/// When a batch has as many bytes of replies, they are sent before it goes on.
const MAX_BATCH_REPLY_BYTES: usize = 1 << 20;
/// The most requests of a transaction, and the memory that they take.
const MAX_QUEUED: usize = 16 << 10;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// What a word takes beside its bytes: its place in the request, and what an allocation needs at
/// least.
const WORD_BYTES: usize = size_of::<Vec<u8>>() + 32;
/// The longest reply of one request or transaction.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// What the connection does after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterBatch {
    /// It reads the next one.
    Continue,
    /// Its replies are sent, and then the rest of it, from this request on.
    Flush(usize),
    /// The connection is closed.
    Close,
}

/// The commands that need the table.
const COMMANDS: &[Command] = &[
    Command::plain("command", -1, command).slow().with(SUBCOMMANDS),
    Command::plain("multi", 1, multi).immediate(),
    Command::plain("exec", 1, exec).slow().writes().immediate(),
    Command::plain("discard", 1, discard).immediate(),
    // There is no WATCH, so nothing is watched.
    Command::plain("unwatch", 1, unwatch),
];

const SUBCOMMANDS: &[Command] = &[
    Command::plain("command|count", 2, count),
    Command::plain("command|docs", -2, docs),
    Command::plain("command|getkeys", -3, getkeys),
    Command::plain("command|help", 2, usage),
    Command::plain("command|info", -2, info),
    Command::plain("command|list", -2, list),
];

/// All commands, without their subcommands.
fn all() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().chain(TABLES.iter().copied().flatten())
}

/// The command of this name, in upper or lower case.
fn named(name: &[u8]) -> Option<&'static Command> {
    all().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The command of a request, or its subcommand.
fn find(request: &[&[u8]]) -> Result<&'static Command, Fault> {
    let command = request.first().and_then(|name| named(name)).ok_or_else(|| unknown(request))?;
    match request.get(1) {
        Some(word) if !command.subcommands.is_empty() => {
            command.subcommand(word).ok_or_else(|| unknown_subcommand(command.name, word))
        }
        _ => Ok(command),
    }
}

/// Runs requests from number `from` on. `ends` tells where the arguments of each end.
pub(super) fn run(
    session: &mut Session,
    arguments: &[&[u8]],
    ends: &[usize],
    from: usize,
    out: &mut Vec<u8>,
) -> AfterBatch {
    session.now = session.live().now();
    let mut next = from;
    while next < ends.len() {
        let request = |number: usize| {
            let begin = if number == 0 { 0 } else { ends[number - 1] };
            &arguments[begin..ends[number]]
        };
        if session.is_authenticated() && session.transaction.is_none() {
            let done = pipeline::run(session, request, next, ends.len(), out);
            if done > 0 {
                next += done;
                if out.len() > MAX_BATCH_REPLY_BYTES {
                    return AfterBatch::Flush(next);
                }
                continue;
            }
        }
        run_one(session, request(next), out);
        next += 1;
        if session.is_closing {
            return AfterBatch::Close;
        }
        if session.awaited.is_some() || out.len() > MAX_BATCH_REPLY_BYTES {
            return AfterBatch::Flush(next);
        }
    }
    AfterBatch::Continue
}

/// Runs one request.
fn run_one(session: &mut Session, request: &[&[u8]], out: &mut Vec<u8>) {
    if request.is_empty() {
        return;
    }
    let begin = out.len();
    let result = match find(request) {
        Err(fault) => Err(fault),
        Ok(command) if !command.takes(request.len()) => {
            Err(refusal(session, command, wrong_number(command.name)))
        }
        Ok(command) if !session.is_authenticated() && !command.needs_no_auth => {
            Err(refusal(session, command, "NOAUTH Authentication required.".into()))
        }
        Ok(command) if session.transaction.is_some() && !command.is_immediate => {
            enqueue(session, command, request, out)
        }
        Ok(command) => perform(session, command, request, out),
    };
    if let Err(fault) = result {
        if let Some(transaction) = &mut session.transaction {
            // But for an error of EXEC itself, which has taken the transaction.
            transaction.is_wrong = true;
        }
        out.truncate(begin);
        error(out, &fault);
    }
}

/// The error of a command that is not run. An EXEC ends the transaction all the same.
fn refusal(session: &mut Session, command: &Command, fault: Fault) -> Fault {
    if command.name != "exec" {
        return fault;
    }
    session.transaction = None;
    session.publish();
    discarded_because_of(&fault)
}

fn discarded_because_of(fault: &Fault) -> Fault {
    let why = fault.0.trim_start_matches("ERR ");
    format!("EXECABORT Transaction discarded because of: {why}").into()
}

/// Runs a command, and notes where its reply is if it changes something.
fn perform(
    session: &mut Session,
    command: &Command,
    request: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let begin = out.len();
    let is_v3 = session.is_v3;
    let result = (command.run)(session, request, &mut Reply { out, is_v3 });
    if command.is_write {
        if let Err(fault) = &result {
            out.truncate(begin);
            error(out, fault);
        }
        session.spans.push(ReplySpan { begin, end: out.len(), replies: 1 });
        return Ok(());
    }
    result
}

fn enqueue(
    session: &mut Session,
    command: &Command,
    request: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    check_change(session, command, request)?;
    let Some(transaction) = &mut session.transaction else { return Ok(()) };
    let bytes = request.iter().map(|word| word.len() + WORD_BYTES).sum::<usize>();
    if transaction.requests.len() >= MAX_QUEUED {
        return Err(format!("ERR a transaction has at most {MAX_QUEUED} commands").into());
    }
    if transaction.bytes + bytes > MAX_QUEUED_BYTES {
        return Err(format!("ERR a transaction takes at most {MAX_QUEUED_BYTES} bytes").into());
    }
    transaction.bytes += bytes;
    transaction.requests.push(request.iter().map(|argument| argument.to_vec()).collect());
    session.known.info().queued = Some(transaction.requests.len());
    out.extend_from_slice(b"+QUEUED\r\n");
    Ok(())
}

/// Refuses a request of a transaction that would change a set which takes no changes now, so that
/// nothing of that transaction is done.
fn check_change(session: &mut Session, command: &Command, request: &[&[u8]]) -> Result<(), Fault> {
    if !command.is_write {
        return Ok(());
    }
    let adds = !command.frees;
    let keys = command.keys_of(request);
    // What BLOOM.UNION reads may be of another server.
    let changed = if adds { &keys[..keys.len().min(1)] } else { &keys[..] };
    changed.iter().try_for_each(|key| session.check_change(key, adds))
}

fn command(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.array(all().count());
    all().for_each(|command| command.describe(reply));
    Ok(())
}

fn count(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.integer(all().count() as i64);
    Ok(())
}

fn docs(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.map(0);
    Ok(())
}

fn info(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if request.len() == 2 {
        return command(session, request, reply);
    }
    reply.array(request.len() - 2);
    for name in &request[2..] {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let command = parts.next().and_then(named);
        match parts.next().map_or(command, |word| command?.subcommand(word)) {
            Some(command) => command.describe(reply),
            None => reply.null(),
        }
        check_length(reply)?;
    }
    Ok(())
}

/// Refuses a reply that is too long.
fn check_length(reply: &Reply<'_>) -> Result<(), Fault> {
    match reply.out.len() {
        ..=MAX_REPLY_BYTES => Ok(()),
        _ => {
            Err(format!("ERR a reply has at most {MAX_REPLY_BYTES} bytes: ask for less at once")
                .into())
        }
    }
}

fn list(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_listed: Box<dyn Fn(&str) -> bool> = match request[2..] {
        [] => Box::new(|_| true),
        [by, what, wanted] if is(by, "FILTERBY") && is(what, "PATTERN") => {
            let pattern = glob::checked(wanted)?.to_ascii_lowercase();
            Box::new(move |name| glob::fits(&pattern, name.as_bytes()))
        }
        [by, what, wanted] if is(by, "FILTERBY") && is(what, "MODULE") => {
            let is_ours = is(wanted, "bf");
            Box::new(move |name| is_ours && name.contains('.'))
        }
        _ => return Err(SYNTAX),
    };
    let names: Vec<_> = all().map(|command| command.name).filter(|name| is_listed(name)).collect();
    reply.array(names.len());
    names.iter().for_each(|name| reply.text(name));
    Ok(())
}

fn usage(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    help("COMMAND", SUBCOMMANDS, reply);
    Ok(())
}

fn getkeys(_: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let request = &request[2..];
    let command = find(request).map_err(|_| "ERR Invalid command specified")?;
    if !command.has_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.takes(request.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = command.keys_of(request);
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

fn multi(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if session.transaction.is_some() {
        // Not an error of a queued request: the transaction goes on.
        reply.error(&"ERR MULTI calls can not be nested".into());
        return Ok(());
    }
    session.transaction = Some(Transaction::default());
    session.publish();
    reply.ok();
    Ok(())
}

fn exec(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let transaction = session.transaction.take().ok_or("ERR EXEC without MULTI")?;
    if transaction.is_wrong {
        session.publish();
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    for request in &transaction.requests {
        let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let checked = find(&request).and_then(|command| check_change(session, command, &request));
        if let Err(fault) = checked {
            session.publish();
            return Err(discarded_because_of(&fault));
        }
    }
    reply.array(transaction.requests.len());
    session.is_executing = true;
    // The reply is one: if its changes cannot be kept, all of it is an error.
    let spans = session.spans.len();
    for request in &transaction.requests {
        let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let Ok(command) = find(&request) else { continue };
        let begin = reply.out.len();
        let done = check_length(reply);
        if let Err(fault) = done.and_then(|()| perform(session, command, &request, reply.out)) {
            reply.out.truncate(begin);
            reply.error(&fault);
        }
    }
    session.spans.truncate(spans);
    session.is_executing = false;
    session.publish();
    Ok(())
}

fn discard(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.transaction.take().ok_or("ERR DISCARD without MULTI")?;
    session.publish();
    reply.ok();
    Ok(())
}

fn unwatch(_: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.ok();
    Ok(())
}

fn unknown(request: &[&[u8]]) -> Fault {
    let mut arguments = String::new();
    for argument in &request[1..] {
        if arguments.len() >= MAX_QUOTED_BYTES {
            break;
        }
        let left = MAX_QUOTED_BYTES - arguments.len();
        arguments += &format!("'{}' ", quote(&argument[..argument.len().min(left)]));
    }
    let name = quote(request[0]);
    format!("ERR unknown command '{name}', with args beginning with: {arguments}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_entry_in_lower_case() {
        let subcommands = all().flat_map(|command| command.subcommands);
        let mut names: Vec<&str> = all().chain(subcommands).map(|command| command.name).collect();
        names.sort_unstable();
        let many = names.len();
        names.dedup();
        assert_eq!(names.len(), many);
        assert!(names.iter().all(|name| name.to_ascii_lowercase() == *name));
        assert!(named(b"Bf.AdD").is_some() && named(b"").is_none() && named(b"bf.addx").is_none());
    }

    #[test]
    fn a_subcommand_is_named_after_its_command_and_found_by_its_word() {
        for command in all() {
            for subcommand in command.subcommands {
                let (of, name) = subcommand.name.split_once('|').unwrap();
                assert_eq!(of, command.name);
                let upper = name.to_ascii_uppercase();
                let request = [of.as_bytes(), upper.as_bytes()];
                assert_eq!(find(&request).unwrap().name, subcommand.name);
            }
        }
        let none = find(&[b"client", b"client|id"]).err().unwrap();
        assert_eq!(none.0, "ERR unknown subcommand 'client|id'. Try CLIENT HELP.");
    }
}
