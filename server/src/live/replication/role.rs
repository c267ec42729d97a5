//! [`LiveRole`].

use serde::Serialize;

/// What a process does with the live IDs of a filter.
///
/// ```
/// # fn main() -> Result<(), bloomsday_server::error::Error> {
/// use bloomsday_server::FilterConfig;
/// use bloomsday_server::live::LiveRole;
///
/// let mut filter = FilterConfig::new("rt".parse().expect("it is a name"));
/// filter.live_role = LiveRole::Standby; // decides when nobody else does
/// # Ok(()) }
/// ```
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
