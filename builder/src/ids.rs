//! A Parquet column → the bytes of its IDs.
//!
//! The only file that knows Parquet and Arrow types. No I/O, and nothing here knows of hashes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayAccessor, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use bloomsday_common::hash::{ID_BYTES, is_legal};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{
    ColumnDescriptor, SchemaDescPtr, SchemaDescriptor, Type as Schematic, TypePtr,
};

use crate::error::Error;

/// The column that holds the IDs of a file.
#[derive(Clone, Debug)]
pub struct Column {
    leaf: usize,
    uuid: bool,
    text: Option<bool>,
    alone: SchemaDescPtr,
}

/// What a number of rows held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of the rows.
    pub rows: u64,
    /// Rows without an ID, because it or a struct around it is null.
    pub nulls: u64,
    /// Rows whose ID is empty or too long; no filter holds such an ID.
    pub invalid: u64,
}

impl Column {
    /// Finds the column `name` of `file`: a column of its own, or `user.device.id` for a value in
    /// nested structs. A column whose own name has dots in it is found as well.
    ///
    /// # Errors
    /// [`Error::NoColumn`]: there is none.
    /// [`Error::NotAnId`]: it is a struct, repeated, ambiguous, or of a type that is no ID.
    pub fn find(schema: &SchemaDescriptor, name: &str, file: &str) -> Result<Column, Error> {
        let refuse = |why: String| Error::NotAnId { file: file.into(), column: name.into(), why };
        let paths: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
        let mut named = (0..paths.len()).filter(|&leaf| paths[leaf] == name);
        let Some(leaf) = named.next() else {
            let inside = format!("{name}.");
            return match paths.iter().position(|path| path.starts_with(&inside)) {
                Some(leaf) if schema.column(leaf).max_rep_level() > 0 => {
                    Err(refuse("it is repeated (a list or a map): one row holds many".into()))
                }
                Some(leaf) => {
                    Err(refuse(format!("it is a struct; name a value in it, as `{}`", paths[leaf])))
                }
                None => Err(Error::NoColumn {
                    file: file.into(),
                    column: name.into(),
                    known: list(&paths),
                }),
            };
        };
        if named.next().is_some() {
            return Err(refuse("more than one column of the file answers to this name".into()));
        }
        let column = schema.column(leaf);
        if column.max_rep_level() > 0 {
            return Err(refuse("it is repeated (a list or a map): one row holds many".into()));
        }
        let uuid = check_type(&column).map_err(refuse)?;
        let damaged = |e: ParquetError| Error::Corrupt { file: file.into(), why: e.to_string() };
        let alone = Arc::new(alone(schema, leaf).map_err(damaged)?);
        Ok(Column { leaf, uuid, text: is_text(&column), alone })
    }

    /// Its number among the leaf columns of the file it was found in.
    pub fn leaf(&self) -> usize {
        self.leaf
    }

    /// The schema of a file that has this column and no other.
    ///
    /// Read through it, a file's other columns can be of types that nobody knows.
    pub fn schema(&self) -> &SchemaDescPtr {
        &self.alone
    }

    /// Whether its values, if these are byte arrays as they are, must be UTF-8; `None` for other columns.
    pub fn is_text(&self) -> Option<bool> {
        self.text
    }

    /// How to read [`Column::schema`]: types from Parquet alone, since what a writer noted of its
    /// own types can differ from what it wrote; strings and binary as views, which copy nothing.
    pub fn options(&self) -> Result<ArrowReaderOptions, ParquetError> {
        let plain = parquet_to_arrow_schema(&self.alone, None)?;
        let views = Schema::new(as_views(plain.fields()));
        Ok(ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(views)))
    }

    /// Calls `take` for each legal ID of a batch that was read with [`Column::options`], in order.
    ///
    /// Cost: no allocation for any ID. A panic if the batch is of another kind of file.
    pub fn for_each_id(&self, batch: &RecordBatch, take: &mut impl FnMut(&[u8])) -> Counts {
        let mut legal = Legal::new(take);
        let rows = batch.num_rows();
        let mut array: &dyn Array = batch.column(0);
        let mut levels = vec![array];
        while let Some(group) = array.as_struct_opt() {
            array = group.column(0);
            levels.push(array);
        }
        // Of each level only what is there: most columns have no nulls, and none are asked for.
        let nulls: Vec<_> =
            levels.iter().filter_map(|a| a.nulls()).filter(|n| n.null_count() > 0).collect();
        let here = |row: usize| !nulls.iter().any(|n| n.is_null(row));
        let present = (0..rows).filter(|&row| here(row));
        self.visit(array, present, &mut legal);
        legal.counts(rows as u64)
    }

    fn visit<F: FnMut(&[u8])>(
        &self,
        array: &dyn Array,
        rows: impl Iterator<Item = usize>,
        legal: &mut Legal<'_, F>,
    ) {
        match array.data_type() {
            DataType::Utf8View => {
                each(array.as_string_view(), rows, |id| legal.pass(id.as_bytes()))
            }
            DataType::Utf8 => each(array.as_string::<i32>(), rows, |id| legal.pass(id.as_bytes())),
            DataType::LargeUtf8 => {
                each(array.as_string::<i64>(), rows, |id| legal.pass(id.as_bytes()));
            }
            DataType::BinaryView => each(array.as_binary_view(), rows, |id| legal.pass(id)),
            DataType::Binary => each(array.as_binary::<i32>(), rows, |id| legal.pass(id)),
            DataType::LargeBinary => each(array.as_binary::<i64>(), rows, |id| legal.pass(id)),
            DataType::FixedSizeBinary(16) if self.uuid => {
                each(array.as_fixed_size_binary(), rows, |id| legal.pass(&uuid_text(id)));
            }
            DataType::FixedSizeBinary(_) => {
                each(array.as_fixed_size_binary(), rows, |id| legal.pass(id));
            }
            DataType::Int8 => whole::<Int8Type, _>(array, rows, legal),
            DataType::Int16 => whole::<Int16Type, _>(array, rows, legal),
            DataType::Int32 => whole::<Int32Type, _>(array, rows, legal),
            DataType::Int64 => whole::<Int64Type, _>(array, rows, legal),
            DataType::UInt8 => whole::<UInt8Type, _>(array, rows, legal),
            DataType::UInt16 => whole::<UInt16Type, _>(array, rows, legal),
            DataType::UInt32 => whole::<UInt32Type, _>(array, rows, legal),
            DataType::UInt64 => whole::<UInt64Type, _>(array, rows, legal),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let (keys, values) = (dictionary.normalized_keys(), dictionary.values());
                let is_there = |&key: &usize| values.is_valid(key);
                let rows: Vec<usize> = rows.map(|row| keys[row]).filter(is_there).collect();
                self.visit(values, rows.into_iter(), legal);
            }
            // The column of a writer that saw nothing but nulls, and had no other type to give.
            DataType::Null => {}
            other => unreachable!("Column::find lets no column become {other}"),
        }
    }
}

/// Passes on what may be in a filter, and counts both.
pub(crate) struct Legal<'a, F> {
    take: &'a mut F,
    taken: u64,
    invalid: u64,
}

impl<F: FnMut(&[u8])> Legal<'_, F> {
    pub(crate) fn new(take: &mut F) -> Legal<'_, F> {
        Legal { take, taken: 0, invalid: 0 }
    }

    /// What was passed on, as the counts of so many rows.
    pub(crate) fn counts(&self, rows: u64) -> Counts {
        let Legal { taken, invalid, .. } = *self;
        Counts { rows, nulls: rows - taken - invalid, invalid }
    }

    #[inline(always)]
    pub(crate) fn pass(&mut self, id: &[u8]) {
        if is_legal(id) {
            self.taken += 1;
            (self.take)(id);
        } else {
            self.invalid += 1;
        }
    }
}

#[inline(always)]
fn each<A: ArrayAccessor>(array: A, rows: impl Iterator<Item = usize>, pass: impl FnMut(A::Item)) {
    rows.map(|row| array.value(row)).for_each(pass);
}

fn whole<T: ArrowPrimitiveType, F: FnMut(&[u8])>(
    array: &dyn Array,
    rows: impl Iterator<Item = usize>,
    legal: &mut Legal<'_, F>,
) where
    T::Native: Into<i128>,
{
    let array: &PrimitiveArray<T> = array.as_primitive();
    each(array, rows, |value| {
        let value: i128 = value.into();
        // Both ends of every type with 64 bits or fewer have a size that fits.
        let size = u64::try_from(value.unsigned_abs()).expect("at most 64 bits");
        decimal(value < 0, size, |text| legal.pass(text));
    });
}

/// Hands over a number as decimal ASCII; 20 bytes hold the least i64 and the greatest u64.
#[inline]
fn decimal(negative: bool, mut size: u64, pass: impl FnOnce(&[u8])) {
    let mut text = [0_u8; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (size % 10) as u8;
        size /= 10;
        if size == 0 {
            break;
        }
    }
    if negative {
        at -= 1;
        text[at] = b'-';
    }
    pass(&text[at..]);
}

/// Writes 16 bytes as `a0a1a2a3-a4a5-46a7-88a9-000000000000`.
#[inline]
fn uuid_text(bytes: &[u8]) -> [u8; 36] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in bytes.iter().enumerate() {
        at += usize::from(matches!(i, 4 | 6 | 8 | 10));
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    text
}

/// Says whether a column is a UUID, or why it is no ID at all.
fn check_type(column: &ColumnDescriptor) -> Result<bool, String> {
    use ConvertedType as C;
    use LogicalType as L;
    let (physical, logical) = (column.physical_type(), column.logical_type_ref());
    let converted = column.converted_type();
    let is_id = match (physical, logical) {
        (_, Some(L::Unknown)) => true,
        (Physical::INT32 | Physical::INT64, Some(L::Integer(_))) => true,
        (Physical::INT32 | Physical::INT64, None) => matches!(
            converted,
            C::NONE
                | C::INT_8
                | C::INT_16
                | C::INT_32
                | C::INT_64
                | C::UINT_8
                | C::UINT_16
                | C::UINT_32
                | C::UINT_64
        ),
        (Physical::BYTE_ARRAY, Some(L::String | L::Enum | L::Json)) => true,
        (Physical::BYTE_ARRAY, None) => {
            matches!(converted, C::NONE | C::UTF8 | C::ENUM | C::JSON)
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(L::Uuid)) => return is_uuid(column.type_length()),
        (Physical::FIXED_LEN_BYTE_ARRAY, None) if converted == C::NONE => {
            return is_fixed(column.type_length());
        }
        _ => false,
    };
    if is_id { Ok(false) } else { Err(format!("its type is {}", type_name(column))) }
}

fn is_uuid(bytes: i32) -> Result<bool, String> {
    if bytes == 16 { Ok(true) } else { Err(format!("a UUID has 16 bytes, and it has {bytes}")) }
}

/// Also a bound on memory: a reader fills this many bytes for each row, null or not.
fn is_fixed(bytes: i32) -> Result<bool, String> {
    if usize::try_from(bytes).is_ok_and(|bytes| ID_BYTES.contains(&bytes)) {
        return Ok(false);
    }
    let (least, most) = (ID_BYTES.start(), ID_BYTES.end());
    Err(format!("each of its values has {bytes} bytes, and an ID has {least} to {most}"))
}

/// A type as people know it, with what Parquet calls it where that says more.
fn type_name(column: &ColumnDescriptor) -> String {
    let physical = column.physical_type();
    let annotation = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(_)), _) => "integer".to_owned(),
        (Some(LogicalType::Timestamp(_)), _) => "timestamp".to_owned(),
        (Some(LogicalType::Time(_)), _) => "time".to_owned(),
        (Some(LogicalType::Decimal(_)), _) => "decimal".to_owned(),
        (Some(other), _) => format!("{other:?}").to_lowercase(),
        (None, ConvertedType::NONE) => {
            return match physical {
                Physical::BOOLEAN => "bool".into(),
                Physical::FLOAT => "float32".into(),
                Physical::DOUBLE => "float64".into(),
                Physical::INT96 => "timestamp (INT96)".into(),
                other => other.to_string(),
            };
        }
        (None, converted) => converted.to_string().to_lowercase(),
    };
    format!("{annotation} ({physical})")
}

/// The columns there are, as far as a person wants to read on.
fn list(paths: &[String]) -> String {
    const SHOWN: usize = 20;
    if paths.is_empty() {
        return "none at all".to_owned();
    }
    let shown: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("`{path}`")).collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    shown.join(", ") + &more
}

/// The schema of a file that has one leaf column of `schema` and no other.
fn alone(schema: &SchemaDescriptor, leaf: usize) -> Result<SchemaDescriptor, ParquetError> {
    let mut before = leaf;
    let root = prune(&schema.root_schema_ptr(), &mut before)?;
    Ok(SchemaDescriptor::new(root.expect("find gives a leaf of this schema")))
}

/// Keeps of `part` what leads to the leaf that has `before` leaves in front of it.
fn prune(part: &TypePtr, before: &mut usize) -> Result<Option<TypePtr>, ParquetError> {
    if part.is_primitive() {
        let found = *before == 0;
        *before = before.wrapping_sub(1);
        return Ok(found.then(|| Arc::clone(part)));
    }
    for field in part.get_fields() {
        let Some(kept) = prune(field, before)? else { continue };
        let info = part.get_basic_info();
        let mut group = Schematic::group_type_builder(info.name()).with_fields(vec![kept]);
        if info.has_repetition() {
            group = group.with_repetition(info.repetition());
        }
        return group.build().map(|group| Some(Arc::new(group)));
    }
    Ok(None)
}

/// As [`Column::is_text`] tells. Arrow checks neither JSON nor what has no annotation.
fn is_text(column: &ColumnDescriptor) -> Option<bool> {
    let values = column.physical_type() == Physical::BYTE_ARRAY
        && column.logical_type_ref() != Some(&LogicalType::Unknown);
    values.then(|| column.converted_type() == ConvertedType::UTF8)
}

fn as_views(fields: &Fields) -> Fields {
    let view = |field: &Arc<Field>| {
        let kind = match field.data_type() {
            DataType::Utf8 => DataType::Utf8View,
            DataType::Binary => DataType::BinaryView,
            DataType::Struct(inner) => DataType::Struct(as_views(inner)),
            other => other.clone(),
        };
        Field::new(field.name(), kind, field.is_nullable()).with_metadata(field.metadata().clone())
    };
    fields.iter().map(view).collect()
}

#[cfg(test)]
mod tests;
