//! Readers in the middle of a swap.

use std::cell::RefCell;
use std::rc::Rc;

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

thread_local! {
    /// What a test does in the middle of this thread's next swap.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Between the two halves of a swap, where no test would get by chance.
pub(super) fn at_the_worst_moment() {
    if let Some(act) = MEANWHILE.take() {
        act();
    }
}

/// One that took the new epoch for news of the old generation would stay behind until the next swap.
#[test]
fn no_reader_is_left_behind_by_a_swap() {
    const IDS: [&[u8]; 2] = [b"even", b"odd"];
    fn answers(reader: &mut Reader) -> [bool; 2] {
        IDS.map(|id| reader.contains(id))
    }
    let generations = IDS.map(knowing);
    let filter = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
    drop(slot.swap(generations[0].clone()));
    let handle = FilterHandle::new(slot.clone());
    let mut long_there = handle.reader();
    for n in 1..=4 {
        // With its first question a reader looks for a swap, so that comes in the middle of this one.
        let readers = Rc::new(RefCell::new(vec![handle.reader()]));
        let (asking, handle) = (readers.clone(), handle.clone());
        MEANWHILE.set(Some(Box::new(move || {
            asking.borrow_mut().push(handle.reader());
            for reader in asking.borrow_mut().iter_mut() {
                // Either is right while the swap is under way, but it is one of them.
                let [even, odd] = answers(reader);
                assert_ne!(even, odd);
            }
        })));
        drop(slot.swap(generations[n % 2].clone()));
        assert!(MEANWHILE.take().is_none(), "nobody asked in the middle of the swap");
        for reader in readers.borrow_mut().iter_mut().chain([&mut long_there]) {
            assert_eq!(answers(reader), [n % 2 == 0, n % 2 == 1], "after swap {n}");
        }
    }
}

/// A reader that set itself the next question to attend to, and looked for a swap before that, would
/// overwrite the news of one in between.
#[test]
fn news_of_a_swap_reaches_a_reader_that_is_attending() {
    const IDS: [&[u8]; 2] = [b"even", b"odd"];
    let generations = IDS.map(knowing);
    let filter = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
    let [before, next] = generations;
    drop(slot.swap(before));
    let mut reader = FilterHandle::new(slot.clone()).reader();
    MEANWHILE.set(Some(Box::new(move || drop(slot.swap(next)))));
    // A reader attends to its first question.
    reader.contains(IDS[0]);
    assert!(MEANWHILE.take().is_none(), "no swap while it attended");
    assert_eq!(IDS.map(|id| reader.contains(id)), [false, true]);
}

/// A scrape that told too many would let the next one fall back, which is a restart to Prometheus.
#[test]
fn counts_of_answers_never_fall_while_readers_come_and_go() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&filter, true, Clock::system()));
    let handle = FilterHandle::new(slot.clone());
    let (readers, unknown) = (20_000, AtomicU64::new(0));
    std::thread::scope(|scope| {
        let come_and_go = scope.spawn(|| {
            drop(slot.swap(knowing(b"known")));
            for _ in 0..readers {
                let mut reader = handle.reader();
                unknown.fetch_add(1, Ordering::SeqCst);
                reader.contains(b"unknown");
                (0..10).for_each(|_| _ = reader.contains(b"known"));
            }
        });
        let (mut seen, mut absent) = (0, 0);
        while !come_and_go.is_finished() {
            let (seen_now, absent_now) = slot.lookups();
            assert!(seen_now >= seen, "{seen} answered yes, and then {seen_now}");
            assert!(absent_now >= absent, "{absent} answered no, and then {absent_now}");
            assert!(
                absent_now <= unknown.load(Ordering::SeqCst),
                "more were answered no than asked"
            );
            (seen, absent) = (seen_now, absent_now);
        }
    });
    assert_eq!(slot.lookups(), (readers * 10, readers));
}

/// Batches in between make single questions neither be sampled more nor be forgotten.
#[test]
fn one_single_question_in_128_is_sampled_whatever_batches_come_between() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
    let mut reader = FilterHandle::new(slot.clone()).reader();
    let (singles, rounds) = (100u64, 1_000);
    for round in 0..rounds {
        for n in 0..singles {
            reader.contains(&(round * singles + n).to_le_bytes());
        }
        // Too long to be taken in: what is sampled are single questions.
        reader.contains_batch(&[[0u8; 64]; 77], &mut [false; 77]);
    }
    drop(reader);
    let (sampled, expected) =
        (slot.sample().unwrap().distinct().len() as u64, singles * rounds / 128);
    assert!(sampled.abs_diff(expected) < expected / 5, "{sampled}, not {expected}");
}

#[test]
fn the_first_question_of_a_reader_is_sampled() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let slot = Arc::new(Slot::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(slot.clone());
    for n in 0..50u64 {
        handle.reader().contains(&n.to_le_bytes());
    }
    assert_eq!(slot.sample().unwrap().distinct().len(), 50);
}
