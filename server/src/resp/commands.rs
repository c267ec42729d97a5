//! The table of commands: names, numbers of arguments, and the functions that run them.

mod bloom;
mod connection;
mod cuckoo;
mod glob;
mod info;
mod keys;
mod set;
mod transaction;
mod window;

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
    const fn read(name: &'static str, arity: i32, run: Run) -> Command {
        let keys = (1, 1, 1);
        let (is_write, is_open, ends_transaction) = (false, false, false);
        Command { name, arity, keys, run, is_write, is_open, ends_transaction }
    }

    const fn write(name: &'static str, arity: i32, run: Run) -> Command {
        Command { is_write: true, ..Command::read(name, arity, run) }
    }

    /// Of a connection or the server, without keys.
    const fn plain(name: &'static str, arity: i32, run: Run) -> Command {
        Command { keys: (0, 0, 0), ..Command::read(name, arity, run) }
    }

    const fn open(self) -> Command {
        Command { is_open: true, ..self }
    }

    const fn at_once(self) -> Command {
        Command { ends_transaction: true, ..self }
    }

    const fn keys(self, first: i32, last: i32, step: i32) -> Command {
        Command { keys: (first, last, step), ..self }
    }

    /// Whether a request of so many words is right.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Its description, as COMMAND has it.
    fn describe(&self, reply: &mut Reply<'_>) {
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

const TABLES: [&[Command]; 8] = [
    bloom::COMMANDS,
    cuckoo::COMMANDS,
    set::COMMANDS,
    window::COMMANDS,
    keys::COMMANDS,
    connection::COMMANDS,
    info::COMMANDS,
    transaction::COMMANDS,
];

/// All commands.
fn all() -> impl Iterator<Item = &'static Command> {
    TABLES.iter().copied().flatten()
}

/// The command of this name, in upper or lower case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    all().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a word of a request is this one, in upper or lower case.
fn is(word: &[u8], text: &str) -> bool {
    word.eq_ignore_ascii_case(text.as_bytes())
}

/// A number in a request.
fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(word).ok()?;
    // Only what the protocol writes: no plus sign.
    if text.starts_with('+') { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_entry_in_lower_case() {
        let mut names: Vec<&str> = all().map(|command| command.name).collect();
        names.sort_unstable();
        let many = names.len();
        names.dedup();
        assert_eq!(names.len(), many);
        assert!(names.iter().all(|name| name.to_ascii_lowercase() == *name));
        assert!(find(b"Bf.AdD").is_some() && find(b"").is_none() && find(b"bf.addx").is_none());
    }
}
