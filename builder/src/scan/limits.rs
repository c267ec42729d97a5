//! The security boundary: all checks of untrusted bytes.
//!
//! A file's footer, page headers and pages pass through here before the parquet crate decodes them.
//! The parquet crate gets a schema, and pages whose counts, levels, lengths and values agree; it
//! never gets a header or a compressed byte of a file. Each claim of a file about a size is bounded
//! before memory is taken for it.
//!
//! | module | does |
//! |---|---|
//! | `thrift` | reads Thrift's compact protocol in exactly one way |
//! | `parquet_thrift` | the tables of Parquet's Thrift structures |
//! | `footer_metadata` | what a footer says of the schema and of one column |
//! | `page_header` | what a page's header says |
//! | `page_limits` | how much memory the pages of a piece need, before they are unpacked |
//! | `page_source` | a piece → its checked pages; all that the parquet crate gets |
//! | `decompress` | a page's body → exactly as many bytes as its header says |
//! | `varint` | numbers of variable length, in all of these |
//! | `levels`, `values`, `delta` | whether a page's levels, counts and bytes agree |

mod decompress;
mod delta;
pub(super) mod footer_metadata;
mod levels;
pub(super) mod page_header;
pub(super) mod page_limits;
pub(super) mod page_source;
mod parquet_thrift;
mod thrift;
pub(super) mod values;
mod varint;
