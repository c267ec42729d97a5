//! Round trips, damage, and how near a delta's size is to the entropy of what changed.

use std::sync::Arc;

use proptest::prelude::*;

use super::golomb::{Decoder, Encoder, best_divisor};
use super::*;
use crate::blob::{self, RawBlob};
use crate::hash::splitmix64;
use crate::memory::Buffer;

/// Bytes with their digest after them, like a blob.
fn sealed(content: &[u8]) -> (Vec<u8>, Digest) {
    let digest = Digest::new(*blake3::hash(content).as_bytes());
    ([content, digest.as_bytes()].concat(), digest)
}

fn apply(base: &[u8], file: &[u8], to: Digest, step: usize) -> Result<RawBlob, String> {
    let from = blob::digest_of(base);
    let mut applier = Applier::new(Arc::new(base.to_vec()), from, to, Buffer::zeroed)?;
    file.chunks(step.max(1)).try_for_each(|piece| applier.push(piece))?;
    applier.finish()
}

/// Flips about one bit in `every` of what comes after `start`.
fn flipped(content: &[u8], start: usize, every: u64, seed: u64) -> Vec<u8> {
    let mut changed = content.to_vec();
    for (i, byte) in changed.iter_mut().enumerate().skip(start) {
        for bit in 0..8 {
            let draw = splitmix64(seed, 8 * i as u64 + bit);
            *byte ^= u8::from(draw.is_multiple_of(every)) << bit;
        }
    }
    changed
}

/// Random bytes.
fn random(len: usize, seed: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|i| splitmix64(seed, i).to_le_bytes());
    words.take(len).collect()
}

/// Both directions, with the delta in pieces of `step` bytes.
#[track_caller]
fn assert_round_trip(a: &[u8], b: &[u8], step: usize) -> Made {
    let ((a, from), (b, to)) = (sealed(a), sealed(b));
    let made = make(Content::of(&a, from), Content::of(&b, to), u64::MAX).unwrap().unwrap();
    for (base, result, to) in [(&a, &b, to), (&b, &a, from)] {
        let raw = apply(base, &made.bytes, to, step).unwrap();
        assert!(*raw.memory == **result, "the bytes differ");
        let fetched = RawBlob::of(raw.memory);
        assert_eq!((raw.digest, raw.ones), (fetched.digest, fetched.ones));
    }
    let stated = summary(&made.bytes, "x.delta").unwrap();
    assert_eq!((stated.digests, stated.flips), (DeltaHead::order(from, to), made.flips));
    assert_eq!(stated.blob_bytes, a.len() as u64);
    made
}

#[test]
fn every_gap_is_read_as_it_was_written_with_every_divisor() {
    for divisor in (1..=70).chain([127, 128, 129, 1_000, 65_535, 65_536, 65_537, 1 << 24]) {
        let reach = 5 * u64::from(divisor);
        let mut gaps: Vec<u64> = (0..400).map(|i| splitmix64(1, i) % reach).collect();
        gaps.extend([0, 0, u64::from(divisor) - 1, u64::from(divisor), 100 * u64::from(divisor)]);
        for count in [0, 1, 2, gaps.len()] {
            let mut encoder = Encoder::new(divisor);
            gaps[..count].iter().for_each(|gap| encoder.push(*gap));
            let code = encoder.finish();
            let mut decoder = Decoder::new(divisor, &code, 1 << 40);
            for gap in &gaps[..count] {
                assert_eq!(decoder.next(), Some(*gap), "divisor {divisor}");
            }
            assert!(decoder.is_at_end(), "divisor {divisor}");
        }
    }
}

#[test]
fn a_gap_past_the_most_that_is_left_is_refused() {
    let mut encoder = Encoder::new(5);
    encoder.push(1_000_000);
    let code = encoder.finish();
    assert_eq!(Decoder::new(5, &code, 999_999).next(), None);
    assert_eq!(Decoder::new(5, &code, 1_000_000).next(), Some(1_000_000));
    assert_eq!(Decoder::new(5, &code[..code.len() - 1], 1 << 40).next(), None, "cut");
    assert_eq!(Decoder::new(5, &[0; 100], 1 << 40).next(), None, "no end");
}

#[test]
fn the_divisor_is_the_best_one() {
    // The length of a code of geometric gaps with this divisor, in bits for each gap.
    let cost = |p: f64, divisor: u32| {
        let b = (f64::from(divisor)).log2().ceil();
        let shorts = (2f64.powf(b) - f64::from(divisor)) as u32;
        let m = f64::from(divisor);
        let unary = 1.0 / (1.0 - (1.0 - p).powf(m));
        let in_period = |r: u32| (1.0 - p).powi(r as i32) * p / (1.0 - (1.0 - p).powf(m));
        let short: f64 = (0..shorts).map(in_period).sum();
        unary + if divisor == 1 { 0.0 } else { b - short }
    };
    for ones in [1_000u64, 6_800, 20_000, 66_000, 170_000, 300_000] {
        let p = ones as f64 / 1e6;
        let chosen = best_divisor(ones, 1_000_000);
        for other in [chosen.saturating_sub(1).max(1), chosen + 1] {
            assert!(cost(p, chosen) <= cost(p, other) + 1e-9, "{p}: {chosen} and {other}");
        }
    }
    assert_eq!((best_divisor(0, 100), best_divisor(100, 100), best_divisor(99, 100)), (1, 1, 1));
}

#[test]
fn blobs_of_any_length_and_churn_round_trip() {
    let lengths = [
        0,
        1,
        7,
        8,
        63,
        4_096,
        DigestTree::SUBTREE_BYTES - 1,
        DigestTree::SUBTREE_BYTES,
        DigestTree::SUBTREE_BYTES + 1,
    ];
    for (seed, len) in lengths.into_iter().chain([3 * DigestTree::SUBTREE_BYTES + 77]).enumerate() {
        let a = random(len, seed as u64);
        for every in [1, 2, 3, 10, 150, 10_000_000] {
            let mut b = flipped(&a, 0, every, 7);
            if a == b {
                // Blobs that are the same have no delta.
                let Some(last) = b.last_mut() else { continue };
                *last ^= 0x80;
            }
            assert_round_trip(&a, &b, 1 << 20);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_two_blobs_of_one_length_round_trip_however_the_delta_arrives(
        len in 1usize..20_000,
        (seed, every) in (any::<u64>(), 1u64..3_000),
        step in 1usize..5_000,
    ) {
        let a = random(len, seed);
        let mut b = flipped(&a, (seed % 7) as usize, every, seed);
        if a == b {
            b[len - 1] ^= 1;
        }
        assert_round_trip(&a, &b, step);
    }

    #[test]
    fn a_delta_with_any_damage_gives_the_right_blob_or_an_error(
        seed in any::<u64>(),
        kind in 0..4,
        trailer in any::<bool>(),
    ) {
        let a = random(9_000, seed);
        let b = flipped(&a, 0, 1 + seed % 500, seed);
        prop_assume!(a != b);
        let ((a, from), (b, to)) = (sealed(&a), sealed(&b));
        let mut file = make(Content::of(&a, from), Content::of(&b, to), u64::MAX).unwrap().unwrap().bytes;
        let place = (splitmix64(seed, 1) % file.len() as u64) as usize;
        match kind {
            0 => file[place] ^= 1 << (seed % 8),
            1 => file.truncate(place),
            2 => file.insert(place, seed as u8),
            _ => file[place] = file[place].wrapping_add(1 + seed as u8 % 255),
        }
        if trailer && file.len() > Digest::BYTES {
            // With a fitting digest of the file.
            let content = file.len() - Digest::BYTES;
            let digest = blake3::hash(&file[..content]);
            file[content..].copy_from_slice(digest.as_bytes());
        }
        if let Ok(raw) = apply(&a, &file, to, 1_000) {
            prop_assert!(*raw.memory == *b && raw.digest == to);
        }
        let _ = summary(&file, "x.delta");
    }
}

#[test]
fn a_part_that_changes_completely_is_stored_as_its_xor() {
    let a = random(100_000, 1);
    let b = random(100_000, 2);
    let made = assert_round_trip(&a, &b, 1 << 20);
    assert_eq!(made.bytes.len(), DeltaHead::BYTES + 12 + 100_000 + Digest::BYTES);
}

#[test]
fn a_delta_is_hardly_larger_than_the_entropy_of_what_changed() {
    let a = random(2 * DigestTree::SUBTREE_BYTES, 3);
    for (every, most) in [(3, 1.02), (6, 1.02), (15, 1.02), (150, 1.01), (1_000, 1.01)] {
        let made = assert_round_trip(&a, &flipped(&a, 0, every, 4), 1 << 20);
        let stated = summary(&made.bytes, "x.delta").unwrap();
        let ratio = made.bytes.len() as f64 / stated.entropy_bytes();
        assert!((0.99..most).contains(&ratio), "one bit in {every}: {ratio} of the entropy");
    }
}

#[test]
fn a_delta_that_would_be_too_large_is_given_up() {
    let (a, from) = sealed(&random(100_000, 1));
    let (b, to) = sealed(&random(100_000, 2));
    let within = |most| make(Content::of(&a, from), Content::of(&b, to), most).unwrap();
    let bytes = within(u64::MAX).unwrap().bytes.len() as u64;
    assert!(within(bytes).is_some() && within(bytes - 1).is_none());
}

#[test]
fn a_delta_of_other_blobs_is_refused_with_the_reason() {
    let contents: Vec<_> = (0..3).map(|seed| sealed(&random(5_000, seed))).collect();
    let [(a, from), (b, to), (_, other)] = &contents[..] else { unreachable!() };
    let file = make(Content::of(a, *from), Content::of(b, *to), u64::MAX).unwrap().unwrap().bytes;
    let refused = |base: &[u8], file: &[u8], to| apply(base, file, to, 100).unwrap_err();
    assert_eq!(refused(a, &file, *other), "it belongs to other blobs");
    let longer =
        make(Content::of(a, *from), Content::of(&random(5_001, 1), *to), u64::MAX).unwrap_err();
    assert!(longer.contains("the shape changed: 4") || longer.contains("5000 bytes"), "{longer}");
    assert_eq!(
        make(Content::of(a, *from), Content::of(a, *from), u64::MAX).unwrap_err(),
        "both are one blob"
    );
    assert_eq!(refused(a, &file[..file.len() - 1], *to), "its own digest is wrong");
    assert_eq!(refused(a, &file[..60], *to), "it is cut short");
    assert_eq!(refused(a, &[&file[..], &[0]].concat(), *to), "it goes on after its end");
    let mut newer = file.clone();
    newer[8] = 2;
    assert!(refused(a, &newer, *to).contains("version is 2"));
    // A base whose bytes changed in memory: the result's digest shows it.
    let mut damaged = a.clone();
    damaged[10] ^= 1;
    let mut applier = Applier::new(Arc::new(damaged), *from, *to, Buffer::zeroed).unwrap();
    applier.push(&file).unwrap();
    assert!(applier.finish().unwrap_err().contains("it gives a blob with the digest"));
}
