//! Questions: one ID in the path, or many in a body.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::hash::ID_BYTES;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ids::{decode_id, split_ids};
use super::reply::{Reply, error, json as json_reply, of};
use crate::Bloomsday;

/// The longest body of a query: half a million IDs of 32 characters with their line ends.
const MAX_BODY_BYTES: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(20);
/// How many bytes of bodies and of answers are in memory at once, over all connections. With what growing and
/// freeing leaves unused that is some 200 MiB: the example deployments leave 256 for everything but filters.
const MAX_BYTES_AT_ONCE: usize = 96 << 20;
/// The longest answer, which with its body always fits: ten million in JSON. Only empty IDs are so many.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// How many IDs are asked in one call.
const IDS_AT_ONCE: usize = 1024;

pub(super) fn one(bloomsday: &Bloomsday, filter: &str, id: &str) -> Reply {
    let handle = match bloomsday.filter(filter) {
        Ok(handle) => handle,
        Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
    };
    let id = decode_id(id);
    let Some(generation) = handle.generation() else { return not_loaded(filter) };
    let seen = generation.filter.contains(&id);
    handle.count(&[&id], u64::from(seen));
    let shown: String = String::from_utf8_lossy(&id).chars().take(*ID_BYTES.end()).collect();
    let answer = json!({
        "filter": filter, "id": shown, "seen": seen, "day": generation.header.day,
    });
    json_reply(StatusCode::OK, &answer)
}

pub(super) async fn many(
    bloomsday: &Bloomsday,
    bodies: &Bodies,
    filter: &str,
    request: Request<Incoming>,
) -> Reply {
    let handle = match bloomsday.filter(filter) {
        Ok(handle) => handle,
        Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
    };
    let wants_json = request
        .headers()
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/json"));
    let reading = read(request.into_body(), bodies);
    let (body, body_room) = match tokio::time::timeout(BODY_DEADLINE, reading).await {
        Ok(Ok(read)) => read,
        Ok(Err((status, why))) => return error(status, &why),
        Err(_) => {
            return error(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 20 seconds");
        }
    };
    // One generation for the whole body, and its day in the header.
    let Some(generation) = handle.generation() else { return not_loaded(filter) };
    let mut form = if wants_json { Form::Json } else { Form::Lines };
    let (mut ids, mut answers) = (split_ids(&body), [false; IDS_AT_ONCE]);
    let (mut reply, mut room) = (Vec::new(), bodies.none());
    form.begin(&mut reply);
    loop {
        let some: Vec<&[u8]> = ids.by_ref().take(IDS_AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        let answers = &mut answers[..some.len()];
        generation.filter.contains_batch(&some, answers);
        let seen = answers.iter().filter(|answer| **answer).count() as u64;
        handle.count(&some, seen);
        answers.iter().for_each(|seen| form.add(&mut reply, *seen));
        if reply.len() > MAX_ANSWER_BYTES {
            let why = format!("an answer has at most {MAX_ANSWER_BYTES} bytes: send fewer IDs");
            return error(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        if let Err((status, why)) = bodies.grow(&mut room, &reply) {
            return error(status, &why);
        }
        // A body may hold millions: others are answered in between.
        tokio::task::yield_now().await;
    }
    form.end(&mut reply);
    // Whoever reads slowly keeps the answer alone.
    drop(ids);
    drop((body, body_room));
    let reply = Bytes::from_owner(Held { bytes: reply, _room: room });
    let mut reply = of(StatusCode::OK, form.content_type(), reply);
    let day = HeaderValue::from_str(&generation.header.day.to_string());
    reply.headers_mut().insert("bloomsday-day", day.expect("a day is digits and dashes"));
    reply
}

/// Room for bodies and their answers, shared by all connections of an address.
pub(crate) struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Arc::new(Semaphore::new(MAX_BYTES_AT_ONCE)))
    }
}

impl Bodies {
    /// No share yet.
    fn none(&self) -> OwnedSemaphorePermit {
        self.0.clone().try_acquire_many_owned(0).expect("nothing is always there")
    }

    /// Makes a share as large as the memory that some bytes take, if there is so much now.
    fn grow(
        &self,
        share: &mut OwnedSemaphorePermit,
        bytes: &Vec<u8>,
    ) -> Result<(), (StatusCode, String)> {
        let more = bytes.capacity().saturating_sub(share.num_permits());
        let more = self.0.clone().try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
        let more = more.map_err(|_| {
            let why = "too many bodies are being read or answered at once: try again".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
        share.merge(more);
        Ok(())
    }
}

/// An answer that keeps its share of the room until it is sent or given up.
struct Held {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// How answers are written.
enum Form {
    Lines,
    Json,
}

impl Form {
    fn content_type(&self) -> &'static str {
        match self {
            Form::Lines => "text/plain; charset=utf-8",
            Form::Json => "application/json",
        }
    }

    fn begin(&mut self, reply: &mut Vec<u8>) {
        if let Form::Json = self {
            reply.push(b'[');
        }
    }

    fn add(&mut self, reply: &mut Vec<u8>, seen: bool) {
        match self {
            Form::Lines => reply.extend_from_slice(if seen { b"1\n" } else { b"0\n" }),
            Form::Json => reply.extend_from_slice(if seen { b"true," } else { b"false," }),
        }
    }

    fn end(&mut self, reply: &mut Vec<u8>) {
        if let Form::Json = self {
            reply.pop_if(|last| *last == b',');
            reply.extend_from_slice(b"]\n");
        }
    }
}

/// Reads a body while there is room for it, which is taken as bytes arrive: a body that is only
/// announced takes none.
async fn read(
    mut body: Incoming,
    bodies: &Bodies,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), (StatusCode, String)> {
    let too_large = || {
        let why = format!("a body has at most {MAX_BODY_BYTES} bytes: send several");
        (StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    // A body that announces its length need not arrive to be refused.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let (mut all, mut room) = (Vec::new(), bodies.none());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            (StatusCode::BAD_REQUEST, "the body ended before it was whole".to_owned())
        })?;
        // Trailers say nothing about IDs.
        let Ok(bytes) = frame.into_data() else { continue };
        if all.len() + bytes.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        all.extend_from_slice(&bytes);
        bodies.grow(&mut room, &all)?;
    }
    Ok((all, room))
}

fn not_loaded(filter: &str) -> Reply {
    let why = format!("`{filter}` is not loaded yet; see /status");
    error(StatusCode::SERVICE_UNAVAILABLE, &why)
}
