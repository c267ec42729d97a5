//! A Parquet column's type → the bytes of its IDs.
//!
//! Knows Parquet's and Arrow's types; [`scan`](crate::scan) knows Parquet's files and pages. No
//! I/O, and no hashes.

mod arrays;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayAccessor, RecordBatch};
use arrow_schema::{DataType, Field, Fields};
use bloomsday_common::hash::{ID_BYTES, is_valid_len};
use parquet::arrow::{
    FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema,
};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{
    ColumnDescriptor, SchemaDescPtr, SchemaDescriptor, Type as Schematic, TypePtr,
};

pub use self::arrays::for_each_id;
use crate::error::Error;

/// The column that holds the IDs of a file.
#[derive(Clone, Debug)]
pub struct Column {
    leaf: usize,
    kind: Kind,
    text: Option<bool>,
    projected: SchemaDescPtr,
    levels: FieldLevels,
}

/// The meaning of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Bytes as they are; for some columns they must be UTF-8.
    Bytes,
    Uuid,
    /// An integer of `bits` bits, which may be fewer than its storage has.
    Integer {
        bits: u8,
        is_signed: bool,
    },
    /// A whole number of at most `digits` digits.
    Decimal {
        digits: u32,
    },
    /// Only nulls: the writer knew no type.
    Null,
}

/// The counts of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of the rows.
    pub rows: u64,
    /// Rows without an ID, because it or a struct around it is null.
    pub nulls: u64,
    /// Rows whose ID is empty or too long; no filter contains such an ID.
    pub invalid: u64,
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
            return Err(refuse("more than one column of the file answers to this name".into()));
        }
        let column = schema.column(leaf);
        if column.max_rep_level() > 0 {
            return Err(refuse(repeated(name)));
        }
        let kind = kind(&column).map_err(refuse)?;
        let damaged = |e: ParquetError| Error::Corrupt { file: file.into(), why: e.to_string() };
        let projected = Arc::new(project_leaf(schema, leaf, kind).map_err(damaged)?);
        let levels = levels(&projected).map_err(damaged)?;
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
        self.kind == Kind::Null
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
    ) -> Result<Counts, String> {
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
            (DataType::BinaryView, Kind::Decimal { digits }) => {
                return try_each(array.as_binary_view(), rows, |n| unscaled(n, digits, validator));
            }
            (DataType::BinaryView, _) => {
                each(array.as_binary_view(), rows, |id| validator.pass(id))
            }
            (DataType::FixedSizeBinary(_), Kind::Decimal { digits }) => {
                let array = array.as_fixed_size_binary();
                return try_each(array, rows, |n| unscaled(n, digits, validator));
            }
            (DataType::FixedSizeBinary(16), Kind::Uuid) => {
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

/// Passes on valid IDs and counts valid and invalid ones.
pub(crate) struct IdValidator<'a, F> {
    take: &'a mut F,
    taken: u64,
    invalid: u64,
}

impl<F: FnMut(&[u8])> IdValidator<'_, F> {
    pub(crate) fn new(take: &mut F) -> IdValidator<'_, F> {
        IdValidator { take, taken: 0, invalid: 0 }
    }

    /// The counts of `rows` rows.
    pub(crate) fn counts(&self, rows: u64) -> Counts {
        let IdValidator { taken, invalid, .. } = *self;
        Counts { rows, nulls: rows - taken - invalid, invalid }
    }

    #[inline(always)]
    pub(crate) fn pass(&mut self, id: &[u8]) {
        if is_valid_len(id) {
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

#[inline(always)]
fn try_each<A: ArrayAccessor>(
    array: A,
    mut rows: impl Iterator<Item = usize>,
    mut pass: impl FnMut(A::Item) -> Result<(), String>,
) -> Result<(), String> {
    rows.try_for_each(|row| pass(array.value(row)))
}

/// Passes on a number that is stored in 32 or 64 bits. The arguments are its signed and unsigned
/// value.
#[inline(always)]
fn number<F: FnMut(&[u8])>(
    signed: i64,
    unsigned: u64,
    kind: Kind,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    let (is_negative, size, fits) = match kind {
        Kind::Integer { bits, is_signed: false } => {
            (false, unsigned, bits == 64 || unsigned >> bits == 0)
        }
        Kind::Integer { bits, .. } => {
            // All bits beyond its own repeat its sign.
            let beyond = signed >> (bits - 1);
            (signed < 0, signed.unsigned_abs(), beyond == 0 || beyond == -1)
        }
        Kind::Decimal { digits } => {
            let size = signed.unsigned_abs();
            let fits = 10_u64.checked_pow(digits).is_none_or(|limit| size < limit);
            (signed < 0, size, fits)
        }
        _ => unreachable!("Column::find lets no other kind be a number"),
    };
    if !fits {
        return Err(format!("it has the number {signed}, which its type {kind} does not have"));
    }
    decimal(is_negative, size, |text| validator.pass(text));
    Ok(())
}

/// Passes on a whole number in big-endian two's complement.
fn unscaled<F: FnMut(&[u8])>(
    bytes: &[u8],
    digits: u32,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    let beyond =
        || format!("it has a number that its type {} does not have", Kind::Decimal { digits });
    let is_negative = bytes.first().ok_or_else(beyond)? & 0x80 != 0;
    let sign = if is_negative { 0xff } else { 0 };
    // Bytes in front of the last sixteen can only repeat the sign.
    let (front, back) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut all = [sign; 16];
    all[16 - back.len()..].copy_from_slice(back);
    let value = i128::from_be_bytes(all);
    let limit = 10_u128.checked_pow(digits).ok_or_else(beyond)?;
    let is_all = front.iter().all(|byte| *byte == sign) && (value < 0) == is_negative;
    if !is_all || value.unsigned_abs() >= limit {
        return Err(beyond());
    }
    match u64::try_from(value.unsigned_abs()) {
        Ok(size) => decimal(is_negative, size, |text| validator.pass(text)),
        Err(_) => validator.pass(value.to_string().as_bytes()),
    }
    Ok(())
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Bytes => write!(f, "binary"),
            Kind::Uuid => write!(f, "UUID"),
            Kind::Integer { bits, is_signed: true } => write!(f, "INT_{bits}"),
            Kind::Integer { bits, is_signed: false } => write!(f, "UINT_{bits}"),
            Kind::Decimal { digits } => write!(f, "DECIMAL({digits}, 0)"),
            Kind::Null => write!(f, "null"),
        }
    }
}

/// Passes on a number as decimal ASCII. 20 bytes are enough for the least i64 and the greatest u64.
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

/// The meaning of a column's values, or why its type is not that of an ID.
fn kind(column: &ColumnDescriptor) -> Result<Kind, String> {
    use ConvertedType as C;
    use LogicalType as L;
    let integer = |bits, is_signed| Ok(Kind::Integer { bits, is_signed });
    let (physical, logical) = (column.physical_type(), column.logical_type_ref());
    let converted = column.converted_type();
    match (physical, logical) {
        (_, Some(L::Unknown)) => return Ok(Kind::Null),
        (_, Some(L::Decimal(annotation))) => {
            return whole_number(column, annotation.scale, annotation.precision);
        }
        (_, None) if converted == C::DECIMAL => {
            return whole_number(column, column.type_scale(), column.type_precision());
        }
        (Physical::INT32 | Physical::INT64, Some(L::Integer(annotation)))
            if matches!(annotation.bit_width, 8 | 16 | 32 | 64) =>
        {
            return integer(annotation.bit_width as u8, annotation.is_signed);
        }
        (Physical::INT32 | Physical::INT64, None) => match converted {
            C::NONE if physical == Physical::INT32 => return integer(32, true),
            C::NONE => return integer(64, true),
            C::INT_8 => return integer(8, true),
            C::INT_16 => return integer(16, true),
            C::INT_32 => return integer(32, true),
            C::INT_64 => return integer(64, true),
            C::UINT_8 => return integer(8, false),
            C::UINT_16 => return integer(16, false),
            C::UINT_32 => return integer(32, false),
            C::UINT_64 => return integer(64, false),
            _ => {}
        },
        (Physical::BYTE_ARRAY, Some(L::String | L::Enum | L::Json)) => return Ok(Kind::Bytes),
        (Physical::BYTE_ARRAY, None)
            if matches!(converted, C::NONE | C::UTF8 | C::ENUM | C::JSON) =>
        {
            return Ok(Kind::Bytes);
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(L::Uuid)) => return uuid(column.type_length()),
        (Physical::FIXED_LEN_BYTE_ARRAY, None) if converted == C::NONE => {
            return fixed(column.type_length()).map(|()| Kind::Bytes);
        }
        _ => {}
    }
    Err(format!("its type is {}", type_name(column)))
}

/// A decimal without fraction: the integers of Snowflake and Oracle.
fn whole_number(column: &ColumnDescriptor, scale: i32, precision: i32) -> Result<Kind, String> {
    // As many as an engine's own decimals have.
    const MAX_DIGITS: u32 = 38;
    let name = type_name(column);
    if scale != 0 {
        return Err(format!(
            "its type is {name} with {scale} digits behind the point; write the IDs as whole numbers, \
             DECIMAL({precision}, 0), or as strings"
        ));
    }
    if column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY {
        fixed(column.type_length())?;
    }
    match u32::try_from(precision) {
        Ok(digits @ 1..=MAX_DIGITS) => Ok(Kind::Decimal { digits }),
        _ => Err(format!(
            "its type is {name} of {precision} digits, and at most {MAX_DIGITS} are read; write the \
             IDs as strings"
        )),
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

fn uuid(bytes: i32) -> Result<Kind, String> {
    if bytes == 16 {
        Ok(Kind::Uuid)
    } else {
        Err(format!("a UUID has 16 bytes, and it has {bytes}"))
    }
}

/// Checks a fixed width. It also bounds memory: the decoder takes this many bytes for each row,
/// null or not.
fn fixed(bytes: i32) -> Result<(), String> {
    if usize::try_from(bytes).is_ok_and(|bytes| ID_BYTES.contains(&bytes)) {
        return Ok(());
    }
    let (least, most) = (ID_BYTES.start(), ID_BYTES.end());
    Err(format!("each of its values has {bytes} bytes, and an ID has {least} to {most}"))
}

/// The name of a type for people, with the name that Parquet uses.
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

/// The schema of a file with one leaf column of `schema` only. Numbers have no annotation in it,
/// because decoders silently truncate a number to its annotation.
fn project_leaf(
    schema: &SchemaDescriptor,
    leaf: usize,
    kind: Kind,
) -> Result<SchemaDescriptor, ParquetError> {
    let mut before = leaf;
    let root = prune(&schema.root_schema_ptr(), &mut before, kind)?;
    Ok(SchemaDescriptor::new(root.expect("find gives a leaf of this schema")))
}

/// Keeps the path in `part` to the leaf with `before` leaves before it.
fn prune(part: &TypePtr, before: &mut usize, kind: Kind) -> Result<Option<TypePtr>, ParquetError> {
    if part.is_primitive() {
        let found = *before == 0;
        *before = before.wrapping_sub(1);
        return if found { bare(part, kind).map(Some) } else { Ok(None) };
    }
    for field in part.get_fields() {
        let Some(kept) = prune(field, before, kind)? else { continue };
        let info = part.get_basic_info();
        let mut group = Schematic::group_type_builder(info.name()).with_fields(vec![kept]);
        if info.has_repetition() {
            group = group.with_repetition(info.repetition());
        }
        return group.build().map(|group| Some(Arc::new(group)));
    }
    Ok(None)
}

/// Removes the annotation of a number.
fn bare(leaf: &TypePtr, kind: Kind) -> Result<TypePtr, ParquetError> {
    if !matches!(kind, Kind::Integer { .. } | Kind::Decimal { .. }) {
        return Ok(Arc::clone(leaf));
    }
    let physical = leaf.get_physical_type();
    let length = match leaf.as_ref() {
        Schematic::PrimitiveType { type_length, .. } => *type_length,
        Schematic::GroupType { .. } => -1,
    };
    Schematic::primitive_type_builder(leaf.name(), physical)
        .with_repetition(leaf.get_basic_info().repetition())
        .with_length(length)
        .build()
        .map(Arc::new)
}

/// See [`Column::is_text`]. Arrow checks neither JSON nor values without an annotation.
fn is_text(column: &ColumnDescriptor, kind: Kind) -> Option<bool> {
    let values = column.physical_type() == Physical::BYTE_ARRAY && kind == Kind::Bytes;
    values.then(|| column.converted_type() == ConvertedType::UTF8)
}

/// See [`Column::levels`].
fn levels(projected: &SchemaDescriptor) -> Result<FieldLevels, ParquetError> {
    let plain = parquet_to_arrow_schema(projected, None)?;
    let views = as_views(plain.fields());
    parquet_to_arrow_field_levels(projected, ProjectionMask::all(), Some(&views))
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
