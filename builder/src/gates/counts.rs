//! [`DayCounts`]: the numbers of a day, and what the gates look at of them.

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

/// The numbers of the gates, from a day's counts.
pub(super) struct Numbers {
    pub(super) ids: f64,
    pub(super) nulls: Option<f64>,
    pub(super) invalid: Option<f64>,
    pub(super) duplicates: Option<f64>,
    pub(super) overlap: Option<f64>,
    pub(super) files: Option<f64>,
    pub(super) input_bytes: Option<f64>,
}

impl Numbers {
    pub(super) fn of(counts: &DayCounts) -> Numbers {
        let DayCounts { rows, nulls, invalid, ids, overlap, files, input_bytes } = *counts;
        // An imported filter has no rows, and no shares of them.
        let share = |n: u64| (rows > 0).then(|| n as f64 / rows as f64);
        let with_id = rows.saturating_sub(nulls).saturating_sub(invalid);
        Numbers {
            ids: ids as f64,
            nulls: share(nulls),
            invalid: share(invalid),
            duplicates: (with_id > 0 && ids > 0).then(|| with_id as f64 / ids as f64),
            overlap: overlap.map(|overlap| overlap.share),
            files: files.map(|files| files as f64),
            input_bytes: input_bytes.map(|bytes| bytes as f64),
        }
    }

    /// The number of a gate, if the day has it.
    pub(super) fn get(&self, gate: Gate) -> Option<f64> {
        match gate {
            Gate::Ids => Some(self.ids),
            Gate::Nulls => self.nulls,
            Gate::Invalid => self.invalid,
            Gate::Duplicates => self.duplicates,
            Gate::Overlap => self.overlap,
            Gate::Files => self.files,
            Gate::InputBytes => self.input_bytes,
        }
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
