//! Chooses the shape of a day's filter: the one that it needs, or that of the blob before while it
//! fits.

use bloomsday_common::day::Day;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::filter::Shape;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::{EventKind, Outcome};
use bloomsday_common::store::Store;
use serde::Serialize;

use crate::error::Error;
use crate::job::{Job, ShapeChoice};

/// The most earlier builds of the day whose blobs are looked at.
const MAX_TRIED: usize = 4;

/// Where a filter's shape came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShapeSource {
    /// It is the smallest that meets the target.
    Exact,
    /// It is new, with headroom for the next days.
    Fresh,
    /// It is that of an earlier blob.
    Carried,
}

/// The shape that was chosen for a filter.
#[derive(Debug)]
pub(crate) struct ChosenShape {
    pub(crate) shape: Shape,
    pub(crate) source: ShapeSource,
    /// The day of the blob whose shape it is.
    pub(crate) day: Option<Day>,
}

/// Chooses the shape for `n_ids`: of the earlier blobs' shapes the first that fits. If none fits,
/// or no earlier blob is good, the filter gets a new shape: servers then fetch this one blob in
/// full.
///
/// # Errors
/// No shape meets the target, or the store cannot be read now: the same IDs must not get other
/// bytes for that.
pub(crate) async fn choose(job: &Job, store: &Store, n_ids: u64) -> Result<ChosenShape, Error> {
    let (layout, fpp) = (job.layout, job.fpp);
    match job.deltas.shape {
        ShapeChoice::Exact => {
            let shape = Shape::for_ids(layout, n_ids, fpp)?;
            return Ok(ChosenShape { shape, source: ShapeSource::Exact, day: None });
        }
        ShapeChoice::Carried => {
            // A build of the same IDs again must give the same bytes, also when the day is rolled
            // back. So its own blobs come before what the pointer names.
            let own = own_blobs(store, job).await?;
            if let Some(carried) = first_fit(job, store, n_ids, own).await? {
                return Ok(carried);
            }
            let named = newest_blobs(store, job, 1).await?;
            if let Some(carried) = first_fit(job, store, n_ids, named).await? {
                return Ok(carried);
            }
        }
        ShapeChoice::Fresh => {}
    }
    let (shape, _) = Shape::stable_for_ids(layout, n_ids, fpp, None)?;
    Ok(ChosenShape { shape, source: ShapeSource::Fresh, day: None })
}

/// The shape of the first of these blobs whose shape fits.
///
/// # Errors
/// No shape meets the target, or the store cannot be read now.
async fn first_fit(
    job: &Job,
    store: &Store,
    n_ids: u64,
    blobs: Vec<BlobKey>,
) -> Result<Option<ChosenShape>, Error> {
    for blob in blobs {
        let base = match store.blob_header(&blob).await {
            Ok(header) => header.shape,
            Err(error) if error.is_inconclusive() => return Err(error.into()),
            Err(error) => {
                tracing::warn!("the shape of {blob} is not carried on: {error}");
                continue;
            }
        };
        let fitted = Shape::stable_for_ids(job.layout, n_ids, job.fpp, Some(base))?;
        if let (shape, true) = fitted {
            let (source, day) = (ShapeSource::Carried, Some(blob.day));
            return Ok(Some(ChosenShape { shape, source, day }));
        }
    }
    Ok(None)
}

/// The blobs of the day's earlier builds, newest first. That of a refused one is left out: it may
/// be of half the day's input, and no server has it.
async fn own_blobs(store: &Store, job: &Job) -> Result<Vec<BlobKey>, StoreError> {
    let history = store.pointer_history(&job.filter).await?;
    let is_own = |blob: &BlobKey| blob.day == job.day && blob.filter == job.filter;
    let builds = history
        .iter()
        .filter(|event| event.kind == EventKind::Build && event.outcome != Outcome::Refused);
    let mut own = Vec::new();
    for blob in builds.filter_map(|event| event.blob.clone()).filter(is_own) {
        if !own.contains(&blob) {
            own.push(blob);
        }
    }
    own.truncate(MAX_TRIED);
    Ok(own)
}

/// The blob that the day's own pointer names, and those of the newest `most` pointers before it.
///
/// # Errors
/// The store cannot be read now.
pub(crate) async fn newest_blobs(
    store: &Store,
    job: &Job,
    most: usize,
) -> Result<Vec<BlobKey>, StoreError> {
    let earlier = store.pointer_days(&job.filter).await?.into_iter().rev();
    let earlier = earlier.filter(|day| *day < job.day).take(most);
    let mut blobs = Vec::new();
    for day in std::iter::once(job.day).chain(earlier) {
        let pointer = match store.pointer(&job.filter, day).await {
            Err(error) if error.is_inconclusive() => return Err(error),
            read => read.ok().and_then(|read| read.state.found().cloned()),
        };
        blobs.extend(pointer.map(|pointer| pointer.blob).filter(|blob| !blobs.contains(blob)));
    }
    Ok(blobs)
}

#[cfg(test)]
mod tests {
    use bloomsday_common::blob::{self, Header, Origin};
    use bloomsday_common::filter::{FilterMut, Layout};
    use bloomsday_common::id_form::IdForm;
    use bloomsday_common::pointer::{HistoryEvent, Pointer};
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::job::Deltas;

    const IDS: u64 = 20_000;
    const FEW: u64 = 2_000;

    fn job() -> Job {
        let (filter, day) = ("rt".parse().unwrap(), "2026-11-19".parse().unwrap());
        let deltas = Deltas::of(3);
        Job { deltas, ..Job::new(filter, day, Vec::new(), "id".into()) }
    }

    /// Puts a blob of that many IDs into the store, and says where.
    async fn put(store: &Store, day: Day, ids: u64) -> BlobKey {
        let (shape, _) = Shape::stable_for_ids(Layout::Blocked, ids, 0.03, None).unwrap();
        let filter = FilterMut::new(shape).unwrap().freeze();
        let header = Header {
            id_form: IdForm::Bytes,
            filter: job().filter,
            day,
            shape,
            origin: Origin::Built,
            ids,
            fpp_target: 0.03,
            fpp_hits: 0,
            fpp_lookups: 1,
            ones: 0,
        };
        let encoded = blob::encode(&header, &filter);
        store.put_blob(&encoded, &|_| {}).await.unwrap();
        encoded.key().clone()
    }

    async fn point(store: &Store, day: Day, blob: &BlobKey) {
        let read = store.pointer(&job().filter, day).await.unwrap();
        let pointer = Pointer::to(blob.clone());
        store.put_pointer(&job().filter, day, &pointer, &read.version).await.unwrap();
    }

    /// Records a build of the day, so many seconds after the first.
    async fn record(store: &Store, second: i64, outcome: Outcome, blob: &BlobKey) {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        let (day, blob) = (Some(blob.day), Some(blob.clone()));
        let event = HistoryEvent::new(EventKind::Build, outcome, at, "test");
        store.append_event(&job().filter, &HistoryEvent { day, blob, ..event }).await.unwrap();
    }

    /// A store whose newest earlier day has as many IDs as each day has.
    async fn store() -> (tempfile::TempDir, Store, BlobKey) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let before = put(&store, job().day.minus(1), IDS).await;
        point(&store, before.day, &before).await;
        (folder, store, before)
    }

    #[tokio::test]
    async fn a_build_that_was_refused_does_not_decide_about_the_next_one() {
        let (_folder, store, before) = store().await;
        let refused = put(&store, job().day, FEW).await;
        record(&store, 1, Outcome::Refused, &refused).await;
        let chosen = choose(&job(), &store, IDS + 50).await.unwrap();
        assert_eq!((chosen.source, chosen.day), (ShapeSource::Carried, Some(before.day)));
        // It is not carried on to another such build, either.
        let few = choose(&job(), &store, FEW).await.unwrap();
        assert_eq!((few.source, few.day), (ShapeSource::Fresh, None));
    }

    #[tokio::test]
    async fn the_first_of_the_days_blobs_the_pointers_and_the_day_befores_that_fits_is_carried_on()
    {
        let (_folder, store, before) = store().await;
        let day = job().day;
        let few = put(&store, day, FEW).await;
        record(&store, 1, Outcome::Published, &few).await;
        point(&store, day, &few).await;
        let chosen = choose(&job(), &store, IDS).await.unwrap();
        assert_eq!((chosen.source, chosen.day), (ShapeSource::Carried, Some(before.day)));
        // Its own older blob comes before that of another day.
        let own = put(&store, day, IDS - 10).await;
        record(&store, 0, Outcome::Published, &own).await;
        let chosen = choose(&job(), &store, IDS).await.unwrap();
        assert_eq!((chosen.source, chosen.day), (ShapeSource::Carried, Some(day)));
        let chosen = choose(&job(), &store, FEW).await.unwrap();
        assert_eq!((chosen.source, chosen.day), (ShapeSource::Carried, Some(day)));
    }
}
