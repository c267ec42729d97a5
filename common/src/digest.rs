//! [`Digest`]: BLAKE3 of a blob's bytes, which names the blob and proves its contents.
//!
//! Subtrees are digested while they arrive. Target: a load in at most 1.3 × a plain read (decision
//! 20).

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use blake3::hazmat::{self, HasherExt};
use serde::{Deserialize, Serialize};

/// The most threads that digest, or read and digest: more would only wait for memory.
const MAX_THREADS: usize = 4;

/// 32 bytes, written as 64 lower-case hex digits.
///
/// ```
/// use bloomsday_common::digest::Digest;
///
/// let digest: Digest = "ab".repeat(32).parse()?;
/// assert_eq!(digest.as_bytes(), &[0xab; 32]);
/// assert_eq!(digest.short(), "abababab");
/// assert!("AB".repeat(32).parse::<Digest>().is_err());
/// # Ok::<(), &'static str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The number of its bytes, with which a blob ends.
    pub const BYTES: usize = 32;

    /// The digest with these bytes.
    pub fn new(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// Its bytes, as a blob ends with them.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of `head` followed by `body`, computed on up to four threads.
    ///
    /// # Panics
    /// When `head` has more than 2 MiB.
    pub(crate) fn of(head: &[u8], body: &[u8]) -> Digest {
        let len = head.len() + body.len();
        let after_head =
            DigestTree::SUBTREE_BYTES.checked_sub(head.len()).expect("a head is far smaller");
        let (first, rest) = body.split_at(after_head.min(body.len()));
        let mut tree = DigestTree::new(len);
        if len > 0 {
            tree.set(0, DigestTree::chaining_value(len, 0, &[head, first].concat()));
        }
        let subtrees_of_rest = rest.chunks(DigestTree::SUBTREE_BYTES).enumerate();
        let value = |i: usize, subtree: &[u8]| {
            let offset = (i + 1) * DigestTree::SUBTREE_BYTES;
            Ok::<_, Infallible>(Some((offset, DigestTree::chaining_value(len, offset, subtree))))
        };
        let Ok(digest) = tree.complete(subtrees_of_rest, value);
        digest
    }

    /// Its first 8 hex digits, for names and for people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

/// What a subtree contributes to the digest of the whole, in BLAKE3's term; not the digest of the
/// subtree.
pub type ChainingValue = [u8; Digest::BYTES];

/// The digest of bytes that are digested subtree by subtree, in any order and on any thread: BLAKE3
/// is a tree, and 2^21 bytes at a multiple of that are a subtree.
pub(crate) struct DigestTree {
    len: usize,
    values: Vec<ChainingValue>,
}

impl DigestTree {
    /// How many bytes each subtree has; the last may have fewer.
    pub(crate) const SUBTREE_BYTES: usize = 2 << 20;

    /// For a total of `len` bytes.
    pub(crate) fn new(len: usize) -> DigestTree {
        DigestTree {
            len,
            values: vec![[0; Digest::BYTES]; len.div_ceil(DigestTree::SUBTREE_BYTES)],
        }
    }

    /// The chaining value of the subtree that begins at `offset`, a multiple of
    /// [`DigestTree::SUBTREE_BYTES`], of `len` bytes in total.
    pub(crate) fn chaining_value(len: usize, offset: usize, subtree: &[u8]) -> ChainingValue {
        let mut hasher = SubtreeHasher::begin(len, offset);
        hasher.update(subtree);
        hasher.finish()
    }

    /// Sets the chaining value of the subtree at `offset`.
    pub(crate) fn set(&mut self, offset: usize, value: ChainingValue) {
        self.values[offset / DigestTree::SUBTREE_BYTES] = value;
    }

    /// Sets the values of all `subtrees`, as [`DigestTree::set_all`] does, and returns the digest.
    ///
    /// # Errors
    /// As [`DigestTree::set_all`].
    pub(crate) fn complete<P, E: Send>(
        mut self,
        subtrees: impl ExactSizeIterator<Item = (usize, P)> + Send,
        value: impl Fn(usize, P) -> Result<Option<(usize, ChainingValue)>, E> + Sync,
    ) -> Result<Digest, E> {
        self.set_all(subtrees, value)?;
        Ok(self.finish())
    }

    /// Sets the values of these `subtrees`, which `value` returns with their offsets on up to four
    /// threads. A subtree past the end has no value.
    ///
    /// # Errors
    /// The first that `value` returns on a thread; that thread ends with it.
    pub(crate) fn set_all<P, E: Send>(
        &mut self,
        subtrees: impl ExactSizeIterator<Item = (usize, P)> + Send,
        value: impl Fn(usize, P) -> Result<Option<(usize, ChainingValue)>, E> + Sync,
    ) -> Result<(), E> {
        let tree = Mutex::new(self);
        parallel(subtrees, |(i, subtree)| {
            if let Some((offset, value)) = value(i, subtree)? {
                tree.lock().expect("setting a value does not panic").set(offset, value);
            }
            Ok(())
        })
    }

    /// The digest, when every subtree is set.
    pub(crate) fn finish(&self) -> Digest {
        match self.values[..] {
            [] => Digest(*blake3::hash(&[]).as_bytes()),
            [only] => Digest(only),
            _ => {
                let (left, right) = halves(self.len, &self.values);
                let root = hazmat::merge_subtrees_root(&left, &right, hazmat::Mode::Hash);
                Digest(*root.as_bytes())
            }
        }
    }
}

/// Does something with each item, on up to four threads.
///
/// # Errors
/// The first that `each` returns on a thread; that thread ends with it.
pub(crate) fn parallel<P, E: Send>(
    items: impl ExactSizeIterator<Item = P> + Send,
    each: impl Fn(P) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let threads = threads.min(items.len());
    let items = Mutex::new(items);
    let next = || items.lock().expect("taking the next does not panic").next();
    let one_thread = || -> Result<(), E> {
        while let Some(item) = next() {
            each(item)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one_thread)).collect();
        let own = one_thread();
        let joined = others.into_iter().map(|t| t.join().expect("the work does not panic"));
        joined.chain([own]).collect::<Result<(), E>>()
    })
}

/// Computes the chaining value of one subtree, whose bytes arrive in order.
pub(crate) struct SubtreeHasher {
    hasher: blake3::Hasher,
    /// Whether there is no other one.
    is_only: bool,
}

impl SubtreeHasher {
    /// For the subtree that begins at `offset`, of `len` bytes in total.
    pub(crate) fn begin(len: usize, offset: usize) -> SubtreeHasher {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset as u64);
        SubtreeHasher { hasher, is_only: len <= DigestTree::SUBTREE_BYTES }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    pub(crate) fn finish(&self) -> ChainingValue {
        if self.is_only {
            *self.hasher.finalize().as_bytes()
        } else {
            self.hasher.finalize_non_root()
        }
    }
}

/// The chaining values of the two subtrees below the root of `len` bytes: the left one is the
/// largest power of two that is less than `len`.
fn halves(len: usize, values: &[ChainingValue]) -> (ChainingValue, ChainingValue) {
    let left = hazmat::left_subtree_len(len as u64) as usize;
    let (before, after) = values.split_at(left / DigestTree::SUBTREE_BYTES);
    (subtree(left, before), subtree(len - left, after))
}

fn subtree(len: usize, values: &[ChainingValue]) -> ChainingValue {
    if let [value] = values {
        return *value;
    }
    let (left, right) = halves(len, values);
    hazmat::merge_subtrees_non_root(&left, &right, hazmat::Mode::Hash)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_have_the_digest_of_all_bytes() {
        const BYTES: usize = DigestTree::SUBTREE_BYTES;
        let bytes: Vec<u8> = (0..11 * BYTES + 5).map(|i| (i % 251) as u8).collect();
        let whole = [0, 1, 2, 8].map(|subtrees| subtrees * BYTES);
        for len in whole.into_iter().chain([1, BYTES - 1, BYTES + 1, 3 * BYTES + 7, 11 * BYTES + 5])
        {
            let mut tree = DigestTree::new(len);
            // In any order.
            for (i, bytes) in bytes[..len].chunks(BYTES).enumerate().rev() {
                tree.set(i * BYTES, DigestTree::chaining_value(len, i * BYTES, bytes));
            }
            let expected = Digest::new(*blake3::hash(&bytes[..len]).as_bytes());
            assert_eq!(tree.finish(), expected, "{len} bytes");
            let (head, body) = bytes[..len].split_at(len.min(4_096));
            assert_eq!(Digest::of(head, body), expected, "a head and a body, {len} bytes");
        }
    }
}
