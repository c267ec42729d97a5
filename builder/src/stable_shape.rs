//! Chooses the shape of a day's filter: the one that it needs, or that of the blob before while it
//! fits.

use bloomsday_common::day::Day;
use bloomsday_common::filter::Shape;
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::EventKind;
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

/// Chooses the shape for `n_ids`. If no earlier blob can be read, the filter gets a new shape:
/// servers then fetch this one blob in full.
///
/// # Errors
/// No shape meets the target.
pub(crate) async fn choose(job: &Job, store: &Store, n_ids: u64) -> Result<ChosenShape, Error> {
    let base = match job.deltas.shape {
        ShapeChoice::Exact => {
            let shape = Shape::for_ids(job.layout, n_ids, job.fpp)?;
            return Ok(ChosenShape { shape, source: ShapeSource::Exact, day: None });
        }
        ShapeChoice::Carried => base(job, store).await,
        ShapeChoice::Fresh => None,
    };
    let (shape, day) = base.map_or((None, None), |(shape, day)| (Some(shape), Some(day)));
    let (shape, is_carried) = Shape::stable_for_ids(job.layout, n_ids, job.fpp, shape)?;
    Ok(match is_carried {
        true => ChosenShape { shape, source: ShapeSource::Carried, day },
        false => ChosenShape { shape, source: ShapeSource::Fresh, day: None },
    })
}

/// The shape of the newest blob that was built for this day; without one, that of the blob that its
/// pointer names; else that of the newest earlier day.
async fn base(job: &Job, store: &Store) -> Option<(Shape, Day)> {
    // A build of the same IDs again must give the same bytes, also when the day is rolled back. So
    // its own blobs come before what the pointer names.
    let history = store.history(&job.filter).await.unwrap_or_default();
    let is_own = |blob: &BlobKey| blob.day == job.day && blob.filter == job.filter;
    let builds = history.iter().filter(|event| event.kind == EventKind::Build);
    let own = builds.filter_map(|event| event.blob.clone()).filter(is_own).take(MAX_TRIED);
    for blob in own.collect::<Vec<_>>() {
        if let Ok(header) = store.blob_header(&blob).await {
            return Some((header.shape, job.day));
        }
    }
    for blob in newest_blobs(store, job, 1, true).await {
        match store.blob_header(&blob).await {
            Ok(header) => return Some((header.shape, blob.day)),
            Err(error) => tracing::warn!("the shape of {blob} is not carried on: {error}"),
        }
    }
    None
}

/// The blobs that the newest `most` pointers of earlier days name; with `own` also that of the day
/// itself, first.
pub(crate) async fn newest_blobs(store: &Store, job: &Job, most: usize, own: bool) -> Vec<BlobKey> {
    let mut blobs = Vec::new();
    let mut add = |blob: BlobKey| {
        if !blobs.contains(&blob) {
            blobs.push(blob);
        }
    };
    let named = async |day| {
        let read = store.pointer(&job.filter, day).await.ok()?;
        read.state.found().map(|pointer| pointer.blob.clone())
    };
    if own && let Some(blob) = named(job.day).await {
        add(blob);
    }
    let days = store.pointer_days(&job.filter).await.unwrap_or_default();
    for day in days.into_iter().rev().filter(|day| *day < job.day).take(most) {
        if let Some(blob) = named(day).await {
            add(blob);
        }
    }
    blobs
}
