//! Plain Rust: the definition that the other kernels must agree with.

use super::super::Shape;
use super::super::blocked::{Block, bit_of, block_of};
use super::batch_with;
use crate::hash::{IdHash, Xxh3};

pub(super) fn one(body: &[u8], shape: Shape, id: &[u8]) -> bool {
    contains(body, shape.probes(), Xxh3::of(id).0)
}

#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    test(&blocks[block_of(hash, blocks.len() as u64)], probes, hash)
}

pub(super) fn batch<T: AsRef<[u8]>>(body: &[u8], probes: u32, ids: &[T], answers: &mut [bool]) {
    batch_with(body, ids, answers, |block, hash| test(block, probes, hash));
}

#[inline(always)]
fn test(block: &Block, probes: u32, hash: u64) -> bool {
    (0..probes as usize).all(|i| {
        let bit = bit_of(hash, i);
        block[(bit >> 3) as usize] >> (bit & 7) & 1 == 1
    })
}
