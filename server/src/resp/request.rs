//! Bytes of a connection → requests. A request is an array of bulk strings, or an inline line as a
//! person types it. Scanned in place by hand: the crates that parse the protocol allocate for each
//! argument, which takes two to three times as long as everything else that a request needs.
//!
//! The fuzz targets include this file, so it uses nothing else of the server.

use std::fmt;

/// The most arguments of a request.
pub(crate) const MAX_ARGUMENTS: usize = 1 << 20;
/// The most bytes of a request.
pub(crate) const MAX_REQUEST_BYTES: usize = 64 << 20;
/// The longest inline request.
const MAX_INLINE_BYTES: usize = 64 << 10;
/// The longest line with a length in it, without its end.
const MAX_LENGTH_DIGITS: usize = 20;
/// What a client may send before it has presented the password.
const MAX_UNAUTHENTICATED_ARGUMENTS: usize = 10;
const MAX_UNAUTHENTICATED_BYTES: usize = 16 << 10;

/// Bytes that are no request. The connection cannot go on: nobody knows where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    ArrayLength,
    BulkLength,
    NoBulk(u8),
    NoLineEnd,
    LongInline,
    Http,
    Quotes,
    TooLong,
    UnauthenticatedArguments,
    UnauthenticatedBytes,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::ArrayLength => f.write_str("invalid multibulk length"),
            Malformed::BulkLength => f.write_str("invalid bulk length"),
            Malformed::NoBulk(got) => {
                let got = if got.is_ascii_graphic() { char::from(*got) } else { '?' };
                write!(f, "expected '$', got '{got}'")
            }
            Malformed::NoLineEnd => f.write_str("a bulk string does not end with CRLF"),
            Malformed::LongInline => f.write_str("too big inline request"),
            Malformed::Http => f.write_str("this is HTTP, which is not spoken here"),
            Malformed::Quotes => f.write_str("unbalanced quotes in request"),
            Malformed::TooLong => {
                write!(f, "a request has at most {MAX_REQUEST_BYTES} bytes")
            }
            Malformed::UnauthenticatedArguments => f.write_str("unauthenticated multibulk length"),
            Malformed::UnauthenticatedBytes => f.write_str("unauthenticated bulk length"),
        }
    }
}

/// The state of one request that may be incomplete. It goes on where it stopped, so that a long
/// request that arrives in many pieces is scanned once.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// Where the next part of the request begins, from its first byte; of a line, how far its end
    /// was looked for.
    at: usize,
    /// The arguments that are still to come; `None` before the length of the array.
    left: Option<usize>,
    /// The arguments so far, from the first byte of the request.
    found: Vec<(u32, u32)>,
    /// Whether the client may not do anything yet.
    pub(crate) is_unauthenticated: bool,
}

/// A complete request, and the number of its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The arguments were added to those of the batch.
    Array(usize),
    /// A line; the arguments are not as they are in the bytes.
    Inline(usize, Vec<Vec<u8>>),
}

impl Scanner {
    /// Scans one request at the beginning of `bytes`, which begin with the same bytes as in the
    /// last call if that found none. `None` when it is incomplete.
    ///
    /// # Errors
    /// [`Malformed`]: answer, and close the connection.
    #[inline]
    pub(crate) fn scan<'a>(
        &mut self,
        bytes: &'a [u8],
        arguments: &mut Vec<&'a [u8]>,
    ) -> Result<Option<Request>, Malformed> {
        if self.left.is_none() {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(bytes),
            }
            let (most, too_many) = if self.is_unauthenticated {
                (MAX_UNAUTHENTICATED_ARGUMENTS, Malformed::UnauthenticatedArguments)
            } else {
                (MAX_ARGUMENTS, Malformed::ArrayLength)
            };
            let Some((length, end)) = length(bytes, 1, Malformed::ArrayLength)? else {
                return Ok(None);
            };
            // A null array, or an empty one, is no request.
            let many = usize::try_from(length).unwrap_or(0);
            if many > most {
                return Err(too_many);
            }
            (self.at, self.left) = (end, Some(many));
        }
        while let Some(left @ 1..) = self.left {
            match bytes.get(self.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(Malformed::NoBulk(*other)),
            }
            let Some((length, begin)) = length(bytes, self.at + 1, Malformed::BulkLength)? else {
                return Ok(None);
            };
            let length = usize::try_from(length).map_err(|_| Malformed::BulkLength)?;
            if self.is_unauthenticated && length > MAX_UNAUTHENTICATED_BYTES {
                return Err(Malformed::UnauthenticatedBytes);
            }
            if length > MAX_REQUEST_BYTES {
                return Err(Malformed::BulkLength);
            }
            let end = begin + length;
            if end > MAX_REQUEST_BYTES {
                return Err(Malformed::TooLong);
            }
            match bytes.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(Malformed::NoLineEnd),
            }
            self.found.push((begin as u32, end as u32));
            (self.at, self.left) = (end + 2, Some(left - 1));
        }
        let whole = self.at;
        arguments
            .extend(self.found.drain(..).map(|(begin, end)| &bytes[begin as usize..end as usize]));
        (self.at, self.left) = (0, None);
        Ok(Some(Request::Array(whole)))
    }

    /// Scans a line.
    fn inline(&mut self, bytes: &[u8]) -> Result<Option<Request>, Malformed> {
        let some = &bytes[..bytes.len().min(MAX_INLINE_BYTES)];
        let Some(end) = some[self.at..].iter().position(|byte| *byte == b'\n') else {
            self.at = some.len();
            let is_full = some.len() == MAX_INLINE_BYTES;
            return if is_full { Err(Malformed::LongInline) } else { Ok(None) };
        };
        let end = end + std::mem::take(&mut self.at);
        let line = some[..end].strip_suffix(b"\r").unwrap_or(&some[..end]);
        let words = split(line).ok_or(Malformed::Quotes)?;
        if is_http(&words) {
            return Err(Malformed::Http);
        }
        Ok(Some(Request::Inline(end + 1, words)))
    }
}

/// Whether a line is of an HTTP request: a page that a browser shows can send one here, and its
/// body would be commands.
fn is_http(words: &[Vec<u8>]) -> bool {
    let is_header = words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"host:"));
    is_header || words.len() > 1 && words.last().is_some_and(|word| word.starts_with(b"HTTP/"))
}

/// An integer as the protocol writes it: no plus sign, no zero before other digits.
pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_plain = word == b"0" || matches!(digits.first(), Some(b'1'..=b'9'));
    is_plain.then(|| std::str::from_utf8(word).ok()?.parse().ok()).flatten()
}

/// The number in a line that begins at `at`, and where the next line begins.
#[inline]
fn length(bytes: &[u8], at: usize, wrong: Malformed) -> Result<Option<(i64, usize)>, Malformed> {
    let (mut value, mut end) = (0_i64, at);
    // Nearly every length is a few digits and CRLF.
    while let Some(digit @ b'0'..=b'9') = bytes.get(end)
        && end - at < 9
    {
        value = value * 10 + i64::from(digit - b'0');
        end += 1;
    }
    let is_plain = bytes.get(at) != Some(&b'0') || end == at + 1;
    if end > at && is_plain && bytes.get(end..end + 2) == Some(b"\r\n") {
        return Ok(Some((value, end + 2)));
    }
    let line = &bytes[at..bytes.len().min(at + MAX_LENGTH_DIGITS + 2)];
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        return if line.len() < MAX_LENGTH_DIGITS + 2 { Ok(None) } else { Err(wrong) };
    };
    Ok(Some((number(&line[..end]).ok_or(wrong)?, at + end + 2)))
}

/// The words of a line. In double quotes `\n`, `\r`, `\t`, `\a`, `\b` and `\xHH` are what they are
/// in C; in single quotes only `\'` is special.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut at) = (Vec::new(), 0);
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if at == line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
            match byte {
                b'"' | b'\'' => at = quoted(line, at, *byte, &mut word)?,
                _ => word.push(*byte),
            }
        }
        words.push(word);
    }
}

/// Adds what is quoted from `at` on, and returns where the line goes on: after the word.
fn quoted(line: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        let byte = *line.get(at)?;
        at += 1;
        if byte == quote {
            // A word ends with its closing quote.
            let ends = line.get(at).is_none_or(u8::is_ascii_whitespace);
            return ends.then_some(at);
        }
        if byte != b'\\' || (quote == b'\'' && line.get(at) != Some(&b'\'')) {
            word.push(byte);
            continue;
        }
        let escaped = *line.get(at)?;
        at += 1;
        let hex = line.get(at..at + 2).and_then(|two| std::str::from_utf8(two).ok());
        let hex = hex.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match (escaped, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'x', Some(byte)) if quote == b'"' => {
                word.push(byte);
                at += 2;
            }
            (b'n', _) => word.push(b'\n'),
            (b'r', _) => word.push(b'\r'),
            (b't', _) => word.push(b'\t'),
            (b'a', _) => word.push(7),
            (b'b', _) => word.push(8),
            (other, _) => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
