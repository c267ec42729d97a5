//! The schema of a file with one column only, and how Arrow reads it.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};
use parquet::arrow::{
    FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema,
};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescriptor, Type as Schematic, TypePtr};

use super::kind::ValueKind;

/// The schema of a file with one leaf column of `schema` only. Numbers have no annotation in it,
/// because decoders silently truncate a number to its annotation.
pub(super) fn project_leaf(
    schema: &SchemaDescriptor,
    leaf: usize,
    kind: ValueKind,
) -> Result<SchemaDescriptor, ParquetError> {
    let mut before = leaf;
    let root = prune(&schema.root_schema_ptr(), &mut before, kind)?;
    Ok(SchemaDescriptor::new(root.expect("find gives a leaf of this schema")))
}

/// Keeps the path in `part` to the leaf with `before` leaves before it.
fn prune(
    part: &TypePtr,
    before: &mut usize,
    kind: ValueKind,
) -> Result<Option<TypePtr>, ParquetError> {
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
fn bare(leaf: &TypePtr, kind: ValueKind) -> Result<TypePtr, ParquetError> {
    if !matches!(kind, ValueKind::Integer { .. } | ValueKind::Decimal { .. }) {
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

/// What `Column::levels` returns.
pub(super) fn levels(projected: &SchemaDescriptor) -> Result<FieldLevels, ParquetError> {
    let plain = parquet_to_arrow_schema(projected, None)?;
    let views = as_views(plain.fields());
    parquet_to_arrow_field_levels(projected, ProjectionMask::all(), Some(&views))
}

pub(super) fn as_views(fields: &Fields) -> Fields {
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
