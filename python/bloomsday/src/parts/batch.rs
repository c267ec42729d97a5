//! Batches that come and go: [`Rows`] by column name, and [`Table`], which makes a [`Batch`].

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, Int64Array, StructArray};
use arrow_schema::{DataType, Field, Fields};
use bloomsday_builder::parts::{Counted, Filled, Gathered};
use bloomsday_common::filter::OnesHistogram;
use bloomsday_common::hash::Xxh3;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{self, ErrorClass};
use crate::ids::capsule::{self, Column};

/// A batch that is returned has about this many bytes.
const BATCH_BYTES: usize = 8 << 20;

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
pub(crate) struct Rows {
    rows: StructArray,
    /// As they came: those of `rows` do not say what the values of a dictionary mean.
    fields: Fields,
}

impl Rows {
    /// Takes a record batch of any library. A table may have several pieces, and is none.
    pub(crate) fn of(batch: &Bound<'_, PyAny>) -> PyResult<Rows> {
        if !batch.hasattr("__arrow_c_array__")? {
            let why = "a batch is a pyarrow.RecordBatch, or another with __arrow_c_array__: pass each of \
                       `table.to_batches()`";
            return Err(unreadable(batch.py(), why));
        }
        let column = capsule::import(batch, |_| Ok(()))?;
        let rows = column.ok().and_then(|Column { field, pieces }| {
            let rows = pieces.first()?.as_struct_opt()?.clone();
            let DataType::Struct(fields) = field.data_type() else { return None };
            Some(Rows { rows, fields: fields.clone() })
        });
        rows.ok_or_else(|| unreadable(batch.py(), "a batch is no record batch"))
    }

    /// The first column, if there is one.
    pub(super) fn first(&self) -> Option<(&Field, &ArrayRef)> {
        let field = self.fields.first()?;
        Some((field, self.rows.columns().first()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn column(&self, name: &str) -> Result<&ArrayRef, String> {
        self.rows.column_by_name(name).ok_or_else(|| format!("a batch lacks the column `{name}`"))
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

    pub(super) fn gathered(&self, row: usize) -> Result<Option<Gathered>, String> {
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
    errors::new(py, ErrorClass::Build, &format!("the batches of this build cannot be read: {why}"))
}

/// A column that is being made.
enum Making {
    Range(Vec<i32>),
    Numbers(Vec<Option<i64>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

/// Rows that are being made.
pub(super) struct Table {
    columns: Vec<(&'static str, Making)>,
    bytes: usize,
}

impl Table {
    pub(super) fn new(numbers: &[&'static str], bytes: &[&'static str]) -> Table {
        let range = ("range", Making::Range(Vec::new()));
        let numbers = numbers.iter().map(|name| (*name, Making::Numbers(Vec::new())));
        let bytes = bytes.iter().map(|name| (*name, Making::Bytes(Vec::new())));
        Table { columns: [range].into_iter().chain(numbers).chain(bytes).collect(), bytes: 0 }
    }

    /// Adds a row: its range, its numbers or none, and its bytes, in the order of the columns.
    pub(super) fn add<const N: usize, const B: usize>(
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

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// All rows as a batch; `None` without rows.
    pub(super) fn take(&mut self) -> Option<Batch> {
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
pub(super) fn packed(hashes: &[Xxh3]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0.to_le_bytes()).collect()
}
