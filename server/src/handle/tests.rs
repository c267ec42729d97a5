//! Readers across swaps, far more often than a poller can make them.

use std::sync::atomic::AtomicBool;

use bloomsday_common::blob::Origin;
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};

use super::*;

/// A generation that knows one ID.
fn knowing(id: &[u8]) -> Arc<Generation> {
    let shape = Shape::for_ids(Layout::Blocked, 1, 0.01).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    filter.insert(Xxh3::of(id));
    let filter = filter.freeze();
    let (name, day): (FilterName, _) = ("rt".parse().unwrap(), "2026-11-19".parse().unwrap());
    let digest = bloomsday_common::digest::Digest::new([id[0]; 32]);
    let header = Header {
        filter: name.clone(),
        day,
        shape,
        origin: Origin::Built,
        ids: 1,
        fpp_target: 0.01,
        fpp_hits: 0,
        fpp_asked: 1,
        ones: filter.count_ones(),
    };
    let key = BlobKey { filter: name, day, digest };
    let bytes = filter.memory().len() as u64;
    let loaded_at = Timestamp::UNIX_EPOCH;
    Arc::new(Generation { key, header, filter, bytes, huge_bytes: None, loaded_at })
}

/// A reader that looked at the epoch and the generation in the wrong order, or a swap that raised the
/// epoch first, leaves a reader behind until the next swap: it takes many swaps to meet that moment.
#[test]
fn no_reader_is_left_behind_by_a_swap() {
    const SWAPS: usize = 200_000;
    let ids: [&[u8]; 2] = [b"even", b"odd"];
    let generations = ids.map(knowing);
    let slot = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&slot, false, Clock::system()));
    drop(slot.swap(generations[0].clone()));
    let handle = FilterHandle::new(slot.clone());
    let (swaps, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut reader = handle.reader();
            let mut settled = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let before = swaps.load(Ordering::SeqCst);
                let answers = ids.map(|id| reader.contains(id));
                if swaps.load(Ordering::SeqCst) == before && before.is_multiple_of(2) {
                    let which = before / 2 % 2;
                    assert_eq!(answers, [which == 0, which == 1], "after {} swaps", before / 2);
                    settled += 1;
                }
            }
            settled
        });
        for n in 1..=SWAPS {
            // Odd while a swap is under way.
            swaps.fetch_add(1, Ordering::SeqCst);
            drop(slot.swap(generations[n % 2].clone()));
            swaps.fetch_add(1, Ordering::SeqCst);
            if asking.is_finished() {
                break;
            }
            // Long enough for some questions, and never the same.
            (0..n % 64).for_each(|_| std::hint::spin_loop());
        }
        // The last swap is seen by whoever asks after it.
        stop.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap() > 0, "no answer ever fell between two swaps");
    });
}
