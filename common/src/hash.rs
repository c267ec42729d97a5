//! The bytes of an ID → its hash, one function for each layout. The only file that names xxhash.
//!
//! A layout owns its hash: `blocked` uses XXH3-64 with a fixed seed, `guava` MurmurHash3 x64 128,
//! `spark1` and `spark2` Spark's two of 32 bits. All are frozen: after a change, lookups in every
//! published blob would miss.

mod spark;

use std::ops::RangeInclusive;

use crate::filter::layout::Layout;
pub use spark::Spark;

/// How many bytes a valid ID has.
pub const ID_BYTES: RangeInclusive<usize> = 1..=1024;

/// The seed of XXH3-64: "Bloomsda" in ASCII. It is in every blob's header.
pub const XXH3_SEED: u64 = 0x426c_6f6f_6d73_6461;

/// Whether `id` has a valid length. A lookup of another ID is always a miss.
///
/// ```
/// use bloomsday_common::hash::is_valid_len;
///
/// assert!(is_valid_len(b"user-1"));
/// assert!(!is_valid_len(b"") && !is_valid_len(&[b'x'; 1025]));
/// ```
#[inline(always)]
pub fn is_valid_len(id: &[u8]) -> bool {
    // One comparison: 0 wraps around to the largest number.
    id.len().wrapping_sub(1) < *ID_BYTES.end()
}

/// The hash of an ID for one layout. Hashes are partitioned, counted and inserted in place of IDs.
///
/// Implemented by [`Xxh3`], [`Murmur3`] and [`Spark`] only.
///
/// ```
/// use bloomsday_common::filter::Layout;
/// use bloomsday_common::hash::{IdHash, Xxh3};
///
/// assert_eq!(Xxh3::LAYOUT, Layout::Blocked);
/// let mut with_prefix = Xxh3::hash_suffixes(b"user-");
/// assert_eq!(with_prefix(*b"00000001"), Xxh3::of(b"user-00000001"));
/// ```
pub trait IdHash: bytemuck::Pod + Ord + Send + Sync + 'static {
    /// The layout that this hash belongs to.
    const LAYOUT: Layout;
    /// Hashes the bytes of one ID.
    fn of(id: &[u8]) -> Self;
    /// Its high 64 bits, which are uniformly distributed: hashes are partitioned by them.
    fn high_bits(self) -> u64;

    /// Returns a function that hashes `head` followed by eight bytes: for many IDs with a common
    /// prefix.
    fn hash_suffixes(head: &[u8]) -> impl FnMut([u8; 8]) -> Self {
        let mut id = [head, &[0; 8]].concat();
        let at = head.len();
        move |end| {
            id[at..].copy_from_slice(&end);
            Self::of(&id)
        }
    }
}

/// XXH3-64 with [`XXH3_SEED`]: the hash of `blocked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Xxh3(pub u64);

impl Xxh3 {
    /// Hashes that are kept as words. Cost: none, they are not copied.
    pub fn from_words(words: &[u64]) -> &[Xxh3] {
        bytemuck::cast_slice(words)
    }
}

impl IdHash for Xxh3 {
    const LAYOUT: Layout = Layout::Blocked;

    #[inline(always)]
    fn of(id: &[u8]) -> Xxh3 {
        Xxh3(xxhash_rust::xxh3::xxh3_64_with_seed(id, XXH3_SEED))
    }

    #[inline(always)]
    fn high_bits(self) -> u64 {
        self.0
    }

    /// Cost: `head` is hashed once.
    fn hash_suffixes(head: &[u8]) -> impl FnMut([u8; 8]) -> Xxh3 {
        let mut prefix = xxhash_rust::xxh3::Xxh3::with_seed(XXH3_SEED);
        prefix.update(head);
        move |end| {
            let mut hasher = prefix.clone();
            hasher.update(&end);
            Xxh3(hasher.digest())
        }
    }
}

/// MurmurHash3 x64 128 with seed 0, its two halves: the hash of `guava`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Murmur3(pub u64, pub u64);

impl IdHash for Murmur3 {
    const LAYOUT: Layout = Layout::Guava;

    /// Austin Appleby's public-domain MurmurHash3 (2011), `MurmurHash3_x64_128`.
    fn of(id: &[u8]) -> Murmur3 {
        let (mut h1, mut h2) = (0u64, 0u64);
        let (blocks, tail) = id.as_chunks::<16>();
        for block in blocks {
            let k1 = u64::from_le_bytes(*block.first_chunk().expect("16 bytes begin with 8"));
            let k2 = u64::from_le_bytes(*block.last_chunk().expect("16 bytes end with 8"));
            h1 ^= mix1(k1);
            h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
            h2 ^= mix2(k2);
            h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
        }
        // Zero-padding is what the reference's fall-through switch computes; mixing a zero gives
        // zero.
        let mut padded = [0u8; 16];
        padded[..tail.len()].copy_from_slice(tail);
        h1 ^= mix1(u64::from_le_bytes(*padded.first_chunk().expect("16 bytes begin with 8")));
        h2 ^= mix2(u64::from_le_bytes(*padded.last_chunk().expect("16 bytes end with 8")));

        h1 ^= id.len() as u64;
        h2 ^= id.len() as u64;
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        h1 = finish(h1);
        h2 = finish(h2);
        h1 = h1.wrapping_add(h2);
        Murmur3(h1, h2.wrapping_add(h1))
    }

    #[inline(always)]
    fn high_bits(self) -> u64 {
        self.0
    }
}

/// One step of SplitMix64 (Steele, Lea & Flood 2014) from the state `x`: a bijection, so different
/// numbers give different numbers. For samples and tests; it is not the hash of any ID.
pub fn mix64(x: u64) -> u64 {
    let z = x.wrapping_add(SPLITMIX_GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Number `i` of the sequence that SplitMix64 makes from `seed`, counted from 0.
///
/// ```
/// use bloomsday_common::hash::{SplitMix64, splitmix64};
///
/// assert_eq!(splitmix64(0, 0), 0xe220_a839_7b1d_cdaf); // the published sequence
/// assert_ne!(splitmix64(0, 1), splitmix64(1, 1));
///
/// let mut sequence = SplitMix64::new(7);
/// assert_eq!([sequence.draw(), sequence.draw()], [splitmix64(7, 0), splitmix64(7, 1)]);
/// ```
pub fn splitmix64(seed: u64, i: u64) -> u64 {
    mix64(seed.wrapping_add(i.wrapping_mul(SPLITMIX_GAMMA)))
}

/// The sequence of [`splitmix64`], one number after the other. Not for secrets.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence that begins at `seed`.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let number = mix64(self.0);
        self.0 = self.0.wrapping_add(SPLITMIX_GAMMA);
        number
    }
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const SPLITMIX_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur3_gives_the_published_vectors() {
        // `mmh3.hash64(text, signed=False)` of Python's mmh3, and Guava's murmur3_128().
        let hex = |id: &str| {
            let Murmur3(h1, h2) = Murmur3::of(id.as_bytes());
            [h1.to_le_bytes(), h2.to_le_bytes()]
                .concat()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        };
        assert_eq!(hex(""), "00000000000000000000000000000000");
        assert_eq!(hex("user-1"), "7635ff124bcdac615250585e539d8d41");
        assert_eq!(
            hex("The quick brown fox jumps over the lazy dog"),
            "6c1b07bc7bbc4be347939ac4a93c437a"
        );
    }

    #[test]
    fn xxh3_is_frozen() {
        // XXH3_64bits_withSeed of the reference library (python-xxhash, `xxh3_64_intdigest`).
        assert_eq!(Xxh3::of(b"0123456789abcdef0123456789abcdef").0, 0x208b_9e02_93ec_de8a);
        assert_eq!(Xxh3::of(b"a").0, 0x4c40_79fb_278f_7850);
        assert_eq!(Xxh3::of(&[b'x'; 1024]).0, 0x3b2d_926d_0db8_846a);
    }

    #[test]
    fn short_ids_hash_as_the_library_hashes_them() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..=100 {
            for id in bytes.windows(len.max(1)).map(|window| &window[..len]) {
                let library = xxhash_rust::xxh3::xxh3_64_with_seed(id, XXH3_SEED);
                assert_eq!(Xxh3::of(id).0, library, "{id:x?}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_id_hashes_as_the_library_does(id in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..=100)) {
            let library = xxhash_rust::xxh3::xxh3_64_with_seed(&id, XXH3_SEED);
            proptest::prop_assert_eq!(Xxh3::of(&id).0, library);
        }
    }

    #[test]
    fn suffixes_hash_like_the_complete_id() {
        fn check<H: IdHash + std::fmt::Debug>() {
            // Around the places where XXH3 changes its algorithm, and its blocks of 256 and 1,024
            // bytes.
            for len in [0, 1, 8, 9, 120, 121, 232, 233, 248, 255, 256, 1016, 1024, 1025, 2050] {
                let head: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut of_end = H::hash_suffixes(&head);
                for end in [[0; 8], [255; 8], *b"Bloomsda", [0; 8]] {
                    assert_eq!(of_end(end), H::of(&[&head[..], &end].concat()), "{len}");
                }
            }
        }
        check::<Xxh3>();
        check::<Murmur3>();
    }

    #[test]
    fn valid_ids_have_1_to_1024_bytes() {
        let valid = |n: usize| is_valid_len(&vec![b'x'; n]);
        assert!(!valid(0) && valid(1) && valid(1024) && !valid(1025));
    }
}
