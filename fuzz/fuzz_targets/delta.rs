//! Deltas: whatever is applied gives the right blob or an error, and two blobs give a delta that is
//! applied. The first byte tells whether a fitting head is put before the others, whether the
//! digest is made right, and whether the input is the XOR of two blobs instead.

#![no_main]

use std::sync::Arc;

use bloomsday_common::blob;
use bloomsday_common::delta::{self, Applier, Content};
use bloomsday_common::digest::Digest;
use bloomsday_common::memory::Buffer;
use libfuzzer_sys::fuzz_target;

/// How many bytes the blobs have before their digests.
const CONTENT: usize = 1_000;

/// Bytes with their digest after them.
fn sealed(mut content: Vec<u8>) -> (Vec<u8>, Digest) {
    content.extend([0; Digest::BYTES]);
    let digest = blob::digest_of(&content);
    let end = content.len() - Digest::BYTES;
    content[end..].copy_from_slice(digest.as_bytes());
    (content, digest)
}

fn apply(base: &[u8], from: Digest, to: Digest, file: &[u8]) -> Result<Vec<u8>, String> {
    let mut applier = Applier::new(Arc::new(base.to_vec()), from, to, Buffer::zeroed)?;
    file.chunks(97).try_for_each(|piece| applier.push(piece))?;
    applier.finish().map(|raw| raw.memory.to_vec())
}

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let base: Vec<u8> = (0..CONTENT).map(|i| (i * 7) as u8).collect();
    let (a, from) = sealed(base.clone());
    if how & 4 == 4 {
        let mut changed = base;
        changed.iter_mut().zip(rest).for_each(|(byte, other)| *byte ^= other);
        let (b, to) = sealed(changed);
        match delta::make(Content::of(&a, from), Content::of(&b, to), u64::MAX) {
            Ok(None) => unreachable!("there is no limit"),
            Ok(Some(made)) => {
                assert_eq!(apply(&a, from, to, &made.bytes), Ok(b.clone()));
                assert_eq!(apply(&b, to, from, &made.bytes), Ok(a));
                assert!(delta::summary(&made.bytes, "input").is_ok_and(|s| s.flips == made.flips));
            }
            Err(_) => assert_eq!(from, to),
        }
        return;
    }
    // The last bit of the blob flipped: what the seed does.
    let mut changed = base;
    changed[CONTENT - 1] ^= 0x80;
    let (b, to) = sealed(changed);
    let mut file = Vec::new();
    if how & 1 == 1 {
        let good = delta::make(Content::of(&a, from), Content::of(&b, to), u64::MAX)
            .expect("they differ")
            .expect("no limit");
        file.extend_from_slice(&good.bytes[..good.bytes.len().min(88)]);
    }
    file.extend_from_slice(rest);
    if how & 2 == 2 {
        (file, _) = sealed(file);
    }
    let _ = delta::summary(&file, "input");
    if let Ok(bytes) = apply(&a, from, to, &file) {
        assert_eq!(bytes, b);
    }
});
