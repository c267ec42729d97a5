//! All requests for bytes of a file: of its footer, and of its column.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload};
use parquet::file::metadata::FooterTail;
use tokio::sync::OwnedSemaphorePermit;

use super::buffer_pool::BufferPool;
use super::chunk::{FetchRange, range_len};
use super::file_errors::{corrupt, replaced, unreadable, unsupported};
use super::memory_budget::FooterBudget;
use crate::error::Error;
use crate::source::InputFile;

/// The most bytes of a footer: about as many as a thousand columns in a thousand row groups need.
pub const MAX_FOOTER_BYTES: u64 = 64 << 20;

/// How many bytes of the end of a file the first request fetches: most footers are within them.
const TAIL_BYTES: u64 = 64 << 10;

/// The most bytes of a request, so that it ends long before the store's client times out.
const MAX_REQUEST_BYTES: u64 = 8 << 20;

/// How many requests for one piece run at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// Returns the bytes of a footer, its permit, the file's ETag, and how many bytes were fetched.
pub(super) async fn fetch_footer(
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

/// Fetches a range of a column into a buffer of the pool.
pub(super) async fn fetch_column(
    file: &InputFile,
    tag: Option<&str>,
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
    let part = |part: Range<u64>| request(file, part, tag);
    let first_range = parts.next().expect("there are bytes, and so a part");
    let first = match part(first_range.clone()).await?.payload {
        GetResultPayload::Stream(first) => first,
        // An open local file, which also has the other parts.
        GetResultPayload::File(opened, _) => {
            let read = move || {
                let (dictionary_place, place) = memory.split_at_mut(front);
                opened.read_exact_at(dictionary_place, dictionary.start)?;
                opened.read_exact_at(place, pages.start).map(|()| memory)
            };
            let read = tokio::task::spawn_blocking(read).await;
            let memory = read.expect("reading a file does not panic");
            let memory = memory.map_err(|e| unread(file, e))?;
            // Checks again that nobody replaced the file during the read.
            part(first_range).await?;
            return Ok(Bytes::from_owner(memory));
        }
    };
    let (place, mut rest) = memory.split_at_mut(range_len(&first_range) as usize);
    let others = parts.map(|range| {
        let (place, behind) = std::mem::take(&mut rest).split_at_mut(range_len(&range) as usize);
        rest = behind;
        let part = part(range);
        async move { receive(file, part.await?.into_stream(), place).await }.right_future()
    });
    let first = receive(file, first, place).left_future();
    let parts = futures::stream::iter(std::iter::once(first).chain(others));
    parts.buffer_unordered(MAX_CONCURRENT_REQUESTS).try_collect::<()>().await?;
    Ok(Bytes::from_owner(memory))
}

/// Divides a range into requests.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    range
        .clone()
        .step_by(MAX_REQUEST_BYTES as usize)
        .map(move |at| at..end.min(at + MAX_REQUEST_BYTES))
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

/// The error for a failed read of an open local file.
fn unread(file: &InputFile, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return replaced(file);
    }
    let source = object_store::Error::Generic { store: "local folder", source: error.into() };
    unreadable(file, source)
}
