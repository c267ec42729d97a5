//! [`Digest`]: BLAKE3 of a blob's bytes, its name and its proof.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// 32 bytes, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// How many bytes it takes at the end of a blob.
    pub const BYTES: usize = 32;

    /// The digest with these bytes.
    pub fn new(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// Its bytes, as a blob ends with them.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its first 8 hex digits, for names and for people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Digest, &'static str> {
        const WRONG: &str = "a digest is 64 lower-case hex digits";
        let digits = text.as_bytes().as_chunks::<2>();
        let (pairs, []) = digits else { return Err(WRONG) };
        if pairs.len() != Digest::BYTES {
            return Err(WRONG);
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(WRONG),
        };
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = value(*high)? << 4 | value(*low)?;
        }
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Digest, &'static str> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}
