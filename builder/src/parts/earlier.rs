//! Compares some of the day's IDs with the newest earlier filter. Hashes are uniform, so the IDs with the
//! lowest hashes are a random sample, and their blocks are the first ones of any filter: one read of a few
//! megabytes in place of the whole blob.

use bloomsday_common::filter::{Layout, Segment};
use bloomsday_common::hash::Xxh3;
use bloomsday_common::pointer::Pointer;
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::Store;

use crate::gates::MAX_BASELINE_AGE_DAYS;
use crate::job::Job;
use crate::previous_day::{Comparison, MAX_TRIED};
use crate::verify;

/// So many IDs are looked up: a standard error of 0.03 %.
pub const EARLIER_SAMPLE: u64 = 1 << 21;
/// The most bytes of an earlier filter that are read. It has fewer for any filter of up to 16 times this size.
const MAX_BYTES: u64 = 32 << 20;

/// Looks `hashes` up in the newest earlier filter. They are all of the day's up to the last of them, in
/// ascending order.
pub(super) async fn compare(job: &Job, store: &Store, hashes: &[Xxh3]) -> Comparison {
    let mut compared = Comparison::default();
    let days = match store.pointer_days(&job.filter).await {
        Ok(days) => days,
        Err(error) => {
            let why = format!("the overlap with earlier days is not judged: {error}");
            compared.warnings.push(why);
            return compared;
        }
    };
    let oldest = job.day.minus(MAX_BASELINE_AGE_DAYS);
    let days = days.into_iter().rev().filter(|day| *day < job.day && *day >= oldest);
    for day in days.take(MAX_TRIED) {
        let why = match store.pointer(&job.filter, day).await.map(|read| read.state) {
            Ok(RecordState::Found(pointer)) => {
                match with(store, &pointer, hashes, &mut compared).await {
                    Ok(()) => return compared,
                    Err(why) => why,
                }
            }
            // Pruned since it was listed.
            Ok(RecordState::Absent) => continue,
            Ok(RecordState::Unreadable(why)) => why,
            Err(error) => error.to_string(),
        };
        compared.warnings.push(format!("cannot compare with {} {day}: {why}", job.filter));
    }
    compared
}

async fn with(
    store: &Store,
    pointer: &Pointer,
    hashes: &[Xxh3],
    compared: &mut Comparison,
) -> Result<(), String> {
    let header = match store.blob_header(&pointer.blob).await {
        Ok(header) => header,
        Err(error) => {
            // The pointer has the number of IDs, too.
            let ids = pointer.ids.map(|ids| (pointer.blob.clone(), ids));
            compared.ids = compared.ids.take().or(ids);
            return Err(error.to_string());
        }
    };
    compared.ids = Some((pointer.blob.clone(), header.ids));
    if header.shape.layout() != Layout::Blocked {
        return Err(format!("{} is of the layout {}", pointer.blob, header.shape.layout()));
    }
    let (bytes, _) = store.head_blob(&pointer.blob).await.map_err(|error| error.to_string())?;
    let body = header.shape.body_bytes();
    let head = bytes.checked_sub(body + 32).ok_or("it is shorter than its header says")?;
    let most = MAX_BYTES / Segment::BLOCK_BYTES as u64;
    let within = |hash: &Xxh3| Segment::blocks_of(header.shape, 0, hash.0).end <= most;
    let hashes = &hashes[..hashes.partition_point(within)];
    let Some(last) = hashes.last() else { return Ok(()) };
    let blocks = Segment::blocks_of(header.shape, 0, last.0);
    let end = head + blocks.end * Segment::BLOCK_BYTES as u64;
    let read = store.blob_bytes(&pointer.blob, head..end).await;
    let segment = Segment::of_bytes(header.shape, 0, &read.map_err(|error| error.to_string())?);
    let misses = hashes.len() - segment.count(hashes);
    let of = hashes.len() as u64;
    compared.overlap = Some(verify::overlap_of(misses as u64, of, header.fpp_measured()));
    Ok(())
}
