//! A server against a store that lies, at each of its calls in turn: it never answers wrongly,
//! never loses what it has, and is right again after the next poll without a fault.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bloomsday_common::filter::Layout;
use bloomsday_server::{Bloomsday, Config, FilterConfig, ReloadOutcome, start_on};
use bloomsday_tests::blobs::{TestBlob, id};
use bloomsday_tests::campaign::{Campaign, full, on_threads};
use bloomsday_tests::faulty_store::{Fault, FaultyStore};
use bloomsday_tests::input::today;

/// More calls than a look and a load make.
const MANY: u64 = 200;
/// How many IDs are looked up: of both days, of one, of none.
const N_IDS: u64 = 6_000;

struct Days {
    before: TestBlob,
    now: TestBlob,
    /// The store with the day before.
    one: FaultyStore,
}

impl Days {
    async fn new() -> Days {
        let before = TestBlob::of(today().minus(1), Layout::Blocked, 0..3_000);
        let now = TestBlob::of(today(), Layout::Blocked, 1_000..4_000);
        let one = FaultyStore::default();
        before.publish(&one.store()).await;
        Days { before, now, one }
    }

    /// Looks all IDs up, and compares the results with the filter that the status names.
    fn check(&self, bloomsday: &Bloomsday, case: &str) -> Option<u32> {
        let ids: Vec<[u8; 8]> = (0..N_IDS).map(id).collect();
        let mut answers = vec![false; ids.len()];
        let began = Instant::now();
        let digest = loop {
            let before = bloomsday.status()[0].digest;
            bloomsday.filter("rt").unwrap().contains_batch(&ids, &mut answers);
            // After a swap in between, either filter may have been used; and a first filter is used
            // a moment before the status names it.
            let is_coming = before.is_none() && answers.iter().any(|yes| !yes);
            if bloomsday.status()[0].digest == before && !is_coming {
                break before;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{case}: the status does not name the filter in use"
            );
        };
        let Some(digest) = digest else {
            assert!(
                answers.iter().all(|yes| *yes),
                "{case}: not the answer until a filter is loaded"
            );
            return None;
        };
        let (made, back) = match digest {
            _ if digest == self.before.encoded().key().digest => (&self.before, 1),
            _ if digest == self.now.encoded().key().digest => (&self.now, 0),
            other => panic!("{case}: {other} was never published"),
        };
        for (id, answer) in ids.iter().zip(&answers) {
            assert_eq!(*answer, made.filter.contains(id), "{case}: a wrong answer");
        }
        Some(back)
    }

    /// Start, swap and stay, each under the fault and then without.
    async fn with(&self, fault: Fault, at: u64, times: u64) -> bool {
        let case = |step: &str, befell: &[String]| {
            format!("{step}, {fault:?} × {times} at {at} ({})", befell.join(", "))
        };
        let mut befell_any = false;

        // A start, with the answer "yes" until something is loaded.
        let faulty = self.one.fork();
        faulty.set_fault(fault, at, times);
        let bloomsday = serve(&faulty);
        let began = Instant::now();
        while bloomsday.status()[0].last_poll.is_none() {
            self.check(&bloomsday, "during the start");
            assert!(began.elapsed() < Duration::from_secs(60), "{fault:?} at {at}: no first look");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let befell = faulty.clear_fault();
        befell_any |= !befell.is_empty();
        let answers = self.check(&bloomsday, &case("a start", &befell));
        assert!(answers.is_some() || !befell.is_empty(), "{}", case("a start", &befell));
        self.recovers(&bloomsday, 1, &case("a start", &befell)).await;

        // A new day.
        let other = self.one.fork();
        let bloomsday = serve(&other);
        self.recovers(&bloomsday, 1, "a clean start").await;
        self.now.publish(&other.store()).await;
        other.set_fault(fault, at, times);
        let reloaded = bloomsday.reload().await.unwrap();
        let befell = other.clear_fault();
        befell_any |= !befell.is_empty();
        let this = case("a new day", &befell);
        let back = self.check(&bloomsday, &this);
        assert!(back.is_some(), "{this}: nothing answers any more");
        match reloaded[0].outcome {
            ReloadOutcome::Swapped => assert_eq!(back, Some(0), "{this}"),
            ReloadOutcome::Unchanged => assert!(fault == Fault::Missing, "{this}"),
            ReloadOutcome::Failed => assert!(!befell.is_empty(), "{this}"),
            ReloadOutcome::Held => panic!("{this}: held"),
        }
        if times == 1 && fault == Fault::Late {
            assert_eq!(back, Some(0), "{this}: late is not lost");
        }
        // A passing failure of the blob is tried again within the load.
        let on_blob = befell.first().is_some_and(|call| call.contains("/blobs/"));
        if times == 1 && on_blob && matches!(fault, Fault::Down | Fault::Broken) {
            assert_eq!(back, Some(0), "{this}: a passing failure was not retried");
        }
        self.recovers(&bloomsday, 0, &this).await;

        // Nothing new: what is there stays, whatever the store says.
        other.set_fault(fault, at, times);
        let _ = bloomsday.reload().await.unwrap();
        let befell = other.clear_fault();
        let this = case("nothing new", &befell);
        let back = self.check(&bloomsday, &this);
        // Only "there is nothing" sends a server to the day before; and that is verified too.
        let denied = fault == Fault::Missing && !befell.is_empty();
        assert!(back == Some(0) || (denied && back == Some(1)), "{this}: {back:?}");
        self.recovers(&bloomsday, 0, &this).await;
        befell_any
    }

    async fn recovers(&self, bloomsday: &Bloomsday, back: u32, case: &str) {
        let reloaded = bloomsday.reload().await.unwrap();
        let (outcome, reason) = (reloaded[0].outcome, &reloaded[0].reason);
        let well = matches!(outcome, ReloadOutcome::Swapped | ReloadOutcome::Unchanged);
        assert!(well, "{case}, then: {outcome:?} {reason:?}");
        assert_eq!(self.check(bloomsday, case), Some(back), "{case}, then: {outcome:?}");
    }
}

fn serve(faulty: &FaultyStore) -> Bloomsday {
    let mut config = Config::new("faulty://store", vec![FilterConfig::new("rt".parse().unwrap())]);
    // Only a reload looks again.
    config.poll_interval = Duration::from_secs(3_600);
    config.retry_interval = config.poll_interval;
    config.load_deadline = Duration::from_millis(900);
    config.answer_until_loaded = true;
    start_on(faulty.store(), config).unwrap()
}

#[test]
fn a_server_against_a_store_that_lies_never_answers_wrongly_and_recovers() {
    let campaign = Campaign::new("a store that lies, to a server");
    let block_on = |future| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let days = runtime.block_on(Days::new());
    // A server writes nothing, so faults of writes are left out.
    let faults = [
        Fault::Down,
        Fault::Forbidden,
        Fault::Missing,
        Fault::Late,
        Fault::Silent,
        Fault::Short,
        Fault::Broken,
    ];
    let times: &[u64] = if full() { &[1, 2, 3, 4, 5, MANY] } else { &[1, MANY] };
    let plans: Vec<(Fault, u64)> =
        faults.into_iter().flat_map(|fault| times.iter().map(move |n| (fault, *n))).collect();
    let cases = AtomicU64::new(0);
    // They wait for pauses and deadlines most of the time.
    on_threads(plans.len() as u64, plans.len() as u64, |n| {
        let (fault, times) = plans[n as usize];
        let mut at = 0;
        while block_on(days.with(fault, at, times)) {
            cases.fetch_add(3, Ordering::Relaxed);
            at += 1;
            assert!(at < MANY, "{fault:?}: no look is ever clean");
        }
    });
    campaign.passed(&format!("{} polls", cases.into_inner()), "no wrong answer; right at the next");
}
