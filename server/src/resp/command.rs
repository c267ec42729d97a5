//! [`Command`]: one entry of the table of commands; and the words of requests.

use super::reply::{Fault, Reply};
use super::session::Session;

/// What runs a command: the request with its name, and where the reply goes.
type Run = fn(&mut Session, &[&[u8]], &mut Reply<'_>) -> Result<(), Fault>;

/// One command.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// How many words a request has with the name; at least so many if negative.
    arity: i32,
    /// The places of its keys: first, last and step.
    keys: (i32, i32, i32),
    pub(crate) run: Run,
    pub(crate) is_write: bool,
    /// Whether it needs no password.
    pub(crate) is_open: bool,
    /// Whether it runs at once in a transaction.
    pub(crate) ends_transaction: bool,
}

impl Command {
    pub(super) const fn read(name: &'static str, arity: i32, run: Run) -> Command {
        let keys = (1, 1, 1);
        let (is_write, is_open, ends_transaction) = (false, false, false);
        Command { name, arity, keys, run, is_write, is_open, ends_transaction }
    }

    pub(super) const fn write(name: &'static str, arity: i32, run: Run) -> Command {
        Command { is_write: true, ..Command::read(name, arity, run) }
    }

    /// Of a connection or the server, without keys.
    pub(super) const fn plain(name: &'static str, arity: i32, run: Run) -> Command {
        Command { keys: (0, 0, 0), ..Command::read(name, arity, run) }
    }

    /// Changes something, without keys.
    pub(super) const fn writes(self) -> Command {
        Command { is_write: true, ..self }
    }

    pub(super) const fn open(self) -> Command {
        Command { is_open: true, ..self }
    }

    pub(super) const fn at_once(self) -> Command {
        Command { ends_transaction: true, ..self }
    }

    pub(super) const fn keys(self, first: i32, last: i32, step: i32) -> Command {
        Command { keys: (first, last, step), ..self }
    }

    /// Whether a request of so many words is right.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Its description, as COMMAND has it.
    pub(super) fn describe(&self, reply: &mut Reply<'_>) {
        reply.array(10);
        reply.text(self.name);
        reply.integer(i64::from(self.arity));
        let flags: &[&str] = match (self.is_write, self.keys.0) {
            (true, _) => &["write", "denyoom", "fast"],
            (false, 0) => &["loading", "stale", "fast"],
            (false, _) => &["readonly", "fast"],
        };
        reply.array(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
        for place in [self.keys.0, self.keys.1, self.keys.2] {
            reply.integer(i64::from(place));
        }
        (0..4).for_each(|_| reply.array(0));
    }
}

/// Whether a word of a request is this one, in upper or lower case.
pub(super) fn is(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

/// A number in a request.
pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(word).ok()?;
    // Only what the protocol writes: no plus sign.
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// The error for a subcommand that there is not.
pub(super) fn unknown_subcommand(command: &str, word: &[u8]) -> Fault {
    let word = String::from_utf8_lossy(&word[..word.len().min(64)]);
    format!("ERR unknown subcommand '{word}'. Try {command} HELP.").into()
}
