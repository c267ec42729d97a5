//! [`fetch_chunks`]: column chunks → pieces in memory, as many at a time as the budget permits.

use std::sync::Arc;

use futures::TryStreamExt;
use tokio::sync::{Semaphore, mpsc};

use super::buffer_pool::BufferPool;
use super::chunk_splitter::ChunkSplitter;
use super::footer::FilePlan;
use super::memory_budget::ScanBudget;
use super::work::Work;
use crate::error::Error;

/// The fewest bytes that a piece counts in the budget, which bounds the number of pieces in flight.
const MIN_PERMIT_BYTES: u32 = 1 << 20;
/// More threads do not make pieces smaller than this: each piece fetches the page that it ends in
/// again.
const MIN_PIECE_BYTES: u32 = 4 << 20;
/// How many footers or column chunks are fetched at the same time.
pub(super) const MAX_CONCURRENT_FETCHES: usize = 16;

/// Fetches all column chunks and sends their pieces to `work`. The channel closes when all are
/// sent, which ends the threads.
pub(super) async fn fetch_chunks(
    plans: Vec<Arc<FilePlan>>,
    ScanBudget { in_flight, unpacked, .. }: ScanBudget,
    threads: usize,
    work: mpsc::UnboundedSender<Work>,
) -> Result<(), Error> {
    let per_thread = in_flight / u32::try_from(threads).unwrap_or(u32::MAX);
    let permits = in_flight.max(MIN_PERMIT_BYTES);
    let fetcher = Fetcher {
        // Each thread decodes one piece while the next one arrives.
        max_piece_bytes: (per_thread / 2).max(MIN_PIECE_BYTES).min(in_flight / 2),
        in_flight: permits,
        max_page_bytes: unpacked,
        // The channel needs no limit of its own: each piece in it has a permit.
        permits: Arc::new(Semaphore::new(permits as usize)),
        pool: Arc::new(BufferPool::new(in_flight as usize)),
        work,
    };
    let chunks = plans.iter().flat_map(|plan| {
        let read = (0..plan.chunks.len()).filter(|&group| plan.chunks[group].rows > 0);
        read.map(move |group| Ok((plan, group)))
    });
    futures::stream::iter(chunks)
        .try_for_each_concurrent(MAX_CONCURRENT_FETCHES, |(plan, group)| fetcher.fetch(plan, group))
        .await
        .or_else(|error| error.map_or(Ok(()), Err))
}

/// Fetches several column chunks at a time.
struct Fetcher {
    /// The most bytes of a piece.
    max_piece_bytes: u32,
    /// The bytes that may be in flight.
    in_flight: u32,
    /// The bytes that one page may unpack to.
    max_page_bytes: u64,
    permits: Arc<Semaphore>,
    pool: Arc<BufferPool>,
    work: mpsc::UnboundedSender<Work>,
}

impl Fetcher {
    /// Fetches a chunk and sends its pieces. The error is `None` if a thread has already reported
    /// one.
    async fn fetch(&self, plan: &Arc<FilePlan>, group: usize) -> Result<(), Option<Error>> {
        let named = |error| plan.chunk_error(group, error, self.max_page_bytes);
        let chunk = &plan.chunks[group];
        let mut splitter =
            ChunkSplitter::new(chunk, u64::from(self.max_piece_bytes), self.max_page_bytes);
        while let Some(range) = splitter.next_range() {
            let bytes = u32::try_from(range.bytes()).unwrap_or(u32::MAX);
            let permits = bytes.clamp(MIN_PERMIT_BYTES, self.in_flight);
            let permit = Arc::clone(&self.permits).acquire_many_owned(permits).await;
            let permit = permit.expect("nobody closes this semaphore");
            let fetched = plan.fetch(&range, &self.pool).await?;
            if let Some(piece) = splitter.split(fetched).map_err(named)? {
                let work = Work { plan: Arc::clone(plan), group, piece, _permit: permit };
                // The channel is closed only after a thread has reported an error.
                self.work.send(work).map_err(|_| None)?;
            }
        }
        Ok(())
    }
}
