//! What the families share: hashes of items, lookups, new sets, and the limits of options.

use bloomsday_common::hash::{ID_BYTES, is_valid_len};
use bloomsday_common::id_form::IdForm;

use super::super::reply::{Fault, Reply};
use super::super::session::{Session, refused};
use crate::live::{Kind, Options, hash_of};

/// The largest capacity that can be named: 2^30.
pub(super) const MAX_CAPACITY: u64 = 1 << 30;
/// The largest expansion.
pub(super) const MAX_EXPANSION: u32 = 32_768;

/// The hash of an ID of a set.
pub(super) fn hash(session: &mut Session, key: &[u8], id: &[u8]) -> Result<u64, Fault> {
    hash_in(session.id_form_of(key)?, id)
}

fn hash_in(form: IdForm, id: &[u8]) -> Result<u64, Fault> {
    if is_valid_len(id) {
        return Ok(hash_of(form, id));
    }
    let (least, most) = (ID_BYTES.start(), ID_BYTES.end());
    Err(format!("ERR an item has {least} to {most} bytes, this one {}", id.len()).into())
}

/// The hashes of IDs of a set.
pub(super) fn hashes(session: &mut Session, key: &[u8], ids: &[&[u8]]) -> Result<Vec<u64>, Fault> {
    let form = session.id_form_of(key)?;
    ids.iter().map(|id| hash_in(form, id)).collect()
}

/// Makes a set; an error if there is one.
pub(super) fn make(session: &mut Session, key: &[u8], options: Options) -> Result<(), Fault> {
    session.find_set_of(key, options.kind)?;
    let key = session.key(key)?;
    let set = session.live().make(&key, options, session.now);
    let set = set.map_err(|why| session.why_not_made(&why))?;
    session.await_later(set.ticket());
    session.note_changed(&set);
    Ok(())
}

/// Answers whether one item is in a set of this kind.
pub(super) fn exists(
    session: &mut Session,
    request: &[&[u8]],
    kind: Kind,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], kind)?;
    reply.boolean(answers[0]);
    Ok(())
}

/// Answers of each item whether it is in a set of this kind.
pub(super) fn mexists(
    session: &mut Session,
    request: &[&[u8]],
    kind: Kind,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let answers = look_up(session, request[1], &request[2..], kind)?;
    reply.array(answers.len());
    answers.iter().for_each(|answer| reply.boolean(*answer));
    Ok(())
}

/// Looks items up. In a set that does not exist there are none.
pub(super) fn look_up(
    session: &mut Session,
    key: &[u8],
    ids: &[&[u8]],
    kind: Kind,
) -> Result<Vec<bool>, Fault> {
    let mut answers = vec![false; ids.len()];
    if let Some(set) = session.find_set_for_lookup(key, kind)? {
        // An item that cannot be added is not there.
        let hashes: Vec<u64> = ids.iter().map(|id| hash_of(set.options().id_form, id)).collect();
        let looked = set.each(session.now, &hashes, |i, hit| {
            answers[i] = hit && is_valid_len(ids[i]);
        });
        looked.map_err(refused)?;
        let hits = answers.iter().filter(|hit| **hit).count() as u64;
        set.count_lookups(ids.iter().copied(), hits);
    }
    Ok(answers)
}
