//! XXH3-64 of 17 to 64 bytes, the length of most IDs: 32 hex digits, the 36 characters of a UUID.
//!
//! The function is Yann Collet's XXH3 as he froze it in 2020, and tests hold it to the library's. What
//! differs is where the words of an ID meet those of the secret: in vector registers. While a question
//! waits for memory, the processor begins those behind it for as long as it has integer registers to give
//! out; this takes fewer of those, so more questions wait at a time.

use std::ops::RangeInclusive;

/// Sixteen bytes: what XXH3 takes of an ID at a time, and of its secret.
type Pair = [u8; 16];

/// `XXH_PRIME64_1`: what a length is multiplied with.
const PRIME_OF_LENGTH: u64 = 0x9e37_79b1_85eb_ca87;
/// `PRIME_MX1`: what the sum is multiplied with at the end.
const PRIME_OF_END: u64 = 0x1656_6791_9e37_79f9;

/// How many bytes most IDs have. One comparison then says that an ID is legal and nearly how it is hashed;
/// others go another way.
const USUAL_BYTES: RangeInclusive<usize> = 17..=64;

/// How many bytes most device IDs have: 32 hex digits. Where the length is known, nothing is left to choose.
pub(crate) const DEVICE_ID_BYTES: usize = 32;

/// Whether `id` has one of [`USUAL_BYTES`].
#[inline(always)]
pub(crate) fn is_short(id: &[u8]) -> bool {
    USUAL_BYTES.contains(&id.len())
}

/// The hash of an ID that [`is_short`]; `secret` is XXH3's own, with the seed in it.
#[inline(always)]
pub(super) fn hash(id: &[u8], secret: &[Pair; 4]) -> u64 {
    match <&[u8; DEVICE_ID_BYTES]>::try_from(id) {
        // Most of all: where the length is known, all that depends on it is a constant.
        Ok(id) => mixed(id, secret),
        Err(_) => mixed(id, secret),
    }
}

#[inline(always)]
fn mixed(id: &[u8], secret: &[Pair; 4]) -> u64 {
    let mut sum = (id.len() as u64).wrapping_mul(PRIME_OF_LENGTH);
    let mut add = |pair: Option<&Pair>, secret: &Pair| {
        sum = sum.wrapping_add(mix(pair.expect("an ID of usual length"), secret));
    };
    if id.len() > 32 {
        add(id[16..].first_chunk(), &secret[2]);
        add(id[..id.len() - 16].last_chunk(), &secret[3]);
    }
    add(id.first_chunk(), &secret[0]);
    add(id.last_chunk(), &secret[1]);
    let folded = (sum ^ (sum >> 37)).wrapping_mul(PRIME_OF_END);
    folded ^ (folded >> 32)
}

#[inline(always)]
fn mix(pair: &Pair, secret: &Pair) -> u64 {
    let [low, high] = words(pair, secret);
    let product = u128::from(low) * u128::from(high);
    product as u64 ^ (product >> 64) as u64
}

/// The two words of a pair, combined with those of the secret.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn words(pair: &Pair, secret: &Pair) -> [u64; 2] {
    use std::arch::x86_64::{_mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm_xor_si128};
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let both = _mm_xor_si128(bytemuck::must_cast(*pair), bytemuck::must_cast(*secret));
        let high = _mm_unpackhi_epi64(both, both);
        [_mm_cvtsi128_si64(both) as u64, _mm_cvtsi128_si64(high) as u64]
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn words(pair: &Pair, secret: &Pair) -> [u64; 2] {
    let both = u128::from_le_bytes(*pair) ^ u128::from_le_bytes(*secret);
    [both as u64, (both >> 64) as u64]
}
