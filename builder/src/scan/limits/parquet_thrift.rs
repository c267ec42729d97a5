//! Security boundary: the tables of Parquet's Thrift structures, for footers and page headers.
//!
//! The source is `parquet.thrift`, whose names stand next to the fields. Fields that neither the
//! parquet crate nor this one reads are skipped.

use super::thrift::{Field, FieldType, I32, I64, Name, Struct};

// The numbers of the fields whose values are used, by their names in `parquet.thrift`.

pub(in crate::scan) mod file {
    pub(in crate::scan) const SCHEMA: i16 = 2;
    pub(in crate::scan) const NUM_ROWS: i16 = 3;
}
pub(in crate::scan) mod schema_element {
    pub(in crate::scan) const NAME: i16 = 4;
    pub(in crate::scan) const NUM_CHILDREN: i16 = 5;
}
pub(in crate::scan) mod row_group {
    pub(in crate::scan) const NUM_ROWS: i16 = 3;
}
pub(in crate::scan) mod column_chunk {
    pub(in crate::scan) const FILE_PATH: i16 = 1;
    pub(in crate::scan) const CRYPTO_METADATA: i16 = 8;
    pub(in crate::scan) const ENCRYPTED_COLUMN_METADATA: i16 = 9;
}
pub(in crate::scan) mod column_meta_data {
    pub(in crate::scan) const TYPE: i16 = 1;
    pub(in crate::scan) const CODEC: i16 = 4;
    pub(in crate::scan) const TOTAL_COMPRESSED_SIZE: i16 = 7;
    pub(in crate::scan) const DATA_PAGE_OFFSET: i16 = 9;
    pub(in crate::scan) const DICTIONARY_PAGE_OFFSET: i16 = 11;
}
pub(in crate::scan) mod page {
    pub(in crate::scan) const TYPE: usize = 1;
    pub(in crate::scan) const UNCOMPRESSED_PAGE_SIZE: usize = 2;
    pub(in crate::scan) const COMPRESSED_PAGE_SIZE: usize = 3;
    pub(in crate::scan) const CRC: usize = 4;
}
pub(in crate::scan) mod data_page {
    pub(in crate::scan) const NUM_VALUES: usize = 1;
    pub(in crate::scan) const ENCODING: usize = 2;
    pub(in crate::scan) const DEFINITION_LEVEL_ENCODING: usize = 3;
}
pub(in crate::scan) mod dictionary_page {
    pub(in crate::scan) const NUM_VALUES: usize = 1;
    pub(in crate::scan) const ENCODING: usize = 2;
}
pub(in crate::scan) mod data_page_v2 {
    pub(in crate::scan) const NUM_VALUES: usize = 1;
    pub(in crate::scan) const NUM_NULLS: usize = 2;
    pub(in crate::scan) const NUM_ROWS: usize = 3;
    pub(in crate::scan) const ENCODING: usize = 4;
    pub(in crate::scan) const DEFINITION_LEVELS_BYTE_LENGTH: usize = 5;
    pub(in crate::scan) const REPETITION_LEVELS_BYTE_LENGTH: usize = 6;
    pub(in crate::scan) const IS_COMPRESSED: usize = 7;
}

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
        (1, true, FieldType::I32),                   // version
        (2, true, FieldType::List(&SCHEMA_ELEMENT)), // schema
        (3, true, FieldType::I64),                   // num_rows
        (4, true, FieldType::List(&ROW_GROUP)),      // row_groups
        (5, false, FieldType::List(&KEY_VALUE)),     // key_value_metadata
        (6, false, FieldType::Binary),               // created_by
        (7, false, FieldType::List(&COLUMN_ORDER)),  // column_orders
        (8, false, FieldType::Opaque),               // encryption_algorithm
        (9, false, FieldType::Binary),               // footer_signing_key_metadata
    ],
);

static SCHEMA_ELEMENT: Struct = named(
    Name::SchemaElement,
    &[
        (1, false, FieldType::I32),                    // type
        (2, false, FieldType::I32),                    // type_length
        (3, false, FieldType::I32),                    // repetition_type
        (4, true, FieldType::Binary),                  // name
        (5, false, FieldType::I32),                    // num_children
        (6, false, FieldType::I32),                    // converted_type
        (7, false, FieldType::I32),                    // scale
        (8, false, FieldType::I32),                    // precision
        (9, false, FieldType::I32),                    // field_id
        (10, false, FieldType::Struct(&LOGICAL_TYPE)), // logicalType
    ],
);

static LOGICAL_TYPE: Struct = union(&[
    (1, false, FieldType::Struct(&EMPTY)),    // STRING
    (2, false, FieldType::Struct(&EMPTY)),    // MAP
    (3, false, FieldType::Struct(&EMPTY)),    // LIST
    (4, false, FieldType::Struct(&EMPTY)),    // ENUM
    (5, false, FieldType::Struct(&DECIMAL)),  // DECIMAL
    (6, false, FieldType::Struct(&EMPTY)),    // DATE
    (7, false, FieldType::Struct(&TIME)),     // TIME
    (8, false, FieldType::Struct(&TIME)),     // TIMESTAMP
    (10, false, FieldType::Struct(&INTEGER)), // INTEGER
    (11, false, FieldType::Struct(&EMPTY)),   // UNKNOWN
    (12, false, FieldType::Struct(&EMPTY)),   // JSON
    (13, false, FieldType::Struct(&EMPTY)),   // BSON
    (14, false, FieldType::Struct(&EMPTY)),   // UUID
    (15, false, FieldType::Struct(&EMPTY)),   // FLOAT16
    (16, false, FieldType::Opaque),           // VARIANT
    (17, false, FieldType::Opaque),           // GEOMETRY
    (18, false, FieldType::Opaque),           // GEOGRAPHY
]);

static EMPTY: Struct = plain(&[]);
static DECIMAL: Struct = plain(&[
    (1, true, FieldType::I32), // scale
    (2, true, FieldType::I32), // precision
]);
static TIME: Struct = plain(&[
    (1, true, FieldType::Bool),               // isAdjustedToUTC
    (2, true, FieldType::Struct(&TIME_UNIT)), // unit
]);
static INTEGER: Struct = plain(&[
    (1, true, FieldType::Byte), // bitWidth
    (2, true, FieldType::Bool), // isSigned
]);
static TIME_UNIT: Struct = union(&[
    (1, false, FieldType::Struct(&EMPTY)), // MILLIS
    (2, false, FieldType::Struct(&EMPTY)), // MICROS
    (3, false, FieldType::Struct(&EMPTY)), // NANOS
]);

static ROW_GROUP: Struct = named(
    Name::RowGroup,
    &[
        (1, true, FieldType::List(&COLUMN_CHUNK)),    // columns
        (2, true, FieldType::I64),                    // total_byte_size
        (3, true, FieldType::I64),                    // num_rows
        (4, false, FieldType::List(&SORTING_COLUMN)), // sorting_columns
        (5, false, FieldType::I64),                   // file_offset
        (6, false, FieldType::I64),                   // total_compressed_size
        (7, false, FieldType::I16),                   // ordinal
    ],
);

static SORTING_COLUMN: Struct = plain(&[
    (1, true, FieldType::I32),  // column_idx
    (2, true, FieldType::Bool), // descending
    (3, true, FieldType::Bool), // nulls_first
]);

static COLUMN_CHUNK: Struct = named(
    Name::ColumnChunk,
    &[
        (1, false, FieldType::Binary),                    // file_path
        (2, true, FieldType::I64),                        // file_offset
        (3, false, FieldType::Struct(&COLUMN_META_DATA)), // meta_data
        (4, false, FieldType::I64),                       // offset_index_offset
        (5, false, FieldType::I32),                       // offset_index_length
        (6, false, FieldType::I64),                       // column_index_offset
        (7, false, FieldType::I32),                       // column_index_length
        (8, false, FieldType::Opaque),                    // crypto_metadata
        (9, false, FieldType::Binary),                    // encrypted_column_metadata
    ],
);

static COLUMN_META_DATA: Struct = named(
    Name::ColumnMetaData,
    &[
        (1, true, FieldType::I32),                        // type
        (2, true, FieldType::Numbers(I32)),               // encodings
        (3, false, FieldType::Strings),                   // path_in_schema
        (4, true, FieldType::I32),                        // codec
        (5, true, FieldType::I64),                        // num_values
        (6, true, FieldType::I64),                        // total_uncompressed_size
        (7, true, FieldType::I64),                        // total_compressed_size
        (8, false, FieldType::List(&KEY_VALUE)),          // key_value_metadata
        (9, true, FieldType::I64),                        // data_page_offset
        (10, false, FieldType::I64),                      // index_page_offset
        (11, false, FieldType::I64),                      // dictionary_page_offset
        (12, false, FieldType::Struct(&STATISTICS)),      // statistics
        (13, false, FieldType::List(&ENCODING_STATS)),    // encoding_stats
        (14, false, FieldType::I64),                      // bloom_filter_offset
        (15, false, FieldType::I32),                      // bloom_filter_length
        (16, false, FieldType::Struct(&SIZE_STATISTICS)), // size_statistics
        (17, false, FieldType::Opaque),                   // geospatial_statistics
    ],
);

static KEY_VALUE: Struct = plain(&[
    (1, true, FieldType::Binary),  // key
    (2, false, FieldType::Binary), // value
]);
static COLUMN_ORDER: Struct = union(&[
    (1, false, FieldType::Struct(&EMPTY)), // TYPE_ORDER
]);
static ENCODING_STATS: Struct = plain(&[
    (1, true, FieldType::I32), // page_type
    (2, true, FieldType::I32), // encoding
    (3, true, FieldType::I32), // count
]);
static SIZE_STATISTICS: Struct = plain(&[
    (1, false, FieldType::I64),          // unencoded_byte_array_data_bytes
    (2, false, FieldType::Numbers(I64)), // repetition_level_histogram
    (3, false, FieldType::Numbers(I64)), // definition_level_histogram
]);
static STATISTICS: Struct = plain(&[
    (1, false, FieldType::Binary), // max
    (2, false, FieldType::Binary), // min
    (3, false, FieldType::I64),    // null_count
    (4, false, FieldType::I64),    // distinct_count
    (5, false, FieldType::Binary), // max_value
    (6, false, FieldType::Binary), // min_value
    (7, false, FieldType::Bool),   // is_max_value_exact
    (8, false, FieldType::Bool),   // is_min_value_exact
    (9, false, FieldType::I64),    // nan_count
]);

/// The structure of a page header.
pub(in crate::scan) static PAGE: Struct = named(
    Name::Page,
    &[
        (1, true, FieldType::I32),                       // type
        (2, true, FieldType::I32),                       // uncompressed_page_size
        (3, true, FieldType::I32),                       // compressed_page_size
        (4, false, FieldType::I32),                      // crc
        (5, false, FieldType::Struct(&DATA_PAGE)),       // data_page_header
        (6, false, FieldType::Opaque),                   // index_page_header
        (7, false, FieldType::Struct(&DICTIONARY_PAGE)), // dictionary_page_header
        (8, false, FieldType::Struct(&DATA_PAGE_V2)),    // data_page_header_v2
    ],
);

static DATA_PAGE: Struct = named(
    Name::DataPage,
    &[
        (1, true, FieldType::I32),                  // num_values
        (2, true, FieldType::I32),                  // encoding
        (3, true, FieldType::I32),                  // definition_level_encoding
        (4, true, FieldType::I32),                  // repetition_level_encoding
        (5, false, FieldType::Struct(&STATISTICS)), // statistics
    ],
);

static DICTIONARY_PAGE: Struct = named(
    Name::DictionaryPage,
    &[
        (1, true, FieldType::I32),   // num_values
        (2, true, FieldType::I32),   // encoding
        (3, false, FieldType::Bool), // is_sorted
    ],
);

static DATA_PAGE_V2: Struct = named(
    Name::DataPageV2,
    &[
        (1, true, FieldType::I32),                  // num_values
        (2, true, FieldType::I32),                  // num_nulls
        (3, true, FieldType::I32),                  // num_rows
        (4, true, FieldType::I32),                  // encoding
        (5, true, FieldType::I32),                  // definition_levels_byte_length
        (6, true, FieldType::I32),                  // repetition_levels_byte_length
        (7, false, FieldType::Bool),                // is_compressed
        (8, false, FieldType::Struct(&STATISTICS)), // statistics
    ],
);
