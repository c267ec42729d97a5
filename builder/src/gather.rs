//! [`gather`]: the input of a build → its distinct hashes, and a sample of its IDs.

use std::io;
use std::sync::Arc;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::hash::IdHash;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::redact::single_line;
use bloomsday_common::store::Store;

use crate::budget::Budget;
use crate::error::Error;
use crate::job::{Job, Progress};
use crate::partition::{Distinct, PartitionWriter, Partitions};
use crate::report::Report;
use crate::sample::Sample;
use crate::scan::{self, ScanTotals, Sink};
use crate::segments::HASH_COLUMN;
use crate::source::InputFile;
use crate::timer::Timer;
use crate::{segments, source};

/// The IDs of the input.
pub(crate) struct Gathered<H: IdHash> {
    pub(crate) distinct: Distinct<H>,
    /// Some of the IDs as they are in the input.
    pub(crate) samples: Vec<Sample>,
}

/// Reads the input. `None` if there is no ID.
pub(crate) async fn gather<H: IdHash>(
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
