//! The pure functions of a build in parts, Arrow → Arrow: what `bloomsday.parts` runs in the
//! executors of an engine. Each takes batches and returns batches; nothing here does I/O, except
//! the scan of one file.

mod batch;
mod gather;

use std::collections::{BTreeMap, VecDeque};

use bloomsday_builder::parts::{
    Count, Counted, Fill, FillPlan, Filled, MAX_PACKAGE_HASHES, Ranges,
};
use bloomsday_common::blob::BlobSizes;
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::hash::Xxh3;
use pyo3::prelude::*;

pub(crate) use self::batch::{Batch, Rows, unreadable};
use self::batch::{Table, packed};
pub(crate) use self::gather::PartsGather;
use crate::build::builder_error;
use crate::errors;

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

impl From<FillPlan> for PlanNumbers {
    fn from(plan: FillPlan) -> PlanNumbers {
        let FillPlan { shape, ranges, blob_sizes } = plan;
        let (units, probes) = (shape.units(), shape.probes());
        PlanNumbers {
            units,
            probes,
            ranges: ranges.count(),
            head: blob_sizes.header_bytes,
            body: blob_sizes.body_bytes,
        }
    }
}

/// Distinct hashes → pieces of the blob. See `bloomsday.parts.fill`.
#[pyclass(module = "bloomsday")]
pub(crate) struct PartsFill {
    plan: FillPlan,
    /// Hashes and samples of the ranges, by their packages.
    ranges: BTreeMap<u32, Collected>,
    made: VecDeque<Batch>,
}

/// The rows of a range so far.
#[derive(Default)]
struct Collected {
    /// The hashes of the first rows, in order.
    hashes: Vec<Xxh3>,
    /// How many rows these are.
    rows: u64,
    /// Rows that came before those in front of them.
    early: BTreeMap<u64, Vec<Xxh3>>,
    samples: Vec<u8>,
}

impl Collected {
    /// Takes a row. Without a copy of all hashes at the end, which would double the memory.
    ///
    /// # Errors
    /// The row came before.
    fn push(&mut self, seq: u64, hashes: &[u8], samples: &[u8]) -> Result<(), String> {
        let hashes = hashes.as_chunks::<8>().0.iter().map(|n| Xxh3(u64::from_le_bytes(*n)));
        self.samples.extend_from_slice(samples);
        if seq == self.rows {
            self.hashes.extend(hashes);
            self.rows += 1;
            while let Some(next) = self.early.remove(&self.rows) {
                self.hashes.extend(next);
                self.rows += 1;
            }
            return Ok(());
        }
        if seq > self.rows && self.early.insert(seq, hashes.collect()).is_none() {
            Ok(())
        } else {
            Err("a row came twice".to_owned())
        }
    }
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
        let plan = FillPlan {
            shape,
            ranges: Ranges::new(ranges),
            blob_sizes: BlobSizes { header_bytes: head, body_bytes: body },
        };
        Ok(PartsFill { plan, ranges: Default::default(), made: VecDeque::new() })
    }

    /// Takes rows that `count` returned.
    fn push(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = Rows::of(batch)?;
        let ranges = &mut self.ranges;
        let taken = py.detach(|| {
            for row in 0..rows.len() {
                let hashes = rows.bytes("hashes", row)?.unwrap_or_default();
                let samples = rows.bytes("samples", row)?.unwrap_or_default();
                let of_range = ranges.entry(rows.range(row)?).or_default();
                of_range.push(rows.unsigned("seq", row)?, hashes, samples)?;
            }
            Ok::<_, String>(())
        });
        taken.map_err(|why| unreadable(py, &why))
    }

    /// The next batch, after the last row.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if let Some(batch) = self.made.pop_front() {
            return Ok(Some(batch));
        }
        let Some((range, Collected { hashes, samples, early, .. })) = self.ranges.pop_first()
        else {
            return Ok(None);
        };
        if !early.is_empty() {
            return Err(unreadable(py, "a row of a range is missing"));
        }
        let plan = self.plan;
        let filled = py.detach(|| Fill::range(plan, range, &hashes, &samples));
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
