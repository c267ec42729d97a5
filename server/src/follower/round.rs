//! [`RoundResult`]: how a round of a filter ended.

use bloomsday_common::day::Day;
use bloomsday_common::protocol::Followed;

use crate::status::ReloadOutcome;

/// The result of a round.
pub(super) struct RoundResult {
    pub(super) outcome: ReloadOutcome,
    pub(super) followed: Option<Followed>,
    /// The error, if there was one.
    pub(super) error: Option<String>,
    /// Why the guard holds a filter back, if it does.
    pub(super) held: Option<String>,
}

/// The result of trying the pointers of some days.
pub(super) enum Attempt {
    /// The round has ended.
    Done(RoundResult),
    /// No filter is loaded, and the newest of the days cannot be: the days before it are tried.
    TryOlder { days: Vec<Day>, why: String },
}

impl RoundResult {
    pub(super) fn ok(outcome: ReloadOutcome, followed: Followed) -> RoundResult {
        RoundResult { outcome, followed: Some(followed), error: None, held: None }
    }

    pub(super) fn failed(why: String) -> RoundResult {
        RoundResult { outcome: ReloadOutcome::Failed, followed: None, error: Some(why), held: None }
    }

    /// As [`RoundResult::failed`], but why a newer day was not loaded is the reason that an
    /// operator needs, if there is one.
    pub(super) fn failed_after(rejected_newer: Option<&str>, why: String) -> RoundResult {
        RoundResult::failed(rejected_newer.map_or(why, str::to_owned))
    }

    pub(super) fn held(why: String) -> RoundResult {
        RoundResult { outcome: ReloadOutcome::Held, followed: None, error: None, held: Some(why) }
    }
}
