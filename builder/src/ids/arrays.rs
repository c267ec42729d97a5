//! A column of Arrow, from another engine → the bytes of its IDs: those that a build takes from the
//! same column in Parquet.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Decimal128Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowNativeTypeOp, OffsetSizeTrait};
use arrow_schema::DataType;

use super::kind::fixed;
use super::values::{IdValidator, RowCounts, decimal, uuid_text};

/// Calls `take` for each valid ID of a column, in order. `is_uuid` is whether 16 bytes are a UUID.
///
/// Text is taken as the bytes that it has, also where these are not UTF-8.
///
/// ```
/// use arrow_array::Int64Array;
/// use bloomsday_builder::ids::for_each_id;
///
/// let mut ids = Vec::new();
/// let column = Int64Array::from(vec![Some(17), None, Some(-3)]);
/// let counts = for_each_id(&column, false, &mut |id| ids.push(id.to_vec()))?;
/// assert_eq!((ids, counts.rows, counts.nulls), (vec![b"17".to_vec(), b"-3".to_vec()], 3, 1));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// The type of the column is not that of an ID, as text.
pub fn for_each_id(
    column: &dyn Array,
    is_uuid: bool,
    take: &mut impl FnMut(&[u8]),
) -> Result<RowCounts, String> {
    let mut validator = IdValidator::new(take);
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let rows = (0..column.len()).filter(|row| !nulls.is_some_and(|nulls| nulls.is_null(*row)));
    visit(column, is_uuid, rows, &mut validator)?;
    Ok(validator.counts(column.len() as u64))
}

fn visit<F: FnMut(&[u8])>(
    column: &dyn Array,
    is_uuid: bool,
    rows: impl Iterator<Item = usize>,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    use DataType as T;
    match column.data_type() {
        T::Utf8 => {
            let column = column.as_string::<i32>();
            spans(column.value_offsets(), column.value_data(), rows, validator);
        }
        T::LargeUtf8 => {
            let column = column.as_string::<i64>();
            spans(column.value_offsets(), column.value_data(), rows, validator);
        }
        T::Binary => {
            let column = column.as_binary::<i32>();
            spans(column.value_offsets(), column.value_data(), rows, validator);
        }
        T::LargeBinary => {
            let column = column.as_binary::<i64>();
            spans(column.value_offsets(), column.value_data(), rows, validator);
        }
        T::Utf8View => {
            let column = column.as_string_view().clone().to_binary_view();
            rows.for_each(|row| validator.pass(column.value(row)));
        }
        T::BinaryView => {
            let column = column.as_binary_view();
            rows.for_each(|row| validator.pass(column.value(row)));
        }
        T::FixedSizeBinary(16) if is_uuid => {
            let column = column.as_fixed_size_binary();
            rows.for_each(|row| validator.pass(&uuid_text(column.value(row))));
        }
        T::FixedSizeBinary(width) => {
            fixed(*width)?;
            let column = column.as_fixed_size_binary();
            rows.for_each(|row| validator.pass(column.value(row)));
        }
        T::Int8 => integers::<Int8Type, F>(column, rows, validator),
        T::Int16 => integers::<Int16Type, F>(column, rows, validator),
        T::Int32 => integers::<Int32Type, F>(column, rows, validator),
        T::Int64 => integers::<Int64Type, F>(column, rows, validator),
        T::UInt8 => integers::<UInt8Type, F>(column, rows, validator),
        T::UInt16 => integers::<UInt16Type, F>(column, rows, validator),
        T::UInt32 => integers::<UInt32Type, F>(column, rows, validator),
        T::UInt64 => integers::<UInt64Type, F>(column, rows, validator),
        T::Decimal128(_, 0) => {
            let column = column.as_primitive::<Decimal128Type>();
            rows.for_each(|row| integer(column.value(row), validator));
        }
        T::Decimal128(_, scale) => {
            return Err(format!(
                "its type is decimal with {scale} digits behind the point; cast the IDs to decimal(38,0) \
                 or to string"
            ));
        }
        T::Dictionary(key, _) => return dictionary(key, column, is_uuid, rows, validator),
        T::Null => {}
        other => return Err(format!("its type is {other}")),
    }
    Ok(())
}

/// Byte arrays by their offsets: no value becomes a `str`, so that it need not be UTF-8.
#[inline]
fn spans<O: OffsetSizeTrait, F: FnMut(&[u8])>(
    offsets: &[O],
    data: &[u8],
    rows: impl Iterator<Item = usize>,
    validator: &mut IdValidator<'_, F>,
) {
    rows.for_each(|row| {
        validator.pass(&data[offsets[row].as_usize()..offsets[row + 1].as_usize()])
    });
}

fn integers<T: ArrowPrimitiveType, F: FnMut(&[u8])>(
    column: &dyn Array,
    rows: impl Iterator<Item = usize>,
    validator: &mut IdValidator<'_, F>,
) where
    T::Native: Into<i128>,
{
    let column = column.as_primitive::<T>();
    rows.for_each(|row| integer(column.value(row).into(), validator));
}

#[inline]
fn integer<F: FnMut(&[u8])>(value: i128, validator: &mut IdValidator<'_, F>) {
    match u64::try_from(value.unsigned_abs()) {
        Ok(size) => decimal(value.is_lt(0), size, |text| validator.pass(text)),
        Err(_) => validator.pass(value.to_string().as_bytes()),
    }
}

fn dictionary<F: FnMut(&[u8])>(
    key: &DataType,
    column: &dyn Array,
    is_uuid: bool,
    rows: impl Iterator<Item = usize>,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    use DataType as T;
    match key {
        T::Int8 => by_key::<Int8Type, F>(column, is_uuid, rows, validator),
        T::Int16 => by_key::<Int16Type, F>(column, is_uuid, rows, validator),
        T::Int32 => by_key::<Int32Type, F>(column, is_uuid, rows, validator),
        T::Int64 => by_key::<Int64Type, F>(column, is_uuid, rows, validator),
        T::UInt8 => by_key::<UInt8Type, F>(column, is_uuid, rows, validator),
        T::UInt16 => by_key::<UInt16Type, F>(column, is_uuid, rows, validator),
        T::UInt32 => by_key::<UInt32Type, F>(column, is_uuid, rows, validator),
        T::UInt64 => by_key::<UInt64Type, F>(column, is_uuid, rows, validator),
        other => Err(format!("it is a dictionary with keys of type {other}")),
    }
}

fn by_key<K: ArrowDictionaryKeyType, F: FnMut(&[u8])>(
    column: &dyn Array,
    is_uuid: bool,
    rows: impl Iterator<Item = usize>,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    let column = column.as_dictionary::<K>();
    let values = column.values();
    if matches!(values.data_type(), DataType::Dictionary(..)) {
        return Err("it is a dictionary of dictionaries".into());
    }
    let keys = rows.filter_map(|row| column.key(row)).filter(|key| !values.is_null(*key));
    // By one of few types, so that there is no endless kind of dictionaries of dictionaries to
    // compile.
    let keys: Box<dyn Iterator<Item = usize>> = Box::new(keys);
    visit(values.as_ref(), is_uuid, keys, validator)
}

#[cfg(test)]
mod tests {
    use arrow_array::*;

    use super::*;

    fn ids(column: &dyn Array) -> (Vec<String>, RowCounts) {
        let mut ids = Vec::new();
        let counts = for_each_id(column, false, &mut |id| {
            ids.push(String::from_utf8_lossy(id).into_owned());
        });
        (ids, counts.unwrap())
    }

    #[test]
    fn every_type_of_an_id_has_the_bytes_that_parquet_gives() {
        let strings = StringArray::from(vec![Some("a"), None, Some(""), Some("d")]);
        let counts = RowCounts { rows: 4, nulls: 1, invalid: 1 };
        let both = vec!["a".to_owned(), "d".to_owned()];
        assert_eq!(ids(&strings), (both.clone(), counts));
        assert_eq!(ids(&strings.slice(1, 3)).0, ["d"]);
        assert_eq!(ids(&LargeStringArray::from(vec!["a", "d"])).0, both);
        assert_eq!(ids(&StringViewArray::from(vec!["a", "d"])).0, both);
        assert_eq!(ids(&BinaryArray::from_vec(vec![b"a", b"d"])).0, both);
        let numbers = vec![i64::MIN, -1, 0, i64::MAX];
        let text: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        assert_eq!(ids(&Int64Array::from(numbers)).0, text);
        assert_eq!(ids(&UInt64Array::from(vec![u64::MAX])).0, [u64::MAX.to_string()]);
        let whole = 10_i128.pow(37);
        let whole = Decimal128Array::from(vec![whole, -17]).with_precision_and_scale(38, 0);
        assert_eq!(ids(&whole.unwrap()).0, [10_i128.pow(37).to_string(), "-17".into()]);
        let repeated: DictionaryArray<types::Int8Type> =
            vec![Some("x"), None, Some("y"), Some("x")].into_iter().collect();
        assert_eq!(
            ids(&repeated),
            (vec!["x".into(), "y".into(), "x".into()], RowCounts { rows: 4, nulls: 1, invalid: 0 })
        );
        assert_eq!(ids(&NullArray::new(3)).1, RowCounts { rows: 3, nulls: 3, invalid: 0 });
    }

    #[test]
    fn types_that_are_no_ids_are_named() {
        let refused: [(&dyn Array, &str); 3] = [
            (&BooleanArray::from(vec![true]), "Boolean"),
            (&Float64Array::from(vec![1.0]), "Float64"),
            (&Decimal128Array::from(vec![1]), "digits behind the point"),
        ];
        for (column, why) in refused {
            let error = for_each_id(column, false, &mut |_| {}).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
