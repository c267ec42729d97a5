//! The blob that a server which starts now would load.

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, days_to_follow};
use bloomsday_common::store::{Following, Store};
use jiff::Timestamp;

use crate::error::Error;

/// By the pin, else by the newest pointer of the last `max_age_days`.
pub(crate) async fn target(
    store: &Store,
    filter: &FilterName,
    max_age_days: u32,
) -> Result<Followed, Error> {
    let now = Timestamp::now();
    let days = days_to_follow(Day::of(now), None, max_age_days);
    match store.follow(filter, &days, now).await? {
        Following::Blob(followed) => Ok(followed),
        Following::Keep(error) => Err(error.into()),
        Following::NotFound(days) => {
            let oldest = days.last().map_or(String::new(), Day::to_string);
            Err(Error::NotFound(format!(
                "`{filter}` has no pointer since {oldest} in {}: build a day, or see `bloomsday status`",
                store.name()
            )))
        }
    }
}
