//! IDs, of batches or of a Parquet file → packed hashes.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bloomsday_builder::error::Error;
use bloomsday_builder::parts::{Gather, Package, Ranges, check_column};
use bloomsday_builder::scan::{ScanBudget, Sink, scan};
use bloomsday_builder::{ids, source};
use pyo3::prelude::*;
use tokio::runtime::Builder;

use super::batch::{Batch, Rows, Table, packed, unreadable};
use crate::build::builder_error;
use crate::errors::{self, ErrorClass};
use crate::ids::arrow::{is_uuid, other_extension};

/// What the scan of one file may take in an executor.
const FILE_BUDGET: ScanBudget =
    ScanBudget { in_flight: 32 << 20, unpacked: 64 << 20, footers: 128 << 20 };

/// IDs → packed hashes. See `bloomsday.parts.gather`.
#[pyclass(module = "bloomsday")]
pub(crate) struct PartsGather {
    gather: Gather,
    packages: VecDeque<Package>,
    scanning: Option<Scanning>,
}

/// A file that is being scanned: its packages, few at a time, and at the end what gathers the next
/// one.
struct Scanning {
    packages: Mutex<Receiver<Vec<Package>>>,
    thread: JoinHandle<Result<Gather, Error>>,
}

#[pymethods]
impl PartsGather {
    #[new]
    fn new(ranges: u32, rows: u64) -> PartsGather {
        let gather = Gather::new(Ranges::new(ranges), rows);
        PartsGather { gather, packages: VecDeque::new(), scanning: None }
    }

    /// Takes the first column of a batch.
    fn push(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let first = rows.first();
        let (field, ids) = first.ok_or_else(|| unreadable(py, "a batch has no column"))?;
        check_column(field.name()).map_err(|error| builder_error(py, &error))?;
        let PartsGather { gather, packages, .. } = self;
        let taken = py.detach(|| {
            if let Some(other) = other_extension(field) {
                return Err(format!("it has values of the extension type `{other}`"));
            }
            let is_uuid = is_uuid(field);
            let counts = ids::for_each_id(ids, is_uuid, &mut |id| gather.push(id))?;
            gather.count(counts);
            if gather.is_full() {
                packages.extend(gather.packages());
            }
            Ok::<_, String>(())
        });
        taken.map_err(|why| {
            let message = format!(
                "column `{}` cannot be used as an ID: {why}; an ID is a string, binary, an integer or a UUID",
                field.name()
            );
            errors::new(py, ErrorClass::IdType, &message)
        })
    }

    /// Begins to read one Parquet file, which must have `bytes` bytes. It is read when `next` has
    /// returned `None`.
    fn scan(&mut self, py: Python<'_>, file: String, bytes: u64, column: String) -> PyResult<()> {
        check_column(&column).map_err(|error| builder_error(py, &error))?;
        let gather = std::mem::replace(&mut self.gather, Gather::new(Ranges::new(1), 0));
        // While one lot waits, the next one is made.
        let (sender, received) = sync_channel(1);
        let thread = std::thread::spawn(move || scan_file(file, bytes, &column, gather, sender));
        self.scanning = Some(Scanning { packages: Mutex::new(received), thread });
        Ok(())
    }

    /// After the last row: what is not a full batch yet becomes one.
    fn finish(&mut self, py: Python<'_>) {
        py.detach(|| self.packages.extend(self.gather.packages()));
    }

    /// The next batch of what is complete, if there is any.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        py.detach(|| {
            if self.packages.is_empty()
                && let Some(scanning) = &self.scanning
            {
                let lot = scanning.packages.lock().expect("receiving does not panic").recv();
                match lot {
                    Ok(lot) => self.packages.extend(lot),
                    Err(_) => {
                        let done = self.scanning.take().expect("it is there").thread.join();
                        self.gather = done.expect("a scan does not panic")?;
                    }
                }
            }
            let numbers = ["rows", "nulls", "invalid", "sent", "sent_sum"];
            let mut table = Table::new(&numbers, &["hashes", "samples"]);
            while !table.is_full()
                && let Some(Package { range, gathered, hashes, samples }) =
                    self.packages.pop_front()
            {
                let numbers = gathered.map(|g| [g.rows, g.nulls, g.invalid, g.sent, g.sent_sum]);
                let numbers = numbers.map_or([None; 5], |numbers| numbers.map(Some));
                let samples = (!samples.is_empty()).then_some(samples);
                table.add(range, numbers, [Some(packed(&hashes)), samples]);
            }
            Ok(table.take())
        })
        .map_err(|error: Error| builder_error(py, &error))
    }
}

struct GatherSink {
    gather: Gather,
    sender: SyncSender<Vec<Package>>,
}

impl Sink for GatherSink {
    type Output = GatherSink;

    #[inline]
    fn push(&mut self, id: &[u8]) {
        self.gather.push(id);
        if self.gather.is_full() {
            // Nobody takes it if the task was cancelled; then nobody takes the rest either.
            let _ = self.sender.send(self.gather.packages());
        }
    }

    fn finish(self) -> GatherSink {
        self
    }
}

/// The error for a file that the driver has found, and this process cannot find.
fn unshared(file: String) -> Error {
    let why = "an executor finds no such file".to_owned();
    let remedy = "`input` has to be on storage that the driver and all executors share: copy it there, or read \
                  it as a DataFrame";
    Error::NotAFile { file, why, remedy }
}

fn scan_file(
    file: String,
    bytes: u64,
    column: &str,
    gather: Gather,
    sender: SyncSender<Vec<Package>>,
) -> Result<Gather, Error> {
    // A worker of its own for the object store, while this thread waits.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|source| Error::Thread { source })?;
    runtime.block_on(async {
        let day = "2000-01-01".parse().expect("it is a day");
        let mut files = match source::find(std::slice::from_ref(&file), day).await {
            // Its day is made up, and the driver has found the file.
            Err(Error::NoFiles { .. }) => return Err(unshared(file)),
            found => found?,
        };
        // In a bucket a folder may have the name of the file, too.
        files.retain(|found| found.address == file);
        if files.len() != 1 || files[0].meta.size != bytes {
            return Err(Error::Replaced { file });
        }
        // One thread scans, so one sink is made; none if there is no row.
        let first = Arc::new(Mutex::new(Some(GatherSink { gather, sender })));
        let take =
            |first: &Mutex<Option<GatherSink>>| first.lock().expect("taking does not panic").take();
        let of_thread = first.clone();
        let sink = move |_| take(&of_thread).expect("one thread");
        let (totals, sinks) = scan(files, column, FILE_BUDGET, 1, sink, &|_| ()).await?;
        let sink = sinks.into_iter().next().or_else(|| take(&first));
        let GatherSink { mut gather, .. } = sink.expect("it was made or is still there");
        let (rows, nulls, invalid) = (totals.rows, totals.nulls, totals.invalid);
        gather.count(ids::RowCounts { rows, nulls, invalid });
        Ok(gather)
    })
}
