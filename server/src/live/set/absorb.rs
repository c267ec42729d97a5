//! What a set of live IDs does at a swap. IDs that the new filter has are dropped from memory; the
//! others stay. Before a swap to a filter of an earlier day, the IDs that it lacks come back from
//! the log.

use std::sync::atomic::Ordering;

use bloomsday_common::blob::Header;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::hash::Xxh3;
use bloomsday_common::live::absorb::{Absorbed, absorb, comes_back, day_end_ms};
use bloomsday_common::live::entry::SHARDS;
use bloomsday_common::live::segment::Op;

use super::LiveSet;
use crate::live::lock::lock;
use crate::live::memory::table::LiveState;
use crate::live::memory::writer::Added;

/// A day's filter.
#[derive(Clone, Copy)]
pub(crate) struct DayFilter<'a> {
    pub(crate) digest: Digest,
    pub(crate) header: &'a Header,
    pub(crate) filter: &'a Filter,
}

impl DayFilter<'_> {
    fn day(&self) -> Day {
        self.header.day
    }

    /// What happens to a live ID, if [`DayFilter::can_absorb`].
    fn absorbs(&self, hash: u64, seen: u64) -> Absorbed {
        absorb(seen, self.day(), self.filter.contains_hash(Xxh3(hash)))
    }

    /// Whether its IDs can be looked up by their hashes.
    fn can_absorb(&self) -> bool {
        self.filter.shape().layout() == Layout::Blocked
    }
}

impl LiveSet {
    /// Adds again what was dropped because a later filter has it, and this one, which goes live
    /// next, lacks it. Nothing to do unless it is of the same day as the filter before, or of an
    /// earlier one.
    ///
    /// Cost: one pass over the log, and a lookup in the filter for each ID in it. Lookups go on.
    pub(crate) fn bring_back(&self, now: u64, next: DayFilter<'_>) {
        let before = *lock(&self.absorb.filter);
        let is_back = comes_back(before, (next.day(), next.digest));
        if !is_back || !next.can_absorb() {
            return;
        }
        let failed = |why: &dyn std::fmt::Display| {
            let filter = String::from_utf8_lossy(&self.key.name);
            tracing::error!(%filter, "not all live IDs came back for an earlier day's filter: {why}");
        };
        if let Some(others) = self.others() {
            let mut visit = |ms: u64, hashes: &[u64]| {
                let added = self.add_again(now, ms, hashes.iter().copied(), next);
                added.map(drop).map_err(str::to_owned)
            };
            if let Err(why) = others.for_each_add(&mut visit) {
                failed(&why);
            }
        }
        let mut count = 0;
        let read = self.read_own_log(|frame| {
            if frame.op == Op::Add {
                count += self.add_again(now, frame.ms, frame.hashes(), next)?;
            }
            Ok(())
        });
        if let Err(why) = read {
            failed(&why);
        }
        let (filter, day) = (String::from_utf8_lossy(&self.key.name), next.day());
        tracing::info!(%filter, %day, ids = count, "live IDs came back for an earlier filter");
    }

    /// Adds hashes that were seen at `ms`, unless their window has ended, they were deleted, or the
    /// filter has them. Returns how many are new.
    fn add_again(
        &self,
        now: u64,
        ms: u64,
        hashes: impl Iterator<Item = u64>,
        next: DayFilter<'_>,
    ) -> Result<u64, &'static str> {
        let mut state = lock(&self.state);
        let now = now.max(state.last_ms);
        state.writer.tick(now);
        let (step, mut new) = (self.table.window().step_at(ms), 0);
        for hash in hashes {
            // What was deleted stays so: a deletion is the newest change of an ID that is hidden.
            if self.table.state_of(hash) == LiveState::Hidden
                || next.absorbs(hash, step) == Absorbed::Dropped
            {
                continue;
            }
            let added = state.writer.add_at(hash, step);
            let added = added.map_err(|_| "the limit on the memory of live filters is reached")?;
            new += u64::from(added == Added::New);
        }
        drop(state);
        if new > 0 {
            crash_point("live-returning");
        }
        Ok(new)
    }

    /// From now on a swap drops nothing: live IDs that the filter has stay, too.
    pub(crate) fn keep_confirmed(&self) {
        self.absorb.keeps_confirmed.store(true, Ordering::Relaxed);
    }

    /// After the next poll, drops once more what the day's filter has: IDs came that others had
    /// added before.
    pub(in crate::live) fn absorb_again(&self) {
        self.absorb.is_due.store(true, Ordering::Release);
    }

    /// Whether [`LiveSet::absorb_again`] was called since this was.
    pub(crate) fn takes_absorb_again(&self) -> bool {
        self.absorb.is_due.swap(false, Ordering::AcqRel)
    }

    /// Drops what a filter that has gone live has, and counts what it lacks and should have. A set
    /// that neither has a log nor only follows drops nothing, because it could not bring that back;
    /// neither does one that keeps all.
    ///
    /// Cost: a lookup in the filter for each ID; adds wait for a 256th of them at a time.
    pub(crate) fn absorb(&self, now: u64, live: DayFilter<'_>) {
        if !live.can_absorb() {
            return;
        }
        let can_return = self.log().is_some() || self.only_follows();
        let drops = can_return && !self.absorb.keeps_confirmed.load(Ordering::Relaxed);
        let (mut confirmed, mut unconfirmed) = (0, 0);
        for shard in 0..SHARDS {
            let entries = {
                let mut state = lock(&self.state);
                let now = now.max(state.last_ms);
                state.writer.tick(now);
                state.writer.entries_of(shard)
            };
            // What could not be read again stays: it came by an engine, and the store lacks it yet.
            let stored_before = self.absorb.stored_before.load(Ordering::Relaxed);
            let mut dropped = Vec::new();
            for (hash, seen) in entries {
                match live.absorbs(hash, seen) {
                    Absorbed::Dropped if day_end_ms(seen) > stored_before => confirmed += 1,
                    Absorbed::Dropped => dropped.push((hash, seen)),
                    Absorbed::Unconfirmed => unconfirmed += 1,
                    Absorbed::Newer => {}
                }
            }
            confirmed += dropped.len() as u64;
            if !drops || dropped.is_empty() {
                continue;
            }
            crash_point("live-absorbing");
            let mut state = lock(&self.state);
            // One that was seen again meanwhile stays.
            dropped
                .iter()
                .for_each(|(hash, seen)| state.writer.remove_if_last_seen_in(*hash, *seen));
        }
        *lock(&self.absorb.filter) = Some((live.day(), live.digest));
        // Some that the input lost are false positives of the filter.
        let found = f64::from(unconfirmed);
        let unconfirmed = (found / (1.0 - live.header.fpp_measured()).max(0.5)).round() as u64;
        self.absorb.unconfirmed.store(unconfirmed, Ordering::Relaxed);
        self.absorb.confirmed.store(confirmed, Ordering::Relaxed);
        let (filter, day) = (String::from_utf8_lossy(&self.key.name), live.day());
        tracing::info!(%filter, %day, confirmed, unconfirmed, "live IDs were compared with the day");
    }
}

#[cfg(test)]
mod tests;
