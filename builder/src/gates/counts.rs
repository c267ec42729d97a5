//! [`DayCounts`]: the numbers of a day, and what the gates look at of them.

use bloomsday_common::pointer::HistoryEvent;

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
    /// Share of the IDs that the newest earlier filter contains, and its standard deviation.
    pub overlap: Option<(f64, f64)>,
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
            overlap: overlap.map(|(share, _)| share),
            files: files.map(|files| files as f64),
            input_bytes: input_bytes.map(|bytes| bytes as f64),
        }
    }

    pub(super) fn of_event(event: &HistoryEvent) -> Numbers {
        Numbers::of(&DayCounts {
            rows: event.rows.unwrap_or(0),
            nulls: event.nulls.unwrap_or(0),
            invalid: event.invalid.unwrap_or(0),
            ids: event.ids.unwrap_or(0),
            overlap: event.overlap.map(|share| (share, 0.0)),
            files: event.files,
            input_bytes: event.input_bytes,
        })
    }
}
