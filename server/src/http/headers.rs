//! The rules of HTTP that requests must follow: hosts, accepted types, parameters. Knows nothing of
//! filters.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Version};

use crate::token::Token;

/// The method that selects the reply: HEAD counts as GET, and its body is not sent.
pub(super) fn read_method(method: &Method) -> &Method {
    if method == Method::HEAD { &Method::GET } else { method }
}

/// Why a request's `Host` is wrong, if it is. RFC 9112, §3.2.
pub(super) fn wrong_host<B>(request: &Request<B>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Some("a request has one Host header, and this has several");
    }
    let Some(host) = first else {
        let must = request.version() == Version::HTTP_11;
        return must.then_some("a request of HTTP/1.1 has a Host header, and this has none");
    };
    let name = host.to_str().ok().and_then(host_name);
    if name.is_none() { Some("the Host header is not a host") } else { None }
}

/// The name or address in a `Host`, without its port.
fn host_name(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(address) => address.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:".contains(&byte);
    (port && name.bytes().all(plain)).then_some(name)
}

/// Whether a request has this token, as `Authorization: Bearer …`.
pub(super) fn has_token<B>(request: &Request<B>, token: &Token) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    given.and_then(|value| value.split_once(' ')).is_some_and(|(scheme, text)| {
        scheme.eq_ignore_ascii_case("Bearer") && token.is(text.trim().as_bytes())
    })
}

/// Whether a `Host` is a name of this machine that nobody else can point to it.
pub(super) fn is_loopback(host: &str) -> bool {
    let Some(name) = host_name(host) else { return false };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// The values of a query's parameters. Each parameter may appear once.
///
/// # Errors
/// A sentence, for a parameter that is unknown, repeated or without a value.
pub(super) fn query_values<'a, const N: usize>(
    query: &'a str,
    names: [&str; N],
) -> Result<[Option<&'a str>; N], String> {
    let mut values = [None; N];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = names.iter().position(|known| *known == name);
        let Some(place) = place.filter(|_| pair.contains('=')) else {
            let known = names.map(|name| format!("{name}=VALUE")).join(" and ");
            return Err(format!("only {known} are known parameters here"));
        };
        if values[place].replace(value).is_some() {
            return Err(format!("the parameter {} is there twice", names[place]));
        }
    }
    Ok(values)
}

/// Why a public path takes no query: it would be ignored. Health checks and scrapers may add one.
pub(super) fn ignored_query(segments: &[&str]) -> Option<&'static str> {
    match segments {
        ["v1", "filters", _, "ids", _] => {
            Some("this takes no parameters: a ? that belongs to the ID is written %3F")
        }
        ["v1", "filters", _, "query" | "add" | "forget"] | ["status" | "version" | "page.json"] => {
            Some("this takes no parameters")
        }
        _ => None,
    }
}

/// Whether all `Accept` headers together prefer JSON to plain lines. RFC 9110, §12.5.1.
///
/// Lines are the default: JSON needs a higher weight, or the same weight and its own name. A client
/// that accepts neither gets lines.
pub(super) fn wants_json<'a>(accept: impl Iterator<Item = &'a str>) -> bool {
    let (mut json, mut text) = (Preference::default(), Preference::default());
    for range in accept.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>())
        });
        // A weight that is not a number is ignored.
        let weight = match weight {
            None => 1.0,
            Some(Ok(weight)) if (0.0..=1.0).contains(&weight) => weight,
            Some(_) => continue,
        };
        match &*name {
            "application/json" => json.update(3, weight),
            "application/*" => json.update(2, weight),
            "text/plain" => text.update(3, weight),
            "text/*" => text.update(2, weight),
            "*/*" => {
                json.update(1, weight);
                text.update(1, weight);
            }
            _ => {}
        }
    }
    json.weight > text.weight
        || (json.weight > 0.0 && json.weight == text.weight && json.specificity > 1)
}

/// The weight of a media type, by the most specific range that matches it.
#[derive(Default)]
struct Preference {
    specificity: u8,
    weight: f32,
}

impl Preference {
    fn update(&mut self, specificity: u8, weight: f32) {
        if specificity > self.specificity {
            *self = Preference { specificity, weight };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_are_hosts_and_only_loopback_is_loopback() {
        for (host, loopback) in [
            ("localhost", true),
            ("LOCALHOST.:80", true),
            ("127.0.0.1:8643", true),
            ("127.255.0.9", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]", true),
            ("0.0.0.0", false),
            ("[::]", false),
            ("10.0.0.1:80", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("2130706433", false),
            ("127.1", false),
            ("", false),
        ] {
            assert!(host_name(host).is_some(), "{host}");
            assert_eq!(is_loopback(host), loopback, "{host}");
        }
        for none in
            ["a b", "user@localhost", "[::1", "[::1]x", "localhost:x", "a/b", "a\"", "[::1]:8:"]
        {
            assert_eq!(host_name(none), None, "{none}");
            assert!(!is_loopback(none), "{none}");
        }
    }
}
