//! [`FilePlan`]: what a file's footer says of the column, checked, and where the column's chunks lie.
//!
//! All requests for bytes of a file are made here. Nothing is decoded here.

use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, FooterTail, ParquetMetaData, ParquetMetaDataReader,
    RowGroupMetaData,
};
use tokio::sync::OwnedSemaphorePermit;

use super::buffer_pool::BufferPool;
use super::chunk::{ChunkError, ColumnChunk, FetchRange, range_len};
use super::limits::footer_metadata::{ColumnClaims, Footer};
use super::limits::page_source::ColumnFormat;
use super::limits::values::Values;
use super::memory_budget::FooterBudget;
use crate::error::Error;
use crate::ids::Column;
use crate::source::InputFile;

/// The most bytes of a footer: about as many as a thousand columns in a thousand row groups need.
pub const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// How many bytes of the end of a file the first request fetches: most footers are within them.
const TAIL_BYTES: u64 = 64 << 10;

/// The most bytes of a request, so that it ends long before the store's client times out.
const MAX_REQUEST_BYTES: u64 = 8 << 20;

/// How many requests for one piece run at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 4;

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
        let bytes = range.bytes();
        if bytes == 0 {
            // Stores refuse empty ranges. The decoder reports what is wrong with the chunk.
            return Ok(Bytes::new());
        }
        let what = "one column of a row group";
        let memory = |source| Error::Memory { what, bytes, source };
        let mut memory = pool.acquire(bytes as usize).map_err(memory)?;
        let (dictionary, pages) = (range.dictionary.clone(), range.pages.clone());
        let front = range_len(&dictionary) as usize;
        let mut parts = parts(&dictionary).chain(parts(&pages));
        let part = |part: Range<u64>| request(&self.file, part, self.tag.as_deref());
        let first_range = parts.next().expect("there are bytes, and so a part");
        let first = match part(first_range.clone()).await?.payload {
            GetResultPayload::Stream(first) => first,
            // An open local file, which also has the other parts.
            GetResultPayload::File(file, _) => {
                let read = move || {
                    let (dictionary_place, place) = memory.split_at_mut(front);
                    file.read_exact_at(dictionary_place, dictionary.start)?;
                    file.read_exact_at(place, pages.start).map(|()| memory)
                };
                let read = tokio::task::spawn_blocking(read).await;
                let memory = read.expect("reading a file does not panic");
                let memory = memory.map_err(|e| self.unread(e))?;
                // Checks again that nobody replaced the file during the read.
                part(first_range).await?;
                return Ok(Bytes::from_owner(memory));
            }
        };
        let (place, mut rest) = memory.split_at_mut(range_len(&first_range) as usize);
        let others = parts.map(|range| {
            let (place, behind) =
                std::mem::take(&mut rest).split_at_mut(range_len(&range) as usize);
            rest = behind;
            let part = part(range);
            async move { receive(&self.file, part.await?.into_stream(), place).await }
                .right_future()
        });
        let first = receive(&self.file, first, place).left_future();
        let parts = futures::stream::iter(std::iter::once(first).chain(others));
        parts.buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<()>().await?;
        Ok(Bytes::from_owner(memory))
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

    /// The error for a failed read of an open local file.
    fn unread(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return replaced(&self.file);
        }
        let source = object_store::Error::Generic { store: "local folder", source: error.into() };
        unreadable(&self.file, source)
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

/// Divides a range into requests.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    range
        .clone()
        .step_by(MAX_REQUEST_BYTES as usize)
        .map(move |at| at..end.min(at + MAX_REQUEST_BYTES))
}

/// Returns the bytes of a footer, its permit, the file's ETag, and how many bytes were fetched.
async fn fetch_footer(
    file: &InputFile,
    budget: &FooterBudget,
) -> Result<(Bytes, OwnedSemaphorePermit, Option<String>, u64), Error> {
    let not_parquet =
        |why: &str| Error::NotParquet { file: file.name.clone(), why: why.to_owned() };
    let size = file.meta.size;
    if size < 12 {
        return Err(not_parquet(&format!("it has {size} bytes, and the smallest has 12")));
    }
    let (tail, tag) = fetch(file, size - size.min(TAIL_BYTES)..size, None).await?;
    let end = FooterTail::try_from(&tail[tail.len() - 8..])
        .map_err(|_| not_parquet("it does not end with `PAR1`"))?;
    if end.is_encrypted_footer() {
        return Err(unsupported(file, "its footer is encrypted"));
    }
    let length = end.metadata_length() as u64;
    // The file begins with four bytes of magic.
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
    let permit = budget.acquire_fetch(length).await;
    let (length, known) = (length as usize, tail.len() - 8);
    if length <= known {
        return Ok((tail.slice(known - length..known), permit, tag, tail.len() as u64));
    }
    let range = size - 8 - length as u64..size - 8;
    let tail_bytes = tail.len();
    drop(tail);
    let (footer, _) = fetch(file, range, tag.as_deref()).await?;
    let fetched = (tail_bytes + footer.len()) as u64;
    Ok((footer, permit, tag, fetched))
}

/// Fetches a range of a file and returns it with the file's ETag.
async fn fetch(
    file: &InputFile,
    range: Range<u64>,
    expected_tag: Option<&str>,
) -> Result<(Bytes, Option<String>), Error> {
    let wanted = range_len(&range);
    let got = request(file, range, expected_tag).await?;
    let tag = got.meta.e_tag.clone();
    let bytes = got.bytes().await.map_err(|e| unreadable(file, e))?;
    if bytes.len() as u64 != wanted {
        return Err(replaced(file));
    }
    Ok((bytes, tag))
}

/// Requests a range of a file. Fails if the file is not the one that was listed, or its ETag is not
/// `expected_tag`.
async fn request(
    file: &InputFile,
    range: Range<u64>,
    expected_tag: Option<&str>,
) -> Result<GetResult, Error> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        // A weak tag never matches in a condition.
        if_match: expected_tag.filter(|tag| !tag.starts_with("W/")).map(str::to_owned),
        ..GetOptions::default()
    };
    let got = file.objects.get_opts(&file.meta.location, options).await;
    let got = got.map_err(|e| unreadable(file, e))?;
    let other_size = got.meta.size != file.meta.size;
    let other_tag = expected_tag.is_some() && got.meta.e_tag.as_deref() != expected_tag;
    // A store without ETags still reports the time of the last change.
    let other_time = got.meta.e_tag.is_none() && got.meta.last_modified != file.meta.last_modified;
    if other_size || other_tag || other_time { Err(replaced(file)) } else { Ok(got) }
}

/// Copies the bytes that arrive into `place`, which they must fill exactly.
async fn receive(
    file: &InputFile,
    mut arriving: BoxStream<'_, object_store::Result<Bytes>>,
    mut place: &mut [u8],
) -> Result<(), Error> {
    while let Some(piece) = arriving.try_next().await.map_err(|e| unreadable(file, e))? {
        let (here, rest) = place.split_at_mut_checked(piece.len()).ok_or_else(|| replaced(file))?;
        here.copy_from_slice(&piece);
        place = rest;
    }
    if place.is_empty() { Ok(()) } else { Err(replaced(file)) }
}

fn unreadable(file: &InputFile, source: object_store::Error) -> Error {
    match source {
        object_store::Error::Precondition { .. } => replaced(file),
        source => Error::Input { doing: "read", name: file.name.clone(), source: Box::new(source) },
    }
}

fn replaced(file: &InputFile) -> Error {
    Error::Replaced { file: file.name.clone() }
}

fn parse(
    file: &InputFile,
    footer: &[u8],
    name: &str,
    budget: &FooterBudget,
) -> Result<(Arc<Column>, Vec<ColumnChunk>), Error> {
    let damaged = |e: ParquetError| corrupt(file, format!("its footer cannot be read: {e}"));
    let end = file.meta.size - 8 - footer.len() as u64;
    let footer = Footer::read(footer).map_err(|why| corrupt(file, why))?;
    let (column, leaves) = {
        let _permit =
            budget.acquire_schema(footer.schema_bytes).ok_or_else(|| Error::OverBudget {
                name: file.name.clone(),
                what: "bytes of schema in memory",
                got: footer.schema_bytes,
                limit: budget.max_schema_bytes(),
                otherwise: "write fewer columns into one file",
            })?;
        let schema = ParquetMetaDataReader::decode_metadata(&footer.schema_alone());
        let schema = schema.map_err(damaged)?;
        let schema = schema.file_metadata().schema_descr();
        (Column::find(schema, name, &file.name)?, schema.num_columns())
    };
    let (column, column_bytes) = budget.share_column(column);
    let groups_bytes = (footer.groups * size_of::<ColumnChunk>()) as u64;
    budget.keep(groups_bytes + column_bytes).map_err(|exceeded| Error::OverBudget {
        name: format!("the input, up to and including {},", file.name),
        what: "bytes about row groups in memory",
        got: exceeded.kept,
        limit: exceeded.limit,
        otherwise: "write fewer row groups",
    })?;
    let mut chunks = Vec::with_capacity(footer.groups);
    let physical = column.schema().column(0).physical_type() as i64;
    footer.for_each_group(column.leaf(), |group| {
        let number = chunks.len();
        let in_group = |why: String| corrupt(file, format!("row group {number}: {why}"));
        if group.columns != leaves {
            let why = format!("it has {} columns, and the schema {leaves}", group.columns);
            return Err(in_group(why));
        }
        let codec = readable(file, name, &group)?;
        if group.physical != physical {
            return Err(in_group("its column is not of the type that the schema says".into()));
        }
        let codec =
            codec.ok_or_else(|| in_group(format!("its codec is number {}", group.codec)))?;
        let rows = u64::try_from(group.rows)
            .map_err(|_| in_group(format!("it claims {} rows", group.rows)))?;
        // Writers leave anything as the range of an empty row group. It is never fetched.
        let range = if rows == 0 { 0..0 } else { place(&group, end).map_err(in_group)? };
        chunks.push(ColumnChunk { range, rows, codec });
        Ok(())
    })?;
    let rows: i128 = chunks.iter().map(|chunk| i128::from(chunk.rows)).sum();
    if rows != i128::from(footer.rows) {
        let why = format!("it claims {} rows, and its row groups {rows}", footer.rows);
        return Err(corrupt(file, why));
    }
    Ok((column, chunks))
}

/// Where a chunk lies. The file claims its start and length; it must end before the footer.
fn place(column_meta: &ColumnClaims, end: u64) -> Result<Range<u64>, String> {
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
fn readable(
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

fn corrupt(file: &InputFile, why: String) -> Error {
    Error::Corrupt { file: file.name.clone(), why }
}

fn unsupported(file: &InputFile, what: impl Into<String>) -> Error {
    Error::Unsupported { file: file.name.clone(), what: what.into() }
}
