//! The letter of HTTP: hosts, what a client accepts, and what of a request would be passed over. Knows
//! nothing of filters.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::{Method, Request, Version};

/// The method by which a request is answered: HEAD as GET, whose body is not sent.
pub(super) fn reading(method: &Method) -> &Method {
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
    if name.is_none() { Some("the Host header is no host") } else { None }
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

/// Whether a `Host` is this machine by a name that nobody else can point here.
pub(super) fn is_loopback(host: &str) -> bool {
    let Some(name) = host_name(host) else { return false };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// The values of a query's parameters, each of which may be there once.
///
/// # Errors
/// A sentence, for one that is unknown, repeated or without a value.
pub(super) fn pairs<'a, const N: usize>(
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

/// Why a query may not stand behind a public path: it would be passed over. Whoever looks whether a server
/// lives, or scrapes it, adds what it likes.
pub(super) fn passed_over(segments: &[&str]) -> Option<&'static str> {
    match segments {
        ["v1", "filters", _, "ids", _] => {
            Some("this takes no parameters: a ? that belongs to the ID is written %3F")
        }
        ["v1", "filters", _, "query"] | ["status" | "version" | "page.json"] => {
            Some("this takes no parameters")
        }
        _ => None,
    }
}

/// Whether JSON is wanted rather than plain lines, by all `Accept` headers. RFC 9110, §12.5.1.
///
/// Lines are the default: JSON must be preferred, or be named and wanted as much. What accepts neither gets
/// lines.
pub(super) fn wants_json<'a>(accept: impl Iterator<Item = &'a str>) -> bool {
    let (mut json, mut text) = (Wanted::default(), Wanted::default());
    for range in accept.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>())
        });
        // What is no number is no wish.
        let weight = match weight {
            None => 1.0,
            Some(Ok(weight)) if (0.0..=1.0).contains(&weight) => weight,
            Some(_) => continue,
        };
        match &*name {
            "application/json" => json.by(3, weight),
            "application/*" => json.by(2, weight),
            "text/plain" => text.by(3, weight),
            "text/*" => text.by(2, weight),
            "*/*" => {
                json.by(1, weight);
                text.by(1, weight);
            }
            _ => {}
        }
    }
    json.weight > text.weight
        || (json.weight > 0.0 && json.weight == text.weight && json.closeness > 1)
}

/// How much something is wanted, by the range that describes it most closely.
#[derive(Default)]
struct Wanted {
    closeness: u8,
    weight: f32,
}

impl Wanted {
    fn by(&mut self, closeness: u8, weight: f32) {
        if closeness > self.closeness {
            *self = Wanted { closeness, weight };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_what_is_none_and_loopback_from_the_world() {
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
