//! [`followed_blob`]: the blob that a server which starts now would load.

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, days_to_follow};
use bloomsday_common::store::{Following, Store};
use jiff::Timestamp;

use crate::error::Error;
use crate::filters::unknown;

/// By the pin, else by the newest pointer of the last `max_age_days`: of the days up to today, or
/// up to `last_followed`, if the clock was set back since that day's pointer was followed.
pub(crate) async fn followed_blob(
    store: &Store,
    filter: &FilterName,
    last_followed: Option<Day>,
    max_age_days: u32,
) -> Result<Followed, Error> {
    let now = Timestamp::now();
    let days = days_to_follow(Day::of(now), last_followed, max_age_days);
    match store.follow(filter, &days, now).await? {
        Following::Blob(followed) => Ok(followed),
        Following::Keep(error) => Err(error.into()),
        Following::NotFound(days) => {
            // A local store that is not mounted has no pointers, either.
            if let Some(folder) = store.folder().filter(|folder| !folder.is_dir()) {
                let store = folder.display();
                return Err(Error::NotFound(format!(
                    "the folder of the store, {store}, is not there"
                )));
            }
            if let Some(unknown) = unknown(store, filter).await {
                return Err(unknown);
            }
            let day = |day: Option<&Day>| day.map_or(String::new(), Day::to_string);
            let (oldest, newest) = (day(days.last()), day(days.first()));
            Err(Error::NotFound(format!(
                "`{filter}` has no pointer for any day from {oldest} to {newest} in {}: build a day, or raise \
                 `max_age_days` for an older one; see `bloomsday status {filter}`",
                store.name()
            )))
        }
    }
}
