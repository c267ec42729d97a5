//! Makes the deltas from the blobs of the days before to a day's blob, and uploads them before the
//! pointer moves. Each was applied to its base, and gave the blob. A failure is a warning: servers
//! then fetch the full blob.

use std::fmt::Display;

use bloomsday_common::blob::EncodedBlob;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::delta::{self, Content};
use bloomsday_common::filter::Filter;
use bloomsday_common::key::{BlobKey, DeltaKey};
use bloomsday_common::store::Store;
use serde::Serialize;

use crate::earlier_day::max_fetch_bytes;
use crate::job::{Job, MAX_DELTA_DAYS};
use crate::stable_shape::newest_blobs;
use crate::timer::Timer;

/// A delta that was published.
#[derive(Clone, Debug, Serialize)]
pub struct PublishedDelta {
    /// Its key.
    pub delta: DeltaKey,
    /// The blob that it begins from.
    pub from: BlobKey,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many bits differ between the two blobs.
    pub flips: u64,
    /// How long it took to make and to check, in seconds, without the transfers.
    pub seconds: f64,
}

/// Makes and uploads the deltas to `blob`. `earlier` is the filter of an earlier day, which was
/// fetched and verified already. Failures go to `warn`.
///
/// Memory: one earlier filter at a time, and twice its delta, which is at most half of the blob.
/// Cost: a fetch of each other base, and three passes over both blobs.
pub(crate) async fn make_and_upload(
    job: &Job,
    store: &Store,
    blob: &EncodedBlob<'_>,
    earlier: Option<(BlobKey, Filter)>,
    mut warn: impl FnMut(String),
) -> Vec<PublishedDelta> {
    let mut earlier = earlier;
    let mut published = Vec::new();
    let most = job.deltas.bases.min(MAX_DELTA_DAYS) as usize;
    let mut no_delta = |from: &dyn Display, why: String| {
        let why = format!("there is no delta from {from}: {why}");
        tracing::warn!("{why}");
        warn(why);
    };
    let bases = newest_blobs(store, job, most).await.unwrap_or_else(|error| {
        no_delta(&"the days before", error.to_string());
        Vec::new()
    });
    for base in bases.into_iter().filter(|base| base.digest != blob.key().digest) {
        match one(job, store, blob, &base, &mut earlier).await {
            Ok(Some(delta)) => published.push(delta),
            Ok(None) => {}
            Err(why) => no_delta(&base, why),
        }
    }
    published
}

/// One delta; none when the shapes differ, or when it would save too little.
async fn one(
    job: &Job,
    store: &Store,
    blob: &EncodedBlob<'_>,
    base: &BlobKey,
    earlier: &mut Option<(BlobKey, Filter)>,
) -> Result<Option<PublishedDelta>, String> {
    let filter = match earlier.take() {
        Some((key, filter)) if key == *base => filter,
        other => {
            let info = store.blob_info(base).await.map_err(|error| error.to_string())?;
            if info.bytes != blob.len() {
                *earlier = other;
                tracing::info!("no delta from {base}: it has another shape");
                return Ok(None);
            }
            // Never two earlier filters.
            drop(other);
            let limit = max_fetch_bytes(job.memory, blob.len());
            let fetched = store.fetch(base, limit).await.map_err(|error| error.to_string())?;
            let opened = bloomsday_common::blob::open(fetched, base);
            opened.map_err(|error| error.to_string())?.1
        }
    };
    if filter.memory().len() as u64 != blob.len() {
        tracing::info!("no delta from {base}: it has another shape");
        return Ok(None);
    }
    let mut timer = Timer::start();
    let most = delta::max_bytes(blob.len());
    let (before, after) = (Content::of(filter.memory(), base.digest), Content::from(blob));
    let Some(made) = delta::make(before, after, most)? else {
        tracing::info!("no delta from {base}: it would have more than {most} bytes");
        return Ok(None);
    };
    let seconds = timer.lap();
    let bytes = made.bytes.len() as u64;
    let key = DeltaKey::between(base, blob.key());
    store.put_delta(&key, &made.bytes).await.map_err(|error| error.to_string())?;
    crash_point("delta-uploaded");
    Ok(Some(PublishedDelta { delta: key, from: base.clone(), bytes, flips: made.flips, seconds }))
}
