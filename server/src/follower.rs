//! [`Follower`]: the rounds of one filter. A round resolves pin and pointers, loads the blob, lets
//! the guard judge it, and swaps. Only the follower swaps its filter. An error changes the status,
//! never a lookup.
//!
//! | module | contents |
//! |---|---|
//! | `resolve` | which blob pin and pointers name |
//! | `state` | what to do with that blob: a pure state machine |
//! | `pin_watch` | warns before a pin ends |

mod pin_watch;
mod resolve;
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
use tokio::time::{Instant, sleep_until};

use self::pin_watch::PinWatch;
use self::resolve::{ResolveError, resolve};
use self::state::{FollowState, Next};
use crate::cache::writer::CacheWriter;
use crate::config::{Config, FilterConfig};
use crate::generation::Generation;
use crate::guard::hold::{Decision, GuardHold};
use crate::handle::ServedFilter;
use crate::loader::{Deltas, LoadError, Loader};
use crate::readiness::Readiness;
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
    readiness: Arc<Readiness>,
    max_age_days: u32,
    max_generations: usize,
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

/// The result of a round.
struct RoundResult {
    outcome: ReloadOutcome,
    followed: Option<Followed>,
    /// The error, if there was one.
    error: Option<String>,
    /// Why the guard holds a filter back, if it does.
    held: Option<String>,
}

impl Follower {
    pub(crate) fn new(
        served: Arc<ServedFilter>,
        filter: &FilterConfig,
        config: &Config,
        readiness: Arc<Readiness>,
    ) -> Follower {
        Follower {
            served,
            readiness,
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

    /// Resolves, and loads and swaps if necessary. A filter whose hold has ended is current after it,
    /// whatever the result.
    pub(crate) async fn round(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        first: bool,
    ) -> Reloaded {
        self.reclaim();
        let old = self.served.swapped_in().map(|generation| generation.key.digest);
        let mut poll_status = PollStatus::clone(&self.served.poll_status());
        let round = async {
            match first {
                true => self.start(loader, flags, &mut poll_status).await,
                false => self.follow(loader, flags, &mut poll_status).await,
            }
        };
        // A load catches its own panics; no other panic may end the poller, either.
        let result = AssertUnwindSafe(round).catch_unwind().await;
        let result = result.unwrap_or_else(|_| RoundResult::failed("the round panicked".into()));
        if self.is_hold_over() {
            self.end_hold(loader, &mut poll_status).await;
        }
        let now = loader.clock.now();
        poll_status.last_poll = Some(now);
        if let Some(followed) = result.followed {
            self.pin.update(self.served.name(), &followed.by, now);
            poll_status.followed = Some(followed);
        }
        match &result.error {
            Some(why) => {
                poll_status.counts.polls_failed += 1;
                tracing::warn!(filter = %self.served.name(), "{why}");
            }
            None => {
                poll_status.counts.polls_ok += 1;
                poll_status.last_success = Some(now);
            }
        }
        poll_status.last_error.clone_from(&result.error);
        poll_status.held = self.guard.is_holding();
        self.served.set_poll_status(poll_status);
        let new = self.served.swapped_in().map(|generation| generation.key.digest);
        let filter = self.served.name().clone();
        let reason = result.error.or(result.held);
        Reloaded { filter, outcome: result.outcome, old, new, reason }
    }

    /// The first round: if the store fails or is slow, the cached copy is loaded.
    async fn start(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        poll_status: &mut PollStatus,
    ) -> RoundResult {
        let cached = match &loader.cache {
            Some(cache) => cache.followed(self.served.name()).await,
            None => None,
        };
        let Some(blob) = cached else { return self.follow(loader, flags, poll_status).await };
        self.state.restore_last_followed(blob.day);
        self.may_load_cached = true;
        let by = FollowedBy::Pointer { day: blob.day };
        let cached = Followed { blob, bytes: None, by };
        let (served, readiness) = (self.served.clone(), self.readiness.clone());
        let fallback = async {
            tokio::time::sleep(CACHE_FALLBACK_DELAY).await;
            loader.load_cached(&cached, &mut None).await
        };
        // In a block, so that the round has ended before its filter is used again.
        let mut result = {
            let (following, fallback) =
                (pin!(self.follow(loader, flags, poll_status)), pin!(fallback));
            match select(following, fallback).await {
                Either::Left((result, _)) => result,
                Either::Right((generation, following)) => {
                    if let Some(generation) = generation.filter(|_| !served.is_loaded()) {
                        let why = "the store has not answered yet: lookups use the cached copy";
                        tracing::warn!(filter = %served.name(), "{why}");
                        // Before the swap: no status may say that all is well.
                        let last_error = Some(why.to_owned());
                        served.set_poll_status(PollStatus {
                            last_error,
                            ..PollStatus::clone(&served.poll_status())
                        });
                        // There was no filter before, so none is retired.
                        served.swap(Arc::new(generation));
                        readiness.update();
                    }
                    following.await
                }
            }
        };
        if result.error.is_some()
            && !self.served.is_loaded()
            && let Some(generation) = loader.load_cached(&cached, &mut None).await
        {
            poll_status.last_error.clone_from(&result.error);
            self.swap(loader, Arc::new(generation), &cached, poll_status).await;
        }
        self.may_load_cached = false;
        let current = self.served.swapped_in();
        let is_current = current.is_some_and(|current| current.key == cached.blob);
        // If the round swapped this blob in, its pointer is recorded already. Otherwise the round
        // failed, or the guard holds its blob back: either way the cached one stays.
        if is_current && result.followed.is_none() {
            self.cache_writer.clear_next();
            self.state.loaded_fallback(&cached);
            if result.error.is_some() {
                result.outcome = ReloadOutcome::Swapped;
            }
            result.followed = Some(cached);
        }
        result
    }

    /// Resolves, loads and swaps; tries the pointers of older days while no filter is loaded.
    async fn follow(
        &mut self,
        loader: &Loader,
        flags: ReloadFlags,
        poll_status: &mut PollStatus,
    ) -> RoundResult {
        let today = Day::of(loader.clock.now());
        let mut days = days_to_follow(today, self.state.last_followed(), self.max_age_days);
        let mut rejected_newer: Option<String> = None;
        loop {
            let followed = match self.resolve(loader, &days, poll_status).await {
                Ok(followed) => followed,
                Err(error) => {
                    let (why, is_read) = match error {
                        ResolveError::Unreachable(why) => (why, false),
                        ResolveError::NoTarget(why) => (why, true),
                        ResolveError::NoPointer(why) => {
                            self.set_has_no_day(rejected_newer.is_none());
                            (why, true)
                        }
                    };
                    if is_read && self.is_hold_over() {
                        self.guard.drop_held(poll_status);
                    }
                    // If a newer day was rejected, that is the error that an operator needs.
                    return RoundResult::failed(rejected_newer.unwrap_or(why));
                }
            };
            self.set_has_no_day(false);
            // A pin has no older day.
            let older = |day| days.iter().copied().filter(|d| *d < day).collect::<Vec<Day>>();
            let fallback = followed.pointer_day().map(older).unwrap_or_default();
            // An operator's reload retries rejected blobs of older days, too: they are used while
            // no filter is loaded.
            match self.state.next(&followed, flags.requested) {
                Next::Stay => {
                    self.guard.release(poll_status);
                    return match rejected_newer {
                        Some(why) => RoundResult::failed(why),
                        None => RoundResult::ok(ReloadOutcome::Unchanged, followed),
                    };
                }
                Next::KeepCurrent(why) => {
                    self.guard.drop_held(poll_status);
                    return RoundResult::failed(why);
                }
                Next::TryOlder(why) => {
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                    continue;
                }
                Next::Load => {}
            }
            match self.load(loader, &followed, poll_status).await {
                Ok(generation) if rejected_newer.is_some() => {
                    poll_status.last_error.clone_from(&rejected_newer);
                    self.swap(loader, generation, &followed, poll_status).await;
                    self.state.loaded_fallback(&followed);
                    let outcome = ReloadOutcome::Swapped;
                    let followed = Some(followed);
                    return RoundResult { outcome, followed, error: rejected_newer, held: None };
                }
                Ok(generation) => {
                    return self.judge(loader, generation, followed, flags, poll_status).await;
                }
                Err(LoadError::Permanent(why)) => {
                    self.state.rejected(&followed, &why);
                    if self.served.is_loaded() || fallback.is_empty() {
                        return RoundResult::failed(rejected_newer.unwrap_or(why));
                    }
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                }
                // Not rejected: it may come back, and each poll asks for it again.
                Err(LoadError::Missing(why))
                    if !self.served.is_loaded() && !fallback.is_empty() =>
                {
                    rejected_newer.get_or_insert(why);
                    days = fallback;
                }
                Err(LoadError::Transient(why) | LoadError::Missing(why)) => {
                    return RoundResult::failed(rejected_newer.unwrap_or(why));
                }
            }
        }
    }

    /// Swaps, unless the guard holds the filter back.
    async fn judge(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: Followed,
        flags: ReloadFlags,
        poll_status: &mut PollStatus,
    ) -> RoundResult {
        let now = loader.clock.now();
        if let Some(old) = self.served.swapped_in()
            && self.state.is_judged(&followed, old.key.day)
        {
            let force = flags.force;
            let sides = (&*old, &generation);
            match self.guard.judge(&self.served, sides, &followed, force, now, poll_status) {
                Decision::Swap => {}
                Decision::Hold(why) => return RoundResult::held(why),
            }
        }
        self.guard.release(poll_status);
        poll_status.last_error = None;
        self.swap(loader, generation, &followed, poll_status).await;
        self.state.loaded(&followed);
        RoundResult::ok(ReloadOutcome::Swapped, followed)
    }

    /// Says whether the store has no day, so that live IDs alone answer. Not while a cached copy may be loaded.
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
    async fn end_hold(&mut self, loader: &Loader, poll_status: &mut PollStatus) {
        let Some((generation, followed)) = self.guard.take_held() else { return };
        if let Some(old) = self.served.swapped_in() {
            let (sides, now) = ((&*old, &generation), loader.clock.now());
            if let Decision::Hold(_) =
                self.guard.judge(&self.served, sides, &followed, false, now, poll_status)
            {
                return;
            }
        }
        self.guard.release(poll_status);
        self.swap(loader, generation, &followed, poll_status).await;
        self.state.loaded(&followed);
    }

    /// Reads pin and pointers. A hold that ends during the read is ended.
    async fn resolve(
        &mut self,
        loader: &Loader,
        days: &[Day],
        poll_status: &mut PollStatus,
    ) -> Result<Followed, ResolveError> {
        let served = self.served.clone();
        let mut resolving = pin!(resolve(served.name(), loader, days));
        if let Some(end) = self.guard.ends_at() {
            let end = end.max(Instant::now() + HOLD_GRACE);
            match select(resolving.as_mut(), pin!(sleep_until(end))).await {
                Either::Left((resolved, _)) => return resolved,
                Either::Right(_) => self.end_hold(loader, poll_status).await,
            }
        }
        resolving.await
    }

    /// Takes the memory of retired filters that no reader and no thread slot has any more, and
    /// keeps one buffer: so without idle readers a server has the memory of two filters, and the next
    /// load need not touch new memory.
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
        poll_status: &mut PollStatus,
    ) -> Result<Arc<Generation>, LoadError> {
        // Before the load, so that there are never three filters where two are enough.
        match self.guard.take_held() {
            Some((held, _)) if held.key == followed.blob => return Ok(held),
            _ => self.guard.drop_held(poll_status),
        }
        self.reclaim();
        let alive = self.retired.len() + usize::from(self.served.is_loaded());
        if alive >= self.max_generations {
            poll_status.counts.loads_failed += 1;
            let idle = self.served.idle_readers().join(", ");
            return Err(LoadError::Transient(format!(
                "{alive} filters are still kept by readers without lookups (threads: {idle}); the \
                 next is loaded when one of them makes a lookup or is dropped"
            )));
        }
        let clock = Instant::now();
        let current = self.served.swapped_in();
        let loaded = loader.load(followed, current, &mut self.deltas, &mut self.spare_buffer).await;
        poll_status.counts.deltas_failed = self.deltas.failures;
        match &loaded {
            Ok(generation) => {
                self.deltas.loaded();
                poll_status.counts.loaded(generation);
                poll_status.counts.load_seconds = clock.elapsed().as_secs_f64();
            }
            Err(LoadError::Permanent(_)) => poll_status.counts.loads_rejected += 1,
            Err(LoadError::Transient(_) | LoadError::Missing(_)) => {
                poll_status.counts.loads_failed += 1
            }
        }
        loaded.map(Arc::new)
    }

    /// Makes `generation` the current one and publishes `poll_status`.
    ///
    /// The status of a first filter is published before the swap, while the state is still
    /// `loading`: so a fallback is never reported as well. Any other status is published after the
    /// swap: a caller that waits for a state then finds the filter that belongs to it.
    async fn swap(
        &mut self,
        loader: &Loader,
        generation: Arc<Generation>,
        followed: &Followed,
        poll_status: &mut PollStatus,
    ) {
        poll_status.followed = Some(followed.clone());
        poll_status.held = self.guard.is_holding();
        if !self.served.is_loaded() {
            self.served.set_poll_status(poll_status.clone());
        }
        let (filter, day, digest) = (self.served.name(), generation.key.day, generation.key.digest);
        tracing::info!(%filter, %day, digest = digest.short(), "swapped");
        if self.served.has_live_ids() && generation.filter.shape().layout() != Layout::Blocked {
            tracing::warn!(%filter, "no live IDs are taken over this filter: its layout is not `blocked`");
        }
        let bytes = generation.bytes;
        self.cache_writer.set_next(generation.clone());
        crash_point("swapping");
        #[cfg(feature = "live")]
        self.bring_back(&generation).await;
        let before = self.served.swap(generation);
        self.served.set_poll_status(poll_status.clone());
        self.readiness.update();
        crash_point("swapped");
        if before.is_none()
            && let Err(why) = loader.memory_check.ensure_fits(bytes, false)
        {
            tracing::warn!(%filter, "the next filter of this size would be refused: {why}");
        }
        self.retired.extend(before);
    }

    /// Brings live IDs back that the next filter lacks. Before the swap to it, so that no ID that was added is a
    /// miss in between.
    #[cfg(feature = "live")]
    async fn bring_back(&self, next: &Arc<Generation>) {
        if !self.served.has_live_ids() {
            return;
        }
        let (served, next) = (self.served.clone(), next.clone());
        // In another thread: it waits for the log and the store, and this one drives the connections to the store.
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
        if self.absorbed == Some(current.key.digest) {
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

impl RoundResult {
    fn ok(outcome: ReloadOutcome, followed: Followed) -> RoundResult {
        RoundResult { outcome, followed: Some(followed), error: None, held: None }
    }

    fn failed(why: String) -> RoundResult {
        RoundResult { outcome: ReloadOutcome::Failed, followed: None, error: Some(why), held: None }
    }

    fn held(why: String) -> RoundResult {
        RoundResult { outcome: ReloadOutcome::Held, followed: None, error: None, held: Some(why) }
    }
}
