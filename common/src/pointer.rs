//! The small records in the store: [`Pointer`], [`Pin`] and [`HistoryEvent`].
//!
//! A pointer and a pin are JSON, or one plain line that names a blob, so that an operator can roll
//! back with `cp` or `echo`. This file only converts them from and to bytes. [`crate::protocol`]
//! decides what they mean.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::day::Day;
use crate::digest::Digest;
use crate::key::{BlobKey, FilterName};
use crate::redact::sanitize;

/// The largest record. A larger one is unreadable.
pub const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// The most bytes of a reason as JSON: a record has space for it and everything else.
const MAX_REASON_BYTES: usize = 60_000;

/// Why a person does something, as records keep it: without space around it.
///
/// ```
/// use bloomsday_common::pointer::reason;
///
/// assert_eq!(reason(" bad data \n")?, "bad data");
/// assert!(reason(" ").is_err());
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// It is empty, or too long for a record.
pub fn reason(text: &str) -> Result<String, String> {
    let reason = text.trim();
    if reason.is_empty() {
        return Err("it is empty: say why in a few words".to_owned());
    }
    let bytes = serde_json::to_string(reason).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_REASON_BYTES {
        return Err(format!(
            "it has {bytes} bytes as JSON, more than {MAX_REASON_BYTES}: say it in fewer words"
        ));
    }
    Ok(reason.to_owned())
}

/// The record `(filter, day) → blob`.
///
/// ```
/// use bloomsday_common::pointer::Pointer;
///
/// let filter = "rt".parse()?;
/// let name = format!("blobs/2026-11-18-{}.bloom", "ab".repeat(32));
///
/// // An operator's `echo`, and the JSON that programs write, name the same blob.
/// let by_hand = Pointer::parse(name.as_bytes(), &filter, &[])?;
/// assert_eq!(Pointer::parse(&by_hand.to_bytes(), &filter, &[])?, by_hand);
/// assert_eq!(by_hand.day.to_string(), "2026-11-18");
///
/// let wrong = Pointer::parse(b"yesterday", &filter, &[]);
/// assert!(wrong.unwrap_err().contains("does not name a blob"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pointer {
    /// The blob that lookups of the day use.
    pub blob: BlobKey,
    /// The day whose IDs that blob contains. After a rollback it is not the pointer's day.
    pub day: Day,
    /// The blob's digest.
    pub digest: Digest,
    /// The blob's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many distinct IDs it contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<u64>,
    /// What the pointer named before. Prune does not delete that blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<BlobKey>,
    /// When it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_by: Option<String>,
    /// What wrote it; absent in a record written by hand.
    #[serde(rename = "act", skip_serializing_if = "Option::is_none")]
    pub kind: Option<EventKind>,
    /// Why, in the writer's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The record that makes the complete fleet use one blob, whatever the pointers say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pin {
    /// The blob that lookups use.
    pub blob: BlobKey,
    /// When the pin expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_at: Option<Timestamp>,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_by: Option<String>,
    /// Why, in the writer's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What somebody did to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A day was built, or refused.
    Build,
    /// A pointer was changed by an operator.
    Repoint,
    /// The fleet was pinned to one blob.
    Pin,
    /// The pin was removed.
    Unpin,
    /// Old pointers, blobs, deltas or segments were deleted.
    Prune,
}

impl EventKind {
    /// Its name in keys and reports.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Build => "build",
            EventKind::Repoint => "repoint",
            EventKind::Pin => "pin",
            EventKind::Unpin => "unpin",
            EventKind::Prune => "prune",
        }
    }
}

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The change is about to be made: a pointer is written, or old objects are deleted. A crash at
    /// that moment leaves this outcome.
    Pending,
    /// The change was made: the pointer moved, the pin was written or removed, or prune deleted.
    Published,
    /// Nothing had to be changed.
    Unchanged,
    /// Somebody else changed the pointer first, or the day stays rolled back.
    Superseded,
    /// A check or a gate refused the data.
    Refused,
    /// It failed, and may be tried again.
    Failed,
}

impl Outcome {
    /// The outcome's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Pending => "pending",
            Outcome::Published => "published",
            Outcome::Unchanged => "unchanged",
            Outcome::Superseded => "superseded",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
        }
    }
}

/// One record of the history: who did what, when and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// What was done.
    #[serde(rename = "act")]
    pub kind: EventKind,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub at: Timestamp,
    /// Who did it.
    pub by: String,
    /// The day acted on; absent for pins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<Day>,
    /// The blob that was built, pointed at or pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobKey>,
    /// What was named before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<BlobKey>,
    /// Why, in the actor's words or the refusal's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Distinct IDs of a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<u64>,
    /// Rows read by a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Rows without an ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nulls: Option<u64>,
    /// Rows whose ID was empty or too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<u64>,
    /// Share of these IDs that the newest earlier filter also contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<f64>,
    /// Files read by a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Files left out because of a hidden name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_passed_over: Option<u64>,
    /// The size of the files read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Days of the window that had no input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window_missing: Vec<Day>,
    /// How many deltas a build published with its blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas: Option<u64>,
    /// The size of the delta from the newest earlier day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_bytes: Option<u64>,
    /// False-positive probability, measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpp_measured: Option<f64>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl HistoryEvent {
    /// A record with nothing but the event itself.
    pub fn new(kind: EventKind, outcome: Outcome, at: Timestamp, by: &str) -> HistoryEvent {
        HistoryEvent {
            kind,
            outcome,
            at,
            by: by.to_owned(),
            day: None,
            blob: None,
            previous: None,
            reason: None,
            ids: None,
            rows: None,
            nulls: None,
            invalid: None,
            overlap: None,
            files: None,
            files_passed_over: None,
            input_bytes: None,
            window_missing: Vec::new(),
            deltas: None,
            delta_bytes: None,
            fpp_measured: None,
            seconds: None,
        }
    }
}

/// A record as a person may write it: everything but the blob is optional. What decides is read
/// strictly, and of the others a value that is none is left out.
#[derive(Deserialize)]
struct Loose {
    blob: String,
    day: Option<Day>,
    digest: Option<Digest>,
    #[serde(default, deserialize_with = "or_none")]
    bytes: Option<u64>,
    #[serde(default, deserialize_with = "or_none")]
    ids: Option<u64>,
    previous: Option<String>,
    #[serde(default, deserialize_with = "or_none")]
    published_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "or_none")]
    published_by: Option<String>,
    #[serde(default, rename = "act", deserialize_with = "or_none")]
    kind: Option<EventKind>,
    #[serde(default, deserialize_with = "or_none")]
    reason: Option<String>,
    until: Option<Timestamp>,
    #[serde(default, deserialize_with = "or_none")]
    pinned_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "or_none")]
    pinned_by: Option<String>,
}

/// A value, or none for one of another type: a later version may know more of them, and a rollback
/// by hand must not fail by a field that decides nothing.
fn or_none<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(value.get()).ok())
}

impl Loose {
    /// Reads JSON or one plain line; says what is wrong in a few words.
    fn parse(
        bytes: &[u8],
        filter: &FilterName,
        roots: &[String],
    ) -> Result<(Loose, BlobKey), String> {
        if bytes.len() as u64 > MAX_RECORD_BYTES {
            return Err(format!("it has more than {MAX_RECORD_BYTES} bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let text = text.trim_start_matches('\u{feff}').trim();
        let loose: Loose = if text.starts_with('{') {
            serde_json::from_str(text).map_err(|e| wrong_json(&e))?
        } else if text.is_empty() {
            return Err("it is empty".to_owned());
        } else if text.contains('\n') {
            return Err("it is neither JSON nor one line with a blob's key".to_owned());
        } else {
            Loose::line(text)
        };
        let blob = BlobKey::parse(&loose.blob, filter, roots).map_err(|e| e.to_string())?;
        let contradiction = |field: &str,
                             named: &dyn std::fmt::Display,
                             said: &dyn std::fmt::Display| {
            Err(format!(
                "its blob is of {field} {named}, but its field \"{field}\" says {said} (to name a \
                 blob by hand, leave only the field \"blob\", or write the key as one plain line)"
            ))
        };
        match (loose.day, loose.digest) {
            (Some(day), _) if day != blob.day => contradiction("day", &blob.day, &day),
            (_, Some(digest)) if digest != blob.digest => {
                contradiction("digest", &blob.digest, &digest)
            }
            _ => Ok((loose, blob)),
        }
    }

    fn line(blob: &str) -> Loose {
        Loose {
            blob: blob.to_owned(),
            day: None,
            digest: None,
            bytes: None,
            ids: None,
            previous: None,
            published_at: None,
            published_by: None,
            kind: None,
            reason: None,
            until: None,
            pinned_at: None,
            pinned_by: None,
        }
    }
}

impl Pointer {
    /// A pointer that names `blob` and says nothing more.
    pub fn to(blob: BlobKey) -> Pointer {
        Pointer {
            day: blob.day,
            digest: blob.digest,
            blob,
            bytes: None,
            ids: None,
            previous: None,
            published_at: None,
            published_by: None,
            kind: None,
            reason: None,
        }
    }

    /// Reads a stored pointer of `filter`: JSON, or one plain line that names a blob.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it, without its key, which the caller knows.
    pub fn parse(bytes: &[u8], filter: &FilterName, roots: &[String]) -> Result<Pointer, String> {
        let (loose, blob) = Loose::parse(bytes, filter, roots)?;
        // A `previous` that is text and no key protects nothing, but must not stop a rollback.
        let previous = loose.previous.and_then(|p| BlobKey::parse(&p, filter, roots).ok());
        Ok(Pointer {
            bytes: loose.bytes,
            ids: loose.ids,
            previous,
            published_at: loose.published_at,
            published_by: loose.published_by,
            kind: loose.kind,
            reason: loose.reason,
            ..Pointer::to(blob)
        })
    }

    /// The record as it is stored: JSON that a person can edit.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

impl Pin {
    /// Reads a stored pin of `filter`: JSON, or one plain line that names a blob.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(bytes: &[u8], filter: &FilterName, roots: &[String]) -> Result<Pin, String> {
        let (loose, blob) = Loose::parse(bytes, filter, roots)?;
        Ok(Pin {
            blob,
            until: loose.until,
            pinned_at: loose.pinned_at,
            pinned_by: loose.pinned_by,
            reason: loose.reason,
        })
    }

    /// The record as it is stored: JSON that a person can edit.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

impl HistoryEvent {
    /// Reads a stored history record.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<HistoryEvent, String> {
        serde_json::from_slice(bytes).map_err(|e| wrong_json(&e))
    }

    /// The record as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}

/// The parser may quote a complete record: its message is cut and redacted.
fn wrong_json(e: &serde_json::Error) -> String {
    format!("its JSON is wrong: {}", sanitize(&e.to_string()))
}

fn to_json(record: &impl Serialize) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec_pretty(record).expect("records hold only strings and numbers");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rt() -> FilterName {
        "rt".parse().unwrap()
    }

    fn key(day: &str) -> BlobKey {
        BlobKey { filter: rt(), day: day.parse().unwrap(), digest: Digest::new([0xab; 32]) }
    }

    #[test]
    fn a_pointer_survives_its_own_json() {
        let pointer = Pointer {
            bytes: Some(273_691_542),
            ids: Some(300_000_000),
            previous: Some(key("2026-11-18")),
            published_at: Some("2026-11-19T02:14:00Z".parse().unwrap()),
            published_by: Some("ops@host".into()),
            kind: Some(EventKind::Build),
            reason: Some("late \"files\"\n".into()),
            ..Pointer::to(key("2026-11-19"))
        };
        assert_eq!(Pointer::parse(&pointer.to_bytes(), &rt(), &[]), Ok(pointer));
    }

    #[test]
    fn a_plain_line_is_a_pointer_and_a_pin() {
        let line = format!(" {}\r\n", key("2026-11-18"));
        assert_eq!(Pointer::parse(line.as_bytes(), &rt(), &[]), Ok(Pointer::to(key("2026-11-18"))));
        assert_eq!(Pin::parse(line.as_bytes(), &rt(), &[]).unwrap().blob, key("2026-11-18"));
    }

    /// A later version may write others, and every server that runs has to follow it.
    #[test]
    fn a_field_that_decides_nothing_stops_no_pointer() {
        let blob = key("2026-11-18");
        for field in [
            "\"act\": \"import\"",
            "\"bytes\": 1.5",
            "\"bytes\": 1e999",
            "\"ids\": \"many\"",
            "\"published_at\": \"2026-11-19 02:00\"",
            "\"reason\": {}",
            "\"later\": [1]",
        ] {
            let text = format!("{{\"blob\": \"{blob}\", {field}}}");
            let parsed = Pointer::parse(text.as_bytes(), &rt(), &[]);
            assert_eq!(parsed, Ok(Pointer::to(blob.clone())), "{field}");
        }
        // When a pin ends decides, and so does what a prune keeps.
        for field in ["\"until\": \"soon\"", "\"previous\": 5"] {
            let text = format!("{{\"blob\": \"{blob}\", {field}}}");
            assert!(Pin::parse(text.as_bytes(), &rt(), &[]).is_err(), "{field}");
        }
    }

    #[test]
    fn garbage_is_named_and_never_a_pointer() {
        let blob = key("2026-11-18");
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"\xff\xfe", "UTF-8"),
            (b"{}", "missing field `blob`"),
            (b"{\"blob\": 7}", "invalid type"),
            (b"hello", "does not name a blob"),
            (b"a\nb", "neither JSON nor one line"),
            (format!("{{\"blob\":\"{blob}\",\"day\":\"2026-11-19\"}}").as_bytes(), "field \"day\""),
            (
                format!("{{\"blob\":\"{blob}\",\"digest\":\"{}\"}}", "cd".repeat(32)).as_bytes(),
                "field \"digest\"",
            ),
            (&vec![b'x'; 70_000], "more than 65536"),
        ] {
            let error = Pointer::parse(bytes, &rt(), &[]).unwrap_err();
            assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        }
    }
}
