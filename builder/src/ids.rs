//! A Parquet column's type → the bytes of its IDs.
//!
//! Knows Parquet's and Arrow's types; [`scan`](crate::scan) knows Parquet's files and pages. No
//! I/O, and no hashes.

mod arrays;
mod kind;
mod projection;
mod values;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::FieldLevels;
use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};

pub use self::arrays::for_each_id;
use self::kind::{ValueKind, is_text, kind_of};
pub(crate) use self::values::IdValidator;
pub use self::values::RowCounts;
use self::values::{each, number, try_each, unscaled, uuid_text};
use crate::error::Error;

/// The column that holds the IDs of a file.
#[derive(Clone, Debug)]
pub struct Column {
    leaf: usize,
    kind: ValueKind,
    text: Option<bool>,
    projected: SchemaDescPtr,
    levels: FieldLevels,
}

impl Column {
    /// Finds the column `name` of `file`: a top-level column, or a value in nested structs, such as
    /// `user.device.id`. The name of a column may itself contain dots.
    ///
    /// # Errors
    /// [`Error::NoColumn`]: there is no such column. [`Error::NotAnId`]: it is a struct, repeated,
    /// ambiguous, or its type is not that of an ID. [`Error::Corrupt`]: its schema is invalid.
    pub fn find(schema: &SchemaDescriptor, name: &str, file: &str) -> Result<Column, Error> {
        let refuse = |why: String| Error::NotAnId { file: file.into(), column: name.into(), why };
        let path = |leaf: usize| schema.column(leaf).path().string();
        let mut named = (0..schema.num_columns()).filter(|&leaf| path(leaf) == name);
        let Some(leaf) = named.next() else {
            let inside = format!("{name}.");
            let mut leaves = 0..schema.num_columns();
            return match leaves.find(|&leaf| path(leaf).starts_with(&inside)) {
                Some(leaf) if schema.column(leaf).max_rep_level() > 0 => {
                    Err(refuse(repeated(name)))
                }
                Some(leaf) => {
                    Err(refuse(format!("it is a struct; name a value in it, as `{}`", path(leaf))))
                }
                None => Err(Error::NoColumn {
                    file: file.into(),
                    column: name.into(),
                    known: list(schema.num_columns(), path),
                }),
            };
        };
        if named.next().is_some() {
            return Err(refuse("more than one column of the file has this name".into()));
        }
        let column = schema.column(leaf);
        if column.max_rep_level() > 0 {
            return Err(refuse(repeated(name)));
        }
        let kind = kind_of(&column).map_err(refuse)?;
        let damaged = |e: ParquetError| Error::Corrupt { file: file.into(), why: e.to_string() };
        let projected = Arc::new(projection::project_leaf(schema, leaf, kind).map_err(damaged)?);
        let levels = projection::levels(&projected).map_err(damaged)?;
        Ok(Column { leaf, kind, text: is_text(&column, kind), projected, levels })
    }

    /// Its number among the leaf columns of its file.
    pub fn leaf(&self) -> usize {
        self.leaf
    }

    /// The schema of a file with this column only. So the other columns of a file may have unknown
    /// types.
    pub fn schema(&self) -> &SchemaDescPtr {
        &self.projected
    }

    /// Whether its values must be UTF-8, if they are byte arrays; `None` for other columns.
    pub fn is_text(&self) -> Option<bool> {
        self.text
    }

    /// How to read [`Column::schema`]: types from Parquet alone, since what a writer noted of its
    /// own types can differ from what it wrote; strings and binary as views, which copy nothing.
    pub(crate) fn levels(&self) -> &FieldLevels {
        &self.levels
    }

    /// The bytes of each value in a file, if all have the same number; otherwise 0.
    pub(crate) fn width(&self) -> usize {
        let column = self.projected.column(0);
        match column.physical_type() {
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).unwrap_or(0),
            Physical::BYTE_ARRAY | Physical::BOOLEAN => 0,
        }
    }

    /// Whether both columns are read in the same way.
    pub(crate) fn is_like(&self, other: &Column) -> bool {
        (self.leaf, self.kind, self.text) == (other.leaf, other.kind, other.text)
            && self.projected.root_schema() == other.projected.root_schema()
    }

    /// Whether the column has nulls only.
    pub(crate) fn is_null(&self) -> bool {
        self.kind == ValueKind::Null
    }

    /// Calls `take` for each valid ID of a batch that was read with [`Column::levels`], in order.
    ///
    /// Cost: no allocation per ID.
    ///
    /// # Errors
    /// A number exceeds its type, as text.
    ///
    /// # Panics
    /// If the batch is from a file with another schema.
    pub(crate) fn for_each_id(
        &self,
        batch: &RecordBatch,
        take: &mut impl FnMut(&[u8]),
    ) -> Result<RowCounts, String> {
        let mut validator = IdValidator::new(take);
        let rows = batch.num_rows();
        let mut array: &dyn Array = batch.column(0);
        let mut levels = vec![array];
        while let Some(group) = array.as_struct_opt() {
            array = group.column(0);
            levels.push(array);
        }
        // Only the levels with nulls: most columns have none, and then no row is checked.
        let nulls: Vec<_> =
            levels.iter().filter_map(|a| a.nulls()).filter(|n| n.null_count() > 0).collect();
        let here = |row: usize| !nulls.iter().any(|n| n.is_null(row));
        let present = (0..rows).filter(|&row| here(row));
        self.visit(array, present, &mut validator)?;
        Ok(validator.counts(rows as u64))
    }

    fn visit<F: FnMut(&[u8])>(
        &self,
        array: &dyn Array,
        rows: impl Iterator<Item = usize>,
        validator: &mut IdValidator<'_, F>,
    ) -> Result<(), String> {
        match (array.data_type(), self.kind) {
            (DataType::Utf8View, _) => {
                each(array.as_string_view(), rows, |id| validator.pass(id.as_bytes()));
            }
            (DataType::BinaryView, ValueKind::Decimal { digits }) => {
                return try_each(array.as_binary_view(), rows, |n| unscaled(n, digits, validator));
            }
            (DataType::BinaryView, _) => {
                each(array.as_binary_view(), rows, |id| validator.pass(id))
            }
            (DataType::FixedSizeBinary(_), ValueKind::Decimal { digits }) => {
                let array = array.as_fixed_size_binary();
                return try_each(array, rows, |n| unscaled(n, digits, validator));
            }
            (DataType::FixedSizeBinary(16), ValueKind::Uuid) => {
                each(array.as_fixed_size_binary(), rows, |id| validator.pass(&uuid_text(id)));
            }
            (DataType::FixedSizeBinary(_), _) => {
                each(array.as_fixed_size_binary(), rows, |id| validator.pass(id));
            }
            (DataType::Int32, kind) => {
                let array = array.as_primitive::<Int32Type>();
                return try_each(array, rows, |n| {
                    number(n.into(), n as u32 as u64, kind, validator)
                });
            }
            (DataType::Int64, kind) => {
                let array = array.as_primitive::<Int64Type>();
                return try_each(array, rows, |n| number(n, n as u64, kind, validator));
            }
            (DataType::Null, _) => {}
            (other, _) => unreachable!("Column::find lets no column become {other}"),
        }
        Ok(())
    }
}

/// Why a list cannot be an ID, and the remedy.
fn repeated(name: &str) -> String {
    let leaf = name.split('.').next().unwrap_or(name);
    format!(
        "it is repeated (a list or a map): one row holds many; write a row for each value, as \
         `explode({leaf})` of Spark or `unnest({leaf})` of DuckDB do"
    )
}

/// The first columns, as a list for people.
fn list(columns: usize, path: impl Fn(usize) -> String) -> String {
    const MAX_LISTED: usize = 20;
    const MAX_NAME_CHARS: usize = 100;
    if columns == 0 {
        return "none at all".to_owned();
    }
    let name = |leaf| format!("`{}`", path(leaf).chars().take(MAX_NAME_CHARS).collect::<String>());
    let listed: Vec<String> = (0..columns).take(MAX_LISTED).map(name).collect();
    let more = match columns.saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    listed.join(", ") + &more
}

#[cfg(test)]
mod tests;
