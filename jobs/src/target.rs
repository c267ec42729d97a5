//! The filters that a command is for, and the blob that a server which starts now would load.

use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::{Followed, days_to_follow};
use bloomsday_common::store::{Following, Store};
use jiff::Timestamp;

use crate::config::Settings;
use crate::error::Error;

/// The filter of this name, or all in the store.
///
/// # Errors
/// [`Error::NotFound`]: neither the store nor the configuration has it, and the store has others.
pub(crate) async fn filters(
    store: &Store,
    named: Option<&FilterName>,
    settings: &Settings,
) -> Result<Vec<FilterName>, Error> {
    let Some(named) = named else { return Ok(store.filters().await?) };
    if settings.file().filters.contains_key(named) {
        return Ok(vec![named.clone()]);
    }
    unknown(store, named).await.map_or_else(|| Ok(vec![named.clone()]), Err)
}

/// [`Error::NotFound`], if the store has filters and none of this name: a name that is mistyped.
pub(crate) async fn unknown(store: &Store, named: &FilterName) -> Option<Error> {
    // What is wrong with the store is an error of what the caller does, which names the filter.
    let all = store.filters().await.unwrap_or_default();
    if all.is_empty() || all.contains(named) {
        return None;
    }
    let there: Vec<&str> = all.iter().take(MAX_LISTED).map(|filter| filter.as_str()).collect();
    let (there, store) = (there.join(", "), store.name());
    let why = format!("there is no filter `{named}` in {store}; there are: {there}");
    Some(Error::NotFound(why))
}

/// How many names an error lists.
const MAX_LISTED: usize = 10;

/// By the pin, else by the newest pointer of the last `max_age_days`: of the days up to today, or
/// up to `last_followed`, if the clock was set back since that day's pointer was followed.
pub(crate) async fn target(
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
