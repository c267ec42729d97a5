//! Files → IDs: tokio fetches the column's bytes ahead of the threads that decode them.
//!
//! | module | does |
//! |---|---|
//! | `sink` | [`Sink`], [`ScanProgress`] and [`ScanTotals`]: what the caller supplies and gets |
//! | `footer` | a file's footer → the ranges of its column |
//! | `requests` | all requests for bytes of a file |
//! | `file_errors` | what is wrong with a file, as errors that name it |
//! | `chunk` | a column chunk, its ranges and pieces |
//! | `chunk_splitter` | splits a column chunk into pieces of complete pages |
//! | `fetcher` | fetches the pieces ahead, within the memory budget |
//! | `work` | a fetched piece, to be decoded |
//! | `workers` | the decoding threads |
//! | `decode` | a piece → its IDs, on one thread |
//! | `plain` | PLAIN pages of byte arrays → their values |
//! | `limits` | the security boundary: checks all bytes of a file before the parquet crate sees them |
//! | `memory_budget` | [`ScanBudget`]: how much memory a scan may take |
//! | `buffer_pool` | reuses the memory of pieces |
//!
//! Nothing here knows what the caller does with an ID.

mod buffer_pool;
mod chunk;
mod chunk_splitter;
mod decode;
mod fetcher;
mod file_errors;
mod footer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod limits;
mod memory_budget;
mod plain;
mod requests;
mod sink;
mod work;
mod workers;

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use self::decode::Event;
use self::fetcher::{MAX_CONCURRENT_FETCHES, fetch_chunks};
use self::footer::FilePlan;
use self::memory_budget::FooterBudget;
pub use self::memory_budget::ScanBudget;
pub use self::requests::MAX_FOOTER_BYTES;
pub use self::sink::{ScanProgress, ScanTotals, Sink};
use self::workers::Workers;
use crate::error::Error;
use crate::source::InputFile;

/// Calls a sink for each valid ID in `column` of `files`, and returns the totals and the sinks'
/// outputs.
///
/// The scan reads all footers first, so a file without the column fails the scan before any sink
/// gets an ID. Then each thread creates its own sink with `sink`, whose argument is the number of
/// rows of all files. It is not defined which sink gets an ID, nor in what order. This future calls
/// `progress`: after the footers, then about every 65,536 rows of each thread (or after a longer
/// page), and at the end.
///
/// Cost: `threads` threads, and the memory of `budget`. A thread typically unpacks two pages of 1
/// MB. A page that claims more than the budget is refused before it is unpacked, so a small file
/// cannot take all memory.
///
/// The first error stops all threads and ends the scan. Dropping the future does the same; a thread
/// may unpack one more page first. A panic of a sink is passed on to the caller.
///
/// # Errors
/// [`Error::NotParquet`], [`Error::Corrupt`]: the file is not Parquet, or is damaged.
/// [`Error::NoColumn`], [`Error::NotAnId`], [`Error::Unsupported`]: the file is sound, but does not
/// have these IDs. [`Error::Replaced`]: a file changed during the scan. [`Error::Input`]: the store
/// failed. [`Error::TooMany`]: a footer is larger than its limit. [`Error::OverBudget`]: footers or
/// pages exceed `budget`.
///
/// # Panics
/// If `threads` is 0 and there is a row to read.
pub async fn scan<S: Sink>(
    files: Vec<InputFile>,
    column: &str,
    budget: ScanBudget,
    threads: usize,
    sink: impl Fn(u64) -> S + Send + Sync + 'static,
    progress: &(dyn Fn(ScanProgress) + Sync),
) -> Result<(ScanTotals, Vec<S::Output>), Error> {
    let plans = read_footers(files, column, budget.footers).await?;
    let mut totals = ScanTotals {
        files: plans.len() as u64,
        bytes_read: plans.iter().map(|plan| plan.footer_bytes).sum(),
        ..ScanTotals::default()
    };
    let mut done = ScanProgress {
        rows_done: 0,
        // What claims more rows than can be counted is found to be damaged when it is read.
        rows_total: plans.iter().map(|plan| plan.rows).fold(0, u64::saturating_add),
        bytes_done: totals.bytes_read,
    };
    progress(done);
    if done.rows_total == 0 {
        return Ok((totals, Vec::new()));
    }
    assert!(threads > 0, "{} rows to read and no thread to do it", done.rows_total);

    let rows = done.rows_total;
    let (work, received) = mpsc::unbounded_channel();
    let (report, mut reports) = mpsc::unbounded_channel();
    let workers = Workers::start(threads, move || sink(rows), budget.unpacked, received, report)?;
    let fetching = fetch_chunks(plans, budget, threads, work);
    let watching = async {
        // The channel closes when the last thread ends.
        while let Some(event) = reports.recv().await {
            match event {
                Event::Rows(rows) => done.rows_done += rows,
                Event::Piece(bytes) => {
                    done.bytes_done += bytes;
                    totals.bytes_read += bytes;
                    continue;
                }
                Event::Failed(error) => return Err(error),
            }
            progress(done);
        }
        Ok(())
    };
    let outcome = futures::future::try_join(fetching, watching).await;
    if outcome.is_err() {
        workers.stop.now();
        while reports.recv().await.is_some() {}
    }
    let (counts, outputs) = workers.join();
    outcome?;
    for counts in counts {
        totals.rows += counts.rows;
        totals.nulls += counts.nulls;
        totals.invalid += counts.invalid;
    }
    done.rows_done = totals.rows;
    progress(done);
    // No worker failed, so every worker has an output.
    Ok((totals, outputs.into_iter().flatten().collect()))
}

async fn read_footers(
    files: Vec<InputFile>,
    column: &str,
    budget: u64,
) -> Result<Vec<Arc<FilePlan>>, Error> {
    let budget = &Arc::new(FooterBudget::new(budget));
    futures::stream::iter(files)
        .map(|file| FilePlan::read(file, column, budget))
        .buffered(MAX_CONCURRENT_FETCHES)
        .map_ok(Arc::new)
        .try_collect()
        .await
}

#[cfg(test)]
mod tests;
