//! [`PinWatch`]: warns before a pin ends, since the complete fleet then changes its filter.

use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::FollowedBy;
use jiff::{SignedDuration, Timestamp};

/// How long before the end of a pin there is a warning, once each. A pin that was set for less than
/// the first has only the second: somebody who set it less than a day ahead knows.
const WARNINGS: [SignedDuration; 2] =
    [SignedDuration::from_hours(24), SignedDuration::from_hours(1)];

/// The pin that is followed, and the warnings so far.
#[derive(Default)]
pub(crate) struct PinWatch {
    until: Option<Timestamp>,
    /// How many of [`WARNINGS`] are done, or were over when the pin was first read.
    done: usize,
}

impl PinWatch {
    /// Takes what is followed now, and returns the warning that it logged, if any.
    pub(crate) fn update(
        &mut self,
        filter: &FilterName,
        by: &FollowedBy,
        now: Timestamp,
    ) -> Option<String> {
        let FollowedBy::Pin { until, reason } = by else {
            if self.until.take().is_some_and(|until| until <= now) {
                tracing::warn!(%filter, "the pin has ended: the pointers are followed again");
            }
            return None;
        };
        let Some(until) = *until else {
            self.until = None;
            return None;
        };
        let left = until.duration_since(now);
        let over = |passed: fn(SignedDuration, SignedDuration) -> bool| {
            WARNINGS.iter().filter(|before| passed(left, **before)).count()
        };
        if self.until.replace(until) != Some(until) {
            // The last warning comes however short the pin is.
            self.done = over(|left, before| left < before).min(WARNINGS.len() - 1);
        }
        let due = over(|left, before| left <= before);
        if due <= self.done {
            return None;
        }
        self.done = due;
        let why = reason.as_deref().map_or(String::new(), |why| format!(" (set because: {why})"));
        let warning = format!(
            "the pin ends at {until:.0}, and the fleet then follows the pointers{why}; to keep it \
             longer, pin again"
        );
        tracing::warn!(%filter, "{warning}");
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(until: Timestamp) -> FollowedBy {
        FollowedBy::Pin { until: Some(until), reason: Some("campaign".into()) }
    }

    /// How many hours before its end a warning is logged, for a pin that was set this many hours
    /// ahead.
    fn warned(set_ahead: i64) -> Vec<i64> {
        let filter = "rt".parse().unwrap();
        let until: Timestamp = "2026-11-21T06:00:00Z".parse().unwrap();
        let mut watch = PinWatch::default();
        let mut minutes = (0..=set_ahead * 6).rev().map(|tens| tens * 10);
        let mut warned = Vec::new();
        for left in minutes.by_ref() {
            let now = until - SignedDuration::from_mins(left);
            if let Some(warning) = watch.update(&filter, &pin(until), now) {
                assert!(
                    warning.contains("campaign") && warning.contains("2026-11-21"),
                    "{warning}"
                );
                warned.push(left / 60);
            }
        }
        warned
    }

    #[test]
    fn a_pin_is_warned_of_a_day_and_an_hour_before_it_ends() {
        assert_eq!(warned(72), [24, 1]);
        assert_eq!(warned(24), [24, 1]);
        assert_eq!(warned(12), [1]);
        assert_eq!(warned(0), [0]);
    }

    #[test]
    fn a_pin_without_an_end_is_not_warned_of_and_a_new_end_is_a_new_pin() {
        let filter = "rt".parse().unwrap();
        let now: Timestamp = "2026-11-21T06:00:00Z".parse().unwrap();
        let mut watch = PinWatch::default();
        let endless = FollowedBy::Pin { until: None, reason: None };
        assert_eq!(watch.update(&filter, &endless, now), None);
        let hour = SignedDuration::from_hours(1);
        assert!(watch.update(&filter, &pin(now + hour), now).is_some());
        assert!(watch.update(&filter, &pin(now + hour), now).is_none(), "logged twice");
        assert!(watch.update(&filter, &pin(now + hour * 2), now + hour).is_some());
    }
}
