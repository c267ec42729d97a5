//! [`absorb`]: what happens to a live ID when a day's filter goes live; [`comes_back`]: when what
//! was dropped has to come back. Pure decisions.

use crate::day::Day;
use crate::digest::Digest;

/// A day in milliseconds.
const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// What a day's filter does to a live ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absorbed {
    /// The filter has it: the live layer drops it.
    Dropped,
    /// The filter should have it and does not: it stays, and counts as unconfirmed.
    Unconfirmed,
    /// It was seen after the filter's day: it stays.
    Newer,
}

/// What happens to an ID that was last seen on the day of this number when the filter of `day` goes
/// live.
///
/// By the filter's false positives some IDs that the input lost are dropped too; they are misses
/// with the next day's filter, as without a live layer.
///
/// ```
/// use bloomsday_common::live::absorb::{Absorbed, absorb, day_number};
///
/// let day = "2026-11-22".parse()?;
/// let seen = day_number(day);
/// assert_eq!(absorb(seen, day, true), Absorbed::Dropped);
/// assert_eq!(absorb(seen, day, false), Absorbed::Unconfirmed);
/// assert_eq!(absorb(seen + 1, day, true), Absorbed::Newer);
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn absorb(seen: u64, day: Day, is_in_filter: bool) -> Absorbed {
    match (seen <= day_number(day), is_in_filter) {
        (false, _) => Absorbed::Newer,
        (true, true) => Absorbed::Dropped,
        (true, false) => Absorbed::Unconfirmed,
    }
}

/// Whether the IDs that were dropped because the filter `before` had them must come back before
/// `next` becomes the current one: `next` is of an earlier day, or another filter of the same day.
///
/// ```
/// use bloomsday_common::digest::Digest;
/// use bloomsday_common::live::absorb::comes_back;
///
/// let [first, second] = [1, 2].map(|n| Digest::new([n; 32]));
/// let (saturday, sunday) = ("2026-11-21".parse()?, "2026-11-22".parse()?);
/// assert!(comes_back(Some((sunday, first)), (saturday, second)));
/// assert!(comes_back(Some((sunday, first)), (sunday, second)));
/// assert!(!comes_back(Some((sunday, first)), (sunday, first)));
/// assert!(!comes_back(Some((saturday, first)), (sunday, second)));
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
pub fn comes_back(before: Option<(Day, Digest)>, next: (Day, Digest)) -> bool {
    before.is_some_and(|(day, digest)| next.0 <= day && next.1 != digest)
}

/// How many days after 1970-01-01 a day is; 0 for an earlier one.
pub fn day_number(day: Day) -> u64 {
    u64::try_from(day.end().as_millisecond() / DAY_MS - 1).unwrap_or(0)
}

/// When the day of this number ends, in milliseconds since 1970.
pub fn day_end_ms(number: u64) -> u64 {
    number.saturating_add(1).saturating_mul(DAY_MS.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_steps_of_a_day_are() {
        let ms = 1_795_392_000_000; // 2026-11-23T00:00:00Z
        for (at, days) in [(ms - 1, 20_779), (ms, 20_780), (ms + DAY_MS as u64 - 1, 20_780)] {
            assert_eq!(day_number(Day::at_unix_ms(at)), days);
            assert_eq!(at / DAY_MS as u64, days);
            assert!((at + 1..=at + DAY_MS as u64).contains(&day_end_ms(days)));
        }
    }
}
