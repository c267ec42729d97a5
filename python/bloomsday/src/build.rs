//! `build` and `publish`: a day's Parquet, or a blob file, → a published blob. The Python side has
//! the defaults that depend on the machine's user, and turns a refusal into an exception.

use std::future::Future;
use std::path::PathBuf;

use bloomsday_builder::budget::default_memory;
use bloomsday_builder::error::Error;
use bloomsday_builder::{
    Deltas, Job, MAX_DELTA_DAYS, MAX_THREADS, Report, Republish, Window, republish,
};
use bloomsday_common::error::Error as CommonError;
use bloomsday_common::filter::layout::UnknownLayout;
use bloomsday_common::pointer::reason;
use bloomsday_common::protocol::Retention;
use bloomsday_common::store::Store;
use pyo3::prelude::*;
use tokio::runtime::Builder;

use crate::errors::{self, ErrorClass};
use crate::filter::Filter;
use crate::wait::{DetachedRuntime, wait};

/// What every kind of publication has.
#[derive(FromPyObject)]
pub(crate) struct Publication {
    store: String,
    by: String,
    dry_run: bool,
    keep_days: u32,
    max_age_days: u32,
}

impl Publication {
    fn retention(&self) -> Retention {
        Retention { keep_days: self.keep_days, max_age_days: self.max_age_days }
    }

    /// Opens the store, unless its records would be too long.
    pub(crate) fn store(&self, py: Python<'_>) -> PyResult<Store> {
        let bytes = json_bytes(&self.by);
        if bytes > MAX_BY_BYTES {
            let why = format!(
                "by has {bytes} bytes as JSON, more than {MAX_BY_BYTES}: use a shorter name"
            );
            return Err(errors::new(py, ErrorClass::Usage, &why));
        }
        let open = if self.dry_run { Store::preview } else { Store::create };
        py.detach(|| open(&self.store)).map_err(|error| errors::of_common(py, &error))
    }
}

/// A record of 64 KiB holds it together with the longest reason.
const MAX_BY_BYTES: usize = 1_000;

/// What a build reads, and how large it may be.
#[derive(FromPyObject)]
pub(crate) struct Input {
    filter: String,
    day: String,
    inputs: Vec<String>,
    column: String,
    id: String,
    fpp: f64,
    layout: String,
    window_days: u32,
    window_may_lack_input: bool,
    deltas: u32,
    memory: Option<u64>,
    threads: Option<usize>,
    spill_folder: Option<PathBuf>,
    accept_change: Option<String>,
}

/// A report as JSON, and what to do if the pointer did not move.
pub(crate) type Reported = (String, Option<String>);

/// Builds and publishes one day.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    input: &Bound<'_, PyAny>,
    publication: &Bound<'_, PyAny>,
) -> PyResult<Reported> {
    let (input, publication): (Input, Publication) =
        (errors::fields(input)?, errors::fields(publication)?);
    if input.inputs.is_empty() {
        let why = "no input is named: pass at least one path or URL";
        return Err(errors::new(py, ErrorClass::Usage, why));
    }
    let job = job(py, input, &publication)?;
    let store = publication.store(py)?;
    report(py, || bloomsday_builder::build(&job, &store, &|_| ()))
}

/// What to build, with this package's words.
pub(crate) fn job(py: Python<'_>, input: Input, publication: &Publication) -> PyResult<Job> {
    let common = |error: CommonError| errors::of_common(py, &error);
    let layout = input
        .layout
        .parse()
        .map_err(|error: UnknownLayout| errors::new(py, ErrorClass::Usage, &error.to_string()))?;
    let id_form = input.id.parse().map_err(|why: String| {
        errors::new(py, ErrorClass::Usage, &format!("id cannot be `{}`: {why}", input.id))
    })?;
    let wrong = |why: String| errors::new(py, ErrorClass::Usage, &why);
    if input.deltas > MAX_DELTA_DAYS {
        let given = input.deltas;
        return Err(wrong(format!(
            "deltas is a number of days from 0 to {MAX_DELTA_DAYS}, not {given}"
        )));
    }
    if let Some(threads) = input.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
        return Err(wrong(format!("threads is a number from 1 to {MAX_THREADS}, not {threads}")));
    }
    let accept_change = input.accept_change.as_deref().map(reason).transpose();
    let accept_change = accept_change.map_err(|why| wrong(format!("accept_change: {why}")))?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let (name, day) = (input.filter.parse().map_err(common)?, input.day.parse().map_err(common)?);
    let job = Job {
        window: Window { days: input.window_days, may_lack_input: input.window_may_lack_input },
        deltas: Deltas::of(input.deltas),
        id_form,
        fpp: input.fpp,
        layout,
        memory: input.memory.unwrap_or_else(default_memory),
        spill_folder: input.spill_folder.unwrap_or_else(std::env::temp_dir),
        threads: input.threads.unwrap_or_else(cores),
        by: publication.by.clone(),
        accept_change,
        retention: publication.retention(),
        remedy_words: errors::words,
        dry_run: publication.dry_run,
        ..Job::new(name, day, input.inputs, input.column)
    };
    job.window.check(&job.inputs).map_err(|error| builder_error(py, &error))?;
    Ok(job)
}

fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(usize::MAX, |json| json.len())
}

/// Publishes a blob that was opened from a file.
#[pyfunction]
pub(crate) fn publish(
    py: Python<'_>,
    filter: &Bound<'_, Filter>,
    publication: &Bound<'_, PyAny>,
) -> PyResult<Reported> {
    let publication: Publication = errors::fields(publication)?;
    let store = publication.store(py)?;
    let (header, bits) = filter.get().parts();
    let job = Republish {
        header,
        filter: bits,
        name: filter.get().name(),
        by: publication.by.clone(),
        retention: publication.retention(),
        remedy_words: errors::words,
        dry_run: publication.dry_run,
    };
    report(py, || republish(&job, &store))
}

fn report<W: Future<Output = Result<Report, Error>>>(
    py: Python<'_>,
    begin: impl FnOnce() -> W + Send,
) -> PyResult<Reported> {
    let runtime = DetachedRuntime::from(Builder::new_multi_thread().enable_all().build()?);
    let report = wait(py, &runtime, begin)?.map_err(|error| builder_error(py, &error))?;
    Ok(reported(&report))
}

pub(crate) fn reported(report: &Report) -> Reported {
    let json = serde_json::to_string(report).expect("a report has JSON");
    (json, report.remedy.as_ref().map(errors::words))
}

/// What is wrong with the input, as opposed to the store, is a class of its own.
pub(crate) fn builder_error(py: Python<'_>, error: &Error) -> PyErr {
    use bloomsday_common::error::Kind;
    match (error, error.kind()) {
        (Error::Common(error), _) => errors::of_common(py, error),
        (Error::NotAnId { .. }, _) => errors::new(py, ErrorClass::IdType, &error.to_string()),
        (_, Kind::Corrupt | Kind::Failed | Kind::Transient) => errors::new_with(
            py,
            ErrorClass::Build,
            &error.to_string(),
            error.remedy(),
            error.kind() == Kind::Transient,
        ),
        (_, kind) => errors::of_kind(py, kind, error, error.remedy()),
    }
}
