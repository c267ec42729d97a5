//! Live IDs against a simple statement of what must be a hit, over days, deletions, swaps and
//! rollbacks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use bloomsday_common::blob::Origin;
use bloomsday_common::filter::{FilterMut, Shape};
use bloomsday_common::hash::mix64;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::live::absorb::day_number;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::live::memory::writer::Added;
use crate::live::{Below, Live, LiveConfig, LiveRole, NoAnswer, Options};

const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// After the day of this test's run, so that the clock of the system moves no window.
const FIRST_DAY: u64 = 40_000;
const IDS: u64 = 40;
const LIVE_DAYS: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    Add(u64),
    Forget(u64),
    NextDay,
    /// The filter of so many days before today goes live, with these IDs.
    Swap(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..IDS).prop_map(Step::Add),
        1 => (0..IDS).prop_map(Step::Forget),
        2 => Just(Step::NextDay),
        3 => (0..4_u64, any::<u64>()).prop_map(|(back, ids)| Step::Swap(back, ids)),
    ];
    proptest::collection::vec(step, 1..60)
}

fn hash(id: u64) -> u64 {
    mix64(id + 1_000)
}

/// A day's filter with some of the IDs.
struct Made {
    day: u64,
    digest: Digest,
    header: Header,
    filter: Filter,
}

impl Made {
    fn new(day: u64, ids: u64) -> Made {
        let shape = Shape::for_ids(Layout::Blocked, IDS, 0.001).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        let has = |id: &u64| ids >> id & 1 == 1;
        (0..IDS).filter(has).for_each(|id| filter.insert(Xxh3(hash(id))));
        let header = Header {
            filter: "rt".parse().unwrap(),
            day: Day::at_unix_ms(day * DAY_MS),
            shape,
            id_form: Default::default(),
            origin: Origin::Built,
            ids: IDS,
            fpp_target: 0.001,
            fpp_hits: 0,
            fpp_lookups: 1,
            ones: 0,
        };
        assert_eq!(day_number(header.day), day);
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&ids.to_le_bytes());
        digest[8..16].copy_from_slice(&day.to_le_bytes());
        Made { day, digest: Digest::new(digest), header, filter: filter.freeze() }
    }

    fn has(&self, id: u64) -> bool {
        self.filter.contains_hash(Xxh3(hash(id)))
    }

    fn view(&self) -> DayFilter<'_> {
        DayFilter { digest: self.digest, header: &self.header, filter: &self.filter }
    }
}

/// The current filter, and the number of swaps.
#[derive(Default)]
struct Current {
    made: Mutex<Option<Arc<Made>>>,
    epoch: AtomicU64,
    /// What comes between an answer of the filter and what follows it, once.
    after_next_answer: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Current {
    fn swap(&self, next: Arc<Made>) {
        *lock(&self.made) = Some(next);
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

impl Below for Current {
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn is_still(&self, epoch: u64) -> bool {
        self.epoch() == epoch
    }

    fn contains_each(&self, hashes: &[u64], answers: &mut [bool]) -> Result<(), NoAnswer> {
        let made = lock(&self.made).clone();
        for (hash, answer) in hashes.iter().zip(answers) {
            *answer = made.as_ref().is_some_and(|made| made.filter.contains_hash(Xxh3(*hash)));
        }
        let act = lock(&self.after_next_answer).take();
        act.into_iter().for_each(|act| act());
        Ok(())
    }

    fn count_lookups(&self, _: &[&[u8]], _: u64) {}
}

/// A set over the filter of [`Current`], with its log in the folder.
fn set_over_day() -> (TempDir, Arc<Current>, Arc<LiveSet>) {
    let folder = TempDir::new().unwrap();
    let live = Live::open(LiveConfig::new(Some(folder.path().to_owned()))).unwrap();
    let current = Arc::new(Current::default());
    let (name, weak) = ("rt".parse().unwrap(), Arc::downgrade(&current));
    let set = live
        .declare(&name, Options::over_day(LIVE_DAYS, IdForm::Bytes), LiveRole::Decide, weak)
        .unwrap();
    (folder, current, set)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_was_added_is_a_hit_over_days_deletions_swaps_and_rollbacks(
        steps in steps(),
        keeps in any::<bool>(),
    ) {
        let (_folder, current, set) = set_over_day();
        if keeps {
            set.keep_confirmed();
        }
        let mut today = FIRST_DAY;
        // The day on which each ID was last seen, and the IDs that are deleted.
        let (mut seen, mut hidden) = (BTreeMap::<u64, u64>::new(), BTreeSet::new());
        for step in steps {
            let now = today * DAY_MS + 5;
            match step {
                Step::Add(id) => {
                    set.add_each(now, &[hash(id)], |_, _| ()).1.unwrap();
                    hidden.remove(&id);
                    seen.insert(id, today);
                }
                Step::Forget(id) => {
                    set.forget(now, &[hash(id)]).1.unwrap();
                    seen.remove(&id);
                    hidden.insert(id);
                }
                Step::NextDay => {
                    today += 1;
                    set.tick(today * DAY_MS + 5);
                }
                Step::Swap(back, ids) => {
                    let next = Arc::new(Made::new(today - back, ids));
                    let before = lock(&current.made).clone();
                    let was_alive: Vec<u64> =
                        (0..IDS).filter(|id| set.table.state_of(hash(*id)) == LiveState::Alive).collect();
                    set.bring_back(now, next.view());
                    current.swap(next.clone());
                    set.absorb(now, next.view());
                    let is_back = before.is_some_and(|before| {
                        next.day <= before.day && next.digest != before.digest
                    });
                    let mut unconfirmed = 0;
                    for (id, day) in seen.iter().filter(|(_, day)| *day + 3 >= today) {
                        let there = set.table.state_of(hash(*id));
                        let has = *day <= next.day && next.has(*id);
                        let must = is_back || was_alive.contains(id);
                        let is_dropped = has && !keeps;
                        prop_assert!(!is_dropped || there == LiveState::Unknown, "{id} is not dropped");
                        prop_assert!(is_dropped || !must || there == LiveState::Alive, "{id} is lost");
                        let is_alive = there == LiveState::Alive;
                        unconfirmed += u64::from(is_alive && *day <= next.day && !has);
                    }
                    prop_assert_eq!(set.status(now).unconfirmed, unconfirmed);
                }
            }
            let filter = lock(&current.made).clone();
            let day = filter.as_ref().map_or(0, |made| made.day);
            for id in 0..IDS {
                let mut hit = false;
                set.each(today * DAY_MS + 5, &[hash(id)], |_, is| hit = is).unwrap();
                let below = filter.as_ref().is_some_and(|made| made.has(id));
                let last = seen.get(&id).filter(|last| **last + 3 >= today);
                match last {
                    _ if hidden.contains(&id) => prop_assert!(!hit, "{id} was deleted"),
                    Some(last) if *last > day => prop_assert!(hit, "{id} is newer than the filter"),
                    Some(_) if keeps => prop_assert!(hit, "{id} was not kept"),
                    Some(_) => prop_assert!(hit || !below),
                    None => prop_assert_eq!(hit, below, "{} was not added", id),
                }
            }
        }
    }
}

/// The day's filter misses the ID, then a day comes that has it and takes it over, then the table
/// misses it.
#[test]
fn a_day_that_takes_an_id_over_in_the_middle_of_a_call_does_not_make_it_a_miss() {
    let (_folder, current, set) = set_over_day();
    let now = FIRST_DAY * DAY_MS + 5;
    let swap_after_next_answer = |id: u64| {
        let ticket = set.add_each(now, &[hash(id)], |_, added| assert_eq!(added, Added::New)).0;
        drop(ticket);
        let (set, current) = (set.clone(), current.clone());
        let act = {
            let current = current.clone();
            move || {
                let next = Arc::new(Made::new(FIRST_DAY, (1 << (id + 1)) - 1));
                current.swap(next.clone());
                set.absorb(now, next.view());
            }
        };
        *lock(&current.after_next_answer) = Some(Box::new(act));
    };

    swap_after_next_answer(0);
    set.each(now, &[hash(0)], |_, hit| assert!(hit, "a lookup misses")).unwrap();
    swap_after_next_answer(1);
    let again = |_, added| assert_eq!(added, Added::Unchanged, "it is new a second time");
    set.add_each(now, &[hash(1)], again).1.unwrap();
    swap_after_next_answer(2);
    assert_eq!(set.forget(now, &[hash(2)]).1, Ok(1), "a deletion did not find it");
    assert_eq!(set.table.state_of(hash(0)), LiveState::Unknown, "the day did not take it over");
}

#[test]
fn what_the_store_lacks_is_not_dropped() {
    let (_folder, _current, set) = set_over_day();
    let now = FIRST_DAY * DAY_MS + 5;
    set.add_each(now, &[hash(1)], |_, _| ()).1.unwrap();
    let day = Made::new(FIRST_DAY, 0b10);
    for (stored_before, then) in [(now, LiveState::Alive), (now + DAY_MS, LiveState::Unknown)] {
        set.set_stored_before(stored_before);
        set.absorb(now, day.view());
        assert!(set.table.state_of(hash(1)) == then);
        assert_eq!(set.status(now).unconfirmed, 0);
    }
}
