//! What a set has, and one set added to another.

use std::collections::BTreeMap;

use bloomsday_common::live::segment::Op;

use super::{KEPT_CHANGES, LiveSet, SetError, SetState};
use crate::live::lock::lock;
use crate::live::memory::writer::Added;
use crate::live::ticket::Ticket;

impl LiveSet {
    /// Adds what another set has, each in the step in which that saw it; returns how many are new.
    pub(crate) fn union(
        &self,
        now: u64,
        entries: &BTreeMap<u64, Vec<u64>>,
    ) -> (Ticket, Result<u64, SetError>) {
        let (mut new, mut last) = (0, Ticket::NONE);
        // What the source before this one added may be more than waits to be written. Not under the
        // lock of the set: a disk may hang.
        if let Some(log) = self.log()
            && let Err(why) = log.write()
        {
            return (last, Err(SetError::Log(why)));
        }
        let mut state = lock(&self.state);
        if let Err(refusal) = self.check(&state) {
            return (last, Err(refusal));
        }
        let now = now.max(state.last_ms);
        state.last_ms = now;
        let SetState { writer, log, changed, .. } = &mut *state;
        writer.tick(now);
        for (ms, hashes) in entries {
            changed.clear();
            let step = self.table.window().step_at((*ms).min(now));
            let mut refusal = None;
            for hash in hashes {
                let fits = self.check_capacity(writer, *hash);
                match fits.and_then(|()| Ok(writer.add_at(*hash, step)?)) {
                    Ok(Added::Unchanged) => continue,
                    Ok(added) => new += u64::from(added == Added::New),
                    Err(refused) => {
                        refusal = Some(refused);
                        break;
                    }
                }
                changed.push(*hash);
            }
            // With the time of the step: a replay adds them in it.
            last = self.ticket_of(log.as_ref(), |log| log.append(*ms, Op::Add, changed));
            changed.clear();
            changed.shrink_to(KEPT_CHANGES);
            if let Some(refused) = refusal {
                if refused == SetError::Memory {
                    state.full_at = Some(self.memory_now(&state));
                }
                return (last, Err(refused));
            }
        }
        (last, Ok(new))
    }

    /// What is alive, by the time at which its step began.
    pub(crate) fn by_time(&self, now: u64) -> BTreeMap<u64, Vec<u64>> {
        self.tick(now);
        let (state, step_ms) = (lock(&self.state), self.table.window().step_ms.get());
        let mut found = BTreeMap::<u64, Vec<u64>>::new();
        for (hash, step) in state.writer.entries() {
            if let Some(step) = step {
                found.entry(step.saturating_mul(step_ms)).or_default().push(hash);
            }
        }
        found
    }
}
