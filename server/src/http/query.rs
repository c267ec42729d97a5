//! Lookups: one ID in the path, or many in a body. Line feeds separate the IDs of a body, or CRLF
//! if every line has it. A body with both is refused: with a CR as part of an ID, the lookup of a
//! known ID would be a miss.

use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::hash::ID_BYTES;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Request, StatusCode};
use serde_json::json;

use super::answers::{Answers, BodyFormat};
use super::blocks::{Block, Blocks};
use super::headers::wants_json;
use super::ids::{LineEnds, Lines, decode_id, split_ids, without_return};
use super::reply::{self, Reply, error, json as json_reply};
use crate::bloomsday::Bloomsday;
use crate::connections::MAX_CONNECTIONS;
use crate::handle::{FilterHandle, KeptGeneration, Readiness};

/// The longest body of a query: half a million IDs of 32 characters with their line ends.
const MAX_BODY_BYTES: usize = 16 << 20;
/// What the media types of bodies that are refused have in them.
const JSON: &[u8] = b"json";
/// How long a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(20);
/// The memory of bodies, and then of their results: one block for each connection. A block has
/// space for 2,500 IDs of 36 characters, and all blocks together for five of the longest bodies.
/// They take 96 MiB; the example deployments leave 256 for everything but filters.
const MAX_BLOCKS: usize = MAX_CONNECTIONS;
const BLOCK_BYTES: usize = 96 << 10;
/// The number of IDs in one call of the filter.
const IDS_PER_BATCH: usize = 1024;

/// What is wrong with a path without an ID.
pub(super) const NO_ID: &str =
    "the path has no ID: browsers and curl remove an ID that is . or .. from it; POST it to query";

/// The handle of the filter in a path.
pub(super) fn find(bloomsday: &Bloomsday, filter: &str) -> Result<FilterHandle, Reply> {
    bloomsday.filter(filter).map_err(|unknown| error(StatusCode::NOT_FOUND, &unknown.to_string()))
}

pub(super) fn one(bloomsday: &Bloomsday, filter: &str, id: &str) -> Result<Reply, Reply> {
    let handle = find(bloomsday, filter)?;
    let id = decode_id(id).map_err(reply::wrong)?;
    if id.is_empty() {
        return Err(reply::wrong(NO_ID));
    }
    check_ready(&handle)?;
    let mut kept = handle.keep();
    let contains = handle.contains_batch_in(&mut kept, &[&id], &mut [false]) == 1;
    let text: String = String::from_utf8_lossy(&id).chars().take(*ID_BYTES.end()).collect();
    let reply = json!({
        "filter": filter, "id": text, "contains": contains, "day": day_of(&kept),
    });
    Ok(json_reply(StatusCode::OK, &reply))
}

pub(super) async fn many(
    bloomsday: &Bloomsday,
    blocks: &Blocks,
    filter: &str,
    request: Request<Incoming>,
) -> Result<Reply, Reply> {
    let handle = find(bloomsday, filter)?;
    let format = answer_format(&request);
    let BodyIds { lines, strip } = read_ids(request, blocks).await?;
    check_ready(&handle)?;
    // One generation for the complete body, and its day in the header; the last one if live IDs met
    // a swap.
    let mut kept = handle.keep();
    let mut answers = Answers::new(format);
    for mut block in lines.into_blocks() {
        let hits = look_up(&mut block, strip, &handle, &mut kept).await;
        answers.add(block, hits);
    }
    let mut reply = reply::answers(answers);
    if let Some(day) = day_of(&kept) {
        let day = HeaderValue::from_str(&day.to_string()).expect("a day is digits and dashes");
        reply.headers_mut().insert("bloomsday-day", day);
    }
    Ok(reply)
}

/// The format that a client asks for.
pub(super) fn answer_format<B>(request: &Request<B>) -> BodyFormat {
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if wants_json(accepted) { BodyFormat::Json } else { BodyFormat::Lines }
}

/// The day of the filter that answered.
fn day_of(kept: &KeptGeneration) -> Option<Day> {
    kept.generation().map(|generation| generation.header.day)
}

/// The IDs of a body.
pub(super) struct BodyIds {
    pub(super) lines: Lines,
    /// Whether a CR at the end of a line is not part of the ID.
    pub(super) strip: bool,
}

/// Whether a media type is one of JSON, in which an array of IDs would be one ID.
fn is_json(value: &HeaderValue) -> bool {
    // Without the parameters: one could be named so.
    let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let mut words = media_type.windows(JSON.len());
    words.any(|word| word.eq_ignore_ascii_case(JSON))
}

/// Reads the IDs of a body before a deadline.
pub(super) async fn read_ids(
    request: Request<Incoming>,
    blocks: &Blocks,
) -> Result<BodyIds, Reply> {
    let is_only = |header: HeaderName, plain: &str| {
        let mut values = request.headers().get_all(header).iter();
        values.all(|value| value.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    if !is_only(CONTENT_ENCODING, "identity") || !is_only(TRANSFER_ENCODING, "chunked") {
        let why = "the body is compressed: send the IDs as they are, without Content-Encoding or Transfer-Encoding";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    if request.headers().get_all(CONTENT_TYPE).iter().any(is_json) {
        let why = "the body is JSON: send the IDs one a line, as text/plain";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let reading = read(request.into_body(), blocks);
    let lines = match tokio::time::timeout(BODY_DEADLINE, reading).await {
        Ok(Ok(lines)) => lines,
        Ok(Err(refused)) => return Err(refused),
        Err(_) => {
            return Err(error(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive within 20 seconds",
            ));
        }
    };
    let strip = match lines.ends() {
        LineEnds::Lf => false,
        LineEnds::CrLf => true,
        LineEnds::Mixed => {
            let why = "some lines end in CRLF and others in LF: end each ID with LF alone";
            return Err(error(StatusCode::BAD_REQUEST, why));
        }
    };
    Ok(BodyIds { lines, strip })
}

/// Replaces the IDs of a block by their results, 1 or 0 each, and returns the number of hits.
///
/// With `strip`, a CR at the end of a line is not part of the ID.
async fn look_up(
    block: &mut Block,
    strip: bool,
    handle: &FilterHandle,
    kept: &mut KeptGeneration,
) -> u64 {
    let mut answers = [false; IDS_PER_BATCH];
    // An ID takes at least one byte, its line feed: so results never overwrite an ID that is not
    // looked up yet.
    let (mut read, mut answered, mut all_hits) = (0, 0, 0);
    loop {
        let mut ids: Vec<&[u8]> = split_ids(&block[read..]).take(IDS_PER_BATCH).collect();
        if ids.is_empty() {
            break;
        }
        read += ids.iter().map(|id| id.len() + 1).sum::<usize>();
        if strip {
            ids.iter_mut().for_each(|id| *id = without_return(id));
        }
        let answers = &mut answers[..ids.len()];
        all_hits += handle.contains_batch_in(kept, &ids, answers) as u64;
        drop(ids);
        // The last line may have no line feed.
        read = read.min(block.len());
        for (place, answer) in block[answered..].iter_mut().zip(&*answers) {
            *place = u8::from(*answer);
        }
        answered += answers.len();
        // A body may have millions of IDs: other requests run in between.
        tokio::task::yield_now().await;
    }
    block.truncate(answered);
    all_hits
}

/// Memory for the bodies and results of one address.
pub(super) fn blocks() -> Blocks {
    Blocks::new(MAX_BLOCKS, BLOCK_BYTES)
}

/// Reads a body into blocks, which are taken as bytes arrive: a body that is only announced takes
/// none.
async fn read(mut body: Incoming, blocks: &Blocks) -> Result<Lines, Reply> {
    let too_large = || {
        let why = format!("a body has at most {MAX_BODY_BYTES} bytes: send several");
        error(StatusCode::PAYLOAD_TOO_LARGE, &why)
    };
    // A body that announces its length need not arrive to be refused.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let (mut lines, mut read) = (Lines::default(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            error(StatusCode::BAD_REQUEST, "the body ended before its announced length")
        })?;
        // Trailers contain no IDs.
        let Ok(bytes) = frame.into_data() else { continue };
        read += bytes.len();
        if read > MAX_BODY_BYTES {
            return Err(too_large());
        }
        lines.push(&bytes, blocks).ok_or_else(|| {
            let why = "the server reads or answers too many bodies at once: try again";
            error(StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
    }
    Ok(lines)
}

/// Refuses a lookup in a filter that is not ready for them.
fn check_ready(handle: &FilterHandle) -> Result<(), Reply> {
    let readiness = handle.readiness();
    if readiness == Readiness::Ready {
        return Ok(());
    }
    let why = format!("`{}` is {}; see /status", handle.name(), readiness.words());
    Err(error(StatusCode::SERVICE_UNAVAILABLE, &why))
}
