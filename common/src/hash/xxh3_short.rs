//! XXH3-64 of short IDs (17 to 64 bytes), the length of most: 32 hex digits, the 36 characters of a UUID.
//!
//! The function is Yann Collet's XXH3 as he froze it in 2020; tests compare it with the library's. The
//! difference is that the words of an ID are combined with those of the secret in vector registers. While
//! a lookup waits for memory, the processor starts the lookups after it as long as it has free integer
//! registers. This code needs fewer of them, so more lookups wait for memory at the same time.

use std::ops::RangeInclusive;

/// Sixteen bytes: the unit in which XXH3 reads an ID and its secret.
type Pair = [u8; 16];

/// `XXH_PRIME64_1`: the factor of the length.
const LENGTH_PRIME: u64 = 0x9e37_79b1_85eb_ca87;
/// `PRIME_MX1`: the factor of the final mix.
const FINAL_PRIME: u64 = 0x1656_6791_9e37_79f9;

/// How many bytes a short ID has. One comparison then decides that the length of an ID is valid and almost
/// how it is hashed. Other lengths take another path.
const SHORT_BYTES: RangeInclusive<usize> = 17..=64;

/// How many bytes most device IDs have: 32 hex digits.
pub(crate) const DEVICE_ID_BYTES: usize = 32;

/// Whether `id` has one of [`SHORT_BYTES`].
#[inline(always)]
pub(crate) fn is_short(id: &[u8]) -> bool {
    SHORT_BYTES.contains(&id.len())
}

/// The hash of an ID that [`is_short`]; `secret` is XXH3's own, with the seed in it.
#[inline(always)]
pub(super) fn hash(id: &[u8], secret: &[Pair; 4]) -> u64 {
    match <&[u8; DEVICE_ID_BYTES]>::try_from(id) {
        // Both arms are the same expression. In this one the compiler knows the length, so that
        // everything that depends on it is a constant.
        Ok(id) => mixed(id, secret),
        Err(_) => mixed(id, secret),
    }
}

#[inline(always)]
fn mixed(id: &[u8], secret: &[Pair; 4]) -> u64 {
    let mut sum = (id.len() as u64).wrapping_mul(LENGTH_PRIME);
    let mut add = |pair: Option<&Pair>, secret: &Pair| {
        sum = sum.wrapping_add(mix(pair.expect("a short ID has 17 bytes"), secret));
    };
    if id.len() > 32 {
        add(id[16..].first_chunk(), &secret[2]);
        add(id[..id.len() - 16].last_chunk(), &secret[3]);
    }
    add(id.first_chunk(), &secret[0]);
    add(id.last_chunk(), &secret[1]);
    let folded = (sum ^ (sum >> 37)).wrapping_mul(FINAL_PRIME);
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
    // SAFETY: these intrinsics work on registers alone, and need SSE2, which every x86-64 has.
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
