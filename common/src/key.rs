//! Every object key: the names of filters and blobs, and where each object is in the store.
//!
//! A [`BlobKey`] is made of a filter, a day and a digest, or parsed for one filter. So no pointer
//! can lead out of the folder of its own filter.
//!
//! ```text
//! {filter}/blobs/{day}-{digest}.bloom
//! {filter}/deltas/{digest16}-{digest16}.delta
//! {filter}/pointers/{day}
//! {filter}/store.json
//! {filter}/pin
//! {filter}/history/{time}-{event}-{digest8}.json
//! {filter}/servers/{server}
//! {filter}/live/{day}/{node}-{epoch}-{first frame}.seg
//! {filter}/live/heads/{node}
//! {filter}/live/lease
//! ```

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::day::Day;
use crate::digest::Digest;
use crate::error::Error;
use crate::redact::sanitize;

/// The name of a filter: `[a-z0-9][a-z0-9_-]{0,63}`.
///
/// ```
/// use bloomsday_common::key::FilterName;
///
/// let filter: FilterName = "opted-out".parse()?;
/// assert_eq!(filter.as_str(), "opted-out");
/// assert!("../other".parse::<FilterName>().is_err());
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilterName(String);

impl FilterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilterName {
    type Err = Error;

    fn from_str(name: &str) -> Result<FilterName, Error> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = (1..=64).contains(&name.len())
            && plain(name.as_bytes()[0])
            && name.bytes().all(|b| plain(b) || b == b'_' || b == b'-');
        if !fits {
            return Err(Error::FilterName { name: sanitize(name) });
        }
        Ok(FilterName(name.to_owned()))
    }
}

impl TryFrom<String> for FilterName {
    type Error = Error;
    fn try_from(name: String) -> Result<FilterName, Error> {
        name.parse()
    }
}

impl From<FilterName> for String {
    fn from(name: FilterName) -> String {
        name.0
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names one blob: which filter, which day, and the digest of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobKey {
    /// The filter it belongs to.
    pub filter: FilterName,
    /// The day whose IDs it contains.
    pub day: Day,
    /// The digest that its bytes must have.
    pub digest: Digest,
}

impl BlobKey {
    /// Reads what a person or a record calls a blob of `filter`: the key from the filter's folder
    /// (`blobs/…`), from the store's root (`rt/blobs/…`), or a URL or path that begins with one of
    /// the store's `roots`.
    ///
    /// ```
    /// use bloomsday_common::key::BlobKey;
    ///
    /// let filter = "rt".parse()?;
    /// let name = format!("blobs/2026-11-18-{}.bloom", "ab".repeat(32));
    /// let roots = ["s3://ads/prod".to_owned()];
    ///
    /// let blob = BlobKey::parse(&name, &filter, &roots)?;
    /// assert_eq!(blob.to_string(), format!("rt/{name}"));
    /// assert_eq!(BlobKey::parse(&format!("s3://ads/prod/rt/{name}"), &filter, &roots)?, blob);
    /// assert!(BlobKey::parse(&format!("s3://other/rt/{name}"), &filter, &roots).is_err());
    /// assert!(BlobKey::parse(&format!("../rt/{name}"), &filter, &roots).is_err());
    /// # Ok::<(), bloomsday_common::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BlobKey`] for anything else: another filter, another store, `..`, a wrong name.
    pub fn parse(text: &str, filter: &FilterName, roots: &[String]) -> Result<BlobKey, Error> {
        let wrong =
            |why: String| Error::BlobKey { text: sanitize(text), filter: filter.to_string(), why };
        let inside = roots
            .iter()
            .find_map(|root| text.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/'));
        let key = inside.unwrap_or(text);
        if inside.is_none() && (key.contains("://") || key.starts_with('/')) {
            let roots = roots.join(" or ");
            return Err(wrong(format!("it lies outside this store ({roots})")));
        }
        let from_folder = match key.split_once('/') {
            Some((folder, rest)) if folder == filter.as_str() => rest,
            _ if inside.is_none() => key,
            _ => return Err(wrong("it belongs to another filter".into())),
        };
        let name = match from_folder.split_once('/') {
            Some(("blobs", name)) => name,
            Some((folder, _)) if folder.parse::<FilterName>().is_ok() => {
                return Err(wrong(format!("it belongs to `{folder}`")));
            }
            _ => return Err(wrong("a blob's key is blobs/DAY-DIGEST.bloom".into())),
        };
        BlobKey::from_name(filter, name).map_err(wrong)
    }

    /// Divides the URL of a blob, `STORE/FILTER/blobs/DAY-DIGEST.bloom`, into the address of its
    /// store and its key there.
    ///
    /// # Errors
    /// [`Error::BlobKey`] for anything else.
    pub fn of_url(url: &str) -> Result<(&str, BlobKey), Error> {
        let wrong = || Error::BlobKey {
            text: sanitize(url),
            filter: "FILTER".into(),
            why: "a blob's URL is STORE/FILTER/blobs/DAY-DIGEST.bloom".into(),
        };
        let (store, key) = split_url(url).ok_or_else(wrong)?;
        Ok((store, BlobKey::try_from(key.to_owned()).map_err(|_| wrong())?))
    }

    /// The blob with this file name, `{day}-{digest}.bloom`.
    pub(crate) fn from_name(filter: &FilterName, name: &str) -> Result<BlobKey, String> {
        let parts = name.strip_suffix(".bloom").filter(|stem| stem.is_ascii() && stem.len() > 11);
        let Some((day, rest)) = parts.map(|stem| stem.split_at(10)) else {
            return Err("a blob's name is DAY-DIGEST.bloom".into());
        };
        let digest = rest.strip_prefix('-').ok_or("a blob's name is DAY-DIGEST.bloom")?;
        Ok(BlobKey {
            filter: filter.clone(),
            day: day.parse().map_err(|e: Error| e.to_string())?,
            digest: digest.parse().map_err(str::to_owned)?,
        })
    }
}

/// Divides the URL of a blob or delta, `STORE/FILTER/FOLDER/NAME`, into the address of its store
/// and the key there. `None` for what has no scheme, or too few folders.
pub fn split_url(url: &str) -> Option<(&str, &str)> {
    let (end_of_store, _) = url.rmatch_indices('/').nth(2)?;
    let (store, key) = (&url[..end_of_store], &url[end_of_store + 1..]);
    store.contains("://").then_some((store, key))
}

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/blobs/{}-{}.bloom", self.filter, self.day, self.digest)
    }
}

impl TryFrom<String> for BlobKey {
    type Error = Error;

    /// Reads the complete key, with the filter.
    fn try_from(key: String) -> Result<BlobKey, Error> {
        let folder = key.split_once('/').map_or("", |(folder, _)| folder);
        BlobKey::parse(&key, &folder.parse()?, &[])
    }
}

impl From<BlobKey> for String {
    fn from(key: BlobKey) -> String {
        key.to_string()
    }
}

/// Names one segment of a live filter's log in the store: the day of its frames, whose log it is,
/// and where in it they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey {
    /// The filter it belongs to.
    pub filter: FilterName,
    /// The day on which all its changes were made.
    pub day: Day,
    /// The log.
    pub node: u64,
    /// The process that wrote it: increased at each start.
    pub epoch: u32,
    /// The number of its first frame.
    pub first_seq: u64,
}

impl SegmentKey {
    /// The segment with this file name, `{node}-{epoch}-{first frame}.seg` in hexadecimal digits.
    pub(crate) fn from_name(filter: &FilterName, day: Day, name: &str) -> Option<SegmentKey> {
        let mut parts = name.strip_suffix(".seg")?.split('-');
        let mut number = |digits| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            // A number has one spelling in keys.
            let plain = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            u64::from_str_radix(part, 16).ok().filter(|_| plain)
        };
        let (node, epoch, first_seq) = (number(16)?, number(8)?, number(16)?);
        let epoch = u32::try_from(epoch).ok()?;
        let key = SegmentKey { filter: filter.clone(), day, node, epoch, first_seq };
        parts.next().is_none().then_some(key)
    }
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SegmentKey { filter, day, node, epoch, first_seq } = self;
        write!(f, "{filter}/live/{day}/{node:016x}-{epoch:08x}-{first_seq:016x}.seg")
    }
}

/// The folder of the segments of all days, and of the heads.
pub(crate) fn live(filter: &FilterName) -> String {
    format!("{filter}/live")
}

pub(crate) fn segments(filter: &FilterName, day: Day) -> String {
    format!("{filter}/live/{day}")
}

pub(crate) fn heads(filter: &FilterName) -> String {
    format!("{filter}/live/heads")
}

pub(crate) fn head(filter: &FilterName, node: u64) -> String {
    format!("{filter}/live/heads/{node:016x}")
}

/// Whether a head may have this name.
pub(crate) fn is_head(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(crate) fn lease(filter: &FilterName) -> String {
    format!("{filter}/live/lease")
}

/// Names the delta between two blobs of one filter, in either direction: the first 16 digits of
/// both digests, the smaller first.
///
/// ```
/// use bloomsday_common::key::{BlobKey, DeltaKey};
///
/// let filter = "rt".parse()?;
/// let blob = |day, digit: &str| {
///     BlobKey::parse(&format!("blobs/{day}-{}.bloom", digit.repeat(64)), &filter, &[])
/// };
/// let (a, b) = (blob("2026-11-18", "b")?, blob("2026-11-19", "a")?);
/// let delta = DeltaKey::between(&a, &b);
/// assert_eq!(delta.to_string(), "rt/deltas/aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb.delta");
/// assert_eq!(delta, DeltaKey::between(&b, &a));
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeltaKey {
    filter: FilterName,
    low: String,
    high: String,
}

impl DeltaKey {
    /// How many hex digits of each digest are in the name.
    const DIGITS: usize = 16;

    /// The delta between two blobs.
    ///
    /// # Panics
    /// When they belong to two filters.
    pub fn between(a: &BlobKey, b: &BlobKey) -> DeltaKey {
        assert_eq!(a.filter, b.filter, "a delta is between two blobs of one filter");
        let (low, high) = (a.digest.min(b.digest), a.digest.max(b.digest));
        let digits = |digest: Digest| digest.to_string()[..DeltaKey::DIGITS].to_owned();
        DeltaKey { filter: a.filter.clone(), low: digits(low), high: digits(high) }
    }

    /// Reads what a person calls a delta: the key from the store's root (`rt/deltas/…`), or a URL
    /// or path that begins with one of the store's `roots`.
    ///
    /// # Errors
    /// [`Error::BlobKey`] for anything else.
    pub fn parse(text: &str, roots: &[String]) -> Result<DeltaKey, Error> {
        let inside = roots
            .iter()
            .find_map(|root| text.strip_prefix(root.trim_end_matches('/'))?.strip_prefix('/'));
        let parsed = inside.unwrap_or(text).split_once("/deltas/").and_then(|(filter, name)| {
            let filter: FilterName = filter.parse().ok()?;
            DeltaKey::from_name(&filter, name)
        });
        parsed.ok_or_else(|| Error::BlobKey {
            text: sanitize(text),
            filter: "this store".to_owned(),
            why: "a delta's key is FILTER/deltas/DIGEST16-DIGEST16.delta".to_owned(),
        })
    }

    /// The delta with this file name, `{digest16}-{digest16}.delta`.
    pub(crate) fn from_name(filter: &FilterName, name: &str) -> Option<DeltaKey> {
        let (low, high) = name.strip_suffix(".delta")?.split_once('-')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let are_digits = |text: &str| text.len() == DeltaKey::DIGITS && text.bytes().all(is_digit);
        let filter = filter.clone();
        (are_digits(low) && are_digits(high) && low <= high).then(|| DeltaKey {
            filter,
            low: low.to_owned(),
            high: high.to_owned(),
        })
    }

    /// The filter it belongs to.
    pub fn filter(&self) -> &FilterName {
        &self.filter
    }

    /// Whether this blob is one of its two.
    pub fn is_of(&self, blob: &BlobKey) -> bool {
        let digest = blob.digest.to_string();
        blob.filter == self.filter && [&self.low, &self.high].iter().any(|d| digest.starts_with(*d))
    }
}

impl fmt::Display for DeltaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/deltas/{}-{}.delta", self.filter, self.low, self.high)
    }
}

impl Serialize for DeltaKey {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

pub(crate) fn deltas(filter: &FilterName) -> String {
    format!("{filter}/deltas")
}

pub(crate) fn blobs(filter: &FilterName) -> String {
    format!("{filter}/blobs")
}

pub(crate) fn pointers(filter: &FilterName) -> String {
    format!("{filter}/pointers")
}

/// The key of a day's pointer.
pub fn pointer(filter: &FilterName, day: Day) -> String {
    format!("{filter}/pointers/{day}")
}

/// Says where the pointers of a filter live.
pub(crate) fn marker(filter: &FilterName) -> String {
    format!("{filter}/store.json")
}

pub(crate) fn pin(filter: &FilterName) -> String {
    format!("{filter}/pin")
}

/// A longer name of a server is cut.
const MAX_SERVER_CHARS: usize = 100;

pub(crate) fn servers(filter: &FilterName) -> String {
    format!("{filter}/servers")
}

/// A server's name may come from a host name: other than plain characters become `-`.
pub(crate) fn server(filter: &FilterName, server: &str) -> String {
    let name: String =
        server.chars().take(MAX_SERVER_CHARS).map(|c| if is_plain(c) { c } else { '-' }).collect();
    format!("{filter}/servers/{name}")
}

/// Whether a server's record may have this name.
pub(crate) fn is_server(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

pub(crate) fn histories(filter: &FilterName) -> String {
    format!("{filter}/history")
}

/// Keys sort as the events happened, to the microsecond.
pub(crate) fn history(
    filter: &FilterName,
    at: Timestamp,
    event: &str,
    digest: Option<Digest>,
) -> String {
    let time = at.strftime("%Y%m%dT%H%M%S.%6fZ");
    let digest = digest.map_or_else(|| "00000000".to_owned(), |d| d.short());
    format!("{filter}/history/{time}-{event}-{digest}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rt() -> FilterName {
        "rt".parse().unwrap()
    }

    fn name() -> String {
        format!("2026-11-18-{}.bloom", "ab".repeat(32))
    }

    #[test]
    fn a_blob_is_named_from_the_filter_the_root_or_the_url() {
        let roots = ["s3://ads/prod".to_owned()];
        let expected = format!("rt/blobs/{}", name());
        for text in [
            format!("blobs/{}", name()),
            format!("rt/blobs/{}", name()),
            format!("s3://ads/prod/rt/blobs/{}", name()),
        ] {
            assert_eq!(BlobKey::parse(&text, &rt(), &roots).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn nothing_outside_the_filters_own_folder_is_a_blob() {
        let roots = ["s3://ads/prod".to_owned()];
        for text in [
            format!("optout/blobs/{}", name()),
            format!("s3://ads/prod/optout/blobs/{}", name()),
            format!("s3://ads/prod/blobs/{}", name()),
            format!("s3://ads/production/rt/blobs/{}", name()),
            format!("s3://evil/prod/rt/blobs/{}", name()),
            format!("https://ads/prod/rt/blobs/{}", name()),
            format!("/etc/rt/blobs/{}", name()),
            format!("rt/../optout/blobs/{}", name()),
            format!("../rt/blobs/{}", name()),
            format!("rt/blobs/../../optout/blobs/{}", name()),
            format!("rt/blobs/x/{}", name()),
            format!("blobs/{}", name().to_uppercase()),
            "blobs/2026-11-18.bloom".into(),
            format!("blobs/{}", name().replacen("18-", "18", 1)),
            "blobs/é026-11-18-.bloom".into(),
            "rt/pointers/2026-11-18".into(),
            String::new(),
            "x".repeat(100_000),
        ] {
            let error = BlobKey::parse(&text, &rt(), &roots).expect_err(&text).to_string();
            assert!(error.len() < 900, "{error}");
        }
    }

    #[test]
    fn filter_names_are_safe_in_keys() {
        for good in ["rt", "0", "opted-out", "a_b", &"x".repeat(64)] {
            assert!(good.parse::<FilterName>().is_ok(), "{good} was refused");
        }
        for wrong in ["", "-a", "_a", "A", "a/b", "a.b", "..", "é", &"x".repeat(65), "a b"] {
            assert!(wrong.parse::<FilterName>().is_err(), "{wrong} passed");
        }
    }

    #[test]
    fn a_segment_has_one_spelling() {
        let day = "2026-11-23".parse().unwrap();
        let key = SegmentKey { filter: rt(), day, node: 7, epoch: 2, first_seq: 255 };
        let text = "rt/live/2026-11-23/0000000000000007-00000002-00000000000000ff.seg";
        assert_eq!(key.to_string(), text);
        let name = text.rsplit('/').next().unwrap();
        assert_eq!(SegmentKey::from_name(&rt(), day, name), Some(key));
        for wrong in [
            "7-2-ff.seg",
            "0000000000000007-00000002-00000000000000FF.seg",
            "0000000000000007-00000002-00000000000000ff",
            "0000000000000007-00000002-00000000000000ff-1.seg",
            "+000000000000007-00000002-00000000000000ff.seg",
            "heads",
            "",
        ] {
            assert_eq!(SegmentKey::from_name(&rt(), day, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn history_keys_sort_by_time() {
        let key = |text: &str| history(&rt(), text.parse().unwrap(), "build", None);
        let (early, late) = (key("2026-11-19T02:00:00.5Z"), key("2026-11-19T02:00:01Z"));
        assert!(early < late);
        assert_eq!(late, "rt/history/20261119T020001.000000Z-build-00000000.json");
    }
}
