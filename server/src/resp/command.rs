//! [`Command`]: one entry of the table of commands; and the words of requests.

use std::borrow::Cow;

use super::reply::{Fault, Reply};
pub(super) use super::request::number;
use super::session::Session;

/// The most bytes of foreign text in an error.
pub(super) const MAX_QUOTED_BYTES: usize = 128;

/// What runs a command: the request with its name, and where the reply goes.
type Run = fn(&mut Session, &[&[u8]], &mut Reply<'_>) -> Result<(), Fault>;

/// One command.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// How many words a request has with the name; at least as many if negative.
    arity: i32,
    keys: KeySpec,
    pub(crate) run: Run,
    pub(crate) is_write: bool,
    /// Whether it only takes away, and so works when the memory is full.
    pub(crate) frees: bool,
    /// Whether it is about keys, and not about the connection or the server.
    is_of_keys: bool,
    /// Whether it may take longer than the others.
    is_slow: bool,
    pub(crate) needs_no_auth: bool,
    /// Whether it runs at once in a transaction.
    pub(crate) is_immediate: bool,
    /// Those that its second word chooses, each named `command|subcommand`.
    pub(crate) subcommands: &'static [Command],
}

/// Which words of a request are keys, as COMMAND describes it: none if `first` is 0; a negative
/// `last` counts from the end.
#[derive(Clone, Copy)]
struct KeySpec {
    first: i32,
    last: i32,
    step: i32,
}

impl Command {
    pub(super) const fn read(name: &'static str, arity: i32, run: Run) -> Command {
        let keys = KeySpec { first: 1, last: 1, step: 1 };
        Command {
            name,
            arity,
            keys,
            run,
            is_write: false,
            frees: false,
            is_of_keys: true,
            is_slow: false,
            needs_no_auth: false,
            is_immediate: false,
            subcommands: &[],
        }
    }

    pub(super) const fn write(name: &'static str, arity: i32, run: Run) -> Command {
        Command { is_write: true, ..Command::read(name, arity, run) }
    }

    /// Takes away, and adds nothing.
    pub(super) const fn frees(self) -> Command {
        Command { frees: true, ..self }
    }

    /// Of a connection or the server, without keys.
    pub(super) const fn plain(name: &'static str, arity: i32, run: Run) -> Command {
        Command { is_of_keys: false, ..Command::read(name, arity, run).without_keys() }
    }

    /// Of all keys, none of which a request names.
    pub(super) const fn without_keys(self) -> Command {
        Command { keys: KeySpec { first: 0, last: 0, step: 0 }, ..self }
    }

    /// Takes a time that grows with what there is.
    pub(super) const fn slow(self) -> Command {
        Command { is_slow: true, ..self }
    }

    /// One that has nothing but subcommands; HELP lists them.
    pub(super) const fn container(name: &'static str, subcommands: &'static [Command]) -> Command {
        Command { subcommands, ..Command::plain(name, -2, nothing) }
    }

    pub(super) const fn with(self, subcommands: &'static [Command]) -> Command {
        Command { subcommands, ..self }
    }

    /// Its reply waits for changes.
    pub(super) const fn writes(self) -> Command {
        Command { is_write: true, ..self }
    }

    pub(super) const fn without_auth(self) -> Command {
        Command { needs_no_auth: true, ..self }
    }

    pub(super) const fn immediate(self) -> Command {
        Command { is_immediate: true, ..self }
    }

    pub(super) const fn keys(self, first: i32, last: i32, step: i32) -> Command {
        Command { keys: KeySpec { first, last, step }, ..self }
    }

    /// The subcommand of this name, in upper or lower case.
    pub(crate) fn subcommand(&self, word: &[u8]) -> Option<&'static Command> {
        let name = |command: &Command| command.name.split_once('|').map(|(_, name)| name);
        self.subcommands.iter().find(|command| name(command).is_some_and(|name| is(word, name)))
    }

    /// The keys of a request; none if its number of words is wrong.
    pub(super) fn keys_of<'a>(&self, request: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let KeySpec { first, last, step } = self.keys;
        let words = i32::try_from(request.len()).unwrap_or(i32::MAX);
        let last = if last < 0 { words + last } else { last };
        let positions = (first..=last).step_by(usize::try_from(step).unwrap_or(1).max(1));
        let positions = positions.filter(|position| *position > 0);
        positions.filter_map(|position| request.get(position as usize).copied()).collect()
    }

    /// Whether its requests name keys.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.first > 0
    }

    /// Whether a request with this number of words is right.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Its description, as COMMAND has it.
    pub(super) fn describe(&self, reply: &mut Reply<'_>) {
        reply.array(10);
        reply.text(self.name);
        reply.integer(i64::from(self.arity));
        let flags = self.flags();
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
        let KeySpec { first, last, step } = self.keys;
        [first, last, step].into_iter().for_each(|number| reply.integer(i64::from(number)));
        // Categories, tips and key specifications.
        (0..3).for_each(|_| reply.set(0));
        // As Redis has it: of a command without them a set.
        match self.subcommands.len() {
            0 => reply.set(0),
            some => reply.array(some),
        }
        self.subcommands.iter().for_each(|command| command.describe(reply));
    }

    /// What clients and proxies may know of it before they send it.
    fn flags(&self) -> Vec<&'static str> {
        let is_container = std::ptr::fn_addr_eq(self.run, nothing as Run);
        if is_container {
            return Vec::new();
        }
        let adds = self.is_of_keys && self.is_write && !self.frees;
        let is_of_module = self.name.contains('.');
        let is_slow = self.is_slow || self.name.contains('|') || (adds && is_of_module);
        [
            (self.is_of_keys && self.is_write, "write"),
            (self.is_of_keys && !self.is_write, "readonly"),
            (adds, "denyoom"),
            (is_of_module, "module"),
            (!self.is_of_keys, "loading"),
            (!self.is_of_keys, "stale"),
            (!is_slow, "fast"),
            (self.needs_no_auth, "no_auth"),
        ]
        .into_iter()
        .filter_map(|(has, flag)| has.then_some(flag))
        .collect()
    }
}

fn nothing(_: &mut Session, _: &[&[u8]], _: &mut Reply<'_>) -> Result<(), Fault> {
    Ok(())
}

/// Writes the names of subcommands, for people.
pub(super) fn help(command: &str, subcommands: &[Command], reply: &mut Reply<'_>) {
    reply.array(subcommands.len() + 1);
    reply.simple(&format!("{command} <subcommand> [<argument> ...]. The subcommands are:"));
    for subcommand in subcommands {
        let name = subcommand.name.split_once('|').map_or("", |(_, name)| name);
        reply.simple(&name.to_ascii_uppercase());
    }
}

/// The error of a subcommand that is there, but not with so many words.
pub(super) fn wrong_words(subcommand: &[u8], command: &str) -> Fault {
    let name = quote(subcommand);
    let why = format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."
    );
    why.into()
}

/// Whether a word of a request is this one, in upper or lower case.
pub(super) fn is(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

/// A decimal fraction in a request.
pub(super) fn fraction(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// What an error quotes of a word of a request.
pub(super) fn quote(word: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&word[..word.len().min(MAX_QUOTED_BYTES)])
}

/// The error for a subcommand that there is not.
pub(super) fn unknown_subcommand(command: &str, word: &[u8]) -> Fault {
    let command = command.to_ascii_uppercase();
    format!("ERR unknown subcommand '{}'. Try {command} HELP.", quote(word)).into()
}
