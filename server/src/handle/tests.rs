//! Readers in the middle of a swap.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use bloomsday_common::blob::{Header, Origin};
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::key::BlobKey;
use jiff::Timestamp;

use super::step::MID_SWAP;
use super::*;
use crate::clock::Clock;
use crate::config::FilterConfig;
use crate::generation::{Generation, Via};
use crate::guard::Guard;

/// A generation that contains one ID.
pub(crate) fn with_id(id: &[u8]) -> Arc<Generation> {
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
        id_form: Default::default(),
        origin: Origin::Built,
        ids: 1,
        fpp_target: 0.01,
        fpp_hits: 0,
        fpp_lookups: 1,
        ones: filter.count_ones(),
    };
    let key = BlobKey { filter: name, day, digest };
    let bytes = filter.memory().len() as u64;
    let loaded_at = Timestamp::UNIX_EPOCH;
    let (huge_bytes, via, bytes_fetched) = (None, Via::Full, bytes);
    Arc::new(Generation { key, header, filter, bytes, huge_bytes, loaded_at, via, bytes_fetched })
}

/// A reader that stored the new epoch with the old generation would miss the swap until the next
/// one.
#[test]
fn no_reader_is_left_behind_by_a_swap() {
    const IDS: [&[u8]; 2] = [b"even", b"odd"];
    fn answers(reader: &mut Reader) -> [bool; 2] {
        IDS.map(|id| reader.contains(id))
    }
    let generations = IDS.map(with_id);
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    drop(served.swap(generations[0].clone()));
    let handle = FilterHandle::new(served.clone());
    let mut first_reader = handle.reader();
    for n in 1..=4 {
        // A reader checks for a swap at its first lookup, which is made in the middle of this swap.
        let readers = Rc::new(RefCell::new(vec![handle.reader()]));
        let (in_swap, handle) = (readers.clone(), handle.clone());
        MID_SWAP.set(Some(Box::new(move || {
            in_swap.borrow_mut().push(handle.reader());
            for reader in in_swap.borrow_mut().iter_mut() {
                // Either generation is right during the swap, but it is exactly one of them.
                let [even, odd] = answers(reader);
                assert_ne!(even, odd);
            }
        })));
        drop(served.swap(generations[n % 2].clone()));
        assert!(MID_SWAP.take().is_none(), "nobody looked up in the middle of the swap");
        for reader in readers.borrow_mut().iter_mut().chain([&mut first_reader]) {
            assert_eq!(answers(reader), [n % 2 == 0, n % 2 == 1], "after swap {n}");
        }
    }
}

/// A reader that first checked for a swap and then set when to check next would overwrite the
/// signal of a swap in between.
#[test]
fn the_signal_of_a_swap_reaches_a_reader_that_is_checking_for_one() {
    const IDS: [&[u8]; 2] = [b"even", b"odd"];
    let generations = IDS.map(with_id);
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let [before, next] = generations;
    drop(served.swap(before));
    let mut reader = FilterHandle::new(served.clone()).reader();
    MID_SWAP.set(Some(Box::new(move || drop(served.swap(next)))));
    // A reader checks at its first lookup.
    reader.contains(IDS[0]);
    assert!(MID_SWAP.take().is_none(), "no swap while it checked");
    assert_eq!(IDS.map(|id| reader.contains(id)), [false, true]);
}

/// A lookup in the day's filter before the swap, and in the live IDs after the new day took them
/// over.
#[cfg(feature = "live")]
#[test]
fn an_id_that_a_day_takes_over_in_the_middle_of_a_lookup_is_a_hit() {
    use bloomsday_common::day::Day;

    use crate::live::{Live, LiveConfig, LiveRole, Options};
    type LookUp = fn(&FilterHandle, &mut Reader, &[u8]) -> bool;
    let lookups: [(&str, LookUp); 6] = [
        ("handle", |handle, _, id| handle.contains(id)),
        ("handle without a slot", |handle, _, id| handle.contains_without_slot(id)),
        ("reader", |_, reader, id| reader.contains(id)),
        ("batch of a handle", |handle, _, id| {
            let mut answers = [false];
            handle.contains_batch(&[id], &mut answers);
            answers[0]
        }),
        ("batch of a reader", |_, reader, id| {
            let mut answers = [false];
            reader.contains_batch(&[id], &mut answers);
            answers[0]
        }),
        ("body of a request", |handle, _, id| {
            handle.contains_batch_in(&mut handle.keep(), &[id], &mut [false]) == 1
        }),
    ];
    for (name, look_up) in lookups {
        let folder = tempfile::TempDir::new().unwrap();
        let live = Live::open(LiveConfig::new(Some(folder.path().to_owned()))).unwrap();
        let filter = FilterConfig::new("rt".parse().unwrap());
        let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
        let below = Arc::downgrade(&served) as _;
        let ids = bloomsday_common::id_form::IdForm::Bytes;
        let set = live
            .declare(&filter.name, Options::over_day(30, ids), LiveRole::Decide, below)
            .unwrap();
        served.put_live(set);
        drop(served.swap(with_id(b"old")));
        let handle = FilterHandle::new(served.clone());
        let mut reader = handle.reader();
        drop(handle.add_now(&[b"new"], &mut [false]).unwrap());
        assert!(look_up(&handle, &mut reader, b"new"), "{name}");
        let to_swap = served.clone();
        MID_SWAP.set(Some(Box::new(move || {
            let mut next = with_id(b"new");
            // A day takes over what was added until its end.
            Arc::get_mut(&mut next).unwrap().header.day = Day::at_unix_ms(1 << 42);
            drop(to_swap.swap(next.clone()));
            to_swap.absorb(&next);
        })));
        // The first lookup after a swap checks for one, and may run the swap before the lookup in
        // the filter.
        assert!(look_up(&handle, &mut reader, b"new"), "{name} misses in the middle of a swap");
        assert!(MID_SWAP.take().is_none(), "no swap while {name} looked up");
        assert_eq!(handle.status().live.unwrap().entries, 0, "the day did not take it over");
        let is_reader = name.contains("reader");
        assert_eq!(served.idle_readers().is_empty(), is_reader, "{name}: which readers are behind");
        assert!(look_up(&handle, &mut reader, b"new"), "{name} misses after the swap");
    }
}

/// After status or a reload reports a filter, every lookup must use that filter.
#[test]
fn lookups_use_the_filter_that_is_published() {
    const IDS: [&[u8]; 2] = [b"even", b"odd"];
    let generations = IDS.map(with_id);
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    let reader = Rc::new(RefCell::new(handle.reader()));
    let (steps, coming) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let look = {
        let (served, steps, coming, all) =
            (served.clone(), steps.clone(), coming.clone(), generations.clone());
        Rc::new(move || {
            steps.set(steps.get() + 1);
            let (id, next) = (IDS[coming.get()], &all[coming.get()]);
            // Before the new filter is swapped in, a lookup may use either.
            if served.swapped_in().is_some_and(|swapped_in| Arc::ptr_eq(&swapped_in, next)) {
                assert!(handle.contains(id) && reader.borrow_mut().contains(id));
            } else {
                handle.contains(id);
                reader.borrow_mut().contains(id);
            }
        })
    };
    let swaps = 5;
    for n in 0..swaps {
        coming.set(n % 2);
        after_each_step(look.clone());
        drop(served.swap(generations[n % 2].clone()));
        MID_SWAP.take();
        assert!(
            served
                .swapped_in()
                .is_some_and(|swapped_in| Arc::ptr_eq(&swapped_in, &generations[n % 2]))
        );
        look();
    }
    assert!(steps.get() >= swaps * 5, "no lookup after each step of a swap");
}

/// Runs `act` after each step from now on.
fn after_each_step<F: Fn() + 'static>(act: Rc<F>) {
    MID_SWAP.set(Some(Box::new(move || {
        act();
        after_each_step(act);
    })));
}

/// The memory of an old generation is needed for the next one.
#[test]
fn a_shared_handle_drops_the_old_filter_at_the_swap_also_without_further_lookups() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    assert!(served.swap(with_id(b"first")).is_none());
    std::thread::scope(|scope| {
        (0..10).for_each(|_| _ = scope.spawn(|| assert!(handle.contains(b"first"))));
    });
    let first = served.swap(with_id(b"second")).unwrap();
    assert_eq!(Arc::strong_count(&first), 1, "something else references it");
    assert!(!handle.contains(b"first") && handle.contains(b"second"));
}

/// An ID that runs a function when a lookup reads it: in the middle of that lookup.
pub(crate) struct ActsWhenRead<'a, F: Fn()>(pub(crate) &'a [u8], pub(crate) F);

impl<F: Fn()> AsRef<[u8]> for ActsWhenRead<'_, F> {
    fn as_ref(&self) -> &[u8] {
        self.1();
        self.0
    }
}

#[test]
fn a_lookup_that_finds_its_slot_locked_is_made_without_it_and_counted() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    let first = with_id(b"first");
    drop(served.swap(first.clone()));
    let (n_lookups, next) = (RefCell::new(0), RefCell::new(Some(with_id(b"second"))));
    let meddle = || {
        let is_first = next.borrow().is_some();
        let mut answers = [false; 2];
        handle.contains_batch(&[b"first" as &[u8], b"second"], &mut answers);
        assert_eq!(answers, [is_first, !is_first]);
        assert_eq!(handle.contains(b"second"), !is_first);
        *n_lookups.borrow_mut() += 3;
        drop(next.borrow_mut().take().map(|next| served.swap(next)));
    };
    let mut answers = [false; 1];
    handle.contains_batch(&[ActsWhenRead(b"first", meddle)], &mut answers);
    assert_eq!(answers, [true], "by the generation that was current when the lookup began");
    let n_lookups = *n_lookups.borrow();
    assert!(n_lookups >= 3, "the ID was never read");
    let (hits, misses) = served.lookups();
    assert_eq!(hits + misses, n_lookups + 1);
    // The swap could not update the slot, because it was locked.
    assert_eq!(Arc::strong_count(&first), 2);
    served.refresh_idle();
    assert_eq!(Arc::strong_count(&first), 1);
}

/// Also before a filter is loaded: the mistake in a bidder then shows at once, not after the first
/// load.
#[test]
fn a_batch_with_another_number_of_answers_is_a_panic_and_leaves_no_slot_locked() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    for _ in 0..2 {
        for answers in [0, 2] {
            let look_up = || handle.contains_batch(&[b"known"], &mut [false; 2][..answers]);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look_up));
            result.expect_err("it did not panic");
        }
        drop(served.swap(with_id(b"known")));
    }
    assert!(handle.contains(b"known"));
    assert_eq!(served.overflow_counts.lookups(), 0, "the slot is still locked");
    assert_eq!(served.lookups(), (1, 0));
}

#[test]
fn more_threads_than_slots_lose_no_count() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    let (threads, each) = (200, 2_000);
    let all_there = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                all_there.wait();
                for _ in 0..each {
                    handle.contains(b"known");
                    handle.contains_batch(&[b"unknown"; 3], &mut [false; 3]);
                }
            });
        }
        drop(served.swap(with_id(b"known")));
    });
    let (hits, misses) = served.lookups();
    assert_eq!(hits + misses, threads as u64 * each * 4);
}

/// A scrape that reported too many would make the next one fall, which is a restart to Prometheus.
#[test]
fn counts_of_lookups_never_fall_while_readers_come_and_go() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, true, Clock::system()));
    let handle = FilterHandle::new(served.clone());
    let (readers, unknown) = (20_000, AtomicU64::new(0));
    std::thread::scope(|scope| {
        let come_and_go = scope.spawn(|| {
            drop(served.swap(with_id(b"known")));
            for _ in 0..readers {
                let mut reader = handle.reader();
                unknown.fetch_add(1, Ordering::SeqCst);
                reader.contains(b"unknown");
                (0..10).for_each(|_| _ = reader.contains(b"known"));
            }
        });
        let (mut hits, mut misses) = (0, 0);
        while !come_and_go.is_finished() {
            let (hits_now, misses_now) = served.lookups();
            assert!(hits_now >= hits, "{hits} hits, and then {hits_now}");
            assert!(misses_now >= misses, "{misses} misses, and then {misses_now}");
            assert!(misses_now <= unknown.load(Ordering::SeqCst), "more misses than lookups");
            (hits, misses) = (hits_now, misses_now);
        }
    });
    assert_eq!(served.lookups(), (readers * 10, readers));
}

/// A byte counts the hits since the last carry: without one, 256 of them would count as none.
#[test]
fn every_hit_of_a_reader_is_counted_with_and_without_a_sample() {
    for guard in [Guard::Hold, Guard::Off] {
        let filter = FilterConfig { guard, ..FilterConfig::new("rt".parse().unwrap()) };
        let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
        drop(served.swap(with_id(b"known")));
        let mut reader = FilterHandle::new(served.clone()).reader();
        for hits in 1..=2_000 {
            assert!(reader.contains(b"known"));
            assert_eq!(served.lookups(), (hits, 0), "{guard:?}");
        }
        drop(reader);
        assert_eq!(served.lookups(), (2_000, 0), "{guard:?}, after the reader");
    }
}

/// Batches in between change nothing about how often single lookups are sampled.
#[test]
fn one_single_lookup_in_128_is_sampled_whatever_batches_come_between() {
    let filter = FilterConfig::new("rt".parse().unwrap());
    let served = Arc::new(ServedFilter::new(&filter, false, Clock::system()));
    let mut reader = FilterHandle::new(served.clone()).reader();
    let (singles, rounds) = (100u64, 1_000);
    for round in 0..rounds {
        for n in 0..singles {
            reader.contains(&(round * singles + n).to_le_bytes());
        }
        // IDs of this length are not sampled: the sample has only the single lookups.
        reader.contains_batch(&[[0u8; 64]; 77], &mut [false; 77]);
    }
    drop(reader);
    let (sampled, expected) =
        (served.recent_lookups().unwrap().len() as u64, singles * rounds / 128);
    assert!(sampled.abs_diff(expected) < expected / 5, "{sampled}, not {expected}");
}
