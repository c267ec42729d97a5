//! [`AheadFrames`]: frames that came by an engine and are not in the store yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::time::Duration;

use bloomsday_common::live::head::Head;
use tokio::time::Instant;

use crate::clock::ms_of;

/// How long IDs that came only by the engine are kept from being dropped, after their server last
/// wrote to the store. The engine does not keep them longer, either.
pub(super) const MAX_AHEAD: Duration = Duration::from_secs(10 * 60);

/// By log, the frames that the store does not have yet.
#[derive(Default)]
pub(super) struct AheadFrames(BTreeMap<u64, Ahead>);

/// Those of one log.
struct Ahead {
    /// The number of the last one.
    last: u64,
    /// The time of the first one, or a later time up to which all are in the store.
    from_ms: u64,
    /// When the last one came, or the store had more of the log.
    moved: Instant,
}

impl AheadFrames {
    /// Adds frames up to this one; the first of them is of the time `from_ms`.
    pub(super) fn add(&mut self, node: u64, last: u64, from_ms: u64) {
        let moved = Instant::now();
        let ahead = self.0.entry(node).or_insert(Ahead { last, from_ms, moved });
        (ahead.last, ahead.moved) = (ahead.last.max(last), moved);
    }

    /// Takes note of how far the log is in the store.
    pub(super) fn note_head(&mut self, node: u64, head: &Head) {
        let MapEntry::Occupied(mut ahead) = self.0.entry(node) else { return };
        if head.seq >= ahead.get().last {
            ahead.remove();
        } else {
            let ahead = ahead.get_mut();
            ahead.from_ms = ahead.from_ms.max(ms_of(head.through));
            ahead.moved = Instant::now();
        }
    }

    /// Forgets the logs that have not moved for [`MAX_AHEAD`].
    pub(super) fn forget_idle(&mut self) {
        self.0.retain(|_, ahead| ahead.moved.elapsed() < MAX_AHEAD);
    }

    /// Whether a log has any.
    pub(super) fn has(&self, node: u64) -> bool {
        self.0.contains_key(&node)
    }

    /// Before this time everything is in the store, in milliseconds since 1970.
    pub(super) fn stored_before_ms(&self) -> u64 {
        self.0.values().map(|ahead| ahead.from_ms).min().unwrap_or(u64::MAX)
    }

    /// By log, the number of the last one.
    pub(super) fn last_frames(&self) -> BTreeMap<u64, u64> {
        self.0.iter().map(|(node, ahead)| (*node, ahead.last)).collect()
    }
}
