//! Foreign text in messages, logs and tables: on one line, not too long, and without secrets.
//!
//! So nobody can control a terminal or forge lines of a log with the text of a record or a file
//! name.

use url::Url;

/// The longest foreign text in a message, in characters.
const MAX_CHARS: usize = 200;

/// The longest error text of another library, in characters.
const MAX_SOURCE_CHARS: usize = 2000;

/// Text on one line: control characters are escaped, and it is cut after `limit` characters.
///
/// ```
/// use bloomsday_common::redact::single_line;
///
/// assert_eq!(single_line("late\nfiles", 99), "late\\nfiles");
/// assert_eq!(single_line("abcdef", 3), "abc…");
/// ```
pub fn single_line(text: &str, limit: usize) -> String {
    let mut redacted = String::with_capacity(text.len().min(limit));
    for (i, c) in text.chars().enumerate() {
        if i == limit {
            redacted.push('…');
            break;
        }
        // Also those that reverse the direction of the following text.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            redacted.extend(c.escape_default());
        } else {
            redacted.push(c);
        }
    }
    redacted
}

/// Text that somebody wrote into a record or typed, fit for a message: its URLs are without
/// secrets, control characters are escaped, and it is not too long.
pub(crate) fn sanitize(text: &str) -> String {
    single_line(&redact_urls(text), MAX_CHARS)
}

/// The error text of another library, which may repeat names and responses unescaped.
pub fn describe_source(source: &(impl std::fmt::Display + ?Sized)) -> String {
    single_line(&redact_urls(&source.to_string()), MAX_SOURCE_CHARS)
}

/// As [`describe_source`], with the first cause where the text leaves it out, as HTTP clients do: a
/// refused connection, a certificate, a timeout.
pub fn describe_error(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let (text, cause) = (describe_source(error), describe_source(cause));
    if text.contains(&cause) { text } else { format!("{text}: {cause}") }
}

/// A text in which every URL is without user, password and query.
///
/// ```
/// use bloomsday_common::redact::redact_urls;
///
/// let text = redact_urls("cannot read https://me:hunter2@host/x?sig=1");
/// assert_eq!(text, "cannot read https://host/x?…");
/// ```
pub fn redact_urls(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, from) = rest.split_at(at + 3);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | '\'' | '<' | '>' | ',');
        let (url, after) = from.split_at(from.find(ends).unwrap_or(from.len()));
        // The scheme has no secret, but decides how the rest is parsed.
        let scheme = rest[..at].rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
        let parses = Url::parse(&format!("{}://{url}", scheme.unwrap_or_default())).is_ok();
        redacted.push_str(before);
        redacted.push_str(&strip(url, parses));
        rest = after;
    }
    redacted + rest
}

/// As [`redact_urls`], for a text that is one address, whatever is in it.
pub fn redact_url(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", strip(rest, Url::parse(address).is_ok())),
        None => address.to_owned(),
    }
}

/// A parsed URL without user, password, query and fragment.
pub(crate) fn url_without_secrets(url: &Url) -> String {
    let mut url = url.clone();
    // A scheme that can have neither is left as it is. Azure's `abfss://` has the container as its
    // user.
    if !matches!(url.scheme(), "abfs" | "abfss") {
        let _ = url.set_username("");
    }
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// What follows `://`, without user and query. If it is not a valid URL, nobody knows where a
/// password ends.
fn strip(rest: &str, parses: bool) -> String {
    let authority =
        if parses { rest.find(['/', '?', '#']).unwrap_or(rest.len()) } else { rest.len() };
    let user = rest[..authority].rfind('@').map_or(0, |at| at + 1);
    let rest = &rest[user..];
    // A query has names and values. Without these, the `?` is part of a glob.
    match rest.split_once('?') {
        Some((before, query)) if query.contains('=') => format!("{before}?…"),
        _ => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_texts_cut() {
        assert_eq!(single_line("late \u{1b}[2Jfiles\r\n", 99), "late \\u{1b}[2Jfiles\\r\\n");
        assert_eq!(single_line("a\u{9b}b\u{202e}c\u{7f}\t", 99), "a\\u{9b}b\\u{202e}c\\u{7f}\\t");
        assert_eq!(single_line("żółć", 4), "żółć");
        assert_eq!(single_line("żółć!", 4), "żółć…");
    }

    #[test]
    fn urls_lose_user_password_and_query_and_nothing_else() {
        for (text, expected) in [
            ("s3://bucket/dt={day}/*.parquet", "s3://bucket/dt={day}/*.parquet"),
            ("s3://bucket/a@b/x?.parquet", "s3://bucket/a@b/x?.parquet"),
            ("s3://me:hunter2@bucket/a@b", "s3://bucket/a@b"),
            ("https://host/x?sig=hunter2&y=1#z", "https://host/x?…"),
            ("s3://me:hunter2@bucket:99999/x", "s3://bucket:99999/x"),
            ("s3://me:hun/ter2@bucket/x", "s3://bucket/x"),
            ("s3://me:hun@ter2@bucket/x", "s3://bucket/x"),
            ("s3://[me:hunter2@bucket", "s3://bucket"),
            ("/local/path?a=b", "/local/path?a=b"),
        ] {
            assert_eq!(redact_urls(text), expected);
            assert_eq!(redact_url(text), expected);
        }
        assert_eq!(redact_url("s3://me:hun ter2@bucket/x"), "s3://bucket/x");
        let place = |url: &str| url_without_secrets(&Url::parse(url).unwrap());
        assert_eq!(place("s3://me:hunter2@bucket/a?b#c"), "s3://bucket/a");
        assert_eq!(place("abfss://ids:hunter2@a.dfs.x.net/b?sig=1"), "abfss://ids@a.dfs.x.net/b");
        assert_eq!(
            redact_urls("cannot use \"s3://a:b@c/d?e=f\": see https://h/ or file:///x"),
            "cannot use \"s3://c/d?…\": see https://h/ or file:///x"
        );
    }
}
