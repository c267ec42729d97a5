//! `POST /v1/filters/{filter}/add` and `/forget`: a body of IDs as for a query, added to the live
//! filter or deleted. The answers, `1` or `0` a line, tell which were new, or were there.
//!
//! Lookups are open to whoever reaches the public address; changes need the token of the live layer, or
//! come from this machine.

use bloomsday_common::hash::is_valid_len;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::blocks::Blocks;
use super::headers;
use super::ids::{split_ids, without_return};
use super::query::{BodyIds, read_ids};
use super::reply::{Reply, error, text, unauthorized};
use crate::bloomsday::Bloomsday;
use crate::error::Error;

/// What is done with the IDs of a body.
#[derive(Clone, Copy)]
pub(super) enum ChangeKind {
    Add,
    Forget,
}

/// The reply to a client that may not change anything.
pub(super) fn refused<B>(
    bloomsday: &Bloomsday,
    is_loopback: bool,
    request: &Request<B>,
) -> Option<Reply> {
    match bloomsday.live_token() {
        Some(token) => (!headers::has_token(request, token)).then(unauthorized),
        None if is_loopback => None,
        None => Some(error(
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
) -> Reply {
    let handle = match bloomsday.filter(filter) {
        Ok(handle) => handle,
        Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
    };
    let BodyIds { lines, strip } = match read_ids(request, blocks).await {
        Ok(ids) => ids,
        Err(refused) => return refused,
    };
    let blocks: Vec<_> = lines.into_blocks().collect();
    let bare = |id| if strip { without_return(id) } else { id };
    let mut all = blocks.iter().flat_map(|block| split_ids(block)).map(bare);
    // Before anything is changed.
    if let Some(id) = all.find(|id| !is_valid_len(id)) {
        return refusal(&Error::InvalidId { bytes: id.len() });
    }
    let mut answers = String::new();
    for block in &blocks {
        let ids: Vec<&[u8]> = split_ids(block).map(bare).collect();
        let mut each = vec![false; ids.len()];
        let changed = match change {
            ChangeKind::Add => handle.add_batch(&ids, &mut each).await,
            ChangeKind::Forget => handle.forget_batch(&ids, &mut each).await,
        };
        if let Err(why) = changed {
            return refusal(&why);
        }
        answers.extend(each.iter().map(|answer| if *answer { "1\n" } else { "0\n" }));
    }
    text(StatusCode::OK, &answers)
}

fn refusal(why: &Error) -> Reply {
    let status = match why {
        Error::InvalidId { .. } => StatusCode::BAD_REQUEST,
        Error::NotLive { .. } | Error::ReadOnly { .. } => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    error(status, &why.to_string())
}
