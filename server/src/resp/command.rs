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
    frees: bool,
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
        let (is_write, frees, needs_no_auth, is_immediate) = (false, false, false, false);
        let subcommands = &[];
        Command {
            name,
            arity,
            keys,
            run,
            is_write,
            frees,
            needs_no_auth,
            is_immediate,
            subcommands,
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
        let keys = KeySpec { first: 0, last: 0, step: 0 };
        Command { keys, ..Command::read(name, arity, run) }
    }

    /// One that has nothing but subcommands; HELP lists them.
    pub(super) const fn container(name: &'static str, subcommands: &'static [Command]) -> Command {
        Command { subcommands, ..Command::plain(name, -2, nothing) }
    }

    pub(super) const fn with(self, subcommands: &'static [Command]) -> Command {
        Command { subcommands, ..self }
    }

    /// Changes something, without keys.
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
        let flags: &[&str] = match (self.is_write, self.keys.first) {
            (true, _) if self.frees => &["write", "fast"],
            (true, _) => &["write", "denyoom", "fast"],
            (false, 0) => &["loading", "stale", "fast"],
            (false, _) => &["readonly", "fast"],
        };
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
