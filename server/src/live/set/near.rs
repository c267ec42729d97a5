//! The fingerprints of a set, of which no two are near each other.

use std::sync::PoisonError;

use bloomsday_common::live::segment::Op;

use super::{LiveSet, SetError, SetState};
use crate::live::lock::lock;
use crate::live::memory::near::{Near, Neighbour};
use crate::live::ticket::Ticket;

impl LiveSet {
    /// Adds a fingerprint unless one is alive within `max` bits: then returns that one, the
    /// nearest. Of several near ones at the same time one is added.
    pub(crate) fn add_near(
        &self,
        now: u64,
        fingerprint: u64,
        max: u32,
    ) -> (Ticket, Result<Option<Neighbour>, SetError>) {
        let (ticket, added) = self.change(now, |SetState { changed, .. }| {
            let added = self.near(|near| near.add(fingerprint, max));
            changed.extend(matches!(added, Some(Ok(None))).then_some(fingerprint));
            (Op::Add, added.unwrap_or(Ok(None)).map_err(SetError::from))
        });
        self.added.count_one(added.as_ref().ok().map(Option::is_none));
        (ticket, added)
    }

    /// Every fingerprint within `max` bits that is alive, the nearest first.
    pub(crate) fn neighbours(&self, now: u64, fingerprint: u64, max: u32) -> Vec<Neighbour> {
        self.tick(now);
        let near = self.near.read().unwrap_or_else(PoisonError::into_inner);
        near.as_ref().map_or(Vec::new(), |near| near.neighbours(fingerprint, max))
    }

    /// Changes the fingerprints in the step of the table.
    pub(super) fn near<T>(&self, change: impl FnOnce(&mut Near) -> T) -> Option<T> {
        let mut near = self.near.write().unwrap_or_else(PoisonError::into_inner);
        let near = near.as_mut()?;
        near.go_to(self.table.step());
        Some(change(near))
    }

    /// Frees the memory of a set that has ended: connections may have the set for long.
    pub(in crate::live) fn free(&self) {
        // In two steps, so that it is not locked while the memory is freed.
        let near = self.near.write().unwrap_or_else(PoisonError::into_inner).take();
        let table = lock(&self.state).writer.clear();
        drop((near, table));
    }
}
