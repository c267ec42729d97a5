//! Security boundary: the tables of Parquet's Thrift structures, for footers and page headers.
//!
//! The source is `parquet.thrift`. Fields that neither the parquet crate nor this one reads are
//! skipped.

use super::thrift::{Field, I32, I64, Kind, Name, Struct};

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
        (1, true, Kind::I32),
        (2, true, Kind::List(&SCHEMA_ELEMENT)),
        (3, true, Kind::I64),
        (4, true, Kind::List(&ROW_GROUP)),
        (5, false, Kind::List(&KEY_VALUE)),
        (6, false, Kind::Binary),
        (7, false, Kind::List(&COLUMN_ORDER)),
        (8, false, Kind::Opaque),
        (9, false, Kind::Binary),
    ],
);

static SCHEMA_ELEMENT: Struct = named(
    Name::SchemaElement,
    &[
        (1, false, Kind::I32),
        (2, false, Kind::I32),
        (3, false, Kind::I32),
        (4, true, Kind::Binary),
        (5, false, Kind::I32),
        (6, false, Kind::I32),
        (7, false, Kind::I32),
        (8, false, Kind::I32),
        (9, false, Kind::I32),
        (10, false, Kind::Struct(&LOGICAL_TYPE)),
    ],
);

static LOGICAL_TYPE: Struct = union(&[
    (1, false, Kind::Struct(&EMPTY)),
    (2, false, Kind::Struct(&EMPTY)),
    (3, false, Kind::Struct(&EMPTY)),
    (4, false, Kind::Struct(&EMPTY)),
    (5, false, Kind::Struct(&DECIMAL)),
    (6, false, Kind::Struct(&EMPTY)),
    (7, false, Kind::Struct(&TIME)),
    (8, false, Kind::Struct(&TIME)),
    (10, false, Kind::Struct(&INTEGER)),
    (11, false, Kind::Struct(&EMPTY)),
    (12, false, Kind::Struct(&EMPTY)),
    (13, false, Kind::Struct(&EMPTY)),
    (14, false, Kind::Struct(&EMPTY)),
    (15, false, Kind::Struct(&EMPTY)),
    (16, false, Kind::Opaque),
    (17, false, Kind::Opaque),
    (18, false, Kind::Opaque),
]);

static EMPTY: Struct = plain(&[]);
static DECIMAL: Struct = plain(&[(1, true, Kind::I32), (2, true, Kind::I32)]);
static TIME: Struct = plain(&[(1, true, Kind::Bool), (2, true, Kind::Struct(&TIME_UNIT))]);
static INTEGER: Struct = plain(&[(1, true, Kind::Byte), (2, true, Kind::Bool)]);
static TIME_UNIT: Struct = union(&[
    (1, false, Kind::Struct(&EMPTY)),
    (2, false, Kind::Struct(&EMPTY)),
    (3, false, Kind::Struct(&EMPTY)),
]);

static ROW_GROUP: Struct = named(
    Name::RowGroup,
    &[
        (1, true, Kind::List(&COLUMN_CHUNK)),
        (2, true, Kind::I64),
        (3, true, Kind::I64),
        (4, false, Kind::List(&SORTING_COLUMN)),
        (5, false, Kind::I64),
        (6, false, Kind::I64),
        (7, false, Kind::I16),
    ],
);

static SORTING_COLUMN: Struct =
    plain(&[(1, true, Kind::I32), (2, true, Kind::Bool), (3, true, Kind::Bool)]);

static COLUMN_CHUNK: Struct = named(
    Name::ColumnChunk,
    &[
        (1, false, Kind::Binary),
        (2, true, Kind::I64),
        (3, false, Kind::Struct(&COLUMN_META_DATA)),
        (4, false, Kind::I64),
        (5, false, Kind::I32),
        (6, false, Kind::I64),
        (7, false, Kind::I32),
        (8, false, Kind::Opaque),
        (9, false, Kind::Binary),
    ],
);

static COLUMN_META_DATA: Struct = named(
    Name::ColumnMetaData,
    &[
        (1, true, Kind::I32),
        (2, true, Kind::Numbers(I32)),
        (3, false, Kind::Strings),
        (4, true, Kind::I32),
        (5, true, Kind::I64),
        (6, true, Kind::I64),
        (7, true, Kind::I64),
        (8, false, Kind::List(&KEY_VALUE)),
        (9, true, Kind::I64),
        (10, false, Kind::I64),
        (11, false, Kind::I64),
        (12, false, Kind::Struct(&STATISTICS)),
        (13, false, Kind::List(&ENCODING_STATS)),
        (14, false, Kind::I64),
        (15, false, Kind::I32),
        (16, false, Kind::Struct(&SIZE_STATISTICS)),
        (17, false, Kind::Opaque),
    ],
);

static KEY_VALUE: Struct = plain(&[(1, true, Kind::Binary), (2, false, Kind::Binary)]);
static COLUMN_ORDER: Struct = union(&[(1, false, Kind::Struct(&EMPTY))]);
static ENCODING_STATS: Struct =
    plain(&[(1, true, Kind::I32), (2, true, Kind::I32), (3, true, Kind::I32)]);
static SIZE_STATISTICS: Struct =
    plain(&[(1, false, Kind::I64), (2, false, Kind::Numbers(I64)), (3, false, Kind::Numbers(I64))]);
static STATISTICS: Struct = plain(&[
    (1, false, Kind::Binary),
    (2, false, Kind::Binary),
    (3, false, Kind::I64),
    (4, false, Kind::I64),
    (5, false, Kind::Binary),
    (6, false, Kind::Binary),
    (7, false, Kind::Bool),
    (8, false, Kind::Bool),
    (9, false, Kind::I64),
]);

/// The structure of a page header.
pub(in crate::scan) static PAGE: Struct = named(
    Name::Page,
    &[
        (1, true, Kind::I32),
        (2, true, Kind::I32),
        (3, true, Kind::I32),
        (4, false, Kind::I32),
        (5, false, Kind::Struct(&DATA_PAGE)),
        (6, false, Kind::Opaque),
        (7, false, Kind::Struct(&DICTIONARY_PAGE)),
        (8, false, Kind::Struct(&DATA_PAGE_V2)),
    ],
);

static DATA_PAGE: Struct = named(
    Name::DataPage,
    &[
        (1, true, Kind::I32),
        (2, true, Kind::I32),
        (3, true, Kind::I32),
        (4, true, Kind::I32),
        (5, false, Kind::Struct(&STATISTICS)),
    ],
);

static DICTIONARY_PAGE: Struct = named(
    Name::DictionaryPage,
    &[(1, true, Kind::I32), (2, true, Kind::I32), (3, false, Kind::Bool)],
);

static DATA_PAGE_V2: Struct = named(
    Name::DataPageV2,
    &[
        (1, true, Kind::I32),
        (2, true, Kind::I32),
        (3, true, Kind::I32),
        (4, true, Kind::I32),
        (5, true, Kind::I32),
        (6, true, Kind::I32),
        (7, false, Kind::Bool),
        (8, false, Kind::Struct(&STATISTICS)),
    ],
);
