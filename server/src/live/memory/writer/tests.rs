//! The table and its writer against a map, and against readers that run at the same time.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use bloomsday_common::hash::mix64;
use proptest::prelude::*;

use super::*;
use crate::live::memory::table::LiveState;

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

fn writer(window: Window) -> Writer {
    Writer::new(window, budget()).unwrap()
}

fn window(steps: u8, repeat: Repeat) -> Window {
    Window { step_ms: NonZeroU64::new(1_000).unwrap(), steps: Some(steps), repeat }
}

/// What a writer can do.
#[derive(Clone, Debug)]
enum Act {
    Add(u64),
    AddMany(u64, u64),
    Forget(u64),
    Hide(u64),
    Tick(u64),
}

/// Hashes of few shards and lines, so that they meet; and some anywhere.
fn hash(number: u64) -> u64 {
    if number.is_multiple_of(3) { mix64(number) } else { (number % 2) << 56 | number << 20 }
}

fn act() -> impl Strategy<Value = Act> {
    let number = || (0..400_u64).prop_map(hash);
    prop_oneof![
        6 => number().prop_map(Act::Add),
        1 => (0..10_000_u64, 1..600_u64).prop_map(|(from, many)| Act::AddMany(from, many)),
        2 => number().prop_map(Act::Forget),
        1 => number().prop_map(Act::Hide),
        3 => prop_oneof![0..4_u64, 240..260_u64, 500..1_000_u64].prop_map(Act::Tick),
    ]
}

/// The table as a map: the step of each entry, or none if it is hidden.
struct Model {
    entries: BTreeMap<u64, Option<u64>>,
    window: Window,
    now: u64,
}

impl Model {
    fn alive(&self, hash: u64) -> bool {
        let in_window = |seen: u64| self.window.steps.is_none_or(|w| self.now - seen <= w.into());
        matches!(self.entries.get(&hash), Some(Some(seen)) if in_window(*seen))
    }

    fn add(&mut self, hash: u64) -> Added {
        let was = self.entries.get(&hash).copied().flatten();
        let alive = self.alive(hash);
        if alive && (self.window.repeat == Repeat::Keep || was == Some(self.now)) {
            return Added::Unchanged;
        }
        self.entries.insert(hash, Some(self.now));
        if alive { Added::Renewed } else { Added::New }
    }

    fn state_of(&self, hash: u64) -> LiveState {
        match self.entries.get(&hash) {
            Some(None) => LiveState::Hidden,
            _ if self.alive(hash) => LiveState::Alive,
            _ => LiveState::Unknown,
        }
    }
}

fn agree(writer: &mut Writer, model: &mut Model, acts: &[Act]) {
    for act in acts {
        match *act {
            Act::Add(hash) => assert_eq!(writer.add(hash), Ok(model.add(hash)), "{hash:x}"),
            Act::AddMany(from, many) => {
                let hashes: Vec<u64> = (from..from + many).map(hash).collect();
                let expected: Vec<Added> = hashes.iter().map(|hash| model.add(*hash)).collect();
                let mut got = Vec::new();
                writer.add_each(&hashes, |_, added| got.push(added)).unwrap();
                assert_eq!(got, expected);
            }
            Act::Forget(hash) => {
                let alive = model.alive(hash);
                assert_eq!(writer.delete(hash), alive);
                if model.state_of(hash) != LiveState::Hidden {
                    model.entries.remove(&hash);
                }
            }
            Act::Hide(hash) => {
                assert_eq!(writer.hide(hash), Ok(model.alive(hash)));
                model.entries.insert(hash, None);
            }
            Act::Tick(steps) => {
                model.now += steps;
                writer.tick(model.now * 1_000);
            }
        }
        let alive = model.entries.keys().filter(|hash| model.alive(**hash)).count();
        assert_eq!(writer.len(), alive as u64, "after {act:?}");
    }
    let looked_up: Vec<u64> = (0..10_600).map(hash).chain(model.entries.keys().copied()).collect();
    writer.table().clone().each(&looked_up, |i, seen| {
        assert_eq!(seen, model.state_of(looked_up[i]), "{:x}", looked_up[i]);
        assert_eq!(seen, writer.table().state_of(looked_up[i]));
    });
    let mut listed: Vec<_> = writer.entries().collect();
    listed.sort_unstable();
    let is_listed = |hash: &u64| model.state_of(*hash) != LiveState::Unknown;
    let none = model.window.steps.is_none();
    let expected = model.entries.iter().filter(|(hash, _)| is_listed(hash));
    // Without a window an entry has no step of its own.
    let expected =
        expected.map(|(hash, seen)| (*hash, seen.map(|s| if none { model.now } else { s })));
    assert_eq!(listed, expected.collect::<Vec<_>>());
}

/// The lookup has read the step before the window moves on.
#[test]
fn an_entry_that_is_renewed_in_the_middle_of_a_lookup_is_alive() {
    for steps in [1, 10, 250] {
        let window = Window::of(steps * 1_000, 1_000, Repeat::Renew).unwrap();
        let mut writer = Writer::new(window, budget()).unwrap();
        writer.tick(500_000);
        writer.add(hash(1)).unwrap();
        let table = writer.table().clone();
        let view = table.view();
        let mut looked_up = Vec::new();
        table.each(&[hash(0), hash(1)], |_, seen| {
            looked_up.push(seen);
            writer.tick(501_000);
            writer.add(hash(1)).unwrap();
        });
        assert_eq!(looked_up, [LiveState::Unknown, LiveState::Alive], "a window of {steps} steps");
        assert_eq!(view.state_of(hash(1)), LiveState::Alive);
    }
}

/// What a quotient filter can do, too.
#[derive(Clone, Debug)]
enum Change {
    Add(u64),
    Copy(u64),
    Forget(u64),
}

fn change() -> impl Strategy<Value = Change> {
    // Also hashes that differ in one of their first or last bits only.
    let hash = prop_oneof![
        (0..300_u64).prop_map(hash),
        (0..64_u32).prop_map(|bit| mix64(1) ^ 1 << bit),
        (0..300_u64).prop_map(|low| low),
    ];
    (0..4_u8, hash).prop_map(|(kind, hash)| match kind {
        0 | 1 => Change::Add(hash),
        2 => Change::Copy(hash),
        _ => Change::Forget(hash),
    })
}

proptest! {
    /// A quotient filter of 64-bit fingerprints is exact, and shares no line with the table.
    #[test]
    fn a_table_is_an_exact_quotient_filter(changes in prop::collection::vec(change(), 1..2_000)) {
        let mut oracle = qfilter::Filter::with_fingerprint_size(4_096, 64).unwrap();
        let mut writer = writer(Window::NONE);
        for change in &changes {
            match *change {
                Change::Add(hash) => {
                    let is_new = oracle.insert_fingerprint(false, hash).unwrap();
                    prop_assert_eq!(writer.add(hash).unwrap() == Added::New, is_new);
                }
                Change::Copy(hash) if oracle.count_fingerprint(hash) < MAX_COPIES as u64 => {
                    oracle.insert_fingerprint(true, hash).unwrap();
                    writer.add_copy(hash).unwrap();
                }
                Change::Copy(hash) => prop_assert_eq!(writer.add_copy(hash), Err(AddError::Copies)),
                Change::Forget(hash) => {
                    prop_assert_eq!(writer.delete(hash), oracle.remove_fingerprint(hash));
                }
            }
            prop_assert_eq!(writer.len(), oracle.len());
        }
        let table = writer.table();
        for change in &changes {
            let (Change::Add(hash) | Change::Copy(hash) | Change::Forget(hash)) = *change;
            prop_assert_eq!(table.count(hash) as u64, oracle.count_fingerprint(hash));
            let is_there = oracle.contains_fingerprint(hash);
            prop_assert_eq!(table.state_of(hash) == LiveState::Alive, is_there);
            let view = table.view();
            prop_assert_eq!(view.state_of(hash), table.state_of(hash));
            prop_assert!(view.prefetch(hash).may_have(hash) || table.state_of(hash) == LiveState::Unknown);
        }
        let mut all: Vec<u64> = writer.entries().map(|(hash, _)| hash).collect();
        all.sort_unstable();
        let mut expected: Vec<u64> = oracle.fingerprints().collect();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }

    /// What a lookup relies on: a line with an empty slot has none behind a used one.
    #[test]
    fn the_slots_of_a_line_are_used_from_the_front(
        acts in prop::collection::vec(act(), 1..200),
        renew: bool,
    ) {
        let window = window(7, if renew { Repeat::Renew } else { Repeat::Keep });
        let mut writer = writer(window);
        let mut model = Model { entries: BTreeMap::new(), window, now: 5_000 };
        writer.tick(5_000_000);
        agree(&mut writer, &mut model, &acts);
        for line in writer.shards.iter().flat_map(|shard| shard.lines.lines().iter()) {
            let words = line.0.iter().map(|word| word.load(Ordering::Relaxed));
            prop_assert!(words.is_sorted_by_key(|word| word == EMPTY));
        }
    }

    #[test]
    fn a_table_is_a_map_from_hashes_to_steps(
        acts in prop::collection::vec(act(), 1..200),
        steps in prop_oneof![Just(1_u8), Just(7), Just(250)],
        renew: bool,
    ) {
        let window = window(steps, if renew { Repeat::Renew } else { Repeat::Keep });
        let mut model = Model { entries: BTreeMap::new(), window, now: 5_000 };
        let mut writer = writer(window);
        writer.tick(5_000_000);
        agree(&mut writer, &mut model, &acts);
    }

    #[test]
    fn without_a_window_nothing_ends(acts in prop::collection::vec(act(), 1..200)) {
        let window = Window { step_ms: NonZeroU64::new(1_000).unwrap(), ..Window::NONE };
        let mut model = Model { entries: BTreeMap::new(), window, now: 5_000 };
        let mut writer = writer(window);
        writer.tick(5_000_000);
        agree(&mut writer, &mut model, &acts);
    }

    #[test]
    fn copies_are_counted_and_deleted_one_by_one(
        numbers in prop::collection::vec((0..40_u64, prop::bool::weighted(0.7)), 1..600),
    ) {
        let mut writer = writer(Window::NONE);
        let mut model = BTreeMap::<u64, usize>::new();
        for (number, is_add) in numbers {
            let (hash, count) = (hash(number), model.entry(hash(number)).or_default());
            if is_add {
                *count += 1;
                prop_assert_eq!(writer.add_copy(hash), Ok(()));
            } else {
                prop_assert_eq!(writer.delete(hash), *count > 0);
                *count = count.saturating_sub(1);
            }
            prop_assert_eq!(writer.table().count(hash), *count);
        }
        prop_assert_eq!(writer.len(), model.values().sum::<usize>() as u64);
    }
}

#[test]
fn of_one_hash_there_are_at_most_255_copies() {
    let mut writer = writer(Window::NONE);
    (0..MAX_COPIES).for_each(|_| writer.add_copy(7).unwrap());
    assert_eq!(writer.add_copy(7), Err(AddError::Copies));
    assert_eq!(writer.table().count(7), MAX_COPIES);
}

#[test]
fn without_memory_adds_are_refused_and_lookups_go_on() {
    let budget = Arc::new(Budget::new(64 << 10));
    let mut writer = Writer::new(Window::NONE, budget.clone()).unwrap();
    let hashes: Vec<u64> = (0..100_000).map(mix64).collect();
    let (added, why) = writer.add_each(&hashes, |_, _| ()).unwrap_err();
    assert_eq!(why, AddError::Memory);
    assert!(added > 2_000 && budget.taken() <= budget.limit(), "{added}");
    writer.table().each(&hashes[..added], |_, seen| assert_eq!(seen, LiveState::Alive));
    assert_eq!(writer.table().state_of(hashes[added]), LiveState::Unknown);
    // What is deleted frees its slot.
    assert!(writer.delete(hashes[0]));
    assert_eq!(writer.add(hashes[0]), Ok(Added::New));
    drop(writer);
    assert_eq!(budget.taken(), 0);
}

#[test]
fn a_reservation_beyond_the_memory_does_not_leave_some_shards_without() {
    // 40 MB for 4 million; a tenth of that is needed.
    let budget = Arc::new(Budget::new(16 << 20));
    let mut writer = Writer::new(Window::NONE, budget).unwrap();
    writer.reserve(4_000_000);
    let hashes: Vec<u64> = (0..300_000).map(mix64).collect();
    writer.add_each(&hashes, |_, _| ()).unwrap();
}

#[test]
fn memory_is_at_most_14_bytes_an_entry() {
    for reserved in [false, true] {
        let mut writer = writer(Window::NONE);
        if reserved {
            writer.reserve(1_000_000);
        }
        let hashes: Vec<u64> = (0..1_000_000).map(mix64).collect();
        writer.add_each(&hashes, |_, added| assert_eq!(added, Added::New)).unwrap();
        let each = writer.bytes() as f64 / writer.len() as f64;
        assert!(each < 14.0, "{each} bytes an entry, reserved: {reserved}");
    }
}

/// How many of 10,000 hashes that are not there the prefilter does not tell.
fn not_told(writer: &Writer) -> usize {
    let view = writer.table().view();
    (0..10_000)
        .filter(|n| {
            let hash = mix64(u64::MAX - n);
            view.prefetch(hash).may_have(hash)
        })
        .count()
}

#[test]
fn the_prefilter_tells_of_most_hashes_that_are_not_there_whatever_was_before() {
    const HASHES: u64 = 20_000;
    // Full to the last slot before it grows, and through many generations of IDs.
    let mut deletes = writer(Window::NONE);
    let mut passes = writer(window(6, Repeat::Renew));
    let mut most = [0; 2];
    for number in 0..100 * HASHES {
        deletes.add(mix64(number)).unwrap();
        if let Some(old) = number.checked_sub(HASHES) {
            assert!(deletes.delete(mix64(old)));
        }
        passes.add(mix64(number)).unwrap();
        if number % (HASHES / 50) == 0 {
            passes.tick(1_000 * number / (HASHES / 50));
            most = [most[0].max(not_told(&deletes)), most[1].max(not_told(&passes))];
        }
    }
    println!("of 10,000: {most:?}");
    assert!(most.iter().all(|not_told| *not_told < 500), "{most:?}");
}

#[test]
fn readers_find_every_hash_that_was_added_before_they_looked() {
    const HASHES: u64 = 200_000;
    let mut writer = writer(Window::NONE);
    let table = writer.table().clone();
    let added = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut end = 0;
                while end < HASHES {
                    end = added.load(Ordering::Acquire);
                    // All of the last ones, and some of the others.
                    let from = end.saturating_sub(2_000);
                    let hashes: Vec<u64> =
                        (0..from).step_by(997).chain(from..end).map(mix64).collect();
                    table.each(&hashes, |i, seen| {
                        assert_eq!(seen, LiveState::Alive, "{i} of {}", hashes.len());
                    });
                }
            });
        }
        for number in 0..HASHES {
            assert_eq!(writer.add(mix64(number)), Ok(Added::New));
            added.store(number + 1, Ordering::Release);
            // Places become free and are taken again while readers run.
            let other = mix64(u64::MAX - number);
            assert_eq!(writer.add(other), Ok(Added::New));
            assert!(writer.delete(other));
        }
    });
}

#[test]
fn of_many_adders_exactly_one_hears_new() {
    const HASHES: u64 = 20_000;
    let writer = Mutex::new(writer(Window::NONE));
    let new = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..HASHES {
                    let added = writer.lock().unwrap().add(mix64(number)).unwrap();
                    new.fetch_add(u64::from(added == Added::New), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(new.load(Ordering::Relaxed), HASHES);
}
