//! A blob whose digest fits, whatever is in it: so that everything behind the digest is reached.
//!
//! The input is a blob without its last 32 bytes.

#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use bloomsday_common::blob::{self, RawBlob};
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::memory::Buffer;
use libfuzzer_sys::fuzz_target;

/// More than a batch prefetches ahead, and short: a blob's own probes are of every length.
static IDS: LazyLock<Vec<String>> = LazyLock::new(|| (0..40).map(|n| n.to_string()).collect());

thread_local! {
    /// The memory of the input before: to map it anew takes as long as to read a header.
    static SPARE: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

fuzz_target!(|content: &[u8]| {
    let bytes = content.len() + Digest::BYTES;
    let mut memory = Buffer::reuse(SPARE.take(), bytes).expect("a small buffer");
    memory[..content.len()].copy_from_slice(content);
    let digest = blob::digest_of(&memory);
    memory[content.len()..].copy_from_slice(digest.as_bytes());
    // What cannot even be named is refused by `open` too; under any name.
    let Ok(key) = blob::key_of(&memory, "input") else {
        let key = BlobKey {
            filter: "rt".parse().expect("a filter"),
            day: "2026-11-19".parse().expect("a day"),
            digest,
        };
        assert!(blob::open(RawBlob::of(memory), &key).is_err());
        return;
    };
    assert_eq!(key.digest, digest);
    let Ok((header, filter)) = blob::open(RawBlob::of(memory), &key) else { return };
    // Every answer is an answer, the batch's too, and the header says what the filter is.
    assert_eq!((header.shape, header.ones), (filter.shape(), filter.count_ones()));
    let mut answers = [false; 40];
    filter.contains_batch(&IDS, &mut answers);
    IDS.iter().zip(answers).for_each(|(id, seen)| assert_eq!(filter.contains(id.as_bytes()), seen));
    // There is one way to write a blob: what was accepted is what would be written, but for the
    // number of an older version.
    let encoded = blob::encode(&header, &filter);
    let mut written = encoded.parts()[..2].concat();
    if blob::version(content) == Some(blob::VERSION) {
        assert_eq!(encoded.key(), &key);
    }
    let version = blob::MAGIC.len()..blob::MAGIC.len() + size_of::<u16>();
    written[version.clone()].copy_from_slice(&content[version]);
    assert_eq!(written, content);
    SPARE.set(Some(filter.into_memory()));
});
