//! [`Token`]: a secret that a client presents. It is never printed.

use std::fmt;

/// The secret that a client presents: over HTTP as `Authorization: Bearer …`, as a Redis client
/// with `AUTH`. It is never printed.
///
/// ```
/// let token = bloomsday_server::Token::new("correct horse");
/// assert_eq!(format!("{token:?}"), "Token(hidden)");
/// ```
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token with this text.
    pub fn new(text: &str) -> Token {
        Token(blake3::hash(text.as_bytes()))
    }

    /// Whether `text` is the token. The time does not depend on how much of it is right: BLAKE3
    /// hashes are compared in constant time.
    pub(crate) fn is(&self, text: &[u8]) -> bool {
        self.0 == blake3::hash(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}
