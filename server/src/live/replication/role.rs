//! [`LiveRole`].

use serde::Serialize;

/// What a process does with the live IDs of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LiveRole {
    /// It takes IDs, and decides which are new. Another decider is an error at its start.
    #[default]
    Decide,
    /// It follows until no other process decides, and then decides.
    Standby,
    /// It reads from the store what others added, and takes no IDs.
    Follow,
}

impl LiveRole {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            LiveRole::Decide => "decide",
            LiveRole::Standby => "standby",
            LiveRole::Follow => "follow",
        }
    }
}
