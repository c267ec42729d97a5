//! [`Gate`]: the numbers of a day that may make it suspicious.

use serde::Serialize;

/// A gate: a number of a day that may make it suspicious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Distinct IDs.
    Ids,
    /// Share of rows without an ID.
    Nulls,
    /// Share of rows with an empty or too long ID.
    Invalid,
    /// Rows with an ID per distinct ID.
    Duplicates,
    /// Share of IDs that the newest earlier filter has.
    Overlap,
    /// Files read.
    Files,
    /// The size of these files.
    InputBytes,
}

impl Gate {
    /// All, in the order of a report.
    pub const ALL: [Gate; 7] = [
        Gate::Ids,
        Gate::Nulls,
        Gate::Invalid,
        Gate::Duplicates,
        Gate::Overlap,
        Gate::Files,
        Gate::InputBytes,
    ];

    /// Its name in configuration and reports.
    pub fn name(self) -> &'static str {
        match self {
            Gate::Ids => "ids",
            Gate::Nulls => "nulls",
            Gate::Invalid => "invalid",
            Gate::Duplicates => "duplicates",
            Gate::Overlap => "overlap",
            Gate::Files => "files",
            Gate::InputBytes => "input_bytes",
        }
    }

    /// What its number is, for people.
    pub(super) fn what(self) -> &'static str {
        match self {
            Gate::Ids => "distinct IDs",
            Gate::Nulls => "share of rows without an ID",
            Gate::Invalid => "share of rows with an empty or too long ID",
            Gate::Duplicates => "rows per distinct ID",
            Gate::Overlap => "share of IDs that the newest earlier filter has",
            Gate::Files => "files read",
            Gate::InputBytes => "bytes of input",
        }
    }
}
