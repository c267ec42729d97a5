//! [`Follower`]: one filter's way through the rounds. It looks, loads, lets the guard judge, and swaps;
//! it is the one owner of every swap of its filter. A failure changes its status, never an answer.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, FollowedBy, days_to_follow};
use bloomsday_common::store::Following;
use futures::FutureExt;
use futures::future::{Either, select};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::generations::{Generations, Next};
use crate::handle::{Generation, Slot};
use crate::loader::{Failure, Loader, Spare};
use crate::pin::PinWatch;
use crate::poller::Announce;
use crate::status::{Core, ReloadOutcome, Reloaded};
use crate::watch::{Ruling, Watch};
use crate::{Config, FilterConfig};

/// How long the store may take at a start until the cached copy answers meanwhile.
const CACHE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the store may take at the end of a hold, to say that another filter is to answer.
const HOLD_PATIENCE: Duration = Duration::from_secs(2);

/// What an operator asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    /// To look again now, and to give a rejected blob another chance.
    pub(crate) now: bool,
    /// To swap whatever the guard says.
    pub(crate) force: bool,
}

/// One filter's way through the rounds.
pub(crate) struct Follower {
    slot: Arc<Slot>,
    announce: Arc<Announce>,
    max_age_days: u32,
    max_generations: usize,
    generations: Generations,
    watch: Watch,
    pin: PinWatch,
    /// Filters that no longer answer, kept until no reader or lane holds them: so no bidder's thread frees one.
    retired: Vec<Arc<Generation>>,
    /// The memory of one that nobody holds any more, for the next.
    spare: Spare,
    /// What the cache does not hold yet, and the write under way.
    uncached: Option<Arc<Generation>>,
    /// Why the last write failed, which is said once.
    not_cached: Option<String>,
    writing: Option<JoinHandle<Result<(), NotCached>>>,
}

/// A write to the cache that failed, and why.
struct NotCached(Arc<Generation>, String);

/// What a round came to.
struct Ended {
    outcome: ReloadOutcome,
    followed: Option<Followed>,
    /// What went wrong, if anything did.
    error: Option<String>,
    /// Why the guard holds a filter back, if it does.
    held: Option<String>,
}

/// Why a look found nothing to follow.
enum Unseen {
    /// The store did not answer.
    Away(String),
    /// It did, and names no blob, or none that can be read.
    Unnamed(String),
}

impl Follower {
    pub(crate) fn new(
        slot: Arc<Slot>,
        filter: &FilterConfig,
        config: &Config,
        announce: Arc<Announce>,
    ) -> Follower {
        Follower {
            slot,
            announce,
            max_age_days: filter.max_age_days,
            max_generations: config.max_generations,
            generations: Generations::default(),
            watch: Watch::new(filter.guard, filter.guard_max_hold),
            pin: PinWatch::default(),
            retired: Vec::new(),
            spare: None,
            uncached: None,
            not_cached: None,
            writing: None,
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// When the filter that the guard holds back is to answer at the latest.
    pub(crate) fn hold_is_over_at(&self) -> Option<Instant> {
        self.watch.is_over_at()
    }

    /// Looks, and loads and swaps if need be. What is held back no longer than it may be answers after
    /// it, whatever the look came to.
    pub(crate) async fn round(&mut self, loader: &Loader, asked: Asked, first: bool) -> Reloaded {
        self.reclaim();
        let old = self.slot.shown().map(|generation| generation.key.digest);
        let mut core = Core::clone(&self.slot.core());
        let round = async {
            match first {
                true => self.start(loader, asked, &mut core).await,
                false => self.follow(loader, asked, &mut core).await,
            }
        };
        // A load catches its own panics; whatever else panics must not end the poller either.
        let ended = AssertUnwindSafe(round).catch_unwind().await;
        let ended = ended.unwrap_or_else(|_| Ended::failed("looking at the store panicked".into()));
        if self.is_hold_over() {
            self.end_hold(loader, &mut core);
        }
        let now = loader.clock.now();
        core.last_poll = Some(now);
        if let Some(followed) = ended.followed {
            self.pin.look(self.slot.name(), &followed.by, now);
            core.followed = Some(followed);
        }
        match &ended.error {
            Some(why) => {
                core.counts.polls_failed += 1;
                tracing::warn!(filter = %self.slot.name(), "{why}");
            }
            None => {
                core.counts.polls_ok += 1;
                core.last_success = Some(now);
            }
        }
        core.last_error.clone_from(&ended.error);
        core.held = self.watch.is_holding();
        self.slot.set_core(core);
        let new = self.slot.shown().map(|generation| generation.key.digest);
        let filter = self.slot.name().clone();
        let reason = ended.error.or(ended.held);
        Reloaded { filter, outcome: ended.outcome, old, new, reason }
    }

    /// The first round: should the store fail, or take its time to, the cached copy answers.
    async fn start(&mut self, loader: &Loader, asked: Asked, core: &mut Core) -> Ended {
        let cached = match &loader.cache {
            Some(cache) => cache.followed(self.slot.name()).await,
            None => None,
        };
        let Some(blob) = cached else { return self.follow(loader, asked, core).await };
        self.generations.known(blob.day);
        let by = FollowedBy::Pointer { day: blob.day };
        let cached = Followed { blob, bytes: None, by };
        let (slot, announce) = (self.slot.clone(), self.announce.clone());
        let meanwhile = async {
            tokio::time::sleep(CACHE_PATIENCE).await;
            loader.load_cached(&cached, &mut None).await
        };
        // In a block, so that the look is over before its filter is touched again.
        let mut ended = {
            let (following, meanwhile) = (pin!(self.follow(loader, asked, core)), pin!(meanwhile));
            match select(following, meanwhile).await {
                Either::Left((ended, _)) => ended,
                Either::Right((generation, following)) => {
                    if let Some(generation) = generation.filter(|_| !slot.is_loaded()) {
                        let why = "the store has not answered yet; the cached copy answers";
                        tracing::warn!(filter = %slot.name(), "{why}");
                        // Before it answers: nobody is told that all is well meanwhile.
                        let last_error = Some(why.to_owned());
                        slot.set_core(Core { last_error, ..Core::clone(&slot.core()) });
                        // Nothing answered before, so nothing is retired.
                        slot.swap(Arc::new(generation));
                        announce.loaded();
                    }
                    following.await
                }
            }
        };
        if ended.error.is_some()
            && !self.slot.is_loaded()
            && let Some(generation) = loader.load_cached(&cached, &mut None).await
        {
            core.last_error.clone_from(&ended.error);
            self.swap(loader, Arc::new(generation), &cached, core);
        }
        let answers = self.slot.shown().is_some_and(|answers| answers.key == cached.blob);
        // What the look put in place by itself is known already, by the pointer that names it. Else the
        // look failed, or the guard held back what it found: either way this one is not to be given up.
        if answers && ended.followed.is_none() {
            self.uncached = None;
            self.generations.loaded_instead(&cached);
            if ended.error.is_some() {
                ended.outcome = ReloadOutcome::Swapped;
            }
            ended.followed = Some(cached);
        }
        ended
    }

    async fn follow(&mut self, loader: &Loader, asked: Asked, core: &mut Core) -> Ended {
        let today = Day::of(loader.clock.now());
        let mut days = days_to_follow(today, self.generations.last_followed(), self.max_age_days);
        let mut rejected_newer: Option<String> = None;
        loop {
            let followed = match self.look(loader, &days, core).await {
                Ok(followed) => followed,
                Err(unseen) => {
                    if let Unseen::Unnamed(_) = unseen
                        && self.is_hold_over()
                    {
                        self.watch.drop_held(core);
                    }
                    let (Unseen::Away(why) | Unseen::Unnamed(why)) = unseen;
                    // With a newer day rejected, that is what an operator must hear about.
                    return Ended::failed(rejected_newer.unwrap_or(why));
                }
            };
            // A pin leaves nothing to fall back to.
            let older = |day| days.iter().copied().filter(|d| *d < day).collect::<Vec<Day>>();
            let fallback = followed.pointer_day().map(older).unwrap_or_default();
            // An operator's second chance is for stopgaps too: there are some only where nothing answers.
            match self.generations.next(&followed, asked.now) {
                Next::Stay => {
                    self.watch.release(core);
                    return match rejected_newer {
                        Some(why) => Ended::failed(why),
                        None => Ended::well(ReloadOutcome::Unchanged, followed),
                    };
                }
                Next::Refuse(why) => {
                    self.watch.drop_held(core);
                    return Ended::failed(why);
                }
                Next::LookBack(why) => {
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                    continue;
                }
                Next::Load => {}
            }
            match self.load(loader, &followed, core).await {
                Ok(generation) if rejected_newer.is_some() => {
                    core.last_error.clone_from(&rejected_newer);
                    self.swap(loader, generation, &followed, core);
                    self.generations.loaded_instead(&followed);
                    let outcome = ReloadOutcome::Swapped;
                    let followed = Some(followed);
                    return Ended { outcome, followed, error: rejected_newer, held: None };
                }
                Ok(generation) => return self.judge(loader, generation, followed, asked, core),
                Err(Failure::Poison(why)) => {
                    self.generations.rejected(&followed, &why);
                    if self.slot.is_loaded() || fallback.is_empty() {
                        return Ended::failed(rejected_newer.unwrap_or(why));
                    }
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                }
                Err(Failure::Passing(why)) => return Ended::failed(rejected_newer.unwrap_or(why)),
            }
        }
    }

    /// Swaps, unless the guard holds the filter back.
    fn judge(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: Followed,
        asked: Asked,
        core: &mut Core,
    ) -> Ended {
        let now = loader.clock.now();
        if let Some(old) = self.slot.shown()
            && self.generations.is_judged(&followed, old.key.day)
        {
            let force = asked.force;
            let sides = (&*old, &generation);
            match self.watch.judge(&self.slot, sides, &followed, force, now, core) {
                Ruling::Swap => {}
                Ruling::Hold(why) => return Ended::held(why),
            }
        }
        self.watch.release(core);
        core.last_error = None;
        self.swap(loader, generation, &followed, core);
        self.generations.loaded(&followed);
        Ended::well(ReloadOutcome::Swapped, followed)
    }

    fn is_hold_over(&self) -> bool {
        self.watch.is_over_at().is_some_and(|over| over <= Instant::now())
    }

    /// Lets what is held back answer, since its time is over: also without the store, which may be away for
    /// longer than anybody wants to wait. A store that is there and names nothing is another matter.
    fn end_hold(&mut self, loader: &Loader, core: &mut Core) {
        let Some((generation, followed)) = self.watch.take_held() else { return };
        if let Some(old) = self.slot.shown() {
            let (sides, now) = ((&*old, &generation), loader.clock.now());
            if let Ruling::Hold(_) =
                self.watch.judge(&self.slot, sides, &followed, false, now, core)
            {
                return;
            }
        }
        self.watch.release(core);
        self.swap(loader, generation, &followed, core);
        self.generations.loaded(&followed);
    }

    /// Reads pin and pointers; an error says why nothing can be followed. A hold that ends meanwhile ends.
    async fn look(
        &mut self,
        loader: &Loader,
        days: &[Day],
        core: &mut Core,
    ) -> Result<Followed, Unseen> {
        let slot = self.slot.clone();
        let mut looking = pin!(look(slot.name(), loader, days));
        if let Some(over) = self.watch.is_over_at() {
            let over = over.max(Instant::now() + HOLD_PATIENCE);
            match select(looking.as_mut(), pin!(sleep_until(over))).await {
                Either::Left((looked, _)) => return looked,
                Either::Right(_) => self.end_hold(loader, core),
            }
        }
        looking.await
    }

    /// Takes back the memory of retired filters that no reader or lane holds any more, and keeps that of one: so
    /// a server never has more memory than two filters need, and the next load touches none anew.
    fn reclaim(&mut self) {
        self.slot.catch_up();
        for generation in std::mem::take(&mut self.retired) {
            match Arc::try_unwrap(generation) {
                Ok(generation) => self.spare = Some(generation.filter.into_memory()),
                Err(held) => self.retired.push(held),
            }
        }
    }

    /// The filter to be swapped in: the one held back, if that is it, or a new one.
    async fn load(
        &mut self,
        loader: &Loader,
        followed: &Followed,
        core: &mut Core,
    ) -> Result<Arc<Generation>, Failure> {
        // Before another is loaded, so that there are never three where two would do.
        match self.watch.take_held() {
            Some((held, _)) if held.key == followed.blob => return Ok(held),
            _ => self.watch.drop_held(core),
        }
        self.reclaim();
        let alive = self.retired.len() + usize::from(self.slot.is_loaded());
        if alive >= self.max_generations {
            core.counts.loads_failed += 1;
            let idle = self.slot.idle_readers().join(", ");
            return Err(Failure::Passing(format!(
                "{alive} filters are still held by readers that do not ask (threads: {idle}); \
                 the next is loaded when one of them asks or is dropped"
            )));
        }
        let clock = Instant::now();
        let loaded = loader.load(followed, &mut self.spare).await;
        match &loaded {
            Ok(_) => {
                core.counts.loads_ok += 1;
                core.counts.load_seconds = clock.elapsed().as_secs_f64();
            }
            Err(Failure::Poison(_)) => core.counts.loads_rejected += 1,
            Err(Failure::Passing(_)) => core.counts.loads_failed += 1,
        }
        loaded.map(Arc::new)
    }

    /// Lets the filter answer that `followed` names; `core` is the status from then on. A first filter's is
    /// shown before, while all is said to be loading still: one in another's stead is never said to be
    /// well. Another's is shown after: whoever waits for a state finds the filter that goes with it.
    fn swap(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: &Followed,
        core: &mut Core,
    ) {
        core.followed = Some(followed.clone());
        core.held = self.watch.is_holding();
        if !self.slot.is_loaded() {
            self.slot.set_core(core.clone());
        }
        let (filter, day, digest) = (self.slot.name(), generation.key.day, generation.key.digest);
        tracing::info!(%filter, %day, digest = digest.short(), "swapped");
        let bytes = generation.bytes;
        self.uncached = Some(generation.clone());
        crash_point("swapping");
        let before = self.slot.swap(generation);
        self.slot.set_core(core.clone());
        self.announce.loaded();
        crash_point("swapped");
        if before.is_none()
            && let Err(why) = loader.room.check(bytes, false)
        {
            tracing::warn!(%filter, "the next filter of this size would be refused: {why}");
        }
        self.retired.extend(before);
    }

    /// Writes what answers to the cache, beside everything else: a slow disk delays no answer, and a
    /// full one costs only a start without the store.
    pub(crate) async fn keep_in_cache(&mut self, loader: &Loader) {
        let Some(cache) = loader.cache.clone() else { return };
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            // A panic is as good as a failed write; a write that failed is tried again each round.
            match writing.await {
                Ok(Err(NotCached(failed, why))) => {
                    self.uncached.get_or_insert(failed);
                    self.not_cached = Some(why);
                }
                _ => self.not_cached = None,
            }
        }
        if self.writing.is_some() {
            return;
        }
        let Some(generation) = self.uncached.take() else { return };
        let said = self.not_cached.clone();
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let Err(error) = cache.keep(&generation.key, generation.filter.memory()) else {
                crash_point("cached");
                return Ok(());
            };
            let (filter, why) = (&generation.key.filter, error.to_string());
            if said.as_ref() != Some(&why) {
                tracing::warn!(
                    %filter,
                    "the blob was not cached, which only a start without the store would miss: {why}"
                );
            }
            Err(NotCached(generation, why))
        }));
    }
}

async fn look(filter: &FilterName, loader: &Loader, days: &[Day]) -> Result<Followed, Unseen> {
    let looking = async {
        let found = loader.store.follow(filter, days, loader.clock.now()).await;
        // A local store that is away has no pointers either, which says nothing of them.
        match (&found, loader.store.folder()) {
            (Ok(Following::NotFound(_)), Some(folder)) if !is_folder(folder).await => {
                Err(format!("the folder of the store, {}, is not there", folder.display()))
            }
            _ => found.map_err(|e| e.to_string()),
        }
    };
    let following = tokio::time::timeout(loader.deadline, looking)
        .await
        .map_err(|_| Unseen::Away(format!("{} does not answer", loader.store.name())))?;
    match following.map_err(Unseen::Away)? {
        Following::Blob(followed) => Ok(followed),
        Following::Keep(why) => Err(Unseen::Unnamed(why)),
        Following::NotFound(days) => {
            let newest = days.first().map_or(String::new(), Day::to_string);
            let oldest = days.last().map_or(String::new(), Day::to_string);
            let why = format!("`{filter}` has no pointer for any day from {oldest} to {newest}");
            Err(Unseen::Unnamed(why))
        }
    }
}

async fn is_folder(path: &Path) -> bool {
    let path = path.to_owned();
    // A panic is none of its answers; then the store is as good as away.
    tokio::task::spawn_blocking(move || path.is_dir()).await.unwrap_or(false)
}

impl Ended {
    fn well(outcome: ReloadOutcome, followed: Followed) -> Ended {
        Ended { outcome, followed: Some(followed), error: None, held: None }
    }

    fn failed(why: String) -> Ended {
        Ended { outcome: ReloadOutcome::Failed, followed: None, error: Some(why), held: None }
    }

    fn held(why: String) -> Ended {
        Ended { outcome: ReloadOutcome::Held, followed: None, error: None, held: Some(why) }
    }
}
