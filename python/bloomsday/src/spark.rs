//! The steps of a build in parts that its driver does: `bloomsday.spark` calls them in order.

use std::sync::{Mutex, PoisonError};

use bloomsday_builder::error::Error;
use bloomsday_builder::parts::{self, FillPlan, Ranges, Uploading};
use bloomsday_builder::{Job, source};
use bloomsday_common::hash::Xxh3;
use pyo3::prelude::*;
use tokio::runtime::Builder;

use crate::build::{Input, Publication, Reported, builder_error, job, reported};
use crate::errors;
use crate::parts::{PlanNumbers, Rows, unreadable};
use crate::wait::{DetachedRuntime, wait};

/// A build whose ranges an engine gathers, counts and fills.
#[pyclass(module = "bloomsday")]
pub(crate) struct Coordinator {
    job: Job,
    runtime: DetachedRuntime,
    /// `None` after the last step. Boxed: Python does not align its objects to cache lines.
    build: Option<Box<parts::Coordinator>>,
    plan: Option<FillPlan>,
    /// In a mutex, because an upload cannot be shared between threads; Python's own lock keeps it
    /// free.
    upload: Mutex<Option<Uploading>>,
}

const _: () = assert!(align_of::<Coordinator>() <= 16, "Python does not align its objects to more");

/// A step that came after the last one, or before its time: a bug of the package.
const ORDER: &str = "the steps of a build come in order";

#[pymethods]
impl Coordinator {
    #[new]
    fn new(
        py: Python<'_>,
        input: &Bound<'_, PyAny>,
        publication: &Bound<'_, PyAny>,
    ) -> PyResult<Coordinator> {
        let (input, publication): (Input, Publication) =
            (errors::fields(input)?, errors::fields(publication)?);
        let job = job(py, input, &publication)?;
        let store = publication.store(py)?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let runtime = DetachedRuntime::from(runtime);
        let begun = wait(py, &runtime, || parts::Coordinator::begin(job.clone(), store));
        let build = begun?.map_err(|error| builder_error(py, &error))?;
        Ok(Coordinator {
            job,
            runtime,
            build: Some(Box::new(build)),
            plan: None,
            upload: Mutex::new(None),
        })
    }

    /// How many rows the newest recorded build read.
    fn expected_rows(&mut self, py: Python<'_>) -> PyResult<Option<u64>> {
        let build = self.build.as_ref().expect(ORDER);
        done(py, wait(py, &self.runtime, || build.expected_rows()))
    }

    /// The files of the job's input: address and size of each.
    fn files(&mut self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let job = &self.job;
        let found =
            wait(py, &self.runtime, || source::find_window(&job.inputs, job.day, job.window));
        let input = done(py, found)?;
        self.build.as_mut().expect(ORDER).read_from(&input);
        Ok(input.files.iter().map(|file| (file.address.clone(), file.meta.size)).collect())
    }

    /// Chooses how many ranges there are: at least `least`.
    fn set_ranges(&mut self, rows: u64, least: u32) -> u32 {
        let ranges = Ranges::for_rows(rows, least);
        self.build.as_mut().expect(ORDER).set_ranges(ranges);
        ranges.count()
    }

    /// Takes rows that `count` returned; their hashes need not be there.
    fn counted(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let build = self.build.as_mut().expect(ORDER);
        for row in 0..rows.len() {
            let read = || Ok::<_, String>((rows.range(row)?, rows.counted(row)?));
            let (range, counted) = read().map_err(|why| unreadable(py, &why))?;
            if let Some(counted) = counted {
                build.counted(range, &counted).map_err(|error| builder_error(py, &error))?;
            }
        }
        Ok(())
    }

    /// What `fill` needs to know; `None` if there is no ID.
    fn shape(&mut self, py: Python<'_>) -> PyResult<Option<PlanNumbers>> {
        let plan = self.build.as_mut().expect(ORDER).shape();
        self.plan = plan.map_err(|error| builder_error(py, &error))?;
        Ok(self.plan.map(PlanNumbers::from))
    }

    /// Which rows `compare` needs: up to this range, and of each range those before this `seq`.
    fn sample(&self) -> (u32, i64) {
        let (range, seq) = self.build.as_ref().expect(ORDER).sample();
        (range, i64::try_from(seq).unwrap_or(i64::MAX))
    }

    /// Compares with the newest earlier filter. The rows may be in any order.
    fn compare(&mut self, py: Python<'_>, batches: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let mut hashes = Vec::new();
        for batch in batches {
            let rows = Rows::of(&batch)?;
            for row in 0..rows.len() {
                let bytes = rows.bytes("hashes", row).map_err(|why| unreadable(py, &why))?;
                let numbers = bytes.unwrap_or_default().as_chunks::<8>().0.iter();
                hashes.extend(numbers.map(|number| Xxh3(u64::from_le_bytes(*number))));
            }
        }
        let build = self.build.as_mut().expect(ORDER);
        let compared = wait(py, &self.runtime, || async {
            hashes.sort_unstable();
            build.compare(&hashes).await
        });
        done(py, compared)
    }

    /// Takes rows that `fill` returned, without `bytes`, in order.
    fn filled(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let build = self.build.as_mut().expect(ORDER);
        for row in 0..rows.len() {
            let mut take = || {
                if let Some(numbers) = rows.filled(row)? {
                    let range = rows.range(row)?;
                    build.filled(range, &numbers).map_err(RowsError::Build)?;
                }
                let value = rows.bytes("value", row)?.map(<[u8; 32]>::try_from).transpose();
                let value = value.map_err(|_| "a value has 32 bytes".to_owned())?;
                let edge = rows.bytes("edge", row)?.unwrap_or_default();
                let (part, offset) = (rows.unsigned("part", row)?, rows.unsigned("offset", row)?);
                py.detach(|| build.piece(part, offset, value, edge)).map_err(RowsError::Build)
            };
            take().map_err(|failed| failed.raise(py))?;
        }
        Ok(())
    }

    /// Computes the blob's header, digest and key.
    fn seal(&mut self, py: Python<'_>) -> PyResult<()> {
        let build = self.build.as_mut().expect(ORDER);
        py.detach(|| build.seal()).map(drop).map_err(|error| builder_error(py, &error))
    }

    /// Whether the store has the blob: all of it is read.
    fn is_uploaded(&mut self, py: Python<'_>) -> PyResult<bool> {
        let build = self.build.as_mut().expect(ORDER);
        done(py, wait(py, &self.runtime, || build.is_uploaded()))
    }

    /// Begins to upload.
    fn begin_upload(&mut self, py: Python<'_>) -> PyResult<()> {
        let (build, plan) = (self.build.as_mut().expect(ORDER), self.plan.expect(ORDER));
        let upload = done(py, wait(py, &self.runtime, || build.upload(plan)))?;
        *unlocked(&mut self.upload) = Some(upload);
        Ok(())
    }

    /// Uploads the pieces of rows that `fill` returned, in order.
    fn upload(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let upload = unlocked(&mut self.upload).as_mut().expect(ORDER);
        let sent = wait(py, &self.runtime, || async {
            for row in 0..rows.len() {
                let bytes = match rows.bytes("bytes", row)? {
                    Some(bytes) => bytes,
                    None => rows.bytes("edge", row)?.unwrap_or_default(),
                };
                let (part, offset) = (rows.unsigned("part", row)?, rows.unsigned("offset", row)?);
                upload.piece(part, offset, bytes).await.map_err(RowsError::Build)?;
            }
            Ok::<_, RowsError>(())
        });
        sent?.map_err(|failed| failed.raise(py))
    }

    /// Completes the upload.
    fn end_upload(&mut self, py: Python<'_>) -> PyResult<()> {
        let upload = unlocked(&mut self.upload).take().expect(ORDER);
        done(py, wait(py, &self.runtime, || upload.finish()))
    }

    /// Removes what an upload sent, if one is under way.
    fn abort_upload(&mut self, py: Python<'_>) -> PyResult<()> {
        match unlocked(&mut self.upload).take() {
            Some(upload) => wait(py, &self.runtime, || upload.abort()),
            None => Ok(()),
        }
    }

    /// Evaluates the gates and moves the pointer.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Reported> {
        let build = self.build.take().expect(ORDER);
        let report = done(py, wait(py, &self.runtime, || build.finish()))?;
        Ok(reported(&report))
    }
}

/// What is in a mutex that only this thread has.
fn unlocked<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Why rows cannot be taken.
enum RowsError {
    Rows(String),
    Build(Error),
}

impl From<String> for RowsError {
    fn from(why: String) -> RowsError {
        RowsError::Rows(why)
    }
}

impl RowsError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            RowsError::Rows(why) => unreadable(py, &why),
            RowsError::Build(error) => builder_error(py, &error),
        }
    }
}

/// What was waited for, or the exception for it.
fn done<T>(py: Python<'_>, waited: PyResult<Result<T, Error>>) -> PyResult<T> {
    waited?.map_err(|error| builder_error(py, &error))
}
