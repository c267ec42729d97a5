//! [`build`]: runs all steps of a build, always in this order: build, upload, verify, move the
//! pointer.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bloomsday_common::blob::{self, EncodedBlob, Header, Origin};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, Layout, Shape};
use bloomsday_common::hash::{IdHash, Murmur3, Spark, Xxh3};
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::BlobKey;
use bloomsday_common::memory::available;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::{self, Publish, RecordState, Retention, Step};
use bloomsday_common::redact::single_line;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::budget::{self, Budget};
use crate::earlier_day::Comparison;
use crate::error::Error;
use crate::gates::{Baseline, Named};
use crate::job::{Job, Progress};
use crate::partition::{Distinct, PartitionWriter, Partitions};
use crate::publish::{PointerSnapshot, PublishPlan, Uploaded};
use crate::report::Report;
use crate::sample::Sample;
use crate::scan::{self, ScanTotals, Sink};
use crate::segments::HASH_COLUMN;
use crate::source::InputFile;
use crate::stable_shape::ChosenShape;
use crate::timer::Timer;
use crate::{deltas, earlier_day, fill, publish, quality, segments, source, stable_shape, verify};

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
    state.report.blob = Some(encoded.key().clone());
    state.report.digest = Some(encoded.key().digest);
    state.report.bytes = encoded.len();
    state.event.blob.clone_from(&state.report.blob);
    if !job.dry_run {
        let report = &mut state.report;
        upload_and_verify(job, store, report, &encoded, &gathered, &mut timer, progress).await?;
    }

    // What it ran until here was counted, or is no step.
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
    budget::refuse_too_large(shape, available())?;
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
    timer: &mut Timer,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), Error> {
    let uploading = |bytes| progress(Progress::Upload(bytes, encoded.len()));
    let (header_read, filter_read) = publish::upload(store, encoded, &uploading).await?;
    report.seconds.publish = timer.lap();
    progress(Progress::Verify);
    verify::check_complete(&filter_read, &gathered.distinct, &gathered.samples, job.threads)?;
    // Its warning is in the report already: these are the same bits.
    quality::check_quality(&header_read, &filter_read)?;
    crash_point("verified");
    report.seconds.verify = timer.lap();
    Ok(())
}

/// What a build has found out so far.
#[derive(Debug)]
pub(crate) struct BuildState {
    /// The pointer as it was at the beginning.
    pub(crate) start: PointerSnapshot,
    /// What the history will say.
    pub(crate) event: HistoryEvent,
    /// When a schedule wanted the build.
    pub(crate) due: Option<Timestamp>,
    pub(crate) report: Report,
    /// Runs from the beginning to the end of the build.
    pub(crate) total: Timer,
}

/// Checks that a job is possible, and reads the pointer.
///
/// # Errors
/// [`Error::FutureDay`], an impossible rate, or the store's.
pub(crate) async fn begin(job: &Job, store: &Store) -> Result<BuildState, Error> {
    let total = Timer::start();
    let event = HistoryEvent {
        day: Some(job.day),
        reason: job.accept_change.clone(),
        ..HistoryEvent::new(EventKind::Build, Outcome::Pending, Timestamp::now(), &job.by)
    };
    check_not_future(job.day, event.at)?;
    // An impossible rate is impossible for any number of IDs, so the check comes before hours of
    // reading.
    Shape::for_ids(job.layout, 1_000_000, job.fpp)?;
    // This read comes first, so the build notices each later change by an operator.
    let start = PointerSnapshot::take(store, &job.filter, job.day).await?;

    let mut report = Report::empty(&job.filter, job.day, job.layout, job.fpp);
    report.dry_run = job.dry_run;
    report.window_days = job.window.days;
    Ok(BuildState { start, event, due: job.due, report, total })
}

/// Ends a build that found no ID.
///
/// # Errors
/// The store's.
pub(crate) async fn refuse_empty(
    job: &Job,
    store: &Store,
    mut state: BuildState,
) -> Result<Report, Error> {
    let report = &mut state.report;
    report.outcome = Outcome::Refused;
    let (rows, nulls, invalid) = (report.rows, report.nulls, report.invalid);
    report.reason = Some(format!(
        "{} {} has no ID: {rows} rows, {nulls} of them null, {invalid} empty or over 1,024 bytes; \
         nothing was published and the pointer is unchanged",
        job.filter, job.day
    ));
    finish(store, state, job.remedy_words).await
}

/// Evaluates the gates, makes deltas, moves the pointer and records the build, whose blob is
/// uploaded and verified.
///
/// # Errors
/// The store's. The pointer is then unchanged.
pub(crate) async fn conclude(
    job: &Job,
    store: &Store,
    mut state: BuildState,
    header: &Header,
    blob: Uploaded<'_>,
    mut compared: Comparison,
) -> Result<Report, Error> {
    let earlier = compared.filter.take();
    compared.warnings.drain(..).for_each(|warning| state.report.warn(warning));
    state.report.overlap = compared.overlap.map(|(share, _)| share);
    let plan = publish::plan(store, &state.start, blob.key(), job.retention).await?;
    if let Publish::Advance { .. } = plan.publish {
        let baseline = baseline(store, job, &plan.history, &mut state.report).await?;
        if !passes_gates(job, &mut state, baseline, &compared, blob.key()) {
            return finish(store, state, job.remedy_words).await;
        }
        // Before the pointer moves, so that every server that sees it finds them.
        make_deltas(job, store, &mut state.report, blob, earlier).await;
    }
    advance_or_preview(store, &mut state, plan, header, blob, job.retention).await?;
    finish(store, state, job.remedy_words).await
}

/// What is normal, from the history and from what the pointers of its days name now. Where pointers
/// were lost, the history decides, with a warning.
///
/// # Errors
/// A pointer cannot be read now. One that is no record says nothing.
async fn baseline(
    store: &Store,
    job: &Job,
    history: &[HistoryEvent],
    report: &mut Report,
) -> Result<Baseline, Error> {
    let (mut named, mut oldest, mut lost) = (BTreeMap::new(), None, Vec::new());
    let oldest_kept = Day::of(Timestamp::now()).minus(job.retention.keep_days);
    loop {
        // A day that does not count makes way for an older one.
        let mut days = Baseline::days(job.day, history, &named);
        days.retain(|day| !named.contains_key(day));
        if days.is_empty() {
            lost.retain(|day| Baseline::counts(job.day, history, &named, *day));
            if let Some(day) = lost.iter().max() {
                report.warn(format!(
                    "{day} has an accepted build in the history and no pointer, nor has any day \
                     before: it counts as usual all the same; were the pointers lost?"
                ));
            }
            return Ok(Baseline::of(job.day, history, &named));
        }
        for day in days {
            let names = match store.pointer(&job.filter, day).await.map(|read| read.state) {
                Err(error) if error.is_no_answer() => return Err(error.into()),
                Ok(RecordState::Found(pointer)) => Named::Blob(pointer.blob),
                Ok(RecordState::Absent) if day >= oldest_kept => {
                    let oldest = match oldest {
                        Some(oldest) => oldest,
                        None => {
                            let days = store.pointer_days(&job.filter).await?;
                            *oldest.insert(days.first().copied())
                        }
                    };
                    // Whoever removes one as a rollback leaves those before.
                    if oldest.is_some_and(|oldest| oldest < day) {
                        Named::Removed
                    } else {
                        lost.push(day);
                        Named::Unknown
                    }
                }
                Ok(_) | Err(_) => Named::Unknown,
            };
            named.insert(day, names);
        }
    }
}

/// Evaluates the gates. If the day is refused, the report says why; if its change is accepted, the
/// history will say why.
fn passes_gates(
    job: &Job,
    state: &mut BuildState,
    mut baseline: Baseline,
    compared: &Comparison,
    blob: &BlobKey,
) -> bool {
    let BuildState { event, report, .. } = state;
    if baseline.lacks_ids()
        && let Some((earlier, ids)) = &compared.ids
    {
        report.warn(format!(
            "the history has no accepted build of an earlier day, but a pointer leads to {earlier}: \
             the gate `ids` uses its {ids} IDs only; was the history deleted?"
        ));
        baseline = baseline.or_ids(*ids);
    }
    if report.files > 0 {
        baseline.fewer_files(report.files).into_iter().for_each(|warning| report.warn(warning));
    }
    let failed = report.evaluate(compared.overlap, &baseline, &job.gates);
    if failed.is_empty() {
        return true;
    }
    let Some(why) = &job.accept_change else {
        report.refuse(&failed, blob);
        return false;
    };
    event.reason = Some(format!("{why} (accepted although {failed})"));
    true
}

/// Makes the deltas that the job wants, if the blob is in memory.
async fn make_deltas(
    job: &Job,
    store: &Store,
    report: &mut Report,
    blob: Uploaded<'_>,
    earlier: Option<(BlobKey, Filter)>,
) {
    let Uploaded::InMemory(encoded) = blob else { return };
    if job.deltas.bases == 0 || job.dry_run {
        return;
    }
    let mut timer = Timer::start();
    let warn = |warning| report.warnings.push(warning);
    report.deltas = deltas::publish(job, store, encoded, earlier, warn).await;
    report.seconds.deltas = timer.lap();
}

/// Moves the pointer as planned; a dry run only says what would happen.
///
/// # Errors
/// The store's. The pointer is then unchanged.
pub(crate) async fn advance_or_preview(
    store: &Store,
    state: &mut BuildState,
    plan: PublishPlan,
    header: &Header,
    blob: Uploaded<'_>,
    retention: Retention,
) -> Result<(), Error> {
    let BuildState { start, event, report, .. } = state;
    *event = report.to_event(event.clone());
    let update = if report.dry_run {
        plan.preview(start, blob.key())?
    } else {
        publish::advance(store, start, plan, header, blob, retention, event).await?
    };
    (report.outcome, report.reason, report.remedy) = (update.outcome, update.reason, update.remedy);
    event.previous = update.previous;
    Ok(())
}

/// Refuses a day that cannot have ended yet.
///
/// # Errors
/// [`Error::FutureDay`] for a day after tomorrow.
pub(crate) fn check_not_future(day: Day, now: Timestamp) -> Result<(), Error> {
    let newest = protocol::newest_buildable(now);
    if day > newest { Err(Error::FutureDay { day, newest }) } else { Ok(()) }
}

/// The IDs of the input.
struct Gathered<H: IdHash> {
    distinct: Distinct<H>,
    /// Some of the IDs as they are in the input.
    samples: Vec<Sample>,
}

/// Reads the input. `None` if there is no ID.
async fn gather<H: IdHash>(
    job: &Job,
    store: &Store,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Option<Gathered<H>>, Error> {
    let mut timer = Timer::start();
    let threads = job.threads.max(1);
    let budget = Budget::of(job.memory, job.layout, job.fpp, threads)?;
    let partitions = Arc::new(Partitions::<H>::new(budget.hashes, &job.spill_folder));
    let samples = if source::reads_live_ids(&job.inputs) {
        segments::gather(job, store, &partitions, report, progress).await?;
        Vec::new()
    } else {
        scan_files(job, &partitions, budget, report, progress).await?
    };
    report.sampled_ids = samples.iter().map(|sample| sample.ids().count() as u64).sum();
    report.seconds.scan = timer.lap();
    crash_point("scanned");

    progress(Progress::Count);
    let partitions = Arc::into_inner(partitions).expect("all writers are finished");
    let distinct = partitions.distinct(job.threads, budget.after_scan())?;
    report.ids = distinct.n_ids();
    report.seconds.count = timer.lap();
    crash_point("counted");
    Ok((distinct.n_ids() > 0).then_some(Gathered { distinct, samples }))
}

/// Reads files: writes the hashes of their IDs to `partitions`, and returns samples of the IDs.
async fn scan_files<H: IdHash>(
    job: &Job,
    partitions: &Arc<Partitions<H>>,
    budget: Budget,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Sample>, Error> {
    let input = source::find_window(&job.inputs, job.day, job.window).await?;
    report.read_from(&input);
    let (shared, form) = (partitions.clone(), job.id_form);
    if job.column == HASH_COLUMN {
        segments::check_hash_column(job)?;
        let sink = move |_| HashSink { writer: PartitionWriter::new(shared.clone()), wrong: None };
        let finished = scan_into(job, input.files, budget, sink, report, progress).await?;
        finished.into_iter().collect::<Result<(), Error>>()?;
        return Ok(Vec::new());
    }
    let max_sample = budget.sample / job.threads.max(1);
    let sink = move |rows| IdSink {
        form,
        writer: PartitionWriter::new(shared.clone()),
        sample: Sample::new(max_sample, rows),
    };
    let gathered = scan_into(job, input.files, budget, sink, report, progress).await?;
    gathered.into_iter().collect::<io::Result<_>>().map_err(Error::spill)
}

/// Reads the job's column of files into sinks, and returns their outputs.
async fn scan_into<S: Sink>(
    job: &Job,
    files: Vec<InputFile>,
    budget: Budget,
    sink: impl Fn(u64) -> S + Send + Sync + 'static,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<S::Output>, Error> {
    let (column, threads) = (&job.column, job.threads.max(1));
    let watch = |scanned| progress(Progress::Scan(scanned));
    let scanned = scan::scan(files, column, budget.scan, threads, sink, &watch).await?;
    let (ScanTotals { rows, nulls, invalid, .. }, outputs) = scanned;
    (report.rows, report.nulls, report.invalid) = (rows, nulls, invalid);
    Ok(outputs)
}

/// Hashes and samples the IDs of one decoding thread.
struct IdSink<H: IdHash> {
    form: IdForm,
    writer: PartitionWriter<H, Arc<Partitions<H>>>,
    sample: Sample,
}

impl<H: IdHash> Sink for IdSink<H> {
    type Output = io::Result<Sample>;

    #[inline]
    fn push(&mut self, id: &[u8]) {
        let hash = self.form.hash::<H>(id);
        self.writer.push(hash);
        self.sample.consider(id, hash);
    }

    fn finish(self) -> io::Result<Sample> {
        self.writer.finish().map(|()| self.sample)
    }
}

/// Takes the hashes of one decoding thread, which arrive as decimal numbers.
struct HashSink<H: IdHash> {
    writer: PartitionWriter<H, Arc<Partitions<H>>>,
    /// The first value that is no hash.
    wrong: Option<String>,
}

impl<H: IdHash> Sink for HashSink<H> {
    type Output = Result<(), Error>;

    fn push(&mut self, number: &[u8]) {
        let hash = std::str::from_utf8(number).ok().and_then(|text| text.parse::<u64>().ok());
        match hash {
            // Only the layout `blocked` comes here, whose hash is these 64 bits.
            Some(hash) => self.writer.push(bytemuck::cast::<u64, H>(hash)),
            None => {
                self.wrong.get_or_insert_with(|| single_line(&String::from_utf8_lossy(number), 80));
            }
        }
    }

    fn finish(self) -> Result<(), Error> {
        if let Some(value) = self.wrong {
            let why = format!("its column {HASH_COLUMN} has a value that is no hash: {value}");
            return Err(Error::LiveInput { why });
        }
        self.writer.finish().map_err(Error::spill)
    }
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

/// Completes the report and appends it to the history.
pub(crate) async fn finish(
    store: &Store,
    state: BuildState,
    words: fn(&Remedy) -> String,
) -> Result<Report, Error> {
    let BuildState { event, due, mut report, mut total, .. } = state;
    if let (Some(reason), Some(remedy)) = (&mut report.reason, &report.remedy) {
        *reason = remedy.reword(reason, words);
    }
    report.seconds.total = total.lap();
    report.pinned = match store.pin(&report.filter).await {
        Ok(pin) => !matches!(protocol::follow_pin(&pin.state, Timestamp::now()), Step::Continue),
        // The build is complete; only this field of the report is unknown.
        Err(error) => {
            tracing::warn!("cannot read whether a pin overrides this day's pointer: {error}");
            false
        }
    };
    let event = report.to_event(event);
    let is_event = match report.outcome {
        // Nothing happened.
        Outcome::Unchanged => false,
        Outcome::Refused | Outcome::Superseded => {
            !publish::is_recorded(store, &report.filter, &event, due).await
        }
        _ => true,
    };
    if !report.dry_run && is_event {
        publish::record(store, &report.filter, &event).await;
    }
    crash_point("recorded");
    Ok(report)
}
