//! Plain Rust: the definition that the other kernels must agree with.

use super::batch;
use super::prober::Prober;
use crate::filter::blocked::{self, Block, block_of};
use crate::filter::overlay::Overlay;
use crate::hash::{IdHash, is_valid_len};
use crate::url_id::normalised;

/// A lookup.
///
/// # Safety
/// `prober` is of a `blocked` filter whose memory is alive.
pub(super) unsafe fn probe(prober: &Prober, id: &[u8]) -> bool {
    // SAFETY: this function's contract is that of `lookup_any`.
    unsafe { prober.lookup_any(id, |block, hash| blocked::contains(block, prober.probes(), hash)) }
}

/// A lookup of a URL, whose normalised form may be longer than an ID.
///
/// # Safety
/// `prober` is of a `blocked` filter whose memory is alive.
pub(super) unsafe fn probe_url(prober: &Prober, id: &[u8]) -> bool {
    let test = |block: &Block, hash| blocked::contains(block, prober.probes(), hash);
    // SAFETY: this function's contract is that of `lookup_valid`.
    is_valid_len(id) && unsafe { prober.lookup_valid(&normalised(id), test) }
}

#[inline]
pub(super) fn contains(body: &[u8], probes: u32, hash: u64) -> bool {
    let (blocks, _) = body.as_chunks();
    blocked::contains(&blocks[block_of(hash, blocks.len() as u64)], probes, hash)
}

pub(super) fn contains_batch<T: AsRef<[u8]>>(
    body: &[u8],
    probes: u32,
    ids: &[T],
    hits: &mut [bool],
    over: &impl Overlay,
) -> usize {
    batch::contains(body, ids, hits, over, |block, hash| blocked::contains(block, probes, hash))
}

pub(super) fn contains_hashes<H: IdHash>(
    body: &[u8],
    probes: u32,
    hashes: &[H],
    found: impl FnMut(usize, bool),
) {
    batch::contains_hashes(body, hashes, found, |block, hash| {
        blocked::contains(block, probes, hash)
    })
}
