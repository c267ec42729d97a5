//! Random numbers, for the jitter of polls and the guard's sample. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random number: the standard library seeds its hash maps from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A sequence of numbers from a seed. Steele, Lea & Flood 2014, SplitMix64.
#[derive(Clone, Copy)]
pub(crate) struct Sequence(u64);

impl Sequence {
    pub(crate) fn from(seed: u64) -> Sequence {
        Sequence(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        next_random(&mut self.0)
    }
}

/// The next number of a sequence, whose state is one integer.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
