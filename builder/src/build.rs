//! [`build`]: runs all steps of a build, always in this order: read, fill, upload, verify, move the
//! pointer.

use bloomsday_common::blob::{self, EncodedBlob, Header, Origin};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::hash::{IdHash, Murmur3, Spark, Xxh3};
use bloomsday_common::memory::available;
use bloomsday_common::store::Store;

use crate::build_state::{begin, conclude, refuse_empty};
use crate::error::Error;
use crate::gather::{Gathered, gather};
use crate::job::{Job, Progress};
use crate::partition::Distinct;
use crate::publish::Uploaded;
use crate::report::Report;
use crate::stable_shape::ChosenShape;
use crate::timer::Timer;
use crate::{budget, earlier_day, fill, publish, quality, stable_shape, verify};

/// Builds the filter of one day, publishes its blob and moves the day's pointer to it.
///
/// The blob depends only on the set of IDs and the parameters: the same input gives the same bytes.
/// The future blocks its thread for seconds at a time, so use a runtime without other tasks.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, RecordBatch, StringArray};
/// use bloomsday_builder::{Job, build};
/// use bloomsday_common::pointer::Outcome;
/// use bloomsday_common::store::Store;
/// use parquet::arrow::ArrowWriter;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A Parquet file with one column of 1,000 IDs.
/// let folder = tempfile::tempdir()?;
/// let input = folder.path().join("2026-11-19.parquet");
/// let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|n| format!("u{n}"))));
/// let batch = RecordBatch::try_from_iter([("user_id", ids)])?;
/// let mut writer = ArrowWriter::try_new(std::fs::File::create(&input)?, batch.schema(), None)?;
/// writer.write(&batch)?;
/// writer.close()?;
///
/// let inputs = vec![format!("{}/{{day}}.parquet", folder.path().display())];
/// let job = Job {
///     memory: 512 << 20,
///     spill_folder: folder.path().into(),
///     ..Job::new("retargeting".parse()?, "2026-11-19".parse()?, inputs, "user_id".into())
/// };
/// let store = folder.path().join("store");
/// std::fs::create_dir(&store)?;
/// let store = Store::open(store.to_str().ok_or("the path is not UTF-8")?)?;
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// let report = runtime.block_on(build(&job, &store, &|_progress| ()))?;
/// assert_eq!(report.outcome, Outcome::Published);
/// assert_eq!(report.ids, 1_000);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The input cannot be read, the filter fails a check, or the store fails. The pointer is then
/// unchanged. A day that is refused or superseded is not an error: see [`Report::outcome`].
pub async fn build(
    job: &Job,
    store: &Store,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, Error> {
    match job.layout {
        Layout::Blocked => run::<Xxh3>(job, store, progress).await,
        Layout::Guava => run::<Murmur3>(job, store, progress).await,
        Layout::Spark1 => run::<Spark<1>>(job, store, progress).await,
        Layout::Spark2 => run::<Spark<2>>(job, store, progress).await,
    }
}

async fn run<H: IdHash>(
    job: &Job,
    store: &Store,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, Error> {
    let mut state = begin(job, store).await?;
    let gathered = gather::<H>(job, store, &mut state.report, progress).await?;
    let Some(gathered) = gathered else { return refuse_empty(job, store, state).await };
    let distinct = &gathered.distinct;
    progress(Progress::Fill);
    let (header, filter) = fill_and_measure(job, store, &mut state.report, distinct).await?;

    let mut timer = Timer::start();
    let encoded = blob::encode(&header, &filter);
    state.report.seconds.fill += timer.lap();
    state.report.blob = Some(encoded.key().clone());
    state.report.digest = Some(encoded.key().digest);
    state.report.bytes = encoded.len();
    state.event.blob.clone_from(&state.report.blob);
    if !job.dry_run {
        upload_and_verify(job, store, &mut state.report, &encoded, &gathered, progress).await?;
    }

    let mut timer = Timer::start();
    let compared = earlier_day::compare(job, store, distinct, encoded.len()).await?;
    state.report.seconds.verify += timer.lap();
    conclude(job, store, state, &header, Uploaded::InMemory(&encoded), compared).await
}

/// Fills a filter with the distinct hashes, and measures its rate of false positives.
async fn fill_and_measure<H: IdHash>(
    job: &Job,
    store: &Store,
    report: &mut Report,
    distinct: &Distinct<H>,
) -> Result<(Header, Filter), Error> {
    let mut timer = Timer::start();
    let chosen = stable_shape::choose(job, store, distinct.n_ids()).await?;
    let ChosenShape { shape, source, day } = chosen;
    (report.shape, report.shape_from) = (source, day);
    budget::check_fits_memory(shape, available())?;
    let filter = fill::fill(distinct, shape, job.threads)?;
    crash_point("filled");
    let header = measure::<H>(job, distinct, &filter);
    if let Some(warning) = quality::check_quality(&header, &filter)? {
        report.warn(warning);
    }
    report.bits_per_id = shape.bits() as f64 / distinct.n_ids() as f64;
    report.fpp_measured = header.fpp_measured();
    report.seconds.fill = timer.lap();
    Ok((header, filter))
}

/// Uploads the blob, reads it back, and looks up every ID in what was read.
async fn upload_and_verify<H: IdHash>(
    job: &Job,
    store: &Store,
    report: &mut Report,
    encoded: &EncodedBlob<'_>,
    gathered: &Gathered<H>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), Error> {
    let mut timer = Timer::start();
    let uploading = |bytes| progress(Progress::Upload(bytes, encoded.len()));
    let (header_read, filter_read) = publish::upload(store, encoded, &uploading).await?;
    report.seconds.publish = timer.lap();
    progress(Progress::Verify);
    verify::check_no_id_lost(&filter_read, &gathered.distinct, &gathered.samples, job.threads)?;
    // Its warning is in the report already: these are the same bits.
    quality::check_quality(&header_read, &filter_read)?;
    crash_point("verified");
    report.seconds.verify = timer.lap();
    Ok(())
}

fn measure<H: IdHash>(job: &Job, distinct: &Distinct<H>, filter: &Filter) -> Header {
    Header {
        filter: job.filter.clone(),
        day: job.day,
        shape: filter.shape(),
        id_form: job.id_form,
        origin: Origin::Built,
        ids: distinct.n_ids(),
        fpp_target: job.fpp,
        fpp_hits: verify::count_false_positives::<H>(filter, job.threads),
        fpp_lookups: verify::ABSENT_LOOKUPS,
        ones: filter.count_ones(),
    }
}
