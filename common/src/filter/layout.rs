//! [`Layout`]: how bits are arranged in a filter.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How bits are arranged in a filter.
///
/// ```
/// use bloomsday_common::filter::Layout;
///
/// assert_eq!("guava".parse::<Layout>()?, Layout::Guava);
/// assert_eq!(Layout::Blocked.to_string(), "blocked");
/// assert!("cuckoo".parse::<Layout>().is_err());
/// # Ok::<(), bloomsday_common::filter::layout::UnknownLayout>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One 512-bit cache line per ID. The default and the fastest, for an fpp from 0.5 to 1e-6.
    Blocked,
    /// The classic Bloom filter, byte for byte what Guava's `BloomFilter.writeTo` writes.
    Guava,
    /// Version 1 of Spark's `util.sketch.BloomFilter`, byte for byte; up to 2^31 bits.
    Spark1,
    /// Version 2 of it, which Spark writes since 4.1.
    Spark2,
}

/// A text that names no layout.
#[derive(Debug, Error)]
#[error("there is no layout `{name}`: choose `blocked`, `guava`, `spark1` or `spark2`")]
pub struct UnknownLayout {
    /// The text, or its beginning.
    pub name: String,
}

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 4] = [Layout::Blocked, Layout::Guava, Layout::Spark1, Layout::Spark2];

    /// The name used in configurations, in status and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Blocked => "blocked",
            Layout::Guava => "guava",
            Layout::Spark1 => "spark1",
            Layout::Spark2 => "spark2",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = UnknownLayout;

    /// Reads what [`Layout::name`] returns.
    fn from_str(text: &str) -> Result<Layout, UnknownLayout> {
        const MAX_CHARS: usize = 40; // of what the message repeats
        let found = Layout::ALL.into_iter().find(|layout| layout.name() == text);
        found.ok_or_else(|| UnknownLayout { name: text.chars().take(MAX_CHARS).collect() })
    }
}
