//! [`Expression`]: five fields of crontab, in UTC.
//!
//! The `cron` crate accepts more, and gives some of it another meaning than crontab does. Whatever
//! would silently mean another time is refused here, with the reason.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use cron::Schedule;
use jiff::Timestamp;
use serde::Deserialize;

/// A cron expression with the meaning that it has in crontab, in UTC.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Expression {
    text: String,
    schedule: Schedule,
}

impl Expression {
    /// The runs after `since`, soonest first.
    pub(crate) fn after(&self, since: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let since = DateTime::<Utc>::from_timestamp(since.as_second(), 0).unwrap_or_default();
        let runs = self.schedule.after_owned(since);
        runs.map_while(|run| Timestamp::from_second(run.timestamp()).ok())
    }
}

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Expression, String> {
        let cut: String = text.chars().take(80).collect();
        let wrong = |why: &str| Err(format!("`{}` is no schedule: {why}", cut.escape_debug()));
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [_, _, day_of_month, _, weekday] = fields[..] else {
            return wrong(
                "write five fields: minute, hour, day of the month, month, weekday; in UTC, for \
                 example `0 2 * * *` for every night at two",
            );
        };
        if weekday.contains(|c: char| c.is_ascii_digit()) {
            return wrong(
                "write weekdays as names (SUN, MON, …; MON-FRI), because programs disagree whether \
                 1 is Sunday or Monday",
            );
        }
        let any = |field: &str| matches!(field, "*" | "?");
        if !any(day_of_month) && !any(weekday) {
            return wrong(
                "give a day of the month or a weekday, not both: crontab would run on either, the \
                 library used here only when both fit",
            );
        }
        let schedule = match Schedule::from_str(&format!("0 {}", fields.join(" "))) {
            Ok(schedule) => schedule,
            // The library's own words point into a text that has seconds, and call 59 too large.
            Err(_) => {
                return wrong(
                    "a minute is 0 to 59, an hour 0 to 23, a day of the month 1 to 31, a month 1 to 12 \
                     or its name; each field is `*` or a list of numbers, ranges that do not go past \
                     their end (`22-23,0-4`), and steps (`*/15`)",
                );
            }
        };
        let expression = Expression { text: fields.join(" "), schedule };
        // The 31st of February is well formed, and never comes.
        if expression.after(Timestamp::UNIX_EPOCH).next().is_none() {
            return wrong("no date ever matches it");
        }
        Ok(expression)
    }
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Expression, String> {
        text.parse()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `n` runs after midnight of Saturday, 2026-11-21.
    fn runs(text: &str, n: usize) -> Vec<String> {
        let since = "2026-11-21T00:00:00Z".parse().unwrap();
        let expression: Expression = text.parse().unwrap();
        expression.after(since).take(n).map(|run| run.to_string()).collect()
    }

    #[test]
    fn five_fields_mean_what_crontab_makes_of_them_in_utc() {
        assert_eq!(runs("0 2 * * *", 2), ["2026-11-21T02:00:00Z", "2026-11-22T02:00:00Z"]);
        assert_eq!(runs("30 */6 * * *", 2), ["2026-11-21T00:30:00Z", "2026-11-21T06:30:00Z"]);
        assert_eq!(runs("0 3 1 * *", 1), ["2026-12-01T03:00:00Z"]);
        assert_eq!(runs("15 4 * * MON-FRI", 1), ["2026-11-23T04:15:00Z"]);
        assert_eq!(runs("15 4 * * SUN", 1), ["2026-11-22T04:15:00Z"]);
        // The night in which the clocks of other zones change has each hour once here.
        let since = "2026-10-24T23:59:59Z".parse().unwrap();
        let night: Expression = "0 0-3 * * *".parse().unwrap();
        let hours: Vec<String> = night.after(since).take(4).map(|run| run.to_string()).collect();
        assert_eq!(hours[3], "2026-10-25T03:00:00Z");
    }

    #[test]
    fn what_would_mean_another_time_is_refused_with_the_reason() {
        for (text, reason) in [
            ("0 0 2 * * *", "five fields"),
            ("0 2 * *", "five fields"),
            ("", "five fields"),
            ("@daily", "five fields"),
            ("0 2 * * 1", "Sunday or Monday"),
            ("0 2 * * 1-5", "Sunday or Monday"),
            ("0 2 * * */2", "Sunday or Monday"),
            ("0 2 1 * MON", "not both"),
            ("0 25 * * *", "no schedule"),
            ("0 2 31 2 *", "no date ever"),
            ("0 2 * FOO *", "no schedule"),
            ("🕑 2 * * *", "no schedule"),
        ] {
            let error = text.parse::<Expression>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
