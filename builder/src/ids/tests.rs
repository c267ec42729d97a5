//! Types and names, on schemas and arrays made here; whole files are read in `scan`'s tests.

use super::projection::as_views;
use super::*;
use arrow_array::*;
use arrow_schema::Field;
use bloomsday_common::error::Kind;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::schema::parser::parse_message_type;

fn schema(text: &str) -> SchemaDescriptor {
    SchemaDescriptor::new(Arc::new(parse_message_type(&format!("message m {{{text}}}")).unwrap()))
}

fn find(text: &str, name: &str) -> Result<Column, Error> {
    Column::find(&schema(text), name, "x/day.parquet")
}

/// The IDs of one array, as `column` reads it.
fn ids(column: &Column, array: impl Array + 'static) -> (RowCounts, Vec<String>) {
    let batch = RecordBatch::try_from_iter([("id", Arc::new(array) as ArrayRef)]).unwrap();
    let mut got = Vec::new();
    let counts = column.for_each_id(&batch, &mut |id| {
        got.push(String::from_utf8(id.to_vec()).unwrap());
    });
    (counts.unwrap(), got)
}

#[test]
fn a_name_finds_columns_and_values_in_structs_and_names_with_dots() {
    let text = "required int64 n; required binary a.b (UTF8);
        optional group user { required int32 age; optional group device { optional binary id; } }";
    for (name, leaf) in [("n", 0), ("a.b", 1), ("user.age", 2), ("user.device.id", 3)] {
        let column = find(text, name).unwrap();
        assert_eq!(column.leaf(), leaf);
        assert_eq!(column.schema().num_columns(), 1);
        let (alone, whole) = (column.schema().column(0), schema(text).column(leaf));
        assert_eq!(alone.path(), whole.path());
        assert_eq!(alone.max_def_level(), whole.max_def_level());
    }
}

#[test]
fn an_unknown_name_gets_the_names_there_are() {
    let many: String = (0..30).map(|i| format!("required int32 c{i};")).collect();
    let error = find(&many, "id").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let text = error.to_string();
    for part in ["x/day.parquet", "`id`", "`c0`", "`c19`", "and 10 more"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("`c20`"), "{text}");
}

#[test]
fn structs_lists_and_double_names_are_refused_with_the_reason() {
    let text = "optional group s { optional binary id; }
        optional group l (LIST) { repeated group list { optional binary element (UTF8); } }
        repeated binary r; required binary t.id; optional group t { required int32 id; }";
    for (name, why) in [
        ("s", "struct; name a value in it, as `s.id`"),
        ("l", "write a row for each value, as `explode(l)` of Spark or `unnest(l)` of DuckDB do"),
        ("l.list.element", "repeated"),
        ("r", "repeated"),
        ("t.id", "more than one"),
    ] {
        let error = find(text, name).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        let said = error.to_string();
        assert!(said.contains(why) && said.contains(&format!("`{name}`")), "{said}");
        assert!(said.contains("x/day.parquet"), "{said}");
    }
}

#[test]
fn types_that_are_no_ids_are_refused_by_name() {
    for (field, name) in [
        ("boolean x", "bool"),
        ("float x", "float32"),
        ("double x", "float64"),
        ("int96 x", "INT96"),
        ("int32 x (DATE)", "date"),
        ("int32 x (TIME_MILLIS)", "time"),
        ("int64 x (TIMESTAMP(MICROS,true))", "timestamp"),
        ("int64 x (TIMESTAMP_MILLIS)", "timestamp"),
        ("int64 x (DECIMAL(9,2))", "2 digits behind the point; write the IDs as whole numbers"),
        ("binary x (DECIMAL(9,2))", "decimal"),
        ("binary x (BSON)", "bson"),
        ("fixed_len_byte_array(2) x (FLOAT16)", "float16"),
        ("fixed_len_byte_array(12) x (INTERVAL)", "interval"),
        ("fixed_len_byte_array(16) x (DECIMAL(30,2))", "decimal"),
        ("fixed_len_byte_array(32) x (DECIMAL(76,0))", "76 digits, and at most 38 are read"),
        ("fixed_len_byte_array(1025) x", "1025 bytes"),
    ] {
        let error = find(&format!("required {field};"), "x").expect_err(field);
        let text = error.to_string();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(text.contains(name) && text.contains("`x`"), "{field}: {text}");
        assert!(text.contains("x/day.parquet"), "{text}");
    }
}

#[test]
fn types_that_are_ids_are_read_without_a_copy() {
    for (field, kind) in [
        ("binary x (UTF8)", DataType::Utf8View),
        ("binary x (STRING)", DataType::Utf8View),
        ("binary x (JSON)", DataType::Utf8View),
        ("binary x (ENUM)", DataType::BinaryView),
        ("binary x", DataType::BinaryView),
        ("fixed_len_byte_array(1024) x", DataType::FixedSizeBinary(1024)),
        ("fixed_len_byte_array(16) x (UUID)", DataType::FixedSizeBinary(16)),
        ("int32 x", DataType::Int32),
        ("int32 x (INT_8)", DataType::Int32),
        ("int32 x (INTEGER(16,false))", DataType::Int32),
        ("int64 x (UINT_64)", DataType::Int64),
        ("int64 x (DECIMAL(18,0))", DataType::Int64),
        ("binary x (DECIMAL(38,0))", DataType::BinaryView),
        ("fixed_len_byte_array(16) x (DECIMAL(38,0))", DataType::FixedSizeBinary(16)),
    ] {
        let column = find(&format!("optional {field};"), "x").expect(field);
        let plain = parquet_to_arrow_schema(column.schema(), None).unwrap();
        assert_eq!(as_views(plain.fields())[0].data_type(), &kind, "{field}");
    }
}

/// What the numbers of a column become, or why not.
fn numbers(field: &str, array: ArrayRef) -> Result<Vec<String>, String> {
    let column = find(&format!("required {field};"), "x").expect(field);
    let batch = RecordBatch::try_from_iter([("id", array)]).unwrap();
    let mut got = Vec::new();
    column
        .for_each_id(&batch, &mut |id| got.push(String::from_utf8(id.to_vec()).unwrap()))
        .map(|_| got)
}

#[test]
fn numbers_are_decimal_ascii_up_to_both_ends_of_their_types_and_no_further() {
    macro_rules! ends {
        ($($field:literal $native:ty => $array:ident $stored:ty),*) => {$(
            let values = [<$native>::MIN, 0, 1, 9, 10, 99, 100, <$native>::MAX];
            let wanted: Vec<String> = values.iter().map(ToString::to_string).collect();
            let array = $array::from_iter_values(values.map(|value| value as $stored));
            assert_eq!(numbers($field, Arc::new(array)), Ok(wanted), $field);
            let ends = [<$native>::MIN as i128 - 1, <$native>::MAX as i128 + 1];
            for beyond in ends.into_iter().filter_map(|end| <$stored>::try_from(end).ok()) {
                if <$native>::BITS == <$stored>::BITS {
                    continue;
                }
                let why = numbers($field, Arc::new($array::from_iter_values([beyond])));
                assert!(why.unwrap_err().contains(&beyond.to_string()), $field);
            }
        )*};
    }
    ends!(
        "int32 x (INT_8)" i8 => Int32Array i32, "int32 x (INT_16)" i16 => Int32Array i32,
        "int32 x" i32 => Int32Array i32, "int64 x" i64 => Int64Array i64,
        "int32 x (UINT_8)" u8 => Int32Array i32, "int32 x (UINT_16)" u16 => Int32Array i32,
        "int32 x (UINT_32)" u32 => Int32Array i32, "int64 x (UINT_64)" u64 => Int64Array i64,
        "int32 x (INTEGER(8,true))" i8 => Int32Array i32, "int32 x (INT_32)" i32 => Int32Array i32
    );
}

#[test]
fn decimals_without_a_fraction_are_whole_numbers() {
    let texts = |all: &[i128]| Ok(all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let most = 10_i128.pow(38) - 1;
    let (least, long) = (-i128::from(u64::MAX), 10_i128.pow(19));
    let all = [0, 7, -7, 255, -256, 10_i128.pow(18), long, -long, least, least - 1, most, -most];
    let fixed = |width: usize, all: &[i128]| -> ArrayRef {
        let bytes = |value: i128| {
            let sign = if value < 0 { 0xff } else { 0 };
            [vec![sign; 16], value.to_be_bytes().to_vec()].concat()[32 - width..].to_vec()
        };
        Arc::new(
            FixedSizeBinaryArray::try_from_iter(all.iter().map(|value| bytes(*value))).unwrap(),
        )
    };
    for width in [16, 20, 32] {
        let field = format!("fixed_len_byte_array({width}) x (DECIMAL(38,0))");
        assert_eq!(numbers(&field, fixed(width, &all)), texts(&all), "{width}");
        assert!(numbers(&field, fixed(width, &[most + 1])).is_err());
    }
    let field = "fixed_len_byte_array(2) x (DECIMAL(4,0))";
    assert_eq!(numbers(field, fixed(2, &[9_999, -9_999])), texts(&[9_999, -9_999]));
    assert!(numbers(field, fixed(2, &[-10_000])).unwrap_err().contains("DECIMAL(4, 0)"));
    // Bytes in front of sixteen that are not the sign's.
    let mut beyond = [0; 20];
    beyond[0] = 1;
    let array = FixedSizeBinaryArray::try_from_iter([beyond].into_iter()).unwrap();
    let field = "fixed_len_byte_array(20) x (DECIMAL(38,0))";
    assert!(numbers(field, Arc::new(array)).is_err());
    let short: ArrayRef =
        Arc::new(BinaryViewArray::from_iter_values([&[5_u8][..], &[0xff], &[0, 0, 1, 0]]));
    assert_eq!(numbers("binary x (DECIMAL(20,0))", short), texts(&[5, -1, 256]));
    let empty: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([&[][..]]));
    assert!(numbers("binary x (DECIMAL(20,0))", empty).is_err());
    let small = |value| Arc::new(Int32Array::from_iter_values([value]));
    assert_eq!(numbers("int32 x (DECIMAL(9,0))", small(-999_999_999)), texts(&[-999_999_999]));
    assert!(numbers("int32 x (DECIMAL(3,0))", small(1_000)).unwrap_err().contains("1000"));
    let large = Arc::new(Int64Array::from_iter_values([10_i64.pow(18) - 1]));
    assert_eq!(numbers("int64 x (DECIMAL(18,0))", large), texts(&[10_i128.pow(18) - 1]));
}

#[test]
fn every_array_of_strings_or_bytes_gives_the_same_ids() {
    let column = find("optional binary x (UTF8);", "x").unwrap();
    let long = "L".repeat(1025);
    let texts = [Some("a"), None, Some(""), Some(long.as_str()), Some("bc"), Some("a")];
    let bytes = texts.map(|text| text.map(str::as_bytes));
    let wanted = (
        RowCounts { rows: 6, nulls: 1, invalid: 2 },
        vec!["a".to_owned(), "bc".to_owned(), "a".to_owned()],
    );
    assert_eq!(ids(&column, StringViewArray::from_iter(texts)), wanted);
    assert_eq!(ids(&column, BinaryViewArray::from_iter(bytes)), wanted);
    assert_eq!(ids(&column, NullArray::new(3)).0, RowCounts { rows: 3, nulls: 3, invalid: 0 });
}

#[test]
fn a_null_struct_makes_a_null_of_a_value_that_cannot_be_null_itself() {
    let column = find("optional group s { required binary id (UTF8); }", "s.id").unwrap();
    let field = Arc::new(Field::new("id", DataType::Utf8View, false));
    let values: ArrayRef = Arc::new(StringViewArray::from_iter_values(["a", "hidden", "c"]));
    let nulls = Int8Array::from_iter([Some(0), None, Some(0)]).nulls().cloned();
    let (counts, got) = ids(&column, StructArray::new(vec![field].into(), vec![values], nulls));
    assert_eq!(counts, RowCounts { rows: 3, nulls: 1, invalid: 0 });
    assert_eq!(got, ["a", "c"]);
}

#[test]
fn a_uuid_has_36_lower_case_characters() {
    let bytes: [u8; 16] = *b"\x00\x01\x0a\xff\xAB\xCD\xEF\x10\x11\x12\x13\x14\x15\x16\x17\x18";
    let text = uuid_text(&bytes);
    assert_eq!(std::str::from_utf8(&text).unwrap(), "00010aff-abcd-ef10-1112-131415161718");
}
