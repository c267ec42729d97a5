//! The `guava` layout: the classic Bloom filter, byte for byte what Guava's `BloomFilter.writeTo`
//! writes with `Funnels.stringFunnel(UTF_8)` and the strategy `MURMUR128_MITZ_64`.
//!
//! The body is the file: `i8` strategy (1), `u8` probes, `i32` big-endian count of words, then the
//! 64-bit words, each big-endian. Bit `i` is bit `i & 63` of word `i >> 6`.

use super::Shape;
use crate::hash::Murmur3;

/// Strategy, probes and count of words.
pub(crate) const HEADER_BYTES: usize = 6;
/// `BloomFilterStrategies.MURMUR128_MITZ_64`, the only one Guava has written since 2013.
const STRATEGY: u8 = 1;
pub(crate) const MAX_PROBES: u32 = 255;
pub(crate) const MAX_WORDS: u64 = i32::MAX as u64;

pub(crate) fn header(shape: Shape) -> [u8; HEADER_BYTES] {
    let words = i32::try_from(shape.units()).expect("a guava shape has at most i32::MAX words");
    let [a, b, c, d] = words.to_be_bytes();
    [STRATEGY, shape.probes() as u8, a, b, c, d]
}

/// The number of words and of probes that the header of a Guava file states, or why it is not one.
pub(crate) fn parse_header(file: &[u8]) -> Result<(u64, u32), String> {
    let Some((&[strategy, probes, a, b, c, d], words)) = file.split_first_chunk() else {
        return Err(format!("it has {} bytes, fewer than the 6 of a header", file.len()));
    };
    let stated = i32::from_be_bytes([a, b, c, d]);
    if strategy != STRATEGY {
        return Err(format!("its strategy is {strategy}; only 1 (MURMUR128_MITZ_64) is known"));
    }
    if probes == 0 || stated <= 0 {
        return Err(format!("it states {probes} probes and {stated} words"));
    }
    if words.len() as u64 != 8 * stated as u64 {
        let bytes = words.len();
        return Err(format!("it states {stated} words of 8 bytes, but {bytes} bytes follow"));
    }
    Ok((stated as u64, u32::from(probes)))
}

/// The bits an ID's hash tests, in order.
#[inline(always)]
pub(crate) fn bits_of(Murmur3(h1, h2): Murmur3, shape: Shape) -> impl Iterator<Item = u64> {
    let bits = shape.bits();
    let mut combined = h1;
    (0..shape.probes()).map(move |_| {
        let bit = (combined & i64::MAX as u64) % bits;
        combined = combined.wrapping_add(h2);
        bit
    })
}

/// Where bit `i` lies in the body. Words are big-endian, so the byte order within a word is turned.
#[inline(always)]
fn place(bit: u64) -> (usize, u8) {
    (HEADER_BYTES + ((bit >> 3) ^ 7) as usize, 1 << (bit & 7))
}

#[inline]
pub(crate) fn contains(body: &[u8], shape: Shape, hash: Murmur3) -> bool {
    bits_of(hash, shape).all(|bit| {
        let (byte, mask) = place(bit);
        body[byte] & mask != 0
    })
}

#[inline]
pub(crate) fn insert(body: &mut [u8], shape: Shape, hash: Murmur3) {
    for bit in bits_of(hash, shape) {
        let (byte, mask) = place(bit);
        body[byte] |= mask;
    }
}
