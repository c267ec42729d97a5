//! [`ValueKind`]: the meaning of a column's values, by its type in Parquet.

use bloomsday_common::hash::ID_BYTES;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

/// The meaning of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
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

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueKind::Bytes => write!(f, "binary"),
            ValueKind::Uuid => write!(f, "UUID"),
            ValueKind::Integer { bits, is_signed: true } => write!(f, "INT_{bits}"),
            ValueKind::Integer { bits, is_signed: false } => write!(f, "UINT_{bits}"),
            ValueKind::Decimal { digits } => write!(f, "DECIMAL({digits}, 0)"),
            ValueKind::Null => write!(f, "null"),
        }
    }
}

/// The meaning of a column's values, or why its type is not that of an ID.
pub(super) fn kind_of(column: &ColumnDescriptor) -> Result<ValueKind, String> {
    use ConvertedType as C;
    use LogicalType as L;
    let integer = |bits, is_signed| Ok(ValueKind::Integer { bits, is_signed });
    let (physical, logical) = (column.physical_type(), column.logical_type_ref());
    let converted = column.converted_type();
    match (physical, logical) {
        (_, Some(L::Unknown)) => return Ok(ValueKind::Null),
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
        (Physical::BYTE_ARRAY, Some(L::String | L::Enum | L::Json)) => return Ok(ValueKind::Bytes),
        (Physical::BYTE_ARRAY, None)
            if matches!(converted, C::NONE | C::UTF8 | C::ENUM | C::JSON) =>
        {
            return Ok(ValueKind::Bytes);
        }
        (Physical::FIXED_LEN_BYTE_ARRAY, Some(L::Uuid)) => return uuid(column.type_length()),
        (Physical::FIXED_LEN_BYTE_ARRAY, None) if converted == C::NONE => {
            return fixed(column.type_length()).map(|()| ValueKind::Bytes);
        }
        _ => {}
    }
    Err(format!("its type is {}", type_name(column)))
}

/// A decimal without fraction: the integers of Snowflake and Oracle.
fn whole_number(
    column: &ColumnDescriptor,
    scale: i32,
    precision: i32,
) -> Result<ValueKind, String> {
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
        Ok(digits @ 1..=MAX_DIGITS) => Ok(ValueKind::Decimal { digits }),
        _ => Err(format!(
            "its type is {name} of {precision} digits, and at most {MAX_DIGITS} are read; write the \
             IDs as strings"
        )),
    }
}

fn uuid(bytes: i32) -> Result<ValueKind, String> {
    if bytes == 16 {
        Ok(ValueKind::Uuid)
    } else {
        Err(format!("a UUID has 16 bytes, and it has {bytes}"))
    }
}

/// Checks a fixed width. It also bounds memory: the decoder takes this many bytes for each row,
/// null or not.
pub(super) fn fixed(bytes: i32) -> Result<(), String> {
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

/// What `Column::is_text` returns. Arrow checks neither JSON nor values without an annotation.
pub(super) fn is_text(column: &ColumnDescriptor, kind: ValueKind) -> Option<bool> {
    let values = column.physical_type() == Physical::BYTE_ARRAY && kind == ValueKind::Bytes;
    values.then(|| column.converted_type() == ConvertedType::UTF8)
}
