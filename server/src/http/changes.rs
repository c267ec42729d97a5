//! `POST /v1/filters/{filter}/add` and `/forget`: a body of IDs as for a query, added to the live
//! filter or deleted. The answers, in the formats of a query, tell which were new, or were there.
//!
//! Lookups are open to whoever reaches the public address; changes need the token of the live
//! layer, or come from this machine.

use bloomsday_common::hash::is_valid_len;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::answers::Answers;
use super::blocks::Blocks;
use super::headers;
use super::ids::{split_ids, without_return};
use super::query::{BodyIds, answer_format, find, read_ids};
use super::reply::{self, Reply, error, unauthorized};
use crate::bloomsday::Bloomsday;
use crate::error::Error;
use crate::live::Live;

/// What is done with the IDs of a body.
#[derive(Clone, Copy)]
pub(super) enum ChangeKind {
    Add,
    Forget,
}

/// Refuses a client that may not change anything.
pub(super) fn check_client<B>(
    bloomsday: &Bloomsday,
    is_loopback: bool,
    request: &Request<B>,
) -> Result<(), Reply> {
    match bloomsday.live().and_then(Live::token) {
        Some(token) if headers::has_token(request, token) => Ok(()),
        Some(_) => Err(unauthorized()),
        None if is_loopback => Ok(()),
        None => Err(error(
            StatusCode::FORBIDDEN,
            "other machines reach this address, so adds and deletions need a token, and this server \
             has none: configure one",
        )),
    }
}

pub(super) async fn change(
    bloomsday: &Bloomsday,
    blocks: &Blocks,
    filter: &str,
    change: ChangeKind,
    request: Request<Incoming>,
) -> Result<Reply, Reply> {
    let handle = find(bloomsday, filter)?;
    let format = answer_format(&request);
    let BodyIds { lines, strip } = read_ids(request, blocks).await?;
    let blocks: Vec<_> = lines.into_blocks().collect();
    let all = blocks.iter().flat_map(|block| bare_ids(block, strip));
    let wrong = all.enumerate().find(|(_, id)| !is_valid_len(id));
    // Before anything is changed.
    if let Some((before, bytes)) = wrong.map(|(before, id)| (before, id.len())) {
        let why = Error::InvalidId { bytes };
        return Err(reply::wrong(&format!("line {}: {why}", before + 1)));
    }
    let (mut answers, mut made) = (Answers::new(format), 0);
    for mut block in blocks {
        let ids: Vec<&[u8]> = bare_ids(&block, strip).collect();
        let mut each = vec![false; ids.len()];
        let changed = match change {
            ChangeKind::Add => handle.add_batch(&ids, &mut each).await,
            ChangeKind::Forget => handle.forget_batch(&ids, &mut each).await,
        };
        changed.map_err(|why| reply_to(&why, made))?;
        drop(ids);
        // Each takes the place of a byte of an ID, which has at least one.
        block.iter_mut().zip(&each).for_each(|(byte, answer)| *byte = u8::from(*answer));
        block.truncate(each.len());
        made += each.len();
        answers.add(block, each.iter().filter(|answer| **answer).count() as u64);
    }
    Ok(reply::answers(answers))
}

/// The IDs of a block; with `strip`, a CR at the end of a line is not part of one.
fn bare_ids(block: &[u8], strip: bool) -> impl Iterator<Item = &[u8]> {
    split_ids(block).map(move |id| if strip { without_return(id) } else { id })
}

/// The reply when the change of some IDs failed, and that of so many before them did not.
fn reply_to(why: &Error, before: usize) -> Reply {
    let status = match why {
        Error::NotLive { .. } | Error::NotBlocked { .. } | Error::ReadOnly { .. } => {
            StatusCode::CONFLICT
        }
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let more = match (before, why) {
        (0, Error::ChangeRefused { .. }) => "; perhaps some of them are changed".to_owned(),
        (0, _) => String::new(),
        _ => format!("; the first {before} IDs are changed, and perhaps some of the others"),
    };
    error(status, &format!("{why}{more}"))
}
