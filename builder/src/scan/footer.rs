//! A file → its plan: what its footer says of the column, checked, and where its chunks lie.
//!
//! Every request for a part of a file is made here. Nothing is decoded here.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, FooterTail, ParquetMetaData, ParquetMetaDataOptions,
    ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};

use super::thrift;
use crate::error::Error;
use crate::ids::Column;
use crate::source::InputFile;

/// The most bytes of a footer. A thousand columns in a thousand row groups have about as many.
pub const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// The most compressed bytes of one column in one row group: they are in memory together.
pub const MAX_CHUNK_BYTES: u64 = 4 << 30;

/// Fetched in the hope that the footer is in it.
const TAIL_BYTES: u64 = 64 << 10;

/// A request of this size is done long before a store's client gives up on it.
const PART_BYTES: u64 = 8 << 20;

/// Requests for parts of one column chunk at the same time.
const PARTS_AT_ONCE: usize = 4;

/// All that a row group's bytes still need to become IDs.
pub(super) struct Plan {
    pub(super) file: InputFile,
    pub(super) column: Column,
    /// The file as if it had this one column, each chunk of it beginning at offset 0.
    pub(super) reader: ArrowReaderMetadata,
    pub(super) chunks: Vec<Chunk>,
    pub(super) rows: u64,
    pub(super) footer_bytes: u64,
    seen: Option<String>,
}

/// One row group's part of the column.
pub(super) struct Chunk {
    pub(super) range: Range<u64>,
    pub(super) rows: u64,
    pub(super) codec: Compression,
}

impl Plan {
    /// Reads a file's footer.
    pub(super) async fn read(file: InputFile, column: &str) -> Result<Plan, Error> {
        let (footer, seen, fetched) = fetch_footer(&file).await?;
        let (column, name) = (column.to_owned(), file.name.clone());
        // A parser of the bytes of strangers: its panics must stay its own, and the runtime free.
        let parsed = tokio::task::spawn_blocking(move || {
            let plan = parse(&file, &footer, &column);
            plan.map(|(column, reader, chunks)| Plan {
                rows: chunks.iter().map(|chunk| chunk.rows).sum(),
                footer_bytes: fetched,
                file,
                column,
                reader,
                chunks,
                seen,
            })
        });
        parsed.await.unwrap_or_else(|_| {
            Err(Error::Corrupt { file: name, why: "the parser of its footer gave up".into() })
        })
    }

    /// Fetches one row group's bytes of the column, and nothing else.
    pub(super) async fn fetch(&self, chunk: &Chunk) -> Result<Bytes, Error> {
        let Range { start, end } = chunk.range;
        let parts = (start..end).step_by(PART_BYTES as usize);
        let mut parts = futures::stream::iter(parts)
            .map(|at| fetch(&self.file, at..end.min(at + PART_BYTES), self.seen.as_deref()))
            .buffered(PARTS_AT_ONCE);
        let (mut all, _) = parts.try_next().await?.unwrap_or_default();
        if all.len() as u64 == end - start {
            return Ok(all);
        }
        let mut whole = BytesMut::with_capacity((end - start) as usize);
        loop {
            whole.extend_from_slice(&all);
            match parts.try_next().await? {
                Some((part, _)) => all = part,
                None => return Ok(whole.freeze()),
            }
        }
    }

    pub(super) fn corrupt(&self, group: usize, why: impl std::fmt::Display) -> Error {
        corrupt(&self.file, format!("row group {group}: {why}"))
    }
}

/// The bytes of a footer, the tag of the file they came from, and how many bytes that took.
async fn fetch_footer(file: &InputFile) -> Result<(Bytes, Option<String>, u64), Error> {
    let not_parquet =
        |why: &str| Error::NotParquet { file: file.name.clone(), why: why.to_owned() };
    let size = file.meta.size;
    if size < 12 {
        return Err(not_parquet(&format!("it has {size} bytes, and the smallest has 12")));
    }
    let (tail, seen) = fetch(file, size - size.min(TAIL_BYTES)..size, None).await?;
    let end = FooterTail::try_from(&tail[tail.len() - 8..])
        .map_err(|_| not_parquet("it does not end with `PAR1`"))?;
    if end.is_encrypted_footer() {
        return Err(unsupported(file, "its footer is encrypted"));
    }
    let length = end.metadata_length() as u64;
    // The file begins with four bytes of its own.
    if length + 12 > size {
        let why = format!("its footer claims {length} bytes of the {size} that the file has");
        return Err(corrupt(file, why));
    }
    if length > MAX_FOOTER_BYTES {
        return Err(Error::TooMany {
            name: file.name.clone(),
            what: "bytes of footer",
            got: length,
            limit: MAX_FOOTER_BYTES,
            remedy: "write fewer row groups or columns into one file",
        });
    }
    let (length, known) = (length as usize, tail.len() - 8);
    if length <= known {
        return Ok((tail.slice(known - length..known), seen, tail.len() as u64));
    }
    let range = size - 8 - length as u64..size - 8;
    let (footer, _) = fetch(file, range, seen.as_deref()).await?;
    let fetched = (tail.len() + footer.len()) as u64;
    Ok((footer, seen, fetched))
}

/// Fetches a range of a file that must still be the file that was listed, with the tag `seen`.
async fn fetch(
    file: &InputFile,
    range: Range<u64>,
    seen: Option<&str>,
) -> Result<(Bytes, Option<String>), Error> {
    let failed = |source| match source {
        object_store::Error::Precondition { .. } => Error::Replaced { file: file.name.clone() },
        source => Error::Input { doing: "read", name: file.name.clone(), source: Box::new(source) },
    };
    let wanted = range.end - range.start;
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        // A weak tag never matches in a condition.
        if_match: seen.filter(|tag| !tag.starts_with("W/")).map(str::to_owned),
        ..GetOptions::default()
    };
    let got = file.objects.get_opts(&file.meta.location, options).await.map_err(failed)?;
    let tag = got.meta.e_tag.clone();
    let other_size = got.meta.size != file.meta.size;
    let other_tag = seen.is_some() && tag.as_deref() != seen;
    // Where there are no tags at all, the time of the last change is what is left.
    let other_time = tag.is_none() && got.meta.last_modified != file.meta.last_modified;
    let bytes = got.bytes().await.map_err(failed)?;
    if other_size || other_tag || other_time || bytes.len() as u64 != wanted {
        return Err(Error::Replaced { file: file.name.clone() });
    }
    Ok((bytes, tag))
}

fn parse(
    file: &InputFile,
    footer: &[u8],
    name: &str,
) -> Result<(Column, ArrowReaderMetadata, Vec<Chunk>), Error> {
    let damaged = |e: ParquetError| corrupt(file, format!("its footer cannot be read: {e}"));
    thrift::check_footer(footer).map_err(|why| corrupt(file, why))?;
    let skip = ParquetStatisticsPolicy::SkipAll;
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(skip.clone())
        .with_encoding_stats_policy(skip.clone())
        .with_size_stats_policy(skip);
    let whole = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options))
        .map_err(damaged)?;
    let column = Column::find(whole.file_metadata().schema_descr(), name, &file.name)?;
    let end = file.meta.size - 8 - footer.len() as u64;
    let mut chunks = Vec::with_capacity(whole.num_row_groups());
    let mut groups = Vec::with_capacity(whole.num_row_groups());
    for (number, group) in whole.row_groups().iter().enumerate() {
        let in_group = |why: String| corrupt(file, format!("row group {number}: {why}"));
        let told = group.columns().get(column.leaf());
        let told = told.ok_or_else(|| in_group("it lacks the column".into()))?;
        check_readable(file, name, told)?;
        let rows = u64::try_from(group.num_rows())
            .map_err(|_| in_group(format!("it claims {} rows", group.num_rows())))?;
        // Writers leave anything in place of a column without rows; it is never fetched.
        let range = if rows == 0 { 0..0 } else { place(told, end).map_err(in_group)? };
        check_length(file, number, &range)?;
        groups.push(at_zero(&column, told, rows as i64).map_err(damaged)?);
        chunks.push(Chunk { range, rows, codec: told.compression() });
    }
    let told = whole.file_metadata();
    let rows: i128 = chunks.iter().map(|chunk| i128::from(chunk.rows)).sum();
    if rows != i128::from(told.num_rows()) {
        let why = format!("it claims {} rows, and its row groups {rows}", told.num_rows());
        return Err(corrupt(file, why));
    }
    let schema = Arc::clone(column.schema());
    let alone = FileMetaData::new(told.version(), told.num_rows(), None, None, schema, None);
    let alone = Arc::new(ParquetMetaData::new(alone, groups));
    let reader = ArrowReaderMetadata::try_new(alone, column.options().map_err(damaged)?);
    Ok((column, reader.map_err(damaged)?, chunks))
}

/// Where a chunk lies. Its length is claimed by the file, and must end before the footer.
fn place(told: &ColumnChunkMetaData, end: u64) -> Result<Range<u64>, String> {
    let data = told.data_page_offset();
    // Some writers leave 0, or the place of a data page, where they have no dictionary.
    let dictionary = told.dictionary_page_offset().filter(|&at| 0 < at && at < data);
    let (start, length) = (dictionary.unwrap_or(data), told.compressed_size());
    let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
    let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    range.filter(|range| range.start >= 4 && range.end <= end).ok_or_else(|| {
        format!("its column lies at {start}, {length} bytes long, outside of 4..{end}")
    })
}

fn check_length(file: &InputFile, number: usize, range: &Range<u64>) -> Result<(), Error> {
    let got = range.end - range.start;
    if got <= MAX_CHUNK_BYTES {
        return Ok(());
    }
    Err(Error::TooMany {
        name: format!("row group {number} of {}", file.name),
        what: "bytes of one column",
        got,
        limit: MAX_CHUNK_BYTES,
        remedy: "write smaller row groups",
    })
}

/// Refuses what is sound, but not ours to read.
fn check_readable(file: &InputFile, name: &str, told: &ColumnChunkMetaData) -> Result<(), Error> {
    let codec = match told.compression() {
        Compression::LZO => "LZO",
        Compression::BROTLI(_) => "Brotli",
        _ if told.file_path().is_some() => {
            let what = format!("its column `{name}` lies in a file of its own");
            return Err(unsupported(file, what));
        }
        _ => return Ok(()),
    };
    let what = format!(
        "its column `{name}` is compressed with the codec {codec}, and this program reads \
         Snappy, Zstandard, gzip, LZ4 and none"
    );
    Err(unsupported(file, what))
}

/// The row group as if it had only the column, and its chunk were the whole file.
fn at_zero(
    column: &Column,
    told: &ColumnChunkMetaData,
    rows: i64,
) -> Result<RowGroupMetaData, ParquetError> {
    let chunk = ColumnChunkMetaData::builder(column.schema().column(0))
        .set_compression(told.compression())
        .set_encodings_mask(*told.encodings_mask())
        .set_num_values(told.num_values())
        .set_total_compressed_size(told.compressed_size())
        .set_total_uncompressed_size(told.uncompressed_size())
        .set_data_page_offset(0)
        .build()?;
    RowGroupMetaData::builder(Arc::clone(column.schema()))
        .set_num_rows(rows)
        .set_total_byte_size(told.uncompressed_size())
        .set_column_metadata(vec![chunk])
        .build()
}

fn corrupt(file: &InputFile, why: String) -> Error {
    Error::Corrupt { file: file.name.clone(), why }
}

fn unsupported(file: &InputFile, what: impl Into<String>) -> Error {
    Error::Unsupported { file: file.name.clone(), what: what.into() }
}
