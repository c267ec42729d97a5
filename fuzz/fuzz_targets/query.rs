//! A lookup: an ID percent-encoded in a path, and the IDs of a body. The first line is the path's.

#![no_main]

use std::sync::LazyLock;

use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use libfuzzer_sys::fuzz_target;

#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../server/src/http/blocks.rs"]
mod blocks;
#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../server/src/http/ids.rs"]
#[allow(dead_code)]
mod ids;

static FILTER: LazyLock<Filter> = LazyLock::new(|| {
    let shape = Shape::for_ids(Layout::Blocked, 1_000, 0.03).expect("a shape");
    let mut filter = FilterMut::new(shape).expect("a small buffer");
    (0..1_000_u32).for_each(|n| filter.insert(Xxh3::of(n.to_string().as_bytes())));
    filter.freeze()
});

fuzz_target!(|input: &[u8]| {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (line, body) = (&input[..at], input.get(at + 1..).unwrap_or_default());
    // A request's path is text, or hyper would have refused it.
    if let Ok(segment) = std::str::from_utf8(line) {
        match ids::decode_id(segment) {
            Ok(id) => {
                assert!(id.len() <= segment.len());
                if !segment.contains('%') {
                    assert_eq!(id, line);
                }
                FILTER.contains(&id);
            }
            Err(_) => assert!(segment.contains('%')),
        }
    }
    let ids: Vec<&[u8]> = ids::split_ids(body).collect();
    // The IDs with a line feed between them are the body, but for one at its very end.
    let joined = ids.join(&b'\n');
    assert_eq!(joined, body.strip_suffix(b"\n").unwrap_or(body));
    assert_eq!(ids.is_empty(), body.is_empty());
    // They are the same in blocks, whatever pieces the body comes in, but for lines that no ID is
    // as long as.
    let mut lines = ids::Lines::default();
    let blocks = blocks::Blocks::new(body.len() / 1024 + 2, 2048);
    body.chunks(line.len() + 1)
        .for_each(|piece| lines.push(piece, &blocks).expect("blocks enough"));
    let mut whole = ids.iter();
    for block in lines.into_blocks() {
        for id in ids::split_ids(&block) {
            let is = whole.next().expect("no more IDs than the body has");
            assert!(id == *is || id.len() > 1024 && is.starts_with(id));
        }
    }
    assert_eq!(whole.next(), None);
    let mut answers = vec![false; ids.len()];
    FILTER.contains_batch(&ids, &mut answers);
    for (id, seen) in ids.iter().zip(answers) {
        assert_eq!(FILTER.contains(id), seen);
        assert!(!seen || (1..=1024).contains(&id.len()), "an illegal ID was answered yes");
    }
});
