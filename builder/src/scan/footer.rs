//! [`FilePlan`]: what a file's footer says of the column, checked, and where the column's chunks
//! lie. No I/O of its own.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};

use super::buffer_pool::BufferPool;
use super::chunk::{ChunkError, ColumnChunk, FetchRange};
use super::file_errors::{corrupt, unsupported};
use super::limits::footer_metadata::{ColumnClaims, Footer};
use super::limits::page_source::ColumnFormat;
use super::limits::values::Values;
use super::memory_budget::FooterBudget;
use super::requests::{fetch_column, fetch_footer};
use crate::error::Error;
use crate::ids::Column;
use crate::source::InputFile;

/// What is needed to fetch and decode the column of a file.
pub(super) struct FilePlan {
    pub(super) file: InputFile,
    pub(super) column: Arc<Column>,
    pub(super) chunks: Vec<ColumnChunk>,
    pub(super) rows: u64,
    pub(super) footer_bytes: u64,
    /// The ETag of the first response: later requests must match it.
    tag: Option<String>,
}

impl FilePlan {
    /// Reads a file's footer when the budget permits it.
    pub(super) async fn read(
        file: InputFile,
        column: &str,
        budget: &Arc<FooterBudget>,
    ) -> Result<FilePlan, Error> {
        let (footer, _permit, tag, fetched) = fetch_footer(&file, budget).await?;
        let (column, name) = (column.to_owned(), file.name.clone());
        let budget = Arc::clone(budget);
        // The parser reads untrusted bytes: a panic must not spread, and it must not block the
        // runtime.
        let parsed = tokio::task::spawn_blocking(move || {
            let plan = FilePlan::of(file, &footer, &column, &budget)?;
            Ok(FilePlan { footer_bytes: fetched, tag, ..plan })
        });
        parsed.await.unwrap_or_else(|_| {
            Err(Error::Corrupt { file: name, why: "the parser of its footer gave up".into() })
        })
    }

    /// Parses a footer.
    pub(super) fn of(
        file: InputFile,
        footer: &[u8],
        column: &str,
        budget: &FooterBudget,
    ) -> Result<FilePlan, Error> {
        let (column, chunks) = parse(&file, footer, column, budget)?;
        let rows = chunks.iter().map(|chunk| chunk.rows).sum();
        Ok(FilePlan { file, column, chunks, rows, footer_bytes: footer.len() as u64, tag: None })
    }

    /// Fetches a range of the column into a buffer of the pool.
    pub(super) async fn fetch(
        &self,
        range: &FetchRange,
        pool: &Arc<BufferPool>,
    ) -> Result<Bytes, Error> {
        fetch_column(&self.file, self.tag.as_deref(), range, pool).await
    }

    /// What the checks need to know of a chunk.
    pub(super) fn format(&self, chunk: &ColumnChunk) -> ColumnFormat {
        let column = self.column.schema().column(0);
        let values = Values {
            physical: column.physical_type(),
            width: self.column.width(),
            none: self.column.is_null(),
        };
        ColumnFormat { codec: chunk.codec, max_level: column.max_def_level(), values }
    }

    /// The metadata of a file that has this one column, and one piece of a chunk as its row group.
    ///
    /// # Errors
    /// The parquet crate refuses a count.
    pub(super) fn single_column_metadata(
        &self,
        chunk: &ColumnChunk,
        rows: u64,
    ) -> Result<ParquetMetaData, ParquetError> {
        let schema = self.column.schema();
        let column = ColumnChunkMetaData::builder(schema.column(0))
            .set_compression(chunk.codec)
            .set_num_values(rows as i64)
            .build()?;
        let group = RowGroupMetaData::builder(Arc::clone(schema))
            .set_num_rows(rows as i64)
            .set_column_metadata(vec![column])
            .build()?;
        let file = FileMetaData::new(1, rows as i64, None, None, Arc::clone(schema), None);
        Ok(ParquetMetaData::new(file, vec![group]))
    }

    pub(super) fn corrupt(&self, place: impl Display, why: impl Display) -> Error {
        corrupt(&self.file, format!("{place}: {why}"))
    }

    /// The error for a chunk that could not be split further.
    pub(super) fn chunk_error(&self, group: usize, why: ChunkError, budget: u64) -> Error {
        let place = format!("row group {group}");
        match why {
            ChunkError::Damaged(why) => self.corrupt(place, why),
            ChunkError::TooLarge(bytes) => self.over_budget(place, bytes, budget),
        }
    }

    /// The error for pages at `place` that need more memory than the budget.
    pub(super) fn over_budget(&self, place: impl Display, needed: u64, budget: u64) -> Error {
        Error::OverBudget {
            name: format!("{}: {place}", self.file.name),
            what: "bytes in memory at once when its pages are unpacked",
            got: needed,
            limit: budget,
            otherwise: "write smaller pages",
        }
    }
}

/// The column that a footer describes, and its chunks.
fn parse(
    file: &InputFile,
    footer: &[u8],
    name: &str,
    budget: &FooterBudget,
) -> Result<(Arc<Column>, Vec<ColumnChunk>), Error> {
    let end = file.meta.size - 8 - footer.len() as u64;
    let footer = Footer::read(footer).map_err(|why| corrupt(file, why))?;
    let (column, leaves) = find_column(file, &footer, name, budget)?;
    let (column, column_bytes) = budget.share_column(column);
    check_budget(file, &footer, column_bytes, budget)?;
    let chunks = chunks_of(file, &footer, name, &column, leaves, end)?;
    let rows: i128 = chunks.iter().map(|chunk| i128::from(chunk.rows)).sum();
    if rows != i128::from(footer.rows) {
        let why = format!("it claims {} rows, and its row groups {rows}", footer.rows);
        return Err(corrupt(file, why));
    }
    Ok((column, chunks))
}

/// Finds the column in the schema. Returns also the number of all columns.
fn find_column(
    file: &InputFile,
    footer: &Footer<'_>,
    name: &str,
    budget: &FooterBudget,
) -> Result<(Column, usize), Error> {
    let _permit = budget.acquire_schema(footer.schema_bytes).ok_or_else(|| Error::OverBudget {
        name: file.name.clone(),
        what: "bytes of schema in memory",
        got: footer.schema_bytes,
        limit: budget.max_schema_bytes(),
        otherwise: "write fewer columns into one file",
    })?;
    let damaged = |e: ParquetError| corrupt(file, format!("its footer cannot be read: {e}"));
    let schema = ParquetMetaDataReader::decode_metadata(&footer.schema_alone());
    let schema = schema.map_err(damaged)?;
    let schema = schema.file_metadata().schema_descr();
    Ok((Column::find(schema, name, &file.name)?, schema.num_columns()))
}

/// Takes from the budget what is kept of the column and of its chunks.
fn check_budget(
    file: &InputFile,
    footer: &Footer<'_>,
    column_bytes: u64,
    budget: &FooterBudget,
) -> Result<(), Error> {
    let groups_bytes = (footer.groups * size_of::<ColumnChunk>()) as u64;
    budget.keep(groups_bytes + column_bytes).map_err(|exceeded| Error::OverBudget {
        name: format!("the input, up to and including {},", file.name),
        what: "bytes about row groups in memory",
        got: exceeded.kept,
        limit: exceeded.limit,
        otherwise: "write fewer row groups",
    })
}

/// The column's chunk of each row group. The footer begins at `end`.
fn chunks_of(
    file: &InputFile,
    footer: &Footer<'_>,
    name: &str,
    column: &Column,
    leaves: usize,
    end: u64,
) -> Result<Vec<ColumnChunk>, Error> {
    let mut chunks = Vec::with_capacity(footer.groups);
    let physical = column.schema().column(0).physical_type() as i64;
    footer.for_each_group(column.leaf(), |group| {
        let number = chunks.len();
        let in_group = |why: String| corrupt(file, format!("row group {number}: {why}"));
        if group.columns != leaves {
            let why = format!("it has {} columns, and the schema {leaves}", group.columns);
            return Err(in_group(why));
        }
        let codec = codec_of(file, name, &group)?;
        if group.physical != physical {
            return Err(in_group("its column is not of the type that the schema says".into()));
        }
        let codec =
            codec.ok_or_else(|| in_group(format!("its codec is number {}", group.codec)))?;
        let rows = u64::try_from(group.rows)
            .map_err(|_| in_group(format!("it claims {} rows", group.rows)))?;
        // Writers leave anything as the range of an empty row group. It is never fetched.
        let range = if rows == 0 { 0..0 } else { chunk_range(&group, end).map_err(in_group)? };
        chunks.push(ColumnChunk { range, rows, codec });
        Ok(())
    })?;
    Ok(chunks)
}

/// Where a chunk lies. The file claims its start and length; it must end before the footer.
fn chunk_range(column_meta: &ColumnClaims, end: u64) -> Result<Range<u64>, String> {
    // Without a dictionary some writers leave 0, or the position of a data page.
    let dictionary = column_meta.dictionary_at.filter(|&at| 0 < at && at < column_meta.data_at);
    let (start, length) = (dictionary.unwrap_or(column_meta.data_at), column_meta.compressed);
    let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
    let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    range.filter(|range| range.start >= 4 && range.end <= end).ok_or_else(|| {
        format!("its column lies at {start}, {length} bytes long, outside of 4..{end}")
    })
}

/// The codec of a column, or `None` if no codec has its number. Refuses what is valid but not
/// supported.
fn codec_of(
    file: &InputFile,
    name: &str,
    column_meta: &ColumnClaims,
) -> Result<Option<Compression>, Error> {
    if column_meta.is_encrypted {
        return Err(unsupported(file, format!("its column `{name}` is encrypted")));
    }
    if column_meta.is_elsewhere {
        return Err(unsupported(file, format!("its column `{name}` lies in a file of its own")));
    }
    if !column_meta.has_metadata {
        return Ok(None);
    }
    Ok(Some(match column_meta.codec {
        0 => Compression::UNCOMPRESSED,
        1 => Compression::SNAPPY,
        2 => Compression::GZIP(Default::default()),
        3 => {
            let what = format!(
                "its column `{name}` is compressed with the codec LZO, and this program reads \
                 Snappy, Zstandard, gzip, LZ4, Brotli and none"
            );
            return Err(unsupported(file, what));
        }
        4 => Compression::BROTLI(Default::default()),
        5 => Compression::LZ4,
        6 => Compression::ZSTD(Default::default()),
        7 => Compression::LZ4_RAW,
        _ => return Ok(None),
    }))
}
