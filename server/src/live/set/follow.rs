//! What other servers changed in a set, from their logs. The newest change of an ID counts,
//! whichever log has it; logs are read one after the other, so a frame may come that is older than
//! what is here.

use std::collections::HashMap;
use std::sync::Arc;

use bloomsday_common::live::segment::{Frame, Op};

use super::{LiveSet, SetError, SetState};
use crate::live::lock::lock;
use crate::live::replication::access::WriteAccess;
use crate::live::replication::role::LiveRole;

/// By how much the clock of another server may be ahead of this one's, so that a change here still
/// counts as later than those that were read of it.
pub(crate) const MAX_CLOCK_SKEW_MS: u64 = 60 * 60 * 1000;
/// The most deletions whose time is remembered. Above this the older half is forgotten: a sighting
/// that is read later then wins over such a deletion.
const MAX_DELETIONS: usize = 1 << 20;

/// When hashes that are hidden were deleted, in milliseconds since 1970.
#[derive(Default)]
pub(crate) struct Deletions(HashMap<u64, u64>);

impl Deletions {
    /// Notes what a frame changed. Of one hash, frames come in the order of their log.
    pub(crate) fn note(&mut self, op: Op, ms: u64, hashes: impl Iterator<Item = u64>) {
        match op {
            Op::Delete => hashes.for_each(|hash| self.insert(hash, ms)),
            Op::Add if !self.0.is_empty() => hashes.for_each(|hash| _ = self.0.remove(&hash)),
            _ => {}
        }
    }

    fn insert(&mut self, hash: u64, ms: u64) {
        if self.0.len() >= MAX_DELETIONS && !self.0.contains_key(&hash) {
            // By time and hash: of one time there may be more than half.
            let mut all: Vec<(u64, u64)> = self.0.iter().map(|(hash, at)| (*at, *hash)).collect();
            let (_, median, _) = all.select_nth_unstable(MAX_DELETIONS / 2);
            let median = *median;
            self.0.retain(|hash, at| (*at, *hash) > median);
        }
        let at = self.0.entry(hash).or_insert(ms);
        *at = ms.max(*at);
    }

    /// Whether a hash was deleted after this time, as far as is known.
    fn is_after(&self, hash: u64, ms: u64) -> bool {
        self.0.get(&hash).is_some_and(|at| *at > ms)
    }
}

/// Deletions with their times that may be older than a sighting that is here already.
pub(crate) type LateDeletions = HashMap<u64, u64>;

/// Who can read again what other servers added.
pub(crate) trait OtherLogs: Send + Sync {
    /// Visits all sightings that may still count, with their times. Waits for the store, so it may
    /// be called in tokio's threads for blocking work only. An error of `visit` ends it.
    fn for_each_add(&self, visit: AddVisitor<'_>) -> Result<(), String>;
}

/// Called with the hashes that were added at one time.
pub(crate) type AddVisitor<'a> = &'a mut (dyn FnMut(u64, &[u64]) -> Result<(), String> + Send);

impl LiveSet {
    /// Changes are taken only while `access` is granted; `others` has what is not in its own log.
    pub(in crate::live) fn share(&self, access: Arc<WriteAccess>, others: Arc<dyn OtherLogs>) {
        // A set is shared by one filter.
        let _ = (self.access.set(access), self.others.set(others));
    }

    pub(super) fn others(&self) -> Option<&Arc<dyn OtherLogs>> {
        self.others.get()
    }

    /// Makes the change of a frame of another log. Deletions that are older than what is here of
    /// another log are not made, and kept for [`LiveSet::late_deletions`].
    pub(crate) fn apply(&self, now: u64, frame: &Frame<'_>, is_late: bool) -> Result<(), SetError> {
        let mut state = lock(&self.state);
        // Compared with `now`, and not with `last_ms`, which an earlier call may have moved ahead
        // for this very reason: clocks that differ would add up.
        if frame.ms <= now.saturating_add(MAX_CLOCK_SKEW_MS) {
            state.after_others_ms = state.after_others_ms.max(frame.ms + 1);
        }
        let now = now.max(state.last_ms);
        let is_late = is_late || frame.ms < state.last_ms;
        let SetState { writer, deletions, late, .. } = &mut *state;
        writer.tick(now);
        let step = self.table.window().step_at(frame.ms);
        match frame.op {
            Op::Add => {
                for hash in frame.hashes() {
                    // In one log it comes after the deletion, so one of the same time is later.
                    if late.get(&hash).is_some_and(|at| frame.ms >= *at) {
                        late.remove(&hash);
                    }
                    if !deletions.is_after(hash, frame.ms) {
                        writer.add_at(hash, step)?;
                        deletions.0.remove(&hash);
                    }
                }
            }
            Op::Delete if is_late => {
                for hash in frame.hashes() {
                    let at = late.entry(hash).or_insert(frame.ms);
                    *at = frame.ms.max(*at);
                }
            }
            Op::Delete => {
                for hash in frame.hashes() {
                    writer.hide(hash)?;
                    deletions.insert(hash, frame.ms);
                }
            }
            // Options and ends of a set: a filter of the configuration has its own.
            _ => {}
        }
        Ok(())
    }

    /// How many deletions are late.
    pub(crate) fn late_count(&self) -> usize {
        lock(&self.state).late.len()
    }

    /// The late deletions, to look for later sightings of their IDs.
    pub(crate) fn late_deletions(&self) -> LateDeletions {
        lock(&self.state).late.clone()
    }

    /// Drops the deletions after which this process added the ID itself.
    ///
    /// Cost: a pass over its log; it waits for the disk.
    pub(crate) fn drop_added_later(&self, deleted: &mut LateDeletions) -> Result<(), String> {
        self.read_own_log(|frame| {
            if frame.op == Op::Add {
                frame.hashes().for_each(|hash| drop_if_later(deleted, hash, frame.ms));
            }
            Ok(())
        })
    }

    /// Ends the late deletions that are in `settled`, unless an ID was added or deleted since:
    /// hides those that are in `hidden`, too. After an error the others stay late.
    pub(crate) fn end_late(
        &self,
        settled: &LateDeletions,
        hidden: &LateDeletions,
    ) -> Result<(), SetError> {
        let mut state = lock(&self.state);
        let SetState { writer, deletions, late, .. } = &mut *state;
        let mut result = Ok(());
        late.retain(|hash, ms| {
            if settled.get(hash) != Some(ms) {
                return true;
            }
            if !hidden.contains_key(hash) {
                return false;
            }
            if result.is_ok() {
                result = writer.hide(*hash).map(|_| deletions.insert(*hash, *ms));
            }
            result.is_err()
        });
        result?;
        Ok(())
    }

    /// Notes that the changes of other servers from before this time are in the store, as far as
    /// they are here.
    pub(in crate::live) fn set_stored_before(&self, ms: u64) {
        self.absorb.set_stored_before(ms);
    }

    /// Whether all of its IDs are those of other servers.
    pub(crate) fn only_follows(&self) -> bool {
        self.access.get().is_some_and(|access| access.role() == LiveRole::Follow)
    }
}

/// Drops the deletion of a hash that was seen after it.
pub(crate) fn drop_if_later(deleted: &mut LateDeletions, hash: u64, seen_ms: u64) {
    if deleted.get(&hash).is_some_and(|at| seen_ms > *at) {
        deleted.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::hash::mix64;
    use bloomsday_common::id_form::IdForm;
    use bloomsday_common::live::segment::{Frames, append_hashes};
    use tempfile::TempDir;

    use super::*;
    use crate::live::memory::table::LiveState;
    use crate::live::options::DAY_MS;
    use crate::live::{Below, Live, LiveConfig, NoAnswer, Options};

    /// A day's filter without IDs.
    struct NoDay;

    impl Below for NoDay {
        fn epoch(&self) -> u64 {
            0
        }

        fn is_still(&self, _epoch: u64) -> bool {
            true
        }

        fn contains_each(&self, _: &[u64], answers: &mut [bool]) -> Result<(), NoAnswer> {
            answers.fill(false);
            Ok(())
        }

        fn count_lookups(&self, _: &[&[u8]], _: u64) {}
    }

    /// What a server deleted just before it was killed, and ships when it runs again.
    #[test]
    fn a_late_deletion_hides_no_id_that_was_added_after_it() {
        let folder = TempDir::new().unwrap();
        let (set, live, _below) = decided(&folder);
        let now = live.now();
        let apply = |ms: u64, op: Op, hashes: &[u64]| {
            let mut bytes = Vec::new();
            append_hashes(&mut bytes, 1, ms, op, hashes);
            for frame in Frames::of_rest(&bytes, 1) {
                set.apply(now, &frame.unwrap(), false).unwrap();
            }
        };
        let add = |hash: u64| drop(set.add_each(now, &[hash], |_, _| ()).0);
        let [before, since, never, unknown] = [1, 2, 3, 4].map(mix64);
        apply(now - 20_000, Op::Add, &[since, never, unknown]);
        add(before);
        apply(now - 10_000, Op::Delete, &[before, since, never]);
        let all = set.late_deletions();
        let mut late = all.clone();
        assert_eq!(late.len(), 3);
        apply(now - 5_000, Op::Delete, &[unknown]);
        let logged = set.log().unwrap().last_seq();
        add(since);
        assert!(set.log().unwrap().last_seq() > logged, "other servers would not read this add");
        set.drop_added_later(&mut late).unwrap();
        set.end_late(&all, &late).unwrap();
        let seen = [before, since, never].map(|hash| set.table.state_of(hash));
        assert_eq!(seen, [LiveState::Alive, LiveState::Alive, LiveState::Hidden]);
        // One that came after they were looked up waits for the next time.
        assert_eq!(set.late_deletions().into_keys().collect::<Vec<_>>(), [unknown]);
        assert_eq!(set.table.state_of(unknown), LiveState::Alive);
    }

    /// Whoever merges the logs, as this server does after a restart, goes by their times.
    #[test]
    fn a_change_is_later_than_those_of_a_server_whose_clock_is_ahead() {
        let folder = TempDir::new().unwrap();
        let (set, _live, _below) = decided(&folder);
        // In the middle of a day.
        let (now, hash) = (20_000 * DAY_MS.get() + DAY_MS.get() / 2, mix64(1));
        let apply = |ms: u64, op: Op| {
            let mut bytes = Vec::new();
            append_hashes(&mut bytes, 1, ms, op, &[hash]);
            for frame in Frames::of_rest(&bytes, 1) {
                set.apply(now, &frame.unwrap(), false).unwrap();
            }
        };
        let last = || last_of(&set);
        apply(now + 25_000, Op::Add);
        drop(set.forget(now, &[hash]).0);
        assert_eq!(last(), (now + 25_001, Op::Delete));
        apply(now + 50_000, Op::Delete);
        drop(set.add_each(now, &[hash], |_, _| ()).0);
        assert_eq!(last(), (now + 50_001, Op::Add));
        // A clock that is wrong by more moves no other server's, also not step by step.
        apply(now + MAX_CLOCK_SKEW_MS + 1, Op::Add);
        drop(set.forget(now, &[hash]).0);
        assert_eq!(last(), (now + 50_001, Op::Delete));
    }

    /// The day's filter and the segments of a day go by the time of a change.
    #[test]
    fn a_change_after_those_of_a_clock_that_is_ahead_is_still_of_this_day() {
        let folder = TempDir::new().unwrap();
        let (set, _live, _below) = decided(&folder);
        let (hash, midnight) = (mix64(1), 20_000 * DAY_MS.get());
        let mut bytes = Vec::new();
        append_hashes(&mut bytes, 1, midnight + 5_000, Op::Add, &[hash]);
        for frame in Frames::of_rest(&bytes, 1) {
            set.apply(midnight - 10_000, &frame.unwrap(), false).unwrap();
        }
        drop(set.forget(midnight - 10_000, &[hash]).0);
        assert_eq!(last_of(&set), (midnight - 1, Op::Delete));
        drop(set.add_each(midnight + 1, &[hash], |_, _| ()).0);
        assert_eq!(last_of(&set), (midnight + 5_001, Op::Add));
    }

    /// The head of the log calls complete what is before the mark.
    #[test]
    fn a_change_that_read_the_clock_before_a_mark_is_not_of_that_time() {
        let folder = TempDir::new().unwrap();
        let (set, _live, _below) = decided(&folder);
        let midnight = 20_000 * DAY_MS.get();
        set.mark(midnight);
        // A clock that goes back by little takes no mark back.
        set.mark(midnight - 1_000);
        drop(set.add_each(midnight - 300, &[mix64(1)], |_, _| ()).0);
        assert_eq!(last_of(&set), (midnight, Op::Add));
        // A clock that was ahead for a moment moves no time.
        set.mark(midnight + 7_200_000);
        assert_eq!(set.clock_ahead_ms(midnight + 7_200_000), 0);
        drop(set.add_each(midnight + 5, &[mix64(2)], |_, _| ()).0);
        assert_eq!(last_of(&set), (midnight + 5, Op::Add));
        set.mark(midnight);
        assert_eq!(set.clock_ahead_ms(midnight), 5);
    }

    /// A set that this process decides, over a day without IDs, and what has to live as long.
    fn decided(folder: &TempDir) -> (Arc<LiveSet>, Live, Arc<dyn Below>) {
        let live = Live::open(LiveConfig::new(Some(folder.path().to_owned()))).unwrap();
        let below: Arc<dyn Below> = Arc::new(NoDay);
        let (name, options) = ("rt".parse().unwrap(), Options::over_day(30, IdForm::Bytes));
        let set = live.declare(&name, options, LiveRole::Decide, Arc::downgrade(&below)).unwrap();
        (set, live, below)
    }

    /// The time and the kind of the last change in the own log.
    fn last_of(set: &LiveSet) -> (u64, Op) {
        let mut last = (0, Op::Drop);
        set.log().unwrap().write().unwrap();
        let visit = |frame: &Frame<'_>| {
            last = (frame.ms, frame.op);
            Ok(())
        };
        set.read_own_log(visit).unwrap();
        last
    }

    #[test]
    fn late_deletions_stay_late_when_there_is_no_memory_for_them() {
        let memory = 64 << 10;
        let live = Live::open(LiveConfig { memory, ..LiveConfig::new(None) }).unwrap();
        let below: Arc<dyn Below> = Arc::new(NoDay);
        let (name, options) = ("rt".parse().unwrap(), Options::over_day(30, IdForm::Bytes));
        let set = live.declare(&name, options, LiveRole::Decide, Arc::downgrade(&below)).unwrap();
        let hashes: Vec<u64> = (0..20_000).map(mix64).collect();
        let late: LateDeletions = hashes.iter().map(|hash| (*hash, live.now())).collect();
        lock(&set.state).late = late.clone();
        assert!(matches!(set.end_late(&late, &late), Err(SetError::Memory)));
        let left = set.late_deletions();
        let hidden = |hash: &u64| set.table.state_of(*hash) == LiveState::Hidden;
        assert!(!left.is_empty() && left.len() < late.len(), "{} are left", left.len());
        assert!(hashes.iter().all(|hash| hidden(hash) != left.contains_key(hash)));
    }

    #[test]
    fn deletions_are_bounded_and_the_newest_stay() {
        let mut deletions = Deletions::default();
        let many = MAX_DELETIONS as u64 + 10;
        (0..many).for_each(|n| deletions.note(Op::Delete, n, [n].into_iter()));
        assert!(deletions.0.len() <= MAX_DELETIONS);
        assert!(deletions.is_after(many - 1, many - 2) && !deletions.is_after(many - 1, many - 1));
        assert!(!deletions.is_after(0, 0) && deletions.0.len() >= MAX_DELETIONS / 2);
        deletions.note(Op::Add, many, [many - 1].into_iter());
        assert!(!deletions.is_after(many - 1, 0));
    }

    #[test]
    fn of_deletions_at_one_time_half_stay() {
        let mut deletions = Deletions::default();
        deletions.note(Op::Delete, 7, 0..MAX_DELETIONS as u64);
        deletions.note(Op::Delete, 8, 0..1);
        assert_eq!(deletions.0.len(), MAX_DELETIONS, "what is known takes no place");
        deletions.note(Op::Delete, 8, MAX_DELETIONS as u64..MAX_DELETIONS as u64 + 1);
        assert!(deletions.0.len() >= MAX_DELETIONS / 2, "{} are left", deletions.0.len());
    }
}
