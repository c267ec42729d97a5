//! The forms of replies: text, JSON, errors.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json as json_value};

use super::answers::Answers;

/// A reply with a body in memory, or with the results of many lookups.
pub(super) type Reply = Response<Either<Full<Bytes>, Answers>>;

pub(super) fn of(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    with(status, kind, Either::Left(Full::new(body.into())))
}

/// The results for all IDs of a body.
pub(super) fn answers(answers: Answers) -> Reply {
    with(StatusCode::OK, answers.content_type(), Either::Right(answers))
}

fn with(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, Answers>) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

pub(super) fn text(status: StatusCode, body: &str) -> Reply {
    of(status, "text/plain; charset=utf-8", body.to_owned())
}

pub(super) fn json(status: StatusCode, body: &Value) -> Reply {
    of(status, "application/json", format!("{body}\n"))
}

pub(super) fn error(status: StatusCode, why: &str) -> Reply {
    json(status, &json_value!({ "error": why }))
}

/// A path that allows GET allows HEAD; hyper leaves out the body.
pub(super) const READ: &str = "GET, HEAD";

pub(super) fn only(methods: &'static str) -> Reply {
    let mut reply =
        error(StatusCode::METHOD_NOT_ALLOWED, &format!("only {methods} is allowed here"));
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

pub(super) fn unauthorized() -> Reply {
    let why = "send the token as Authorization: Bearer TOKEN";
    let mut reply = error(StatusCode::UNAUTHORIZED, why);
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    reply
}

/// What a request is answered, or why it is refused.
pub(super) fn of_either(reply: Result<Reply, Reply>) -> Reply {
    reply.unwrap_or_else(|refused| refused)
}

pub(super) fn wrong(why: &str) -> Reply {
    error(StatusCode::BAD_REQUEST, why)
}

/// A browser names the page that sent a `POST`. Callers of this interface are programs and send no
/// such header.
pub(super) fn has_origin<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(ORIGIN)
}

pub(super) fn forbidden_origin() -> Reply {
    error(StatusCode::FORBIDDEN, "a POST sent by a web page is refused: it has an Origin header")
}
