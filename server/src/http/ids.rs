//! Bytes of a request → IDs. Whatever the bytes are, there are IDs in them; legal or not is the filter's
//! business. The fuzz targets include this file, so it names nothing of ours.

use percent_encoding::percent_decode_str;

/// The bytes of an ID that stands percent-encoded in a path.
pub(crate) fn decode_id(segment: &str) -> Vec<u8> {
    percent_decode_str(segment).collect()
}

/// The IDs of a body: separated by line feeds; one at the very end closes the last and begins none.
pub(crate) fn split_ids(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ids = body.strip_suffix(b"\n").unwrap_or(body).split(|byte| *byte == b'\n');
    ids.take(if body.is_empty() { 0 } else { usize::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_lies_between_line_feeds() {
        let split = |body: &str| {
            split_ids(body.as_bytes())
                .map(|id| String::from_utf8(id.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split("a"), ["a"]);
        assert_eq!(split("a\n"), ["a"]);
        assert_eq!(split("a\r\n\nb"), ["a\r", "", "b"]);
        assert_eq!(split("\n"), [""]);
        assert_eq!(split("a\n\n"), ["a", ""]);
    }
}
