//! [`resolve`]: which blob pin and pointers name.

use std::path::Path;
use std::time::Duration;

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::Outcome;
use bloomsday_common::protocol::Followed;
use bloomsday_common::store::Following;

use crate::loader::Loader;

/// The longest time for the reads of a poll, without those of pointers: more than the client of any
/// store takes until it gives up and says why. That of HDFS takes 150 s.
const MAX_RESOLVE: Duration = Duration::from_secs(180);
/// What is added for each day: the pointers are read one after the other.
const MAX_RESOLVE_PER_DAY: Duration = Duration::from_secs(1);

/// Why pin and pointers name no blob.
pub(super) enum ResolveError {
    /// The store cannot be read.
    Unreachable(String),
    /// The store was read: there is no pointer of these days.
    NoPointer(String),
    /// The store was read, and its record cannot be used.
    NoTarget(String),
}

/// The newest day that has a pointer, however old.
enum NewestDay {
    Is(Day),
    /// No day has one, but this day once had: pointers were lost.
    Lost(Day),
    /// No day has one, and none was lost.
    Nothing,
    Unknown,
}

/// Reads the pin, and the pointers of these days, within [`MAX_RESOLVE`] and
/// [`MAX_RESOLVE_PER_DAY`], or the loader's deadline if that is shorter.
pub(super) async fn resolve(
    filter: &FilterName,
    loader: &Loader,
    days: &[Day],
) -> Result<Followed, ResolveError> {
    let store = &loader.store;
    let resolving = async {
        let found = store.follow(filter, days, loader.clock.now()).await;
        let found = found.map_err(|e| loader.describe(&e))?;
        if !matches!(found, Following::NotFound(_)) {
            return Ok((found, NewestDay::Unknown));
        }
        // A local store whose folder is missing has no pointers, either; that does not mean they
        // were deleted.
        if let Some(folder) = store.folder()
            && !is_folder(folder).await
        {
            return Err(format!("the folder of the store, {}, is not there", folder.display()));
        }
        let newest = match store.pointer_days(filter).await {
            // A plain HTTP server has no listings, a relay for example: there may be any.
            Err(StoreError::ReadOnly { .. }) => NewestDay::Unknown,
            all => match all.map_err(|e| loader.describe(&e))?.last() {
                Some(day) => NewestDay::Is(*day),
                None => newest_published(loader, filter).await?,
            },
        };
        Ok((found, newest))
    };
    let most = MAX_RESOLVE + MAX_RESOLVE_PER_DAY * u32::try_from(days.len()).unwrap_or(u32::MAX);
    let resolved = tokio::time::timeout(loader.deadline.min(most), resolving)
        .await
        .map_err(|_| ResolveError::Unreachable(format!("{} does not answer", store.name())))?;
    let (following, newest_of_all) = resolved.map_err(ResolveError::Unreachable)?;
    match following {
        Following::Blob(followed) => Ok(followed),
        Following::Keep(error) => Err(ResolveError::NoTarget(loader.describe(&error))),
        Following::NotFound(days) => {
            let newest = days.first().map_or(String::new(), Day::to_string);
            let oldest = days.last().map_or(String::new(), Day::to_string);
            let why = format!("`{filter}` has no pointer for any day from {oldest} to {newest}");
            Err(match newest_of_all {
                NewestDay::Is(day) => {
                    ResolveError::NoTarget(format!("{why}; the newest is of {day}"))
                }
                NewestDay::Lost(day) => ResolveError::NoTarget(format!(
                    "{why}, nor for any other, although {day} was published: the pointers were lost. Build a \
                     day, or repoint one that was built before"
                )),
                NewestDay::Unknown => ResolveError::NoTarget(why),
                NewestDay::Nothing => ResolveError::NoPointer(format!(
                    "{why}, nor for any other: build a day, repoint one that was built before, or correct \
                     the name"
                )),
            })
        }
    }
}

/// What the history says of a filter without pointers. Pointers in Redis are lost with its data,
/// and a filter that lost its days must not answer as one that never had any. In the store itself a
/// person removed them, as a rollback.
async fn newest_published(loader: &Loader, filter: &FilterName) -> Result<NewestDay, String> {
    if loader.store.pointers_name().is_none() {
        return Ok(NewestDay::Nothing);
    }
    let history = match loader.store.pointer_history(filter).await {
        // A plain HTTP server has no listings.
        Err(StoreError::ReadOnly { .. }) => return Ok(NewestDay::Nothing),
        history => history.map_err(|e| loader.describe(&e))?,
    };
    let published = history.iter().find(|event| event.outcome == Outcome::Published);
    Ok(published.and_then(|event| event.day).map_or(NewestDay::Nothing, NewestDay::Lost))
}

async fn is_folder(path: &Path) -> bool {
    let path = path.to_owned();
    // A panic counts as a missing folder.
    tokio::task::spawn_blocking(move || path.is_dir()).await.unwrap_or(false)
}
