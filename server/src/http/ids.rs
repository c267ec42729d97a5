//! The IDs of a request: from the segment of a path, or from the lines of a body. Any bytes parse;
//! the filter decides whether an ID is valid. The fuzz targets include this file and `blocks`, so
//! these two use nothing else of the server.

use bloomsday_common::hash::ID_BYTES;
use memchr::{memchr, memchr_iter, memrchr};
use percent_encoding::percent_decode_str;

use super::blocks::{Block, Blocks};

/// How much is kept of a line that is longer than any valid ID: enough to be invalid, also without
/// a CR at its end.
const MAX_LINE_BYTES: usize = *ID_BYTES.end() + 2;

/// The bytes of an ID from a URL, where it is percent-encoded.
///
/// # Errors
/// In words: a `%` without two hexadecimal digits after it. To take it as it is would look up
/// another ID than the client means, or this one only for as long as no digits follow.
pub(crate) fn decode_id(encoded: &str) -> Result<Vec<u8>, &'static str> {
    let mut after = encoded.split('%').skip(1).map(str::as_bytes);
    if after
        .all(|after| matches!(after, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
    {
        Ok(percent_decode_str(encoded).collect())
    } else {
        Err("a % in the ID has no two hexadecimal digits after it: write % as %25")
    }
}

/// An ID of a body whose lines end in CRLF.
pub(crate) fn without_return(id: &[u8]) -> &[u8] {
    id.strip_suffix(b"\r").unwrap_or(id)
}

/// The lines of a body as they arrive, in blocks. A block is larger than the longest ID, and no
/// line is in two.
#[derive(Default)]
pub(crate) struct Lines {
    blocks: Vec<Block>,
    /// Whether the last block ends with the kept part of a long line, whose rest is skipped.
    skips: bool,
    /// The number of line ends, and the number of those that are CRLF.
    ended: u64,
    ended_by_crlf: u64,
    /// The last byte so far.
    last: Option<u8>,
}

/// The line ends of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// LF: a CR before one belongs to the ID.
    Lf,
    /// CRLF at every line end: no CR belongs to an ID, nor does that of an open last line.
    CrLf,
    /// Both: it is ambiguous whether a CR belongs to an ID.
    Mixed,
}

impl Lines {
    /// The line ends of the complete body.
    pub(crate) fn ends(&self) -> LineEnds {
        match self.ended_by_crlf {
            0 => LineEnds::Lf,
            crlf if crlf == self.ended => LineEnds::CrLf,
            _ => LineEnds::Mixed,
        }
    }

    fn count_ends(&mut self, bytes: &[u8]) {
        for end in memchr_iter(b'\n', bytes) {
            let before = end.checked_sub(1).map_or(self.last, |before| Some(bytes[before]));
            self.ended += 1;
            self.ended_by_crlf += u64::from(before == Some(b'\r'));
        }
        self.last = bytes.last().copied().or(self.last);
    }

    /// Adds more of the body; `None` when the pool has no block for it.
    pub(crate) fn push(&mut self, mut bytes: &[u8], blocks: &Blocks) -> Option<()> {
        self.count_ends(bytes);
        while !bytes.is_empty() {
            if self.skips {
                let Some(end) = memchr(b'\n', bytes) else { break };
                (self.skips, bytes) = (false, &bytes[end..]);
            }
            if self.blocks.last().is_none_or(|last| last.remaining() == 0) {
                self.start_block(blocks)?;
                continue;
            }
            bytes = &bytes[self.blocks.last_mut()?.fill(bytes)..];
        }
        Some(())
    }

    /// Starts a new block. The unfinished line at the end of the full one moves to it.
    fn start_block(&mut self, blocks: &Blocks) -> Option<()> {
        let Some(full) = self.blocks.last_mut() else {
            self.blocks.push(blocks.take()?);
            return Some(());
        };
        let begin = memrchr(b'\n', full).map_or(0, |end| end + 1);
        let kept = (full.len() - begin).min(MAX_LINE_BYTES);
        self.skips = kept == MAX_LINE_BYTES;
        if begin > 0 {
            let mut next = blocks.take()?;
            next.fill(&full[begin..begin + kept]);
            full.truncate(begin);
            self.blocks.push(next);
        } else {
            full.truncate(kept);
        }
        self.blocks.last().is_some_and(|last| last.remaining() > 0).then_some(())
    }

    /// The blocks of the complete body, in order.
    pub(crate) fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.blocks.into_iter()
    }
}

/// The IDs of a block, separated by line feeds. A line feed at the end closes the last ID and
/// starts none.
pub(crate) fn split_ids(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let open = (!block.is_empty() && !block.ends_with(b"\n")).then_some(block.len());
    memchr_iter(b'\n', block).chain(open).scan(0, |begin, end| {
        let id = &block[*begin..end];
        *begin = end + 1;
        Some(id)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_percent_sign_of_an_encoded_id_has_two_digits_after_it() {
        for (encoded, id) in [("", ""), ("a", "a"), ("%41%2f%25", "A/%"), ("%FF", "\u{ff}")] {
            let bytes: Vec<u8> = id.chars().map(|c| c as u8).collect();
            assert_eq!(decode_id(encoded), Ok(bytes));
        }
        for wrong in ["%", "100%", "%4", "%4g", "%%41", "a%zzb"] {
            assert!(decode_id(wrong).is_err(), "{wrong}");
        }
    }

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

    #[test]
    fn line_ends_are_recognized_for_every_split_of_a_body() {
        let blocks = Blocks::new(10, 2048);
        for (body, ends) in [
            ("", LineEnds::Lf),
            ("a", LineEnds::Lf),
            ("a\r", LineEnds::Lf),
            ("a\nb\r", LineEnds::Lf),
            ("a\rb\n", LineEnds::Lf),
            ("a\r\n", LineEnds::CrLf),
            ("\r\n", LineEnds::CrLf),
            ("a\r\nb", LineEnds::CrLf),
            ("a\r\r\nb\r", LineEnds::CrLf),
            ("a\r\n\n", LineEnds::Mixed),
            ("\na\r\n", LineEnds::Mixed),
        ] {
            for size in 1..=body.len().max(1) {
                let mut lines = Lines::default();
                body.as_bytes().chunks(size).for_each(|p| lines.push(p, &blocks).unwrap());
                assert_eq!(lines.ends(), ends, "{body:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_body_without_room_is_refused_and_leaves_its_blocks() {
        let blocks = Blocks::new(2, 2048);
        let mut lines = Lines::default();
        assert!(lines.push(&[b'\n'; 4096], &blocks).is_some());
        assert!(lines.push(b"a", &blocks).is_none());
        drop(lines);
        assert!(blocks.take().is_some());
    }

    #[test]
    fn a_line_that_no_id_is_as_long_as_takes_no_more_than_a_block() {
        let blocks = Blocks::new(1, 2048);
        let mut lines = Lines::default();
        for _ in 0..1_000 {
            assert!(lines.push(&[b'x'; 1_000], &blocks).is_some());
        }
        assert!(lines.push(b"\na", &blocks).is_some());
        let block = lines.into_blocks().next().unwrap();
        let lengths: Vec<usize> = split_ids(&block).map(<[u8]>::len).collect();
        assert_eq!(lengths, [MAX_LINE_BYTES, 1]);

        // What is cut right after a CR is not taken for a valid ID and the end of its line.
        let blocks = Blocks::new(1, 2048);
        let mut lines = Lines::default();
        let line = [&[b'x'; 1_024][..], b"\r", &[b'x'; 4_000], b"\r\n"].concat();
        assert!(lines.push(&line, &blocks).is_some() && lines.ends() == LineEnds::CrLf);
        let block = lines.into_blocks().next().unwrap();
        let longest = split_ids(&block).map(|id| without_return(id).len()).max();
        assert!(longest.unwrap() > *ID_BYTES.end());
    }

    proptest! {
        #[test]
        fn blocks_have_the_ids_of_the_body_whatever_pieces_it_comes_in(
            lines in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(b'a'..=b'z', 0..40),
                    prop::collection::vec(b'a'..=b'z', 900..1_100),
                    prop::collection::vec(b'a'..=b'z', 1_900..4_200),
                ],
                0..60,
            ),
            closed: bool,
            pieces in prop::collection::vec(1..3_000_usize, 1..20),
        ) {
            let mut body = lines.join(&b'\n');
            if closed {
                body.push(b'\n');
            }
            let blocks = Blocks::new(1_000, 2048);
            let mut arrived = Lines::default();
            let (mut rest, mut pieces) = (&body[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
                arrived.push(piece, &blocks).unwrap();
                rest = later;
            }
            let mut split = split_ids(&body);
            for block in arrived.into_blocks() {
                for id in split_ids(&block) {
                    let is = split.next().unwrap();
                    prop_assert!(id == is || id.len() > 1024 && is.starts_with(id));
                }
            }
            prop_assert_eq!(split.next(), None);
        }
    }
}
