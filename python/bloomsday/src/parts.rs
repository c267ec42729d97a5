//! The pure functions of a build in parts, Arrow → Arrow: what `bloomsday.parts` runs in the executors of an
//! engine. Each takes batches and returns batches; nothing here does I/O, except the scan of one file.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, Int64Array, StructArray};
use arrow_schema::{DataType, Field, Fields};
use bloomsday_builder::error::Error;
use bloomsday_builder::parts::{
    Count, Counted, Fill, Filled, Gather, Gathered, MAX_PACKAGE_HASHES, Package, Plan, Ranges,
};
use bloomsday_builder::scan::{ScanBudget, Sink, scan};
use bloomsday_builder::{ids, source};
use bloomsday_common::blob::Places;
use bloomsday_common::filter::{Layout, OnesHistogram, Shape};
use bloomsday_common::hash::Xxh3;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::runtime::Builder;

use crate::build::builder_error;
use crate::errors;
use crate::ids::capsule;

/// A batch that is returned has about this many bytes.
const BATCH_BYTES: usize = 8 << 20;
/// What the scan of one file may take in an executor.
const FILE_BUDGET: ScanBudget =
    ScanBudget { in_flight: 32 << 20, unpacked: 64 << 20, footers: 128 << 20 };

/// A batch for any library that reads `__arrow_c_array__`.
#[pyclass(frozen, module = "bloomsday")]
#[derive(Debug)]
pub(crate) struct Batch {
    rows: StructArray,
}

#[pymethods]
impl Batch {
    /// Arrow's PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::export(py, &self.rows)
    }
}

/// The columns of a batch by name.
pub(crate) struct Rows(StructArray);

impl Rows {
    /// Takes a record batch of any library.
    pub(crate) fn of(batch: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let column = capsule::import_array(&batch.call_method0("__arrow_c_array__")?)?;
        let rows = column.ok().and_then(|column| column.pieces.into_iter().next());
        let rows = rows.and_then(|rows| rows.as_struct_opt().cloned());
        rows.map(Rows).ok_or_else(|| unreadable(batch.py(), "a batch is no record batch"))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn column(&self, name: &str) -> Result<&ArrayRef, String> {
        self.0.column_by_name(name).ok_or_else(|| format!("a batch lacks the column `{name}`"))
    }

    /// An integer, or `None` for a null.
    pub(crate) fn number(&self, name: &str, row: usize) -> Result<Option<i64>, String> {
        let column = self.column(name)?;
        if column.is_null(row) {
            return Ok(None);
        }
        match column.data_type() {
            DataType::Int64 => Ok(Some(column.as_primitive::<Int64Type>().value(row))),
            DataType::Int32 => Ok(Some(column.as_primitive::<Int32Type>().value(row).into())),
            other => Err(format!("the column `{name}` is of type {other}, not an integer")),
        }
    }

    /// A number that the other side wrote as [`signed`].
    pub(crate) fn unsigned(&self, name: &str, row: usize) -> Result<u64, String> {
        Ok(self.number(name, row)?.unwrap_or_default().cast_unsigned())
    }

    /// Bytes; none for a null.
    pub(crate) fn bytes(&self, name: &str, row: usize) -> Result<Option<&[u8]>, String> {
        let column = self.column(name)?;
        if column.is_null(row) {
            return Ok(None);
        }
        match column.data_type() {
            DataType::Binary => Ok(Some(column.as_binary::<i32>().value(row))),
            DataType::LargeBinary => Ok(Some(column.as_binary::<i64>().value(row))),
            other => Err(format!("the column `{name}` is of type {other}, not binary")),
        }
    }

    pub(crate) fn range(&self, row: usize) -> Result<u32, String> {
        let range = self.number("range", row)?.and_then(|range| u32::try_from(range).ok());
        range.ok_or_else(|| "a row has no range".to_owned())
    }

    /// The numbers of a range that was counted, if this row has them.
    pub(crate) fn counted(&self, row: usize) -> Result<Option<Counted>, String> {
        if self.number("ids", row)?.is_none() {
            return Ok(None);
        }
        let number = |name| self.unsigned(name, row);
        let gathered = self.gathered(row)?;
        Ok(Some(Counted {
            ids: number("ids")?,
            sum: number("sum")?,
            received: number("received")?,
            received_sum: number("received_sum")?,
            gathered: gathered.unwrap_or_default(),
        }))
    }

    fn gathered(&self, row: usize) -> Result<Option<Gathered>, String> {
        if self.number("rows", row)?.is_none() {
            return Ok(None);
        }
        let number = |name| self.unsigned(name, row);
        Ok(Some(Gathered {
            rows: number("rows")?,
            nulls: number("nulls")?,
            invalid: number("invalid")?,
            sent: number("sent")?,
            sent_sum: number("sent_sum")?,
        }))
    }

    /// The numbers of a range that was filled, if this row has them.
    pub(crate) fn filled(&self, row: usize) -> Result<Option<Filled>, String> {
        let Some(blocks) = self.bytes("blocks", row)? else { return Ok(None) };
        let blocks = blocks.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let blocks = OnesHistogram::of_numbers(blocks).ok_or("a row has no histogram")?;
        let number = |name| self.unsigned(name, row);
        Ok(Some(Filled {
            ids: number("ids")?,
            sum: number("sum")?,
            lost: number("lost")?,
            sampled: number("sampled")?,
            lost_samples: number("lost_samples")?,
            hits: number("hits")?,
            blocks,
        }))
    }
}

/// What an engine gave us cannot be what the step before returned.
pub(crate) fn unreadable(py: Python<'_>, why: &str) -> PyErr {
    errors::raise(py, "BuildError", &format!("the batches of this build cannot be read: {why}"))
}

/// A column that is being made.
enum Making {
    Range(Vec<i32>),
    Numbers(Vec<Option<i64>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

/// Rows that are being made.
struct Table {
    columns: Vec<(&'static str, Making)>,
    bytes: usize,
}

impl Table {
    fn new(numbers: &[&'static str], bytes: &[&'static str]) -> Table {
        let range = ("range", Making::Range(Vec::new()));
        let numbers = numbers.iter().map(|name| (*name, Making::Numbers(Vec::new())));
        let bytes = bytes.iter().map(|name| (*name, Making::Bytes(Vec::new())));
        Table { columns: [range].into_iter().chain(numbers).chain(bytes).collect(), bytes: 0 }
    }

    /// Adds a row: its range, its numbers or none, and its bytes, in the order of the columns.
    fn add<const N: usize, const B: usize>(
        &mut self,
        range: u32,
        numbers: [Option<u64>; N],
        values: [Option<Vec<u8>>; B],
    ) {
        let (mut numbers, mut values) = (numbers.into_iter(), values.into_iter());
        self.bytes += size_of::<u64>() * N;
        for (_, column) in &mut self.columns {
            match column {
                // There are fewer than 2^31 ranges.
                Making::Range(column) => column.push(range.cast_signed()),
                Making::Numbers(column) => {
                    column.push(numbers.next().flatten().map(u64::cast_signed));
                }
                Making::Bytes(column) => {
                    let value = values.next().flatten();
                    self.bytes += value.as_ref().map_or(0, Vec::len);
                    column.push(value);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// All rows as a batch; `None` without rows.
    fn take(&mut self) -> Option<Batch> {
        self.bytes = 0;
        let columns: Vec<(Field, ArrayRef)> = self
            .columns
            .iter_mut()
            .map(|(name, column)| {
                let array: ArrayRef = match column {
                    Making::Range(column) => Arc::new(Int32Array::from(std::mem::take(column))),
                    Making::Numbers(column) => Arc::new(Int64Array::from(std::mem::take(column))),
                    Making::Bytes(column) => {
                        Arc::new(std::mem::take(column).into_iter().collect::<BinaryArray>())
                    }
                };
                (Field::new(*name, array.data_type().clone(), true), array)
            })
            .collect();
        if columns[0].1.is_empty() {
            return None;
        }
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        Some(Batch { rows: StructArray::new(Fields::from(fields), arrays, None) })
    }
}

/// Little-endian bytes of hashes.
fn packed(hashes: &[Xxh3]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0.to_le_bytes()).collect()
}

/// IDs → packed hashes. See `bloomsday.parts.gather`.
#[pyclass(module = "bloomsday")]
pub(crate) struct PartsGather {
    gather: Gather,
    packages: VecDeque<Package>,
    scanning: Option<Scanning>,
}

/// A file that is being scanned: its packages, few at a time, and at the end what gathers the next one.
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
        let Rows(rows) = Rows::of(batch)?;
        let field = rows.fields().first().cloned();
        let field = field.ok_or_else(|| unreadable(py, "a batch has no column"))?;
        let is_uuid =
            field.metadata().get("ARROW:extension:name").is_some_and(|n| n == "arrow.uuid");
        let PartsGather { gather, packages, .. } = self;
        let taken = py.detach(|| {
            let counts = ids::for_each_id(rows.column(0), is_uuid, &mut |id| gather.push(id))?;
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
            errors::raise(py, "IdTypeError", &message)
        })
    }

    /// Begins to read one Parquet file, which must have `bytes` bytes. It is read when `next` has returned
    /// `None`.
    fn scan(&mut self, file: String, bytes: u64, column: String) {
        let gather = std::mem::replace(&mut self.gather, Gather::new(Ranges::new(1), 0));
        // While one lot waits, the next one is made.
        let (sender, received) = sync_channel(1);
        let thread = std::thread::spawn(move || scan_file(file, bytes, &column, gather, sender));
        self.scanning = Some(Scanning { packages: Mutex::new(received), thread });
    }

    /// The next batch. With `last`, also of what is not a full batch yet.
    fn next(&mut self, py: Python<'_>, last: bool) -> PyResult<Option<Batch>> {
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
            if last {
                self.packages.extend(self.gather.packages());
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
        let files = source::find(&[escaped(&file)], day).await?;
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
        gather.count(ids::Counts { rows, nulls, invalid });
        Ok(gather)
    })
}

/// The name of a file as an input that matches this file only.
pub(crate) fn escaped(name: &str) -> String {
    let escape = |letter: char| match letter {
        '[' => "[[]".to_owned(),
        '*' => "[*]".to_owned(),
        '?' => "[?]".to_owned(),
        other => other.to_string(),
    };
    name.chars().map(escape).collect()
}

/// Packed hashes → distinct hashes. See `bloomsday.parts.count`.
#[pyclass(module = "bloomsday")]
pub(crate) struct PartsCount {
    count: Count,
    /// The range whose rows are returned now: its numbers are in its first row.
    open: Option<Open>,
}

struct Open {
    range: u32,
    counted: Option<Counted>,
    hashes: Vec<Xxh3>,
    samples: Vec<u8>,
    /// How many of its packages were returned.
    returned: usize,
}

#[pymethods]
impl PartsCount {
    #[new]
    fn new(ranges: u32) -> PartsCount {
        PartsCount { count: Count::new(Ranges::new(ranges)), open: None }
    }

    /// Takes rows that `gather` returned.
    fn push(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let count = &mut self.count;
        for row in 0..rows.len() {
            let read = || {
                let hashes = rows.bytes("hashes", row)?.unwrap_or_default();
                let samples = rows.bytes("samples", row)?.unwrap_or_default();
                Ok::<_, String>((rows.range(row)?, rows.gathered(row)?, hashes, samples))
            };
            let (range, gathered, hashes, samples) = read().map_err(|why| unreadable(py, &why))?;
            let pushed = py.detach(|| count.push(range, gathered, hashes, samples));
            pushed.map_err(|error| builder_error(py, &error))?;
        }
        Ok(())
    }

    /// The next batch, after the last row.
    fn next(&mut self, py: Python<'_>) -> Option<Batch> {
        py.detach(|| {
            let numbers = [
                "seq",
                "ids",
                "sum",
                "received",
                "received_sum",
                "rows",
                "nulls",
                "invalid",
                "sent",
                "sent_sum",
            ];
            let mut table = Table::new(&numbers, &["hashes", "samples"]);
            while !table.is_full() {
                if self.open.is_none() {
                    self.open = self.count.next_range().map(|(range, counted, hashes, samples)| {
                        Open { range, counted: Some(counted), hashes, samples, returned: 0 }
                    });
                }
                let Some(open) = &mut self.open else { break };
                let start = open.returned * MAX_PACKAGE_HASHES;
                let end = open.hashes.len().min(start + MAX_PACKAGE_HASHES);
                let numbers = open.counted.take().map(|c| {
                    let g = c.gathered;
                    let of_range = [c.ids, c.sum, c.received, c.received_sum];
                    let of_rows = [g.rows, g.nulls, g.invalid, g.sent, g.sent_sum];
                    [of_range.as_slice(), of_rows.as_slice()].concat()
                });
                let mut row = [None; 10];
                row[0] = Some(open.returned as u64);
                for (place, number) in row[1..].iter_mut().zip(numbers.unwrap_or_default()) {
                    *place = Some(number);
                }
                let samples = std::mem::take(&mut open.samples);
                let samples = (!samples.is_empty()).then_some(samples);
                table.add(open.range, row, [Some(packed(&open.hashes[start..end])), samples]);
                open.returned += 1;
                if end == open.hashes.len() {
                    self.open = None;
                }
            }
            table.take()
        })
    }
}

/// What `fill` needs to know, as the coordinator returns it.
#[derive(FromPyObject, IntoPyObject, Clone, Copy)]
pub(crate) struct PlanNumbers {
    units: u64,
    probes: u32,
    ranges: u32,
    head: u64,
    body: u64,
}

impl From<Plan> for PlanNumbers {
    fn from(plan: Plan) -> PlanNumbers {
        let Plan { shape, ranges, places } = plan;
        let (units, probes) = (shape.units(), shape.probes());
        PlanNumbers { units, probes, ranges: ranges.count(), head: places.head, body: places.body }
    }
}

/// Distinct hashes → pieces of the blob. See `bloomsday.parts.fill`.
#[pyclass(module = "bloomsday")]
pub(crate) struct PartsFill {
    plan: Plan,
    /// Hashes and samples of the ranges, by their packages.
    ranges: std::collections::BTreeMap<u32, Collected>,
    made: VecDeque<Batch>,
}

#[derive(Default)]
struct Collected {
    packages: std::collections::BTreeMap<u64, Vec<Xxh3>>,
    samples: Vec<u8>,
}

#[pymethods]
impl PartsFill {
    #[new]
    #[pyo3(signature = (*, units, probes, ranges, head, body))]
    fn new(
        py: Python<'_>,
        units: u64,
        probes: u32,
        ranges: u32,
        head: u64,
        body: u64,
    ) -> PyResult<PartsFill> {
        let shape = Shape::new(Layout::Blocked, units, probes);
        let shape = shape.map_err(|error| errors::of_common(py, &error))?;
        if body != shape.body_bytes() || head > body.saturating_add(1 << 20) {
            return Err(unreadable(py, "the plan is not that of a blob"));
        }
        let plan = Plan { shape, ranges: Ranges::new(ranges), places: Places { head, body } };
        Ok(PartsFill { plan, ranges: Default::default(), made: VecDeque::new() })
    }

    /// Takes rows that `count` returned.
    fn push(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let ranges = &mut self.ranges;
        let taken = py.detach(|| {
            for row in 0..rows.len() {
                let of_range = ranges.entry(rows.range(row)?).or_default();
                let hashes = rows.bytes("hashes", row)?.unwrap_or_default();
                let hashes = hashes.as_chunks::<8>().0.iter().map(|n| Xxh3(u64::from_le_bytes(*n)));
                let there = of_range.packages.insert(rows.unsigned("seq", row)?, hashes.collect());
                if there.is_some() {
                    return Err("a row came twice".to_owned());
                }
                of_range.samples.extend_from_slice(rows.bytes("samples", row)?.unwrap_or_default());
            }
            Ok(())
        });
        taken.map_err(|why| unreadable(py, &why))
    }

    /// The next batch, after the last row.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if let Some(batch) = self.made.pop_front() {
            return Ok(Some(batch));
        }
        let Some((range, Collected { packages, samples })) = self.ranges.pop_first() else {
            return Ok(None);
        };
        let plan = self.plan;
        let filled = py.detach(|| {
            let mut hashes = Vec::with_capacity(packages.values().map(Vec::len).sum());
            packages.into_values().for_each(|package| hashes.extend(package));
            Fill::range(plan, range, &hashes, &samples)
        });
        let fill = filled.map_err(|error| builder_error(py, &error))?;
        py.detach(|| {
            let numbers =
                ["part", "offset", "ids", "sum", "lost", "sampled", "lost_samples", "hits"];
            let mut table = Table::new(&numbers, &["blocks", "value", "edge", "bytes"]);
            let Filled { ids, sum, lost, sampled, lost_samples, hits, blocks } = fill.numbers();
            let mut numbers = Some([*ids, *sum, *lost, *sampled, *lost_samples, *hits]);
            let mut blocks =
                Some(blocks.numbers().iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
            for piece in fill.pieces() {
                let mut row = [None; 8];
                (row[0], row[1]) = (Some(piece.part), Some(piece.offset));
                for (place, number) in row[2..].iter_mut().zip(numbers.take().unwrap_or_default()) {
                    *place = Some(number);
                }
                let bytes = Some(piece.bytes.to_vec());
                let (edge, bytes) =
                    if piece.value.is_some() { (None, bytes) } else { (bytes, None) };
                table.add(range, row, [blocks.take(), piece.value.map(Vec::from), edge, bytes]);
                if table.is_full() {
                    self.made.extend(table.take());
                }
            }
            self.made.extend(table.take());
        });
        Ok(self.made.pop_front())
    }
}
