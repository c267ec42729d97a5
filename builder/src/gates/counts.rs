//! [`DayCounts`]: the numbers of a day, and what the gates look at of them.

use std::ops::{Index, IndexMut};

use bloomsday_common::pointer::HistoryEvent;

use super::gate::Gate;

/// How many of a day's IDs the newest earlier filter contains.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Their share.
    pub share: f64,
    /// The standard deviation of the share: some absent IDs are hits by chance.
    pub deviation: f64,
}

/// The numbers of a day.
#[derive(Clone, Copy, Debug, Default)]
pub struct DayCounts {
    /// Rows read.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID is empty or too long.
    pub invalid: u64,
    /// Distinct IDs.
    pub ids: u64,
    /// `None` without an earlier filter.
    pub overlap: Option<Overlap>,
    /// Files read.
    pub files: Option<u64>,
    /// The size of these files.
    pub input_bytes: Option<u64>,
}

/// The numbers of the gates, of a day or of what is normal; `None` where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers([Option<f64>; Gate::ALL.len()]);

impl Numbers {
    pub(super) fn each(number: impl FnMut(Gate) -> Option<f64>) -> Numbers {
        Numbers(Gate::ALL.map(number))
    }

    pub(super) fn of(counts: &DayCounts) -> Numbers {
        let DayCounts { rows, nulls, invalid, ids, overlap, files, input_bytes } = *counts;
        // An imported filter has no rows, and no shares of them.
        let share = |n: u64| (rows > 0).then(|| n as f64 / rows as f64);
        let with_id = rows.saturating_sub(nulls).saturating_sub(invalid);
        Numbers::each(|gate| match gate {
            Gate::Ids => Some(ids as f64),
            Gate::Nulls => share(nulls),
            Gate::Invalid => share(invalid),
            Gate::Duplicates => (with_id > 0 && ids > 0).then(|| with_id as f64 / ids as f64),
            Gate::Overlap => overlap.map(|overlap| overlap.share),
            Gate::Files => files.map(|files| files as f64),
            Gate::InputBytes => input_bytes.map(|bytes| bytes as f64),
        })
    }

    pub(super) fn of_event(event: &HistoryEvent) -> Numbers {
        Numbers::of(&DayCounts {
            rows: event.rows.unwrap_or(0),
            nulls: event.nulls.unwrap_or(0),
            invalid: event.invalid.unwrap_or(0),
            ids: event.ids.unwrap_or(0),
            overlap: event.overlap.map(|share| Overlap { share, deviation: 0.0 }),
            files: event.files,
            input_bytes: event.input_bytes,
        })
    }
}

impl Index<Gate> for Numbers {
    type Output = Option<f64>;

    fn index(&self, gate: Gate) -> &Option<f64> {
        &self.0[gate as usize]
    }
}

impl IndexMut<Gate> for Numbers {
    fn index_mut(&mut self, gate: Gate) -> &mut Option<f64> {
        &mut self.0[gate as usize]
    }
}
