//! A file → its plan: what its footer says of the column, checked, and where its chunks lie.
//!
//! Every request for a part of a file is made here. Nothing is decoded here.

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

use super::cut::{Refused, Wanted, length};
use super::metadata::{Footer, Group};
use super::room::Footers;
use super::source::Layout;
use super::spare::Spare;
use super::values::Values;
use crate::error::Error;
use crate::ids::Column;
use crate::source::InputFile;

/// The most bytes of a footer. A thousand columns in a thousand row groups have about as many.
pub const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// RawBlob in the hope that the footer is in it.
const TAIL_BYTES: u64 = 64 << 10;

/// A request of this size is done long before a store's client gives up on it.
const PART_BYTES: u64 = 8 << 20;

/// Requests for parts of one piece at the same time.
const PARTS_AT_ONCE: usize = 4;

/// All that a row group's bytes still need to become IDs.
pub(super) struct Plan {
    pub(super) file: InputFile,
    pub(super) column: Arc<Column>,
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
    /// Reads a file's footer, once there is room for it.
    pub(super) async fn read(
        file: InputFile,
        column: &str,
        room: &Arc<Footers>,
    ) -> Result<Plan, Error> {
        let (footer, _share, seen, fetched) = fetch_footer(&file, room).await?;
        let (column, name) = (column.to_owned(), file.name.clone());
        let room = Arc::clone(room);
        // A parser of the bytes of strangers: its panics must stay its own, and the runtime free.
        let parsed = tokio::task::spawn_blocking(move || {
            let plan = Plan::of(file, &footer, &column, &room)?;
            Ok(Plan { footer_bytes: fetched, seen, ..plan })
        });
        parsed.await.unwrap_or_else(|_| {
            Err(Error::Corrupt { file: name, why: "the parser of its footer gave up".into() })
        })
    }

    /// What a footer says of a file.
    pub(super) fn of(
        file: InputFile,
        footer: &[u8],
        column: &str,
        room: &Footers,
    ) -> Result<Plan, Error> {
        let (column, chunks) = parse(&file, footer, column, room)?;
        let rows = chunks.iter().map(|chunk| chunk.rows).sum();
        Ok(Plan { file, column, chunks, rows, footer_bytes: footer.len() as u64, seen: None })
    }

    /// Fetches some bytes of the column, and nothing else, into memory that is spare.
    pub(super) async fn fetch(&self, wanted: &Wanted, spare: &Arc<Spare>) -> Result<Bytes, Error> {
        let bytes = wanted.bytes();
        if bytes == 0 {
            // No store gives nothing of a file, and a decoder says best what is wrong with it.
            return Ok(Bytes::new());
        }
        let what = "one column of a row group";
        let memory = |source| Error::Memory { what, bytes, source };
        let mut memory = spare.lend(bytes as usize).map_err(memory)?;
        let (dictionary, pages) = (wanted.dictionary.clone(), wanted.pages.clone());
        let front = length(&dictionary) as usize;
        let mut parts = parts(&dictionary).chain(parts(&pages));
        let part = |part: Range<u64>| request(&self.file, part, self.seen.as_deref());
        let first_range = parts.next().expect("there are bytes, and so a part");
        let first = match part(first_range.clone()).await?.payload {
            GetResultPayload::Stream(first) => first,
            // An open local file, in which the other parts are as well.
            GetResultPayload::File(file, _) => {
                let read = move || {
                    let (dictionary_place, place) = memory.split_at_mut(front);
                    file.read_exact_at(dictionary_place, dictionary.start)?;
                    file.read_exact_at(place, pages.start).map(|()| memory)
                };
                let read = tokio::task::spawn_blocking(read).await;
                let memory = read.expect("reading a file does not panic");
                let memory = memory.map_err(|e| self.unread(e))?;
                // Once more, in case it was written to meanwhile.
                part(first_range).await?;
                return Ok(Bytes::from_owner(memory));
            }
        };
        let (place, mut rest) = memory.split_at_mut(length(&first_range) as usize);
        let others = parts.map(|range| {
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(length(&range) as usize);
            rest = behind;
            let part = part(range);
            async move { receive(&self.file, part.await?.into_stream(), place).await }
                .right_future()
        });
        let first = receive(&self.file, first, place).left_future();
        let parts = futures::stream::iter(std::iter::once(first).chain(others));
        parts.buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await?;
        Ok(Bytes::from_owner(memory))
    }

    /// What must be known to look through the pages of a chunk.
    pub(super) fn layout(&self, chunk: &Chunk) -> Layout {
        let column = self.column.schema().column(0);
        let values = Values {
            physical: column.physical_type(),
            width: self.column.width(),
            none: self.column.is_null(),
        };
        Layout { codec: chunk.codec, max_level: column.max_def_level(), values }
    }

    /// A piece of a chunk as if it were all of a file with this one column.
    ///
    /// # Errors
    /// A count that is none.
    pub(super) fn alone(&self, chunk: &Chunk, rows: u64) -> Result<ParquetMetaData, ParquetError> {
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

    /// What reading an open local file failed with.
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

    /// Why a chunk was not cut any further, where there is so much room.
    pub(super) fn refused(&self, group: usize, why: Refused, room: u64) -> Error {
        let place = format!("row group {group}");
        match why {
            Refused::Damaged(why) => self.corrupt(place, why),
            Refused::TooLarge(bytes) => self.no_room(place, bytes, room),
        }
    }

    /// Its pages there need more memory than all there is.
    pub(super) fn no_room(&self, place: impl Display, needed: u64, room: u64) -> Error {
        Error::TooMany {
            name: format!("{}: {place}", self.file.name),
            what: "bytes in memory at once when its pages are unpacked",
            got: needed,
            limit: room,
            remedy: "give the build more --memory, or write smaller pages",
        }
    }
}

/// What is requested one by one of a range.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    range.clone().step_by(PART_BYTES as usize).map(move |at| at..end.min(at + PART_BYTES))
}

/// The bytes of a footer, its share of the room, the tag of the file, and how many bytes that took.
async fn fetch_footer(
    file: &InputFile,
    room: &Footers,
) -> Result<(Bytes, OwnedSemaphorePermit, Option<String>, u64), Error> {
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
    let share = room.fetch(length).await;
    let (length, known) = (length as usize, tail.len() - 8);
    if length <= known {
        return Ok((tail.slice(known - length..known), share, seen, tail.len() as u64));
    }
    let range = size - 8 - length as u64..size - 8;
    let tail_bytes = tail.len();
    drop(tail);
    let (footer, _) = fetch(file, range, seen.as_deref()).await?;
    let fetched = (tail_bytes + footer.len()) as u64;
    Ok((footer, share, seen, fetched))
}

/// Fetches a range of a file, and its tag.
async fn fetch(
    file: &InputFile,
    range: Range<u64>,
    seen: Option<&str>,
) -> Result<(Bytes, Option<String>), Error> {
    let wanted = length(&range);
    let got = request(file, range, seen).await?;
    let tag = got.meta.e_tag.clone();
    let bytes = got.bytes().await.map_err(|e| unreadable(file, e))?;
    if bytes.len() as u64 != wanted {
        return Err(replaced(file));
    }
    Ok((bytes, tag))
}

/// Asks for a range of a file that must still be the file that was listed, with the tag `seen`.
async fn request(
    file: &InputFile,
    range: Range<u64>,
    seen: Option<&str>,
) -> Result<GetResult, Error> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        // A weak tag never matches in a condition.
        if_match: seen.filter(|tag| !tag.starts_with("W/")).map(str::to_owned),
        ..GetOptions::default()
    };
    let got = file.objects.get_opts(&file.meta.location, options).await;
    let got = got.map_err(|e| unreadable(file, e))?;
    let other_size = got.meta.size != file.meta.size;
    let other_tag = seen.is_some() && got.meta.e_tag.as_deref() != seen;
    // Where there are no tags at all, the time of the last change is what is left.
    let other_time = got.meta.e_tag.is_none() && got.meta.last_modified != file.meta.last_modified;
    if other_size || other_tag || other_time { Err(replaced(file)) } else { Ok(got) }
}

/// Puts what arrives to its place, which it must fill.
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
    room: &Footers,
) -> Result<(Arc<Column>, Vec<Chunk>), Error> {
    let damaged = |e: ParquetError| corrupt(file, format!("its footer cannot be read: {e}"));
    let end = file.meta.size - 8 - footer.len() as u64;
    let footer = Footer::read(footer).map_err(|why| corrupt(file, why))?;
    let (column, leaves) = {
        let _share = room.schema(footer.schema_bytes).ok_or_else(|| Error::TooMany {
            name: file.name.clone(),
            what: "bytes of schema in memory",
            got: footer.schema_bytes,
            limit: room.schemas(),
            remedy: "give the build more --memory, or write fewer columns into one file",
        })?;
        let schema = ParquetMetaDataReader::decode_metadata(&footer.schema_alone());
        let schema = schema.map_err(damaged)?;
        let schema = schema.file_metadata().schema_descr();
        (Column::find(schema, name, &file.name)?, schema.num_columns())
    };
    let (column, column_bytes) = room.same(column);
    let kept = (footer.groups * size_of::<Chunk>()) as u64 + column_bytes;
    room.keep(kept).map_err(|limit| Error::TooMany {
        name: format!("the input, as far as {},", file.name),
        what: "bytes of what is known of its row groups",
        got: kept,
        limit,
        remedy: "give the build more --memory, or write fewer row groups",
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
        // Writers leave anything in place of a column without rows; it is never fetched.
        let range = if rows == 0 { 0..0 } else { place(&group, end).map_err(in_group)? };
        chunks.push(Chunk { range, rows, codec });
        Ok(())
    })?;
    let rows: i128 = chunks.iter().map(|chunk| i128::from(chunk.rows)).sum();
    if rows != i128::from(footer.rows) {
        let why = format!("it claims {} rows, and its row groups {rows}", footer.rows);
        return Err(corrupt(file, why));
    }
    Ok((column, chunks))
}

/// Where a chunk lies. Its length is claimed by the file, and must end before the footer.
fn place(told: &Group, end: u64) -> Result<Range<u64>, String> {
    // Some writers leave 0, or the place of a data page, where they have no dictionary.
    let dictionary = told.dictionary_at.filter(|&at| 0 < at && at < told.data_at);
    let (start, length) = (dictionary.unwrap_or(told.data_at), told.compressed);
    let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
    let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
    range.filter(|range| range.start >= 4 && range.end <= end).ok_or_else(|| {
        format!("its column lies at {start}, {length} bytes long, outside of 4..{end}")
    })
}

/// The codec of a column, if there is such a number; refuses what is sound, but not ours to read.
fn readable(file: &InputFile, name: &str, told: &Group) -> Result<Option<Compression>, Error> {
    if told.is_encrypted {
        return Err(unsupported(file, format!("its column `{name}` is encrypted")));
    }
    if told.is_elsewhere {
        return Err(unsupported(file, format!("its column `{name}` lies in a file of its own")));
    }
    if !told.has_metadata {
        return Ok(None);
    }
    Ok(Some(match told.codec {
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
