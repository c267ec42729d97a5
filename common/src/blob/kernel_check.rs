//! Whether the chosen kernel finds what the scalar one finds.

use crate::filter::{Filter, Kernel, Layout, blocked};
use crate::hash::{Xxh3, splitmix64};

/// Looks up some hashes through the chosen kernel and through the scalar one, and compares.
///
/// Most random hashes miss at their first probe. So of some hashes in one block it takes the
/// one with the most probe bits set, which tests the other lanes, too.
pub(super) fn check_kernel(filter: &Filter) -> Result<(), String> {
    if filter.shape().layout() != Layout::Blocked || filter.kernel() == Kernel::scalar() {
        return Ok(());
    }
    const STARTS: u64 = 1024;
    const CANDIDATES: u64 = 16;
    let (blocks, _) = filter.body().as_chunks::<{ blocked::BLOCK_BYTES }>();
    let probes = filter.shape().probes();
    let matched = |hash: u64| {
        let block = &blocks[blocked::block_of(hash, blocks.len() as u64)];
        let set = |i: &usize| blocked::is_set(block, blocked::bit_of(hash, *i));
        (0..probes as usize).take_while(set).count()
    };
    for start in 0..STARTS {
        let high = splitmix64(0, start) & !0xffff_ffff;
        let low = |i| splitmix64(0, start * CANDIDATES + i) & 0xffff_ffff;
        let candidates = (0..CANDIDATES).map(|i| high | low(i));
        let hash = candidates.max_by_key(|hash| matched(*hash)).expect("there are candidates");
        let expected = Kernel::scalar().contains(filter.body(), probes, hash);
        if filter.contains_hash(Xxh3(hash)) != expected {
            let kernel = filter.kernel();
            return Err(format!(
                "the {kernel:?} kernel and the scalar one disagree about hash {hash:#018x}"
            ));
        }
    }
    Ok(())
}
