//! [`Day`]: the UTC date whose IDs a blob contains, and the `{day}` templates that name a day's
//! input.
//!
//! There is no clock here: "today" is always computed from a time that the caller passes.

use std::fmt;
use std::str::FromStr;

use jiff::{Span, Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::redact::{redact_url, single_line};

/// A UTC date, written `2026-11-19`. An earlier day is less than a later one.
///
/// ```
/// use bloomsday_common::day::Day;
///
/// let day: Day = "2026-11-19".parse()?;
/// assert_eq!(day.minus(1).to_string(), "2026-11-18");
/// assert!(day < day.plus(1));
/// assert!("19.11.2026".parse::<Day>().is_err());
/// # Ok::<(), bloomsday_common::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(Date);

impl Day {
    /// The UTC date at `now`.
    pub fn of(now: Timestamp) -> Day {
        Day(now.to_zoned(TimeZone::UTC).date())
    }

    /// The UTC date at a time in milliseconds since 1970. One past the calendar is its last day.
    pub fn at_unix_ms(ms: u64) -> Day {
        let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        Day::of(at.unwrap_or(Timestamp::MAX))
    }

    /// The moment at which it ends: midnight UTC of the next day.
    pub fn end(self) -> Timestamp {
        let zoned = self.plus(1).0.to_zoned(TimeZone::UTC);
        zoned.map_or(Timestamp::MAX, |midnight| midnight.timestamp())
    }

    /// The day `days` earlier, or the calendar's first day.
    pub fn minus(self, days: u32) -> Day {
        Day(self.0.saturating_sub(span(days)))
    }

    /// The day `days` later, or the calendar's last day.
    pub fn plus(self, days: u32) -> Day {
        Day(self.0.saturating_add(span(days)))
    }

    /// This day and those after it, up to `last`.
    pub fn through(self, last: Day) -> impl Iterator<Item = Day> + use<> {
        let first = Some(self).filter(|first| *first <= last);
        // Not beyond `last`, which may be the calendar's last day.
        std::iter::successors(first, move |day| (*day < last).then(|| day.plus(1)))
    }

    /// Replaces every `{day}` by `2026-11-19` and every `{day:FORMAT}` by the day in that strftime
    /// format (`{day:%Y%m%d}` is `20261119`).
    ///
    /// ```
    /// # use bloomsday_common::day::Day;
    /// let day: Day = "2026-11-19".parse()?;
    /// assert_eq!(day.expand("s3://dmp/rt/dt={day}/")?, "s3://dmp/rt/dt=2026-11-19/");
    /// assert_eq!(day.expand("rt_{day:%Y%m%d}")?, "rt_20261119");
    /// assert!(day.expand("{day").is_err());
    /// # Ok::<(), bloomsday_common::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Template`] for a brace that is not closed, or an unknown format.
    pub fn expand(self, template: &str) -> Result<String, Error> {
        let bad = |why: &str| Error::Template { template: redact_url(template), why: why.into() };
        let mut out = String::with_capacity(template.len() + 10);
        let mut rest = template;
        while let Some(at) = rest.find("{day") {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let end = from.find('}').ok_or_else(|| bad("a `{day` has no closing brace"))?;
            match &from["{day".len()..end] {
                "" => out.push_str(&self.to_string()),
                format if format.starts_with(':') && format.len() > 1 => {
                    let text = jiff::fmt::strtime::format(&format[1..], self.0);
                    out.push_str(&text.map_err(|e| bad(&e.to_string()))?);
                }
                _ => return Err(bad("only `{day}` and `{day:FORMAT}` are known")),
            }
            rest = &from[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// So many days, or as many as the calendar has: jiff refuses a longer span.
fn span(days: u32) -> Span {
    const CALENDAR_DAYS: u32 = 7_304_484;
    Span::new().days(i64::from(days.min(CALENDAR_DAYS)))
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.0.year(), self.0.month(), self.0.day())
    }
}

impl FromStr for Day {
    type Err = Error;

    /// Accepts exactly `YYYY-MM-DD`, so that a day has one spelling in keys and logs.
    fn from_str(text: &str) -> Result<Day, Error> {
        let bad = || Error::NotADay { text: single_line(text, 40) };
        let shape = text.len() == 10
            && text.bytes().enumerate().all(|(i, b)| match i {
                4 | 7 => b == b'-',
                _ => b.is_ascii_digit(),
            });
        if !shape {
            return Err(bad());
        }
        // A year 0 is in no calendar of Python.
        let date = text.parse::<Date>().ok().filter(|date| date.year() > 0);
        date.map(Day).ok_or_else(bad)
    }
}

impl TryFrom<String> for Day {
    type Error = Error;
    fn try_from(text: String) -> Result<Day, Error> {
        text.parse()
    }
}

impl From<Day> for String {
    fn from(day: Day) -> String {
        day.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    #[test]
    fn days_are_counted_up_to_the_last_one() {
        let all = |first: Day, last| first.through(last).collect::<Vec<_>>();
        let (first, last) = (day("2026-12-30"), day("2027-01-01"));
        assert_eq!(all(first, last), [first, day("2026-12-31"), last]);
        assert_eq!(all(last, last), [last]);
        assert_eq!(all(last, first), []);
        let end = day("9999-12-31");
        assert_eq!(all(end, end.plus(1)), [end]);
    }

    #[test]
    fn a_day_has_one_spelling() {
        assert_eq!(day("2026-11-19").to_string(), "2026-11-19");
        for wrong in [
            "0000-01-01",
            "2026-11-9",
            "20261119",
            "2026-13-01",
            "2026-02-29",
            "",
            "+002026-11",
            "yesterday",
        ] {
            assert!(wrong.parse::<Day>().is_err(), "{wrong} passed");
        }
    }

    #[test]
    fn leap_days_and_year_ends_are_days() {
        assert_eq!(day("2028-03-01").minus(1), day("2028-02-29"));
        assert_eq!(day("2026-12-31").plus(1), day("2027-01-01"));
    }

    #[test]
    fn any_number_of_days_ends_in_the_calendar() {
        for days in [7_304_483, 7_304_484, 7_304_485, 100_000_000, u32::MAX] {
            assert_eq!(day("2026-11-19").plus(days), day("9999-12-31"));
            assert_eq!(day("2026-11-19").minus(days).to_string(), "-9999-01-01");
        }
    }

    #[test]
    fn a_day_begins_at_midnight_utc() {
        let at = |text: &str| Day::of(text.parse::<Timestamp>().unwrap());
        assert_eq!(at("2026-11-19T23:59:59Z"), day("2026-11-19"));
        assert_eq!(at("2026-11-20T00:00:00Z"), day("2026-11-20"));
        assert_eq!(at("2026-11-20T00:30:00+01:00"), day("2026-11-19"));
    }

    #[test]
    fn templates_expand_and_refuse_what_they_do_not_know() {
        let d = day("2026-11-19");
        assert_eq!(d.expand("dt={day}/x-{day:%Y%m%d}").unwrap(), "dt=2026-11-19/x-20261119");
        assert_eq!(d.expand("plain").unwrap(), "plain");
        for wrong in ["{day", "{day:}", "{days}"] {
            assert!(d.expand(wrong).is_err(), "{wrong} passed");
        }
    }
}
