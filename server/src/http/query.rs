//! Questions: one ID in the path, or many in a body.

use std::time::Duration;

use bloomsday_common::hash::ID_BYTES;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Request, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::reply::{Reply, error, json as json_reply, of};
use crate::Bloomsday;

/// The longest body of a query: half a million IDs of 32 characters with their line ends.
const MAX_BODY_BYTES: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn one(bloomsday: &Bloomsday, filter: &str, id: &str) -> Reply {
    let handle = match bloomsday.filter(filter) {
        Ok(handle) => handle,
        Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
    };
    let id: Vec<u8> = percent_decode_str(id).collect();
    let Some(generation) = handle.generation() else { return not_loaded(filter) };
    let seen = generation.filter.contains(&id);
    handle.count(&[&id], u64::from(seen));
    let shown: String = String::from_utf8_lossy(&id).chars().take(*ID_BYTES.end()).collect();
    let answer = json!({
        "filter": filter, "id": shown, "seen": seen, "day": generation.header.day,
    });
    json_reply(StatusCode::OK, &answer)
}

pub(super) async fn many(bloomsday: &Bloomsday, filter: &str, request: Request<Incoming>) -> Reply {
    let handle = match bloomsday.filter(filter) {
        Ok(handle) => handle,
        Err(unknown) => return error(StatusCode::NOT_FOUND, &unknown.to_string()),
    };
    let wants_json = request
        .headers()
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/json"));
    let body = match tokio::time::timeout(BODY_DEADLINE, read(request.into_body())).await {
        Ok(Ok(body)) => body,
        Ok(Err((status, why))) => return error(status, &why),
        Err(_) => {
            return error(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 20 seconds");
        }
    };
    let ids = lines(&body);
    // One generation for the whole body, and its day in the header.
    let Some(generation) = handle.generation() else { return not_loaded(filter) };
    let mut answers = vec![false; ids.len()];
    generation.filter.contains_batch(&ids, &mut answers);
    let seen = answers.iter().filter(|answer| **answer).count() as u64;
    handle.count(&ids, seen);

    let mut reply = if wants_json {
        json_reply(StatusCode::OK, &json!(answers))
    } else {
        let digits = answers.iter().flat_map(|seen| [b'0' + u8::from(*seen), b'\n']);
        of(StatusCode::OK, "text/plain; charset=utf-8", digits.collect::<Vec<u8>>())
    };
    let day = HeaderValue::from_str(&generation.header.day.to_string());
    reply.headers_mut().insert("bloomsday-day", day.expect("a day is digits and dashes"));
    reply
}

/// IDs are separated by line feeds; one at the very end closes the last and begins none.
fn lines(body: &[u8]) -> Vec<&[u8]> {
    if body.is_empty() {
        return Vec::new();
    }
    body.strip_suffix(b"\n").unwrap_or(body).split(|byte| *byte == b'\n').collect()
}

async fn read(body: Incoming) -> Result<Bytes, (StatusCode, String)> {
    let too_large = || {
        let why = format!("a body has at most {MAX_BODY_BYTES} bytes: send several");
        (StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    // A body that announces its length need not arrive to be refused.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err((StatusCode::BAD_REQUEST, "the body ended before it was whole".to_owned())),
    }
}

fn not_loaded(filter: &str) -> Reply {
    let why = format!("`{filter}` is not loaded yet; see /status");
    error(StatusCode::SERVICE_UNAVAILABLE, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_lies_between_line_feeds() {
        let split = |body: &str| {
            lines(body.as_bytes())
                .iter()
                .map(|id| String::from_utf8(id.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split("a"), ["a"]);
        assert_eq!(split("a\n"), ["a"]);
        assert_eq!(split("a\r\n\nb"), ["a\r", "", "b"]);
        assert_eq!(split("\n"), [""]);
        assert_eq!(split("a\n\n"), ["a", ""]);
    }
}
