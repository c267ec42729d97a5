//! Requests that clients send by the thousand: adds and lookups of one ID each. Those of one filter
//! that follow each other are hashed and looked up together, which hides the memory's latency.

use bloomsday_common::hash::is_valid_len;

use super::reply::{Fault, Reply, error};
use super::session::{ReplySpan, Session, refused};
use crate::live::{Added, Kind, Options, SetError, hash_of};

/// The most requests in one call of a set.
const MAX_RUN: usize = 16 << 10;

/// A command of one key and one ID.
#[derive(Clone, Copy)]
struct PipelinedCommand {
    kind: Kind,
    adds: bool,
    /// Whether version 3 has a boolean for it.
    is_boolean: bool,
}

fn pipelined(name: &[u8]) -> Option<PipelinedCommand> {
    let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
    match name.len() {
        6 if is("BF.ADD") => {
            Some(PipelinedCommand { kind: Kind::Bloom, adds: true, is_boolean: true })
        }
        4 if is("SADD") => {
            Some(PipelinedCommand { kind: Kind::Set, adds: true, is_boolean: false })
        }
        9 if is("BF.EXISTS") => {
            Some(PipelinedCommand { kind: Kind::Bloom, adds: false, is_boolean: true })
        }
        9 if is("SISMEMBER") => {
            Some(PipelinedCommand { kind: Kind::Set, adds: false, is_boolean: false })
        }
        _ => None,
    }
}

/// Runs requests from number `from` on, as long as they are of one such command and key. Returns
/// how many were run: none if the first is another.
pub(super) fn run<'a>(
    session: &mut Session,
    request: impl Fn(usize) -> &'a [&'a [u8]],
    from: usize,
    end: usize,
    out: &mut Vec<u8>,
) -> usize {
    let [name, key, _] = request(from) else { return 0 };
    let Some(command) = pipelined(name) else { return 0 };
    // An error in the name is found again where it is answered.
    let Ok(form) = session.id_form_of(key) else { return 0 };
    let mut hashes = std::mem::take(&mut session.hashes);
    hashes.clear();
    for number in from..end.min(from + MAX_RUN) {
        let [other, other_key, id] = request(number) else { break };
        if other != name || other_key != key || !is_valid_len(id) {
            break;
        }
        hashes.push(hash_of(form, id));
    }
    let many = hashes.len();
    if many > 0 {
        let ids = (from..from + many).map(|number| request(number)[2]);
        if command.adds {
            session.count_domains(key, ids);
            add(session, command, key, &hashes, out);
        } else {
            look_up(session, command, key, ids, &hashes, out);
        }
    }
    session.hashes = hashes;
    many
}

fn add(
    session: &mut Session,
    command: PipelinedCommand,
    key: &[u8],
    hashes: &[u64],
    out: &mut Vec<u8>,
) {
    let begin = out.len();
    let is_v3 = session.is_v3 && command.is_boolean;
    let mut answered = 0;
    let added = session.change(
        |session| session.find_or_make(key, command.kind, || Options::of(command.kind)),
        |set, now| {
            let mut reply = Reply { out: &mut *out, is_v3 };
            set.add_each(now, hashes, |_, added| {
                reply.boolean(added == Added::New);
                answered += 1;
            })
        },
    );
    let fault = match added {
        Ok(Ok(())) => None,
        Ok(Err(refusal)) => Some(refused(refusal)),
        Err(fault) => Some(fault),
    };
    session.spans.push(ReplySpan { begin, end: out.len(), replies: answered });
    if let Some(fault) = fault {
        add_one_by_one(session, command, key, &hashes[answered..], &fault, out);
    }
}

/// Answers what was refused: one by one, because an ID that is there is not refused.
fn add_one_by_one(
    session: &mut Session,
    command: PipelinedCommand,
    key: &[u8],
    hashes: &[u64],
    fault: &Fault,
    out: &mut Vec<u8>,
) {
    let is_v3 = session.is_v3 && command.is_boolean;
    let begin = out.len();
    for hash in hashes {
        let added = session.change(
            |session| session.find_or_make(key, command.kind, || Options::of(command.kind)),
            |set, now| {
                let mut new = false;
                let (ticket, added) = set.add_each(now, &[*hash], |_, a| new = a == Added::New);
                (ticket, added.map(|()| new))
            },
        );
        match added {
            Ok(Ok(new)) => Reply { out, is_v3 }.boolean(new),
            Ok(Err(SetError::Log(_))) => error(out, fault),
            Ok(Err(refusal)) => error(out, &refused(refusal)),
            Err(fault) => error(out, &fault),
        }
    }
    session.spans.push(ReplySpan { begin, end: out.len(), replies: hashes.len() });
}

fn look_up<'a>(
    session: &mut Session,
    command: PipelinedCommand,
    key: &[u8],
    ids: impl Iterator<Item = &'a [u8]>,
    hashes: &[u64],
    out: &mut Vec<u8>,
) {
    let is_v3 = session.is_v3 && command.is_boolean;
    let now = session.now;
    let mut reply = Reply { out, is_v3 };
    match session.find_set_for_lookup(key, command.kind) {
        Ok(Some(set)) => {
            let mut hits = 0;
            let answered = set.each(now, hashes, |_, hit| {
                hits += u64::from(hit);
                reply.boolean(hit);
            });
            match answered {
                Ok(()) => set.count_lookups(ids, hits),
                Err(refusal) => {
                    let fault = refused(refusal);
                    hashes.iter().for_each(|_| reply.error(&fault));
                }
            }
        }
        Ok(None) => hashes.iter().for_each(|_| reply.boolean(false)),
        Err(fault) => hashes.iter().for_each(|_| reply.error(&fault)),
    }
}
