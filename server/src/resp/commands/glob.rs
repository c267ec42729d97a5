//! The patterns of KEYS and SCAN: `*`, `?`, `[abc]`, `[^a-c]`, and `\` before what is meant as it
//! is.

use super::super::reply::Fault;
use crate::live::MAX_KEY_BYTES;

/// A pattern of at most as many bytes as a name has: a long one could keep a thread busy for
/// minutes.
pub(crate) fn checked(pattern: &[u8]) -> Result<&[u8], Fault> {
    match pattern.len() {
        ..=MAX_KEY_BYTES => Ok(pattern),
        many => {
            Err(format!("ERR a pattern has at most {MAX_KEY_BYTES} bytes, this one {many}").into())
        }
    }
}

/// Whether a name fits a pattern.
///
/// Cost: the product of both lengths at most, and with classes once more that of the pattern: after
/// a `*`, only the last one is tried again.
pub(crate) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on after the last star, and what it takes of the name so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, n));
            continue;
        }
        let one = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(_), Some(byte)) => one(&pattern[p..], *byte),
            _ => None,
        };
        if let Some(length) = one {
            (p, n) = (p + length, n + 1);
        } else if let Some((after, taken)) = star.filter(|(_, taken)| *taken < name.len()) {
            (p, n) = (after, taken + 1);
            star = Some((after, taken + 1));
        } else {
            return false;
        }
    }
}

/// The length of the first part of a pattern, if a byte fits it.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => class(rest, byte).map(|length| length + 1),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// The length of a class without its first bracket, if a byte fits it.
fn class(rest: &[u8], byte: u8) -> Option<usize> {
    let is_not = rest.first() == Some(&b'^');
    let (mut at, mut fits) = (usize::from(is_not), false);
    // A class without an end ends with the pattern.
    while let Some(first) = rest.get(at).filter(|first| **first != b']') {
        let literal = usize::from(*first == b'\\' && at + 1 < rest.len());
        let from = rest[at + literal];
        at += literal + 1;
        // Also up to a bracket: Redis does not take that for the end of the class. And not from an
        // escaped byte.
        if literal == 0
            && let (Some(b'-'), Some(to)) = (rest.get(at), rest.get(at + 1))
        {
            fits |= (from.min(*to)..=from.max(*to)).contains(&byte);
            at += 2;
        } else {
            fits |= from == byte;
        }
    }
    (fits != is_not).then_some((at + 1).min(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, yes, no) in [
            ("*", "", "-"),
            ("a*c", "abbc", "abb"),
            ("*a*b*", "xxaxxbxx", "xxbxxaxx"),
            ("h?llo", "hello", "hllo"),
            ("h[ae]llo", "hallo", "hillo"),
            ("h[^e]llo", "hallo", "hello"),
            ("h[a-b]llo", "hbllo", "hcllo"),
            ("[a-]*", "^", "b"),
            ("[\\a-z]", "-", "b"),
            ("a\\*", "a*", "ab"),
            ("[\\]a]", "]", "b"),
            ("[a", "a", "b"),
            ("", "", "a"),
        ] {
            assert!(fits(pattern.as_bytes(), yes.as_bytes()), "{pattern} {yes}");
            assert!(no == "-" || !fits(pattern.as_bytes(), no.as_bytes()), "{pattern} {no}");
        }
        // No more than the product of the lengths.
        assert!(!fits("a*".repeat(500).as_bytes(), "a".repeat(400).as_bytes()));
    }
}
