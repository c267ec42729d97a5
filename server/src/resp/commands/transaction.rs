//! MULTI, EXEC, DISCARD: requests that run one after the other, with one reply. Requests of other
//! connections may come between them.

use super::super::reply::{Fault, Reply};
use super::super::session::{Session, Transaction};
use super::{Command, find};

pub(super) const COMMANDS: &[Command] = &[
    Command::plain("multi", 1, multi).at_once(),
    Command { is_write: true, ..Command::plain("exec", 1, exec) }.at_once(),
    Command::plain("discard", 1, discard).at_once(),
];

fn multi(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    if session.transaction.is_some() {
        // Not an error of a queued request: the transaction goes on.
        reply.error(&"ERR MULTI calls can not be nested".into());
        return Ok(());
    }
    session.transaction = Some(Transaction::default());
    reply.ok();
    Ok(())
}

fn exec(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let transaction = session.transaction.take().ok_or("ERR EXEC without MULTI")?;
    if transaction.is_wrong {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    reply.array(transaction.requests.len());
    session.is_executing = true;
    // The reply is one: if its changes cannot be kept, all of it is an error.
    let spans = session.spans.len();
    for request in &transaction.requests {
        let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let Some(command) = find(request[0]) else { continue };
        if let Err(fault) = session.perform(command, &request, reply.out) {
            reply.error(&fault);
        }
    }
    session.spans.truncate(spans);
    session.is_executing = false;
    Ok(())
}

fn discard(session: &mut Session, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    session.transaction.take().ok_or("ERR DISCARD without MULTI")?;
    reply.ok();
    Ok(())
}
