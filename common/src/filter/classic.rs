//! The classic Bloom filters of other systems, byte for byte as they write them: `guava`, `spark1`,
//! `spark2`.
//!
//! A body is the other system's file: a header, then 64-bit words, each big-endian. Bit `i` is bit
//! `i & 63` of word `i >> 6`.
//!
//! | layout | file | header |
//! |---|---|---|
//! | `guava` | Guava's `BloomFilter.writeTo`, `stringFunnel(UTF_8)`, `MURMUR128_MITZ_64` | `u8` 1, `u8` probes, `i32` words |
//! | `spark1` | Spark's `BloomFilter.writeTo`, version 1 | `i32` 1, `i32` probes, `i32` words |
//! | `spark2` | the same, version 2 | `i32` 2, `i32` probes, `i32` seed, `i32` words |

use super::{Layout, Shape};
use crate::hash::{IdHash, Murmur3, Spark};

/// `BloomFilterStrategies.MURMUR128_MITZ_64`, the only one Guava has written since 2013.
const GUAVA_STRATEGY: u8 = 1;
/// So many that the test vector still fits into the record of a blob.
pub(crate) const MAX_PROBES: u32 = 125;
const MAX_WORDS: u64 = i32::MAX as u64;
/// Version 1 of Spark computes bits in 32 bits: it reaches no more of them.
const MAX_WORDS_SPARK1: u64 = 1 << (31 - 6);

/// How many bytes are before the words.
pub(crate) fn header_bytes(layout: Layout) -> usize {
    match layout {
        Layout::Blocked => 0,
        Layout::Guava => 6,
        Layout::Spark1 => 12,
        Layout::Spark2 => 16,
    }
}

/// The most words that the format can address.
pub(crate) fn max_words(layout: Layout) -> u64 {
    if layout == Layout::Spark1 { MAX_WORDS_SPARK1 } else { MAX_WORDS }
}

/// What is before the words of a filter of this shape.
pub(crate) fn header(shape: Shape) -> Vec<u8> {
    let probes = shape.probes().to_be_bytes();
    let words = i32::try_from(shape.units()).expect("a shape has at most i32::MAX words");
    let before = match shape.layout() {
        Layout::Blocked => return Vec::new(),
        Layout::Guava => vec![GUAVA_STRATEGY, probes[3]],
        Layout::Spark1 => [1_i32.to_be_bytes(), probes].concat(),
        Layout::Spark2 => [2_i32.to_be_bytes(), probes, [0; 4]].concat(),
    };
    [&before[..], &words.to_be_bytes()].concat()
}

/// The shape of a file that Guava wrote, or why it is not one.
pub(crate) fn guava_shape(file: &[u8]) -> Result<Shape, String> {
    let Some((&[strategy, probes, a, b, c, d], words)) = file.split_first_chunk() else {
        return Err(format!("it has {} bytes, fewer than the 6 of a header", file.len()));
    };
    if strategy != GUAVA_STRATEGY {
        return Err(format!("its strategy is {strategy}; only 1 (MURMUR128_MITZ_64) is known"));
    }
    shape(Layout::Guava, i32::from(probes), i32::from_be_bytes([a, b, c, d]), words)
}

/// The shape of a file that Spark wrote, or why it is not one.
pub(crate) fn spark_shape(file: &[u8]) -> Result<Shape, String> {
    let cut = || format!("it has {} bytes, fewer than a header", file.len());
    let number = |i: usize| {
        let bytes = file.get(4 * i..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| i32::from_be_bytes(*bytes)).ok_or_else(cut)
    };
    match number(0)? {
        1 => shape(Layout::Spark1, number(1)?, number(2)?, &file[12..]),
        2 if number(2)? != 0 => {
            Err(format!("its seed is {}; only filters with the seed 0 are read", number(2)?))
        }
        2 => shape(Layout::Spark2, number(1)?, number(3)?, &file[16..]),
        other => Err(format!("its version is {other}; only 1 and 2 are known")),
    }
}

fn shape(layout: Layout, probes: i32, stated: i32, words: &[u8]) -> Result<Shape, String> {
    let (Ok(n_probes @ 1..), Ok(n_words @ 1..)) = (u32::try_from(probes), u64::try_from(stated))
    else {
        return Err(format!("it states {probes} probes and {stated} words"));
    };
    if words.len() as u64 != 8 * n_words {
        let bytes = words.len();
        return Err(format!("it states {stated} words of 8 bytes, but {bytes} bytes follow"));
    }
    Shape::new(layout, n_words, n_probes).map_err(|error| error.to_string())
}

/// The bits an ID's hash tests, in order.
pub(crate) fn bits_of<H: IdHash>(hash: H, shape: Shape) -> Vec<u64> {
    let mut bits = Vec::new();
    all_bits(hash, shape, |bit| {
        bits.push(bit);
        true
    });
    bits
}

/// Whether `test` is true for each bit that the hash tests, in order, until one is not.
#[inline(always)]
fn all_bits<H: IdHash>(hash: H, shape: Shape, mut test: impl FnMut(u64) -> bool) -> bool {
    let bits = shape.bits();
    let mut probes = 0..shape.probes();
    match H::LAYOUT {
        Layout::Blocked => panic!("`blocked` is no classic filter"),
        Layout::Guava => {
            let Murmur3(mut combined, step) = bytemuck::cast(hash);
            probes.all(|_| {
                let bit = (combined & i64::MAX as u64) % bits;
                combined = combined.wrapping_add(step);
                test(bit)
            })
        }
        Layout::Spark1 => {
            let (first, step) = bytemuck::cast::<H, Spark<1>>(hash).halves();
            probes.all(|i| {
                let combined = first.wrapping_add(step.wrapping_mul(i as i32 + 1));
                // Java's ~c for a negative one.
                test((combined ^ (combined >> 31)) as u64 % bits)
            })
        }
        Layout::Spark2 => {
            let (first, step) = bytemuck::cast::<H, Spark<2>>(hash).halves();
            let mut combined = i64::from(first).wrapping_mul(i64::from(i32::MAX));
            probes.all(|_| {
                combined = combined.wrapping_add(i64::from(step));
                test((combined ^ (combined >> 63)) as u64 % bits)
            })
        }
    }
}

/// Where bit `i` lies among the words. They are big-endian, so the byte order within a word is
/// turned.
#[inline(always)]
fn place(bit: u64) -> (usize, u8) {
    (((bit >> 3) ^ 7) as usize, 1 << (bit & 7))
}

#[inline]
pub(crate) fn contains<H: IdHash>(body: &[u8], shape: Shape, hash: H) -> bool {
    let words = &body[header_bytes(H::LAYOUT)..];
    all_bits(hash, shape, |bit| {
        let (byte, mask) = place(bit);
        words[byte] & mask != 0
    })
}

#[inline]
pub(crate) fn insert<H: IdHash>(body: &mut [u8], shape: Shape, hash: H) {
    let words = &mut body[header_bytes(H::LAYOUT)..];
    all_bits(hash, shape, |bit| {
        let (byte, mask) = place(bit);
        words[byte] |= mask;
        true
    });
}
