//! Security boundary: the tables of Parquet's Thrift structures, for footers and page headers.
//!
//! The source is `parquet.thrift`. Fields that neither the parquet crate nor this one reads are
//! skipped.

use super::thrift::{Field, FieldType, I32, I64, Name, Struct};

const fn plain(fields: &'static [Field]) -> Struct {
    named(Name::Other, fields)
}

const fn named(name: Name, fields: &'static [Field]) -> Struct {
    Struct { name, fields, is_union: false }
}

const fn union(fields: &'static [Field]) -> Struct {
    Struct { name: Name::Other, fields, is_union: true }
}

/// The structure of a footer.
pub(in crate::scan) static FILE: Struct = named(
    Name::File,
    &[
        (1, true, FieldType::I32),
        (2, true, FieldType::List(&SCHEMA_ELEMENT)),
        (3, true, FieldType::I64),
        (4, true, FieldType::List(&ROW_GROUP)),
        (5, false, FieldType::List(&KEY_VALUE)),
        (6, false, FieldType::Binary),
        (7, false, FieldType::List(&COLUMN_ORDER)),
        (8, false, FieldType::Opaque),
        (9, false, FieldType::Binary),
    ],
);

static SCHEMA_ELEMENT: Struct = named(
    Name::SchemaElement,
    &[
        (1, false, FieldType::I32),
        (2, false, FieldType::I32),
        (3, false, FieldType::I32),
        (4, true, FieldType::Binary),
        (5, false, FieldType::I32),
        (6, false, FieldType::I32),
        (7, false, FieldType::I32),
        (8, false, FieldType::I32),
        (9, false, FieldType::I32),
        (10, false, FieldType::Struct(&LOGICAL_TYPE)),
    ],
);

static LOGICAL_TYPE: Struct = union(&[
    (1, false, FieldType::Struct(&EMPTY)),
    (2, false, FieldType::Struct(&EMPTY)),
    (3, false, FieldType::Struct(&EMPTY)),
    (4, false, FieldType::Struct(&EMPTY)),
    (5, false, FieldType::Struct(&DECIMAL)),
    (6, false, FieldType::Struct(&EMPTY)),
    (7, false, FieldType::Struct(&TIME)),
    (8, false, FieldType::Struct(&TIME)),
    (10, false, FieldType::Struct(&INTEGER)),
    (11, false, FieldType::Struct(&EMPTY)),
    (12, false, FieldType::Struct(&EMPTY)),
    (13, false, FieldType::Struct(&EMPTY)),
    (14, false, FieldType::Struct(&EMPTY)),
    (15, false, FieldType::Struct(&EMPTY)),
    (16, false, FieldType::Opaque),
    (17, false, FieldType::Opaque),
    (18, false, FieldType::Opaque),
]);

static EMPTY: Struct = plain(&[]);
static DECIMAL: Struct = plain(&[(1, true, FieldType::I32), (2, true, FieldType::I32)]);
static TIME: Struct =
    plain(&[(1, true, FieldType::Bool), (2, true, FieldType::Struct(&TIME_UNIT))]);
static INTEGER: Struct = plain(&[(1, true, FieldType::Byte), (2, true, FieldType::Bool)]);
static TIME_UNIT: Struct = union(&[
    (1, false, FieldType::Struct(&EMPTY)),
    (2, false, FieldType::Struct(&EMPTY)),
    (3, false, FieldType::Struct(&EMPTY)),
]);

static ROW_GROUP: Struct = named(
    Name::RowGroup,
    &[
        (1, true, FieldType::List(&COLUMN_CHUNK)),
        (2, true, FieldType::I64),
        (3, true, FieldType::I64),
        (4, false, FieldType::List(&SORTING_COLUMN)),
        (5, false, FieldType::I64),
        (6, false, FieldType::I64),
        (7, false, FieldType::I16),
    ],
);

static SORTING_COLUMN: Struct =
    plain(&[(1, true, FieldType::I32), (2, true, FieldType::Bool), (3, true, FieldType::Bool)]);

static COLUMN_CHUNK: Struct = named(
    Name::ColumnChunk,
    &[
        (1, false, FieldType::Binary),
        (2, true, FieldType::I64),
        (3, false, FieldType::Struct(&COLUMN_META_DATA)),
        (4, false, FieldType::I64),
        (5, false, FieldType::I32),
        (6, false, FieldType::I64),
        (7, false, FieldType::I32),
        (8, false, FieldType::Opaque),
        (9, false, FieldType::Binary),
    ],
);

static COLUMN_META_DATA: Struct = named(
    Name::ColumnMetaData,
    &[
        (1, true, FieldType::I32),
        (2, true, FieldType::Numbers(I32)),
        (3, false, FieldType::Strings),
        (4, true, FieldType::I32),
        (5, true, FieldType::I64),
        (6, true, FieldType::I64),
        (7, true, FieldType::I64),
        (8, false, FieldType::List(&KEY_VALUE)),
        (9, true, FieldType::I64),
        (10, false, FieldType::I64),
        (11, false, FieldType::I64),
        (12, false, FieldType::Struct(&STATISTICS)),
        (13, false, FieldType::List(&ENCODING_STATS)),
        (14, false, FieldType::I64),
        (15, false, FieldType::I32),
        (16, false, FieldType::Struct(&SIZE_STATISTICS)),
        (17, false, FieldType::Opaque),
    ],
);

static KEY_VALUE: Struct = plain(&[(1, true, FieldType::Binary), (2, false, FieldType::Binary)]);
static COLUMN_ORDER: Struct = union(&[(1, false, FieldType::Struct(&EMPTY))]);
static ENCODING_STATS: Struct =
    plain(&[(1, true, FieldType::I32), (2, true, FieldType::I32), (3, true, FieldType::I32)]);
static SIZE_STATISTICS: Struct = plain(&[
    (1, false, FieldType::I64),
    (2, false, FieldType::Numbers(I64)),
    (3, false, FieldType::Numbers(I64)),
]);
static STATISTICS: Struct = plain(&[
    (1, false, FieldType::Binary),
    (2, false, FieldType::Binary),
    (3, false, FieldType::I64),
    (4, false, FieldType::I64),
    (5, false, FieldType::Binary),
    (6, false, FieldType::Binary),
    (7, false, FieldType::Bool),
    (8, false, FieldType::Bool),
    (9, false, FieldType::I64),
]);

/// The structure of a page header.
pub(in crate::scan) static PAGE: Struct = named(
    Name::Page,
    &[
        (1, true, FieldType::I32),
        (2, true, FieldType::I32),
        (3, true, FieldType::I32),
        (4, false, FieldType::I32),
        (5, false, FieldType::Struct(&DATA_PAGE)),
        (6, false, FieldType::Opaque),
        (7, false, FieldType::Struct(&DICTIONARY_PAGE)),
        (8, false, FieldType::Struct(&DATA_PAGE_V2)),
    ],
);

static DATA_PAGE: Struct = named(
    Name::DataPage,
    &[
        (1, true, FieldType::I32),
        (2, true, FieldType::I32),
        (3, true, FieldType::I32),
        (4, true, FieldType::I32),
        (5, false, FieldType::Struct(&STATISTICS)),
    ],
);

static DICTIONARY_PAGE: Struct = named(
    Name::DictionaryPage,
    &[(1, true, FieldType::I32), (2, true, FieldType::I32), (3, false, FieldType::Bool)],
);

static DATA_PAGE_V2: Struct = named(
    Name::DataPageV2,
    &[
        (1, true, FieldType::I32),
        (2, true, FieldType::I32),
        (3, true, FieldType::I32),
        (4, true, FieldType::I32),
        (5, true, FieldType::I32),
        (6, true, FieldType::I32),
        (7, false, FieldType::Bool),
        (8, false, FieldType::Struct(&STATISTICS)),
    ],
);
