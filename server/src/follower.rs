//! [`Follower`]: the rounds of one filter. A round resolves pin and pointers, loads the blob, lets
//! the guard judge it, and swaps. Only the follower swaps its filter. An error changes the status,
//! never a lookup.
//!
//! | module | contents |
//! |---|---|
//! | `resolve` | which blob pin and pointers name |
//! | `state` | what to do with that blob: a pure state machine |
//! | `round` | how a round ended |
//! | `pin_watch` | warns before a pin ends |

mod pin_watch;
mod resolve;
mod round;
mod state;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
#[cfg(feature = "live")]
use bloomsday_common::digest::Digest;
use bloomsday_common::filter::Layout;
use bloomsday_common::memory::Buffer;
use bloomsday_common::protocol::{Followed, FollowedBy, days_to_follow};
use futures::FutureExt;
use futures::future::{Either, select};
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use self::pin_watch::PinWatch;
use self::resolve::{ResolveError, resolve};
use self::round::{Attempt, RoundResult};
use self::state::{FollowState, Next};
use crate::all_loaded::AllLoaded;
use crate::cache::LastFollowed;
use crate::cache::writer::CacheWriter;
use crate::config::{Config, FilterConfig};
use crate::generation::Generation;
use crate::guard::hold::{Decision, GuardHold};
use crate::handle::ServedFilter;
use crate::loader::{Deltas, LoadError, Loader};
use crate::status::{PollStatus, ReloadOutcome, Reloaded};

/// How long a start waits for the store before it uses the cached copy.
const CACHE_FALLBACK_DELAY: Duration = Duration::from_secs(2);
/// How long the end of a hold waits for the store, which may name another filter by then.
const HOLD_GRACE: Duration = Duration::from_secs(2);

/// What an operator requested.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReloadFlags {
    /// To poll now, and to load a rejected blob again.
    pub(crate) requested: bool,
    /// To swap past the guard.
    pub(crate) force: bool,
}

/// The rounds of one filter.
pub(crate) struct Follower {
    served: Arc<ServedFilter>,
    all_loaded: Arc<AllLoaded>,
    max_age_days: u32,
    max_generations: usize,
    /// The status as it is published next.
    status: PollStatus,
    state: FollowState,
    guard: GuardHold,
    pin: PinWatch,
    /// Filters that were swapped out, kept until no reader and no thread slot has them: so no
    /// thread of a bidder frees one.
    retired: Vec<Arc<Generation>>,
    /// The memory of a retired filter, for the next load.
    spare_buffer: Option<Buffer>,
    deltas: Deltas,
    cache_writer: CacheWriter,
    /// The filter that live IDs were compared with.
    #[cfg(feature = "live")]
    absorbed: Option<Digest>,
    /// Whether the copy in the cache may be loaded in this round.
    may_load_cached: bool,
}

impl Follower {
    pub(crate) fn new(
        served: Arc<ServedFilter>,
        filter: &FilterConfig,
        config: &Config,
        all_loaded: Arc<AllLoaded>,
    ) -> Follower {
        Follower {
            status: PollStatus::new(filter.guard),
            served,
            all_loaded,
            max_age_days: filter.max_age_days,
            max_generations: config.max_generations,
            state: FollowState::default(),
            guard: GuardHold::new(filter.guard, filter.guard_max_hold),
            pin: PinWatch::default(),
            retired: Vec::new(),
            spare_buffer: None,
            deltas: Deltas::default(),
            cache_writer: CacheWriter::default(),
            #[cfg(feature = "live")]
            absorbed: None,
            may_load_cached: false,
        }
    }

    pub(crate) fn served(&self) -> &ServedFilter {
        &self.served
    }

    /// When the hold ends at the latest, if there is one.
    pub(crate) fn hold_ends_at(&self) -> Option<Instant> {
        self.guard.ends_at()
    }

    /// Resolves, and loads and swaps if necessary. A filter whose hold has ended is current after
    /// it, whatever the result.
    pub(crate) async fn round(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        first: bool,
    ) -> Reloaded {
        self.reclaim();
        let old = self.served.swapped_in().map(|generation| generation.key.digest);
        let round = async {
            if first { self.start(loader, flags).await } else { self.follow(loader, flags).await }
        };
        // A load catches its own panics; no other panic may end the poller, either.
        let result = AssertUnwindSafe(round).catch_unwind().await;
        self.may_load_cached = false;
        let result = result.unwrap_or_else(|_| RoundResult::failed("the round panicked".into()));
        if self.is_hold_over() {
            self.end_hold(loader).await;
        }
        self.record_round(&result, loader.clock.now());
        let new = self.served.swapped_in().map(|generation| generation.key.digest);
        let filter = self.served.name().clone();
        let reason = result.error.or(result.held);
        Reloaded { filter, outcome: result.outcome, old, new, reason }
    }

    /// Writes the result of a round to status and log.
    fn record_round(&mut self, result: &RoundResult, now: Timestamp) {
        let status = &mut self.status;
        status.last_poll = Some(now);
        if let Some(followed) = &result.followed {
            self.pin.update(self.served.name(), &followed.by, now);
            status.followed = Some(followed.clone());
        }
        match &result.error {
            Some(why) => {
                status.counts.polls_failed += 1;
                tracing::warn!(filter = %self.served.name(), "{why}");
            }
            None => {
                status.counts.polls_ok += 1;
                status.last_success = Some(now);
            }
        }
        status.last_error.clone_from(&result.error);
        self.publish_status();
    }

    fn publish_status(&mut self) {
        self.status.held = self.guard.is_holding();
        self.status.judged = self.guard.judged().cloned();
        self.status.counts.verdicts = self.guard.verdicts();
        self.served.set_poll_status(self.status.clone());
    }

    /// The first round: if the store fails or is slow, the cached copy is loaded.
    async fn start(&mut self, loader: &Loader, flags: ReloadFlags) -> RoundResult {
        let cached = match &loader.cache {
            Some(cache) => cache.followed(self.served.name()).await,
            None => None,
        };
        let Some(LastFollowed { blob, pointer_day }) = cached else {
            return self.follow(loader, flags).await;
        };
        self.state.restore_last_followed(pointer_day);
        // A pin may have named the blob of a day that has not begun.
        let today = Day::of(loader.clock.now());
        let by = FollowedBy::Pointer { day: pointer_day.unwrap_or(blob.day.min(today)) };
        let cached = Followed { blob, bytes: None, by };
        self.may_load_cached = true;
        let mut result = self.follow_or_use_copy(loader, flags, &cached).await;
        if result.error.is_some()
            && !self.served.is_loaded()
            && let Some(generation) = loader.load_cached(&cached, &mut None).await
        {
            self.status.last_error.clone_from(&result.error);
            self.swap(loader, Arc::new(generation), &cached).await;
        }
        let current = self.served.swapped_in();
        let is_current = current.is_some_and(|current| current.key == cached.blob);
        // If the round swapped this blob in, its pointer is recorded already. Otherwise the round
        // failed, or the guard holds its blob back: either way the cached one stays.
        if is_current && result.followed.is_none() {
            self.cache_writer.clear_next();
            self.state.note_current(&cached);
            if result.error.is_some() {
                result.outcome = ReloadOutcome::Swapped;
            }
            result.followed = Some(cached);
        }
        result
    }

    /// Follows the store. If it does not answer soon, lookups use the cached copy until it does.
    async fn follow_or_use_copy(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        cached: &Followed,
    ) -> RoundResult {
        let (served, all_loaded) = (self.served.clone(), self.all_loaded.clone());
        let copy = async {
            tokio::time::sleep(CACHE_FALLBACK_DELAY).await;
            loader.load_cached(cached, &mut None).await
        };
        match select(pin!(self.follow(loader, flags)), pin!(copy)).await {
            Either::Left((result, _)) => result,
            Either::Right((copy, following)) => {
                if let Some(copy) = copy.filter(|_| !served.is_loaded()) {
                    swap_in_copy(&served, copy);
                    all_loaded.update();
                }
                following.await
            }
        }
    }

    /// Resolves, loads and swaps; tries the pointers of older days while no filter is loaded.
    async fn follow(&mut self, loader: &Loader, flags: ReloadFlags) -> RoundResult {
        let today = Day::of(loader.clock.now());
        let mut days = days_to_follow(today, self.state.last_followed(), self.max_age_days);
        let mut rejected_newer: Option<String> = None;
        loop {
            match self.try_days(loader, flags, &days, rejected_newer.as_deref()).await {
                Attempt::Done(result) => return result,
                Attempt::TryOlder { days: older, why } => {
                    rejected_newer.get_or_insert(why);
                    days = older;
                }
            }
        }
    }

    /// Tries the pointers of these days. `rejected_newer` is why a newer day was not loaded.
    async fn try_days(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        days: &[Day],
        rejected_newer: Option<&str>,
    ) -> Attempt {
        let followed = match self.resolve(loader, days).await {
            Ok(followed) => followed,
            Err(error) => {
                let why = self.note_unresolved(error, rejected_newer.is_none(), loader.clock.now());
                return Attempt::Done(RoundResult::failed_after(rejected_newer, why));
            }
        };
        self.set_has_no_day(false);
        // An operator's reload retries rejected blobs of older days, too: they are used while
        // no filter is loaded.
        let retry = flags.requested || self.is_uploaded_again(loader, &followed).await;
        match self.state.next(&followed, retry) {
            Next::Stay => {
                self.guard.release();
                Attempt::Done(match rejected_newer {
                    Some(why) => RoundResult::failed(why.to_owned()),
                    None => RoundResult::ok(ReloadOutcome::Unchanged, followed),
                })
            }
            Next::KeepCurrent(why) => {
                self.guard.drop_held();
                Attempt::Done(RoundResult::failed(why))
            }
            Next::TryOlder(why) => Attempt::TryOlder { days: older_than(&followed, days), why },
            Next::Load => {
                let older = older_than(&followed, days);
                self.load_or_try_older(loader, flags, followed, older, rejected_newer).await
            }
        }
    }

    /// Whether a rejected blob was uploaded again, at its own key.
    async fn is_uploaded_again(&mut self, loader: &Loader, followed: &Followed) -> bool {
        if !self.state.is_rejected(followed) {
            return false;
        }
        let upload = loader.upload_of(&followed.blob).await;
        self.state.look_for_new_upload(followed, upload.as_deref())
    }

    /// Notes what it means that pin and pointers name no blob, and returns why. A hold that is over
    /// ends if the store itself says so.
    fn note_unresolved(&mut self, error: ResolveError, is_newest: bool, now: Timestamp) -> String {
        let (why, is_read) = match error {
            ResolveError::Unreachable(why) => (why, false),
            ResolveError::NoTarget(why) => {
                self.set_has_no_day(false);
                (why, true)
            }
            ResolveError::NoPointer(why) => {
                self.set_has_no_day(is_newest);
                self.all_loaded.update();
                if !self.served.is_loaded() && self.served.needs_no_day() {
                    // The store was read.
                    self.status.last_success = Some(now);
                }
                (why, true)
            }
        };
        if is_read && self.is_hold_over() {
            self.guard.drop_held();
        }
        why
    }

    /// Loads the blob that is named, and swaps. `older` are the days before it.
    async fn load_or_try_older(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        followed: Followed,
        older: Vec<Day>,
        rejected_newer: Option<&str>,
    ) -> Attempt {
        let error = match self.load(loader, &followed).await {
            Ok(generation) => {
                return Attempt::Done(match rejected_newer {
                    Some(why) => self.swap_older(loader, generation, followed, why).await,
                    None => self.judge(loader, generation, followed, flags).await,
                });
            }
            Err(error) => error,
        };
        if let LoadError::Permanent { why, upload } = &error {
            self.state.note_rejected(&followed, why, upload.clone());
        }
        let may_try_older = !self.served.is_loaded() && !older.is_empty();
        match error {
            // A missing blob is not rejected: it may come back, and each poll asks for it again.
            LoadError::Permanent { why, .. } | LoadError::Missing(why) if may_try_older => {
                Attempt::TryOlder { days: older, why }
            }
            LoadError::Permanent { why, .. }
            | LoadError::Missing(why)
            | LoadError::Transient(why) => {
                Attempt::Done(RoundResult::failed_after(rejected_newer, why))
            }
        }
    }

    /// Swaps in the filter of an older day, since that of a newer one was rejected.
    async fn swap_older(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: Followed,
        rejected_newer: &str,
    ) -> RoundResult {
        self.status.last_error = Some(rejected_newer.to_owned());
        self.swap(loader, generation, &followed).await;
        self.state.note_current(&followed);
        RoundResult {
            outcome: ReloadOutcome::Swapped,
            followed: Some(followed),
            error: Some(rejected_newer.to_owned()),
            held: None,
        }
    }

    /// Swaps, unless the guard holds the filter back.
    async fn judge(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: Followed,
        flags: ReloadFlags,
    ) -> RoundResult {
        let now = loader.clock.now();
        if let Some(old) = self.served.swapped_in()
            && self.state.is_judged(&followed, old.key.day)
        {
            let force = flags.force;
            let sides = (&*old, &generation);
            match self.guard.judge(&self.served, sides, &followed, force, now) {
                Decision::Swap => {}
                Decision::Hold(why) => return RoundResult::held(why),
            }
        }
        self.guard.release();
        self.status.last_error = None;
        self.swap(loader, generation, &followed).await;
        self.state.note_loaded(&followed);
        RoundResult::ok(ReloadOutcome::Swapped, followed)
    }

    /// Says whether the store has no day, so that live IDs alone answer. Not while a cached copy
    /// may be loaded.
    fn set_has_no_day(&self, has_no_day: bool) {
        let has_no_day = has_no_day && !self.may_load_cached;
        #[cfg(feature = "live")]
        self.served.set_has_no_day(has_no_day);
        #[cfg(not(feature = "live"))]
        let _ = has_no_day;
    }

    fn is_hold_over(&self) -> bool {
        self.guard.ends_at().is_some_and(|over| over <= Instant::now())
    }

    /// Swaps in the filter that was held back, since its hold has ended. This does not need the
    /// store, which may be away for long. A store that is there and names no blob drops the hold
    /// instead.
    async fn end_hold(&mut self, loader: &Loader) {
        let Some((generation, followed)) = self.guard.take_held() else { return };
        if let Some(old) = self.served.swapped_in() {
            let (sides, now) = ((&*old, &generation), loader.clock.now());
            let decision = self.guard.judge(&self.served, sides, &followed, false, now);
            if let Decision::Hold(_) = decision {
                return;
            }
        }
        self.guard.release();
        self.swap(loader, generation, &followed).await;
        self.state.note_loaded(&followed);
    }

    /// Reads pin and pointers. A hold that ends during the read is ended.
    async fn resolve(&mut self, loader: &Loader, days: &[Day]) -> Result<Followed, ResolveError> {
        let served = self.served.clone();
        let mut resolving = pin!(resolve(served.name(), loader, days));
        if let Some(end) = self.guard.ends_at() {
            let end = end.max(Instant::now() + HOLD_GRACE);
            match select(resolving.as_mut(), pin!(sleep_until(end))).await {
                Either::Left((resolved, _)) => return resolved,
                Either::Right(_) => self.end_hold(loader).await,
            }
        }
        resolving.await
    }

    /// Takes the memory of retired filters that no reader and no thread slot has any more, and
    /// keeps one buffer: so without idle readers a server has the memory of two filters, and the
    /// next load need not touch new memory.
    fn reclaim(&mut self) {
        self.served.refresh_idle();
        for generation in std::mem::take(&mut self.retired) {
            match Arc::try_unwrap(generation) {
                Ok(generation) => self.spare_buffer = Some(generation.filter.into_memory()),
                Err(in_use) => self.retired.push(in_use),
            }
        }
    }

    /// The filter to swap in: the one that is held back, if it is the same, or a new one.
    async fn load(
        &mut self,
        loader: &Loader,
        followed: &Followed,
    ) -> Result<Arc<Generation>, LoadError> {
        // Before the load, so that there are never three filters where two are enough.
        match self.guard.take_held() {
            Some((held, _)) if held.key == followed.blob => return Ok(held),
            _ => self.guard.drop_held(),
        }
        self.reclaim();
        let alive = self.retired.len() + usize::from(self.served.is_loaded());
        if alive >= self.max_generations {
            self.status.counts.loads_failed += 1;
            let idle = self.served.idle_readers().join(", ");
            return Err(LoadError::Transient(format!(
                "{alive} filters are still kept by readers without lookups (threads: {idle}); the \
                 next is loaded when one of them makes a lookup or is dropped"
            )));
        }
        let clock = Instant::now();
        let current = self.served.swapped_in();
        let loaded = loader.load(followed, current, &mut self.deltas, &mut self.spare_buffer).await;
        self.status.counts.deltas_failed = self.deltas.failures;
        match &loaded {
            Ok(generation) => {
                self.deltas.loaded();
                self.status.counts.loaded(generation);
                self.status.counts.load_seconds = clock.elapsed().as_secs_f64();
            }
            Err(LoadError::Permanent { .. }) => self.status.counts.loads_rejected += 1,
            Err(LoadError::Transient(_) | LoadError::Missing(_)) => {
                self.status.counts.loads_failed += 1
            }
        }
        loaded.map(Arc::new)
    }

    /// Makes `generation` the current one and publishes the status.
    ///
    /// The status of a first filter is published before the swap, while the state is still
    /// `loading`: so a fallback is never reported as well. Any other status is published after the
    /// swap: a caller that waits for a state then finds the filter that belongs to it.
    async fn swap(&mut self, loader: &Loader, generation: Arc<Generation>, followed: &Followed) {
        self.status.followed = Some(followed.clone());
        if !self.served.is_loaded() {
            self.publish_status();
        }
        let (filter, key) = (self.served.name().clone(), &generation.key);
        let (day, digest) = (key.day, key.digest);
        tracing::info!(%filter, %day, digest = digest.short(), "swapped");
        if self.served.has_live_ids() && generation.filter.shape().layout() != Layout::Blocked {
            tracing::warn!(%filter, "no live IDs are taken over this filter: its layout is not `blocked`");
        }
        let bytes = generation.bytes;
        self.cache_writer.set_next(generation.clone(), followed.pointer_day());
        crash_point("swapping");
        #[cfg(feature = "live")]
        self.bring_back(&generation).await;
        let before = self.served.swap(generation);
        self.publish_status();
        self.all_loaded.update();
        crash_point("swapped");
        if before.is_none()
            && let Err(why) = loader.memory_check.ensure_fits(bytes, false)
        {
            tracing::warn!(%filter, "the next filter of this size would be refused: {why}");
        }
        self.retired.extend(before);
    }

    /// Brings live IDs back that the next filter lacks. Before the swap to it, so that no ID that
    /// was added is a miss in between.
    #[cfg(feature = "live")]
    async fn bring_back(&self, next: &Arc<Generation>) {
        if !self.served.has_live_ids() {
            return;
        }
        let (served, next) = (self.served.clone(), next.clone());
        // In another thread: it waits for the log and the store, and this one drives the
        // connections to the store.
        let bringing = tokio::task::spawn_blocking(move || served.bring_back(&next));
        // After a panic, which its hook has reported, the swap is made all the same.
        let _ = bringing.await;
    }

    /// Drops the live IDs that the filter of a new day has.
    #[cfg(feature = "live")]
    pub(crate) async fn absorb(&mut self) {
        if !self.served.has_live_ids() {
            return;
        }
        let Some(current) = self.served.swapped_in() else { return };
        if !self.served.takes_absorb_again() && self.absorbed == Some(current.key.digest) {
            return;
        }
        self.absorbed = Some(current.key.digest);
        let served = self.served.clone();
        let absorbing = tokio::task::spawn_blocking(move || served.absorb(&current));
        // After a panic they are compared with the next filter.
        let _ = absorbing.await;
    }

    /// Begins to write the current filter to the cache, if it is not there and there is one.
    pub(crate) async fn write_cache(&mut self, loader: &Loader) {
        if let Some(cache) = &loader.cache {
            self.cache_writer.write(cache).await;
        }
    }
}

/// The days before the one whose pointer names this blob. A pin has none.
fn older_than(followed: &Followed, days: &[Day]) -> Vec<Day> {
    let older = |day| days.iter().copied().filter(|other| *other < day).collect();
    followed.pointer_day().map(older).unwrap_or_default()
}

/// Makes the cached copy the current filter, for as long as the store has not answered.
fn swap_in_copy(served: &ServedFilter, copy: Generation) {
    let why = "the store has not answered yet: lookups use the cached copy";
    tracing::warn!(filter = %served.name(), "{why}");
    let mut status = PollStatus::clone(&served.poll_status());
    status.last_error = Some(why.to_owned());
    // Before the swap: no status may say that all is well.
    served.set_poll_status(status);
    // There was no filter before, so none is retired.
    served.swap(Arc::new(copy));
}
