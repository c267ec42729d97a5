//! Compares some of the day's IDs with the newest earlier filter. Hashes are uniform, so the IDs
//! with the lowest hashes are a random sample, and their blocks are the first ones of any filter:
//! one read of a few megabytes in place of the whole blob.

use bloomsday_common::digest::Digest;
use bloomsday_common::error::Error as StoreError;
use bloomsday_common::filter::{BlockRange, Layout};
use bloomsday_common::hash::Xxh3;
use bloomsday_common::key::BlobKey;
use bloomsday_common::store::Store;

use crate::earlier_day::{CompareError, Comparison, same_kind, with_newest};
use crate::job::Job;
use crate::publish::try_to_read;
use crate::verify;

/// How many IDs are looked up: a standard error of 0.03 %.
pub const EARLIER_SAMPLE: u64 = 1 << 21;
/// The most bytes of an earlier filter that are read: enough if it has up to 16 bytes for each ID
/// of this day.
const MAX_BYTES: u64 = 32 << 20;

/// Looks `hashes` up in the newest earlier filter. They are all of the day's up to the last of
/// them, in ascending order.
pub(super) async fn compare(
    job: &Job,
    store: &Store,
    hashes: &[Xxh3],
) -> Result<Comparison, StoreError> {
    with_newest(job, store, async |key, compared| look_up(job, store, key, hashes, compared).await)
        .await
}

async fn look_up(
    job: &Job,
    store: &Store,
    key: &BlobKey,
    hashes: &[Xxh3],
    compared: &mut Comparison,
) -> Result<(), CompareError> {
    let header = store.blob_header(key).await?;
    compared.ids = Some((key.clone(), header.ids));
    same_kind(&header, key, Layout::Blocked, job)?;
    let bytes = store.blob_info(key).await?.bytes;
    let after_head = header.shape.body_bytes() + Digest::BYTES as u64;
    let short = || {
        let why = "it is shorter than its header says".to_owned();
        CompareError::Unreadable(StoreError::Malformed { key: key.to_string(), why })
    };
    let head = bytes.checked_sub(after_head).ok_or_else(short)?;
    let most = MAX_BYTES / BlockRange::BLOCK_BYTES as u64;
    let within = |hash: &Xxh3| BlockRange::blocks_of(header.shape, 0, hash.0).end <= most;
    let hashes = &hashes[..hashes.partition_point(within)];
    let Some(last) = hashes.last() else { return Ok(()) };
    let blocks = BlockRange::blocks_of(header.shape, 0, last.0);
    let end = head + blocks.end * BlockRange::BLOCK_BYTES as u64;
    let bytes = try_to_read(async || store.blob_bytes(key, head..end).await).await?;
    let bits = BlockRange::of_bytes(header.shape, 0, &bytes);
    let misses = hashes.len() - bits.count(hashes);
    let of = hashes.len() as u64;
    compared.overlap = Some(verify::overlap_of(misses as u64, of, header.fpp_measured()));
    Ok(())
}
