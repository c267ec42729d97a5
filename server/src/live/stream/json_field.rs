//! The ID in one field of a JSON object. What is in the other fields is of no concern: texts that
//! are cut inside a character, numbers of any size and deep values are common in events.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The text, or the integer in decimal, in this field of a JSON object.
pub(super) fn id_in(json: &[u8], field: &str) -> Option<String> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let found = Deserializer::deserialize_map(&mut deserializer, FieldVisitor(field)).ok()?;
    deserializer.end().ok()?;
    let raw = found?.get();
    if raw.starts_with('"') {
        return serde_json::from_str(raw).ok();
    }
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| if digits == "0" { digits } else { raw }.to_owned())
}

/// Returns the value of a field as it is written; of several, that of the last.
struct FieldVisitor<'a>(&'a str);

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = map.next_key_seed(IsName(self.0))? {
            if is_wanted {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Returns whether a name is this one.
struct IsName<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        // As bytes: names need not be UTF-8, either.
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_whatever_the_other_fields_have() {
        let deep = format!(r#"{{"n":{}1{},"user":"a"}}"#, "[".repeat(10_000), "]".repeat(10_000));
        let big = "170141183460469231731687303715884105728";
        for (json, id) in [
            (r#"{"user":"a"}"#, Some("a")),
            (r#" { "n" : [1, {"user":"b"}], "user" : "a" } "#, Some("a")),
            (r#"{"user":"\u00e9\n","user":"last"}"#, Some("last")),
            (r#"{"us\u0065r":"\u00e9\n"}"#, Some("é\n")),
            (r#"{"n":"\ud83d","\ud83d":0,"user":"a"}"#, Some("a")),
            (r#"{"n":1e999,"user":-17}"#, Some("-17")),
            (&format!(r#"{{"user":{big}}}"#), Some(big)),
            (&deep, Some("a")),
            (r#"{"user":"\ud83d"}"#, None),
            (r#"{"user":1.0}"#, None),
            (r#"{"user":1e3}"#, None),
            (r#"{"user":-0}"#, Some("0")),
            (r#"{"n":NaN,"user":"a"}"#, None),
            (r#"{"user":null}"#, None),
            (r#"{"user":["a"]}"#, None),
            (r#"{"user":{}}"#, None),
            (r#"{"n":1}"#, None),
            (r#"{"user":"a"} more"#, None),
            (r#"{"user":"a""#, None),
            (r#"["user"]"#, None),
            ("", None),
        ] {
            assert_eq!(id_in(json.as_bytes(), "user").as_deref(), id, "{json:.80}");
        }
        assert_eq!(id_in(b"{\"n\":\"\xff\",\"\xff\":1,\"user\":\"a\"}", "user").unwrap(), "a");
        assert_eq!(id_in(b"{\"user\":\"\xff\"}", "user"), None);
    }
}
