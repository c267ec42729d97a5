//! [`Spark`]: the hash of `org.apache.spark.util.sketch.BloomFilter`, for the layouts `spark1` and
//! `spark2`.

use super::IdHash;
use crate::filter::layout::Layout;

/// Two hashes of 32 bits by Spark's own MurmurHash3: the first with the seed 0 in the high half,
/// the second with the first as its seed in the low half. `VERSION` is 1 or 2, that of Spark's
/// filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Spark<const VERSION: u8>(pub u64);

impl<const VERSION: u8> Spark<VERSION> {
    /// The two hashes, signed as Java has them.
    #[inline(always)]
    pub(crate) fn halves(self) -> (i32, i32) {
        ((self.0 >> 32) as i32, self.0 as i32)
    }
}

impl<const VERSION: u8> IdHash for Spark<VERSION> {
    const LAYOUT: Layout = if VERSION == 1 { Layout::Spark1 } else { Layout::Spark2 };

    fn of(id: &[u8]) -> Spark<VERSION> {
        let first = murmur3(id, 0);
        Spark(u64::from(first) << 32 | u64::from(murmur3(id, first)))
    }

    #[inline(always)]
    fn high_bits(self) -> u64 {
        self.0
    }
}

/// Spark's `Murmur3_x86_32.hashUnsafeBytes`. It is not MurmurHash3 x86 32: each byte after the last
/// four is sign-extended and mixed as a word of its own.
fn murmur3(id: &[u8], seed: u32) -> u32 {
    let (words, tail) = id.as_chunks::<4>();
    let mut hash = words.iter().fold(seed, |hash, word| mix(hash, u32::from_le_bytes(*word)));
    hash = tail.iter().fold(hash, |hash, byte| mix(hash, *byte as i8 as u32));
    hash ^= id.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[inline(always)]
fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}
