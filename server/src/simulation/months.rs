//! Complete months of a server, with faults of the store, the clock, the data and the operators.
//! After every step an oracle checks whether the current filter is allowed.
//!
//! A test run plays a few months; `BLOOMSDAY_CAMPAIGN=full` plays 10,000. `BLOOMSDAY_SEED=n` plays
//! the month with this seed, and in a campaign all months from it on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::delta::{self, Content};
use bloomsday_common::hash::SplitMix64;
use bloomsday_common::key::DeltaKey;
use bloomsday_common::pointer::{Pin, Pointer};
use bloomsday_common::store::Store;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};

use super::blobs::{FIRST_DAY, Kind, Made, day, find, made, rt, user};
use super::flaky_store::{Fault, FlakyStore};
use super::oracle::{Observation, Oracle, Record, Records, Target};
use super::process::{FakeClock, Process, on_a_paused_clock, seed_jitter};
use crate::cache::Cache;
use crate::handle::Reader;
use crate::status::State;
use crate::{Config, FilterConfig, Guard};

/// How long each simulation is.
const DAYS: u64 = 30;
/// How many months a test run plays, and the full campaign.
const FEW: u64 = 8;
const FULL: u64 = 10_000;
/// How many of the newest pointers' blobs have deltas to a blob.
const DELTAS: usize = 4;
/// A step is at most this long; a day has some seventy.
const STEP_SECONDS: u64 = 2_400;
/// Twice in each poll interval: a filter is seldom current only between two observations.
const OBSERVE_EVERY: Duration = Duration::from_secs(300);

/// How many loads of all months came by a delta, and how many deltas could not be used.
static BY_DELTA: AtomicU64 = AtomicU64::new(0);
static DELTAS_FAILED: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_month_of_faults_gives_no_wrong_answer_and_no_filter_is_lost() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let full = std::env::var("BLOOMSDAY_CAMPAIGN").is_ok_and(|size| size == "full");
    let first = number("BLOOMSDAY_SEED");
    if let Some(seed) = first.filter(|_| !full) {
        return month(seed);
    }
    let months = if full { FULL } else { FEW };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (next, done) = (AtomicU64::new(first.unwrap_or(0)), AtomicU64::new(0));
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= months {
                        return;
                    }
                    let played = catch_unwind(AssertUnwindSafe(|| month(seed)));
                    if let Err(panic) = played {
                        eprintln!("the month with BLOOMSDAY_SEED={seed} failed");
                        // No more months, so that the first failure is the last output.
                        next.store(months, Ordering::Relaxed);
                        std::panic::resume_unwind(panic);
                    }
                    let played = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if full && played % 100 == 0 {
                        eprintln!("{played} of {months} months held");
                    }
                }
            });
        }
    });
    let (months, seconds) = (done.into_inner(), began.elapsed().as_secs_f64());
    let (by_delta, failed) =
        (BY_DELTA.load(Ordering::Relaxed), DELTAS_FAILED.load(Ordering::Relaxed));
    println!("{by_delta} loads by a delta, and {failed} deltas that could not be used");
    assert!(by_delta > 10 * months && failed > months, "deltas are not tried");
    let size = format!("{months} months of some {} polls each", DAYS * 144);
    println!(
        "CAMPAIGN a server's life, simulated | {size} | every answer as it should | {seconds:.0}"
    );
}

fn month(seed: u64) {
    seed_jitter(seed);
    on_a_paused_clock(async { Month::begin(seed).await.play().await });
}

/// One simulated month.
struct Month {
    random: SplitMix64,
    store: Arc<FlakyStore>,
    clock: FakeClock,
    config: Config,
    records: Records,
    process: Process,
    oracle: Oracle,
    idle: Vec<Reader>,
    /// Only for a server with a cache.
    _cache: Option<tempfile::TempDir>,
    /// When `observe` ran last.
    observed_at: Instant,
    story: Vec<String>,
}

impl Month {
    async fn begin(seed: u64) -> Month {
        let mut random = SplitMix64::new(seed);
        let midnight: Timestamp = format!("{FIRST_DAY}T00:00:00Z").parse().unwrap();
        let clock = FakeClock::new(midnight);
        let mut config = Config::new("", vec![FilterConfig::new(rt())]);
        config.filters[0].guard = [Guard::Warn, Guard::Hold][(random.draw() % 2) as usize];
        // Files are slow, so only some months have a cache.
        let cache = (seed % 8 == 7).then(|| tempfile::TempDir::new().unwrap());
        config.cache_dir = cache.as_ref().map(|folder| folder.path().to_owned());
        let store = Arc::new(FlakyStore::new());
        // Another filter whose store never responds: it must delay nothing here.
        if seed % 2 == 1 {
            config.filters.push(FilterConfig::new("other".parse().unwrap()));
            store.set_fault_of("other", Fault::Hangs);
        }
        let process = Process::start(&store, &clock, &config);
        let oracle = Oracle::new(Vec::new(), max_hold(&config));
        let mut month = Month {
            random,
            store,
            clock,
            config,
            records: Records::default(),
            process,
            oracle,
            idle: Vec::new(),
            _cache: cache,
            observed_at: Instant::now(),
            story: Vec::new(),
        };
        month.publish(-1, made(-1, Kind::Good)).await;
        month.restart(true).await;
        month
    }

    async fn play(mut self) {
        for today in 0..DAYS as i64 {
            let night = self.clock.truth() + SignedDuration::from_hours(24);
            let mut published = false;
            // The build of yesterday ends at some time in the night.
            let mut build_in = Duration::from_secs(7_200 + self.below(7_200));
            while self.clock.truth() < night {
                let step = Duration::from_secs(1 + self.below(STEP_SECONDS));
                self.pass(step).await;
                build_in = build_in.saturating_sub(step);
                if !published && build_in.is_zero() {
                    published = true;
                    self.build(today).await;
                }
                // A month has quiet hours, too.
                if self.below(3) == 0 {
                    self.happen(today).await;
                }
                if self.below(60) == 0 {
                    self.calm().await;
                }
            }
        }
        self.calm().await;
        self.count_loads();
    }

    /// Adds what this process loaded, before it ends.
    fn count_loads(&self) {
        let counts = self.process.status().counts;
        BY_DELTA.fetch_add(counts.loads_by_delta, Ordering::Relaxed);
        DELTAS_FAILED.fetch_add(counts.deltas_failed, Ordering::Relaxed);
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.draw() % n
    }

    fn log(&mut self, what: String) {
        self.story.push(format!("{:.0} {what}", self.clock.truth()));
    }

    /// Records before and after every change which filters may be current.
    fn note(&mut self) {
        self.oracle.note(&self.records, self.clock.now());
    }

    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.note();
            sleep((end - Instant::now()).min(OBSERVE_EVERY)).await;
            self.note();
            self.observe();
        }
    }

    // ---- what happens
    // ------------------------------------------------------------------------------

    async fn build(&mut self, today: i64) {
        let kind = match self.below(10) {
            0 => Kind::Strangers,
            1 => return self.log("no build today".into()),
            _ => Kind::Good,
        };
        self.publish(today - 1, made(today - 1, kind)).await;
    }

    async fn happen(&mut self, today: i64) {
        let back = self.below(3) as i64;
        let n = today - 1 - back;
        match self.below(20) {
            0 => self.set_fault(Fault::Fails),
            1 => self.set_fault(Fault::Forbids),
            2 => self.set_fault(Fault::Hangs),
            3 => {
                let by = Duration::from_secs(self.below(200));
                self.set_fault(Fault::Slow(by));
            }
            4 => self.set_fault(Fault::Cuts),
            5 => self.set_fault(Fault::Resets),
            6 => self.set_fault(Fault::Flaky),
            7 | 8 => self.set_fault(Fault::None),
            9 => {
                let day_seconds = 86_400;
                let by = self.below(6 * day_seconds) as i64 - 3 * day_seconds as i64;
                self.log(format!("the clock is {by} s off"));
                self.change(|month| month.clock.step(by));
            }
            10 => {
                self.log("the clock is right".into());
                self.change(|month| month.clock.step(0));
            }
            11 => {
                let kind = [Kind::Mended, Kind::OtherStrangers][self.below(2) as usize];
                self.publish(n, made(n, kind)).await;
            }
            12 => {
                let older = made(n - 1 - self.below(2) as i64, Kind::Good);
                self.log(format!("rollback of {} to {}", day(n), older.key.day));
                self.upload(older).await;
                self.point(day(n), Record::Names(older.key.clone())).await;
            }
            13 => {
                self.log(format!("garbage in the pointer of {}", day(n)));
                self.point(day(n), Record::Garbage).await;
                if self.below(2) == 0 {
                    self.pass(Duration::from_secs(1_800)).await;
                    self.publish(n, made(n, Kind::Good)).await;
                }
            }
            14 => self.harm(made(n, Kind::Mended)).await,
            15 => self.set_pin(n).await,
            16 => {
                self.log("unpin".into());
                self.note();
                self.store.remove("rt/pin").await;
                self.records.pin = None;
                self.note();
            }
            17 => {
                let force = self.below(2) == 0;
                self.log(format!("reload, force={force}"));
                if force {
                    self.oracle.forced_at = Some(Instant::now());
                }
                drop(self.process.request_reload(force));
            }
            18 => {
                self.log("a reader falls idle".into());
                self.idle.push(self.process.handle().reader());
                if self.idle.len() > 2 {
                    self.idle.remove(0);
                }
            }
            _ => self.restart(false).await,
        }
    }

    fn set_fault(&mut self, fault: Fault) {
        self.log(format!("the store: {fault:?}"));
        self.store.set_fault(fault);
    }

    fn change(&mut self, change: impl FnOnce(&mut Month)) {
        self.note();
        change(self);
        self.note();
    }

    async fn upload(&mut self, blob: &Made) {
        self.store.write(&blob.key.to_string(), blob.bytes.clone()).await;
        self.records.unsound.retain(|key| *key != blob.key);
        self.upload_deltas(blob).await;
    }

    /// Uploads deltas between a blob and what the newest pointers name: some are damaged, some
    /// missing.
    async fn upload_deltas(&mut self, blob: &Made) {
        let named = self.records.pointers.values().rev().take(DELTAS);
        let named = named.filter_map(|record| match record {
            Record::Names(key) if *key != blob.key => find(key),
            _ => None,
        });
        for base in named.collect::<Vec<_>>() {
            let (from, to) = (base.key.digest, blob.key.digest);
            let made =
                delta::make(Content::of(&base.bytes, from), Content::of(&blob.bytes, to), u64::MAX);
            // Of another shape.
            let Ok(Some(delta::Made { bytes: mut delta, .. })) = made else { continue };
            let at = self.below(delta.len() as u64) as usize;
            match self.below(8) {
                0 => delta[at] ^= 1 << self.below(8),
                1 => delta.truncate(at),
                2 => continue,
                _ => {}
            }
            self.records.by_delta.extend([base.key.clone(), blob.key.clone()]);
            self.store.write(&DeltaKey::between(&base.key, &blob.key).to_string(), delta).await;
        }
    }

    async fn publish(&mut self, n: i64, blob: &Made) {
        self.log(format!("publish {:?} of {}", blob.kind, day(n)));
        self.upload(blob).await;
        self.point(day(n), Record::Names(blob.key.clone())).await;
    }

    async fn point(&mut self, day: Day, record: Record) {
        let bytes = match &record {
            Record::Names(key) => Pointer::to(key.clone()).to_bytes(),
            Record::Garbage => b"half a ro".to_vec(),
        };
        self.note();
        self.store.write(&format!("rt/pointers/{day}"), bytes).await;
        self.records.pointers.insert(day, record);
        self.note();
    }

    /// Publishes a blob that is damaged, or not there at all.
    async fn harm(&mut self, blob: &Made) {
        self.log(format!("a damaged or missing blob for {}", blob.key.day));
        if self.below(2) == 0 {
            self.store.remove(&blob.key.to_string()).await;
        } else {
            let mut bytes = blob.bytes.to_vec();
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.below(8);
            self.store.write(&blob.key.to_string(), bytes).await;
        }
        self.records.unsound.push(blob.key.clone());
        self.point(blob.key.day, Record::Names(blob.key.clone())).await;
    }

    async fn set_pin(&mut self, n: i64) {
        let hours = SignedDuration::from_hours(1 + self.below(40) as i64);
        let until = (self.below(3) > 0).then(|| self.clock.truth() + hours);
        let blob = made(n, [Kind::Good, Kind::Strangers][self.below(2) as usize]);
        let (record, bytes) = if self.below(4) == 0 {
            (Record::Garbage, b"{\"blob\": ".to_vec())
        } else {
            let (blob, reason) = (blob.key.clone(), Some("a test".to_owned()));
            let (pinned_at, pinned_by) = (None, None);
            let pin = Pin { blob: blob.clone(), until, pinned_at, pinned_by, reason };
            (Record::Names(blob), pin.to_bytes())
        };
        self.log(format!("pin {record:?} until {until:?}"));
        self.upload(blob).await;
        self.note();
        self.store.write("rt/pin", bytes).await;
        // An unreadable pin has no end.
        let until = until.filter(|_| record != Record::Garbage);
        self.records.pin = Some((record, until));
        self.note();
    }

    async fn restart(&mut self, first: bool) {
        self.log("restart".into());
        // The last write to the cache may not have ended: every filter that was current may be in
        // it.
        let cached = match self.config.cache_dir {
            Some(_) if !first => self.oracle.cacheable(),
            _ => Vec::new(),
        };
        self.idle.clear();
        self.count_loads();
        self.process = Process::start(&self.store, &self.clock, &self.config);
        let ids: Vec<_> = (0..1_500).map(user).collect();
        self.process.sample_lookups(&ids);
        self.oracle = Oracle::new(cached, max_hold(&self.config));
        // A server with a cache has recorded the day that it followed last, whatever its clock
        // says.
        if let Some(folder) = &self.config.cache_dir {
            let store = Store::over(self.store.clone(), "flaky");
            let record = Cache::open(folder, &store).unwrap().record(&rt());
            self.oracle.last_followed = record.and_then(|record| record.pointer_day);
        }
        self.observed_at = Instant::now();
        self.note();
    }

    // ---- what must hold
    // ----------------------------------------------------------------------------

    fn observe(&mut self) {
        let status = self.process.status();
        let (digest, day, pointer_day) = (status.digest, status.day, status.pointer_day);
        let (held, well) = (status.held, status.last_error.is_none());
        let judged = status.judged.as_ref().map(|judged| judged.digest);
        let observation = Observation { digest, day, pointer_day, held, judged, well };
        let judged = self.oracle.judge(&observation, self.observed_at);
        self.observed_at = Instant::now();
        let mut wrong = judged.err();
        if !self.process.is_alive() {
            wrong = Some("the rounds ended".into());
        }
        let alive = self.process.alive();
        if alive > self.config.max_generations {
            wrong = Some(format!("{alive} filters are in memory"));
        }
        if wrong.is_none()
            && let Some(blob) = self.oracle.answers
        {
            let handle = self.process.handle();
            let mine = blob.first_user + self.below(super::blobs::USERS);
            if !handle.contains(&user(mine)) {
                wrong = Some(format!("user {mine} of {} was denied", blob.key));
            }
            let any = user(self.below(3_000_000));
            if handle.contains(&any) != blob.filter.contains(&any) {
                wrong = Some(format!("{} answers otherwise than it was made", blob.key));
            }
        }
        self.check(wrong.map_or(Ok(()), Err));
    }

    /// Ends all faults. After a poll and a load the right blob must be current.
    async fn calm(&mut self) {
        self.idle.clear();
        self.set_fault(Fault::None);
        // A read or load that hangs ends at its deadline; then a poll follows.
        let round = self.config.load_deadline * 3 + Duration::from_secs(60);
        let target = |month: &Month| month.oracle.target(&month.records, month.clock.now());
        self.pass(round).await;
        let Some(expected) = target(self) else { return };
        let before = self.process.status().digest;
        self.pass(self.config.poll_interval * 11 / 10 + Duration::from_secs(1)).await;
        if target(self).as_ref() != Some(&expected) {
            return;
        }
        let status = self.process.status();
        let right = match &expected {
            Target::Keep => status.digest == before && status.last_error.is_some(),
            Target::Blob(key, _)
                if !self.records.is_sound(key)
                    && !status.held
                    && status.digest != Some(key.digest) =>
            {
                // If nothing was current before, an older day may be current.
                (before.is_none() || status.digest == before) && status.last_error.is_some()
            }
            Target::Blob(key, _) if status.digest == Some(key.digest) => {
                status.last_error.is_none() && !status.held
            }
            Target::Blob(key, pointer) => {
                let held_long = self.oracle.held_from.map(|from| Instant::now() - from);
                let max = max_hold(&self.config).unwrap_or_default() + self.config.poll_interval;
                let may_hold = *pointer == Some(key.day)
                    && status.day.is_some_and(|answers| key.day > answers)
                    && held_long.is_some_and(|long| long <= max + round);
                status.held && status.state == State::Held && may_hold
            }
        };
        let message = format!("a calm hour ended with {status:?}, not {expected:?}");
        self.check(if right { Ok(()) } else { Err(message) });
    }

    #[track_caller]
    fn check(&self, result: Result<(), String>) {
        if let Err(wrong) = result {
            let last = self.story.iter().rev().take(40).rev().cloned().collect::<Vec<_>>();
            let status = self.process.status();
            panic!("{wrong}\n  {}\nat {:.0}: {status:?}", last.join("\n  "), self.clock.truth());
        }
    }
}

fn max_hold(config: &Config) -> Option<Duration> {
    let filter = &config.filters[0];
    (filter.guard == Guard::Hold).then_some(filter.guard_max_hold)
}
