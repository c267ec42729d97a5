//! The filters that a command is for, and the error for a name that no filter has.

use bloomsday_common::key::FilterName;
use bloomsday_common::store::Store;

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
