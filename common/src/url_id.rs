//! An ID that is a URL, in a form that is the same for URLs which mean the same page. Bytes to
//! bytes.
//!
//! | part | what is done |
//! |---|---|
//! | scheme | `http` and `https` are dropped: both are one page |
//! | user, password | kept |
//! | host | lower case; internationalised names as ASCII (IDNA); an IP address in its usual form |
//! | port | dropped if it is the scheme's own, 80 or 443 |
//! | path | `.` and `..` resolved; an empty one is `/`; `//` and a `/` at the end are kept |
//! | query | sorted by names, then values; `a` is `a=`; empty parts are dropped; `+` is `%20` |
//! | fragment | dropped |
//! | `%41` | `A`, where that means the same; else upper-case digits. What needs it is encoded |
//!
//! The parser is that of browsers (WHATWG's URL standard): spaces around are dropped, `\` is `/`.
//! What is no URL with the scheme `http` or `https`, or is not UTF-8, stays as it is.

use std::borrow::Cow;

use url::Url;

use crate::hash::is_valid_len;

/// The normalised form of an ID that is a URL. An ID of an invalid length, which is never a hit,
/// stays as it is.
///
/// Cost: about a microsecond, and an allocation.
///
/// ```
/// use bloomsday_common::url_id::normalised;
///
/// let same = |a: &str, b: &str| normalised(a.as_bytes()) == normalised(b.as_bytes());
/// assert!(same("https://Example.org:443/a/../b?y=2&x=1#top", "http://example.org/b?x=1&y=2"));
/// assert!(!same("https://example.org/b", "https://example.org/b/"));
/// assert_eq!(*normalised(b"http://b\xc3\xbccher.example/%7euser"),
/// *b"xn--bcher-kva.example/~user"); assert_eq!(*normalised(b"user-1"), *b"user-1");
/// ```
pub fn normalised(id: &[u8]) -> Cow<'_, [u8]> {
    let text = std::str::from_utf8(id).ok().filter(|_| is_valid_len(id));
    let url = text.and_then(|text| Url::parse(text).ok());
    match url.filter(|url| matches!(url.scheme(), "http" | "https")) {
        Some(url) => Cow::Owned(form(&url)),
        None => Cow::Borrowed(id),
    }
}

/// The host of an ID that is a URL, in lower case and ASCII, without a port; `None` for another ID.
///
/// Cost: some nanoseconds for a usual host, which needs no parser.
///
/// ```
/// use bloomsday_common::url_id::domain;
///
/// assert_eq!(domain(b"https://user@Example.org:8080/a?b").as_deref(), Some("example.org"));
/// assert_eq!(domain(b"http://b\xc3\xbccher.example/").as_deref(), Some("xn--bcher-kva.example"));
/// assert_eq!(domain(b"user-1"), None);
/// ```
pub fn domain(id: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(id).ok().filter(|_| is_valid_len(id))?;
    if let Some(host) = plain_host(text) {
        return Some(host.into());
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    url.host_str().map(|host| host.to_owned().into())
}

/// The host of a URL that is written as usual, with a name that stays as it is.
fn plain_host(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'.');
    // A name that ends in a number (`1`, `0xa`) is an address, and one with `xn--` has to be
    // checked.
    let is_name = host.bytes().all(|byte| is_plain(byte) || byte.is_ascii_digit())
        && host.bytes().next_back().is_some_and(|byte| byte.is_ascii_lowercase())
        && !host.rsplit('.').next().is_some_and(|last| last.starts_with("0x"))
        && !host.contains("--")
        && !host.contains("..");
    is_name.then_some(host)
}

fn form(url: &Url) -> Vec<u8> {
    let mut to = Vec::with_capacity(url.as_str().len());
    // With the user, the password and a port that is not the scheme's own.
    to.extend(url.authority().as_bytes());
    encode(url.path().as_bytes(), is_path, &mut to);
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs(url.query().unwrap_or_default()).collect();
    pairs.sort_unstable();
    for (i, (name, value)) in pairs.iter().enumerate() {
        to.push(if i == 0 { b'?' } else { b'&' });
        to.extend(name);
        to.push(b'=');
        to.extend(value);
    }
    to
}

/// The names and values of a query, encoded in one way.
fn pairs(query: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let parts = query.as_bytes().split(|byte| *byte == b'&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let at = part.iter().position(|byte| *byte == b'=');
        let (name, value) =
            (&part[..at.unwrap_or(part.len())], at.map_or(&[][..], |at| &part[at + 1..]));
        let encoded = |bytes: &[u8]| {
            let (spaces, mut to) =
                (bytes.iter().map(|b| if *b == b'+' { b' ' } else { *b }), Vec::new());
            encode(&spaces.collect::<Vec<u8>>(), is_unreserved, &mut to);
            to
        };
        (encoded(name), encoded(value))
    })
}

/// Appends bytes of a URL, with each byte that is not `plain` as `%` and two digits.
fn encode(bytes: &[u8], plain: fn(u8) -> bool, to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut at = 0;
    while at < bytes.len() {
        let (byte, is_encoded) = match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => ((high << 4 | low) as u8, true),
            (byte, ..) => (byte, false),
        };
        at += if is_encoded { 3 } else { 1 };
        // A `/` divides a path, and an encoded one does not.
        if plain(byte) && !(is_encoded && byte == b'/') {
            to.push(byte);
        } else {
            to.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// What never needs to be encoded: RFC 3986, §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// What is itself in a path: RFC 3986, §3.3.
fn is_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(url: &str) -> String {
        String::from_utf8_lossy(&normalised(url.as_bytes())).into_owned()
    }

    #[test]
    fn each_part_is_normalised() {
        for (url, expected) in [
            ("http://example.org", "example.org/"),
            ("  HTTPS://user:Pass@EXAMPLE.org:8443/A  ", "user:Pass@example.org:8443/A"),
            ("http://example.org:80/", "example.org/"),
            ("https://example.org:80/", "example.org:80/"),
            ("http://example.org/a/./b/../c//d/", "example.org/a/c//d/"),
            ("http://example.org/%2e%2E/x", "example.org/x"),
            ("http://example.org/a%2fb/%7E%c3%a9/é|%", "example.org/a%2Fb/~%C3%A9/%C3%A9%7C%25"),
            ("http://example.org/a%3Bb;c", "example.org/a;b;c"),
            ("http://example.org/?b=2&a=1&b=1#f", "example.org/?a=1&b=1&b=2"),
            ("http://example.org/?q=a+b%20c&&x&y=", "example.org/?q=a%20b%20c&x=&y="),
            ("http://example.org/?q=a%2Bb%26c=d", "example.org/?q=a%2Bb%26c%3Dd"),
            ("http://example.org?", "example.org/"),
            ("http://[0:0::1]/", "[::1]/"),
            ("http://中国.example/中", "xn--fiqs8s.example/%E4%B8%AD"),
            ("ftp://example.org/A", "ftp://example.org/A"),
            ("example.org/A", "example.org/A"),
            ("http://", "http://"),
        ] {
            assert_eq!(of(url), expected, "{url}");
        }
    }

    #[test]
    fn a_domain_is_the_host_of_the_parser() {
        for url in [
            "http://example.org",
            "https://a-b.example.org/x",
            "http://0xa",
            "http://a.0xbf/",
            "http://0xaz/",
            "http://1.example/",
            "http://127.1",
            "http://a.1b",
            "http://a..b",
            "http://xn--a",
        ] {
            let parsed = Url::parse(url).ok();
            let host = parsed.as_ref().and_then(Url::host_str);
            assert_eq!(domain(url.as_bytes()).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn what_is_no_text_or_too_long_stays_as_it_is() {
        let long = format!("http://example.org/{}", "é".repeat(1024));
        assert_eq!(*normalised(long.as_bytes()), *long.as_bytes());
        assert_eq!(*normalised(b"http://example.org/\xff"), *b"http://example.org/\xff");
        assert_eq!(*normalised(b""), *b"");
    }

    proptest! {
        #[test]
        fn the_form_of_a_form_is_itself(rest in "[a-zA-Z0-9/?&=%+.:@é中# ]{0,40}", any in any::<String>()) {
            for rest in [rest, any] {
                let once = of(&format!("http://h/{rest}"));
                prop_assert_eq!(of(&format!("http://{once}")), once);
            }
        }
    }
}
