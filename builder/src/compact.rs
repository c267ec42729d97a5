//! [`compact`]: the segments of a day → its distinct hashes, for a file that people keep and query.

use std::fmt;
use std::io;
use std::sync::Arc;

use bloomsday_common::hash::Xxh3;
use bloomsday_common::store::Store;

use crate::budget::Budget;
use crate::error::Error;
use crate::job::{Job, Progress};
use crate::partition::{Distinct, PARTITIONS, Partitions, sum_of};
use crate::report::Report;
use crate::segments;

/// What was added to a live filter on the days of a job, without what was deleted after that.
pub struct LiveHashes {
    distinct: Distinct<Xxh3>,
    /// How many hashes the segments add, with repetitions.
    pub rows: u64,
    /// How many segments there are.
    pub segments: u64,
    /// What is not there yet.
    pub warnings: Vec<String>,
}

/// Reads the segments of a job's days, whose only input is [`LIVE`](crate::source::LIVE).
///
/// Cost: as a build, without the filter.
///
/// # Errors
/// [`Error::NoSegments`], [`Error::Segment`], [`Error::MissingSegments`]; the store's; the system's
/// for the temporary file.
pub async fn compact(
    job: &Job,
    store: &Store,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LiveHashes, Error> {
    let budget = Budget::of(job.memory, job.layout, job.fpp, job.threads.max(1))?;
    let partitions = Arc::new(Partitions::<Xxh3>::new(budget.hashes, &job.spill_folder));
    let mut report = Report::empty(&job.filter, job.day, job.layout, job.fpp);
    segments::gather(job, store, &partitions, &mut report, progress).await?;
    progress(Progress::Count);
    let partitions = Arc::into_inner(partitions).expect("the only writer is finished");
    let distinct = partitions.distinct(job.threads, budget.after_scan())?;
    let Report { rows, segments, warnings, .. } = report;
    Ok(LiveHashes { distinct, rows, segments, warnings })
}

impl LiveHashes {
    /// How many distinct hashes there are.
    pub fn len(&self) -> u64 {
        self.distinct.n_ids()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with all hashes in ascending order, some at a time.
    ///
    /// # Errors
    /// Those of `take`; the system's, if a spilled partition cannot be read. After the last call
    /// [`Error::Changed`], if these are not the hashes that were read from the segments.
    pub fn for_each(&self, mut take: impl FnMut(&[u64]) -> io::Result<()>) -> io::Result<()> {
        let (mut sorted, mut sum) = (Vec::new(), 0_u64);
        for number in 0..PARTITIONS {
            sorted.clear();
            self.distinct.visit(number, |hashes| {
                sum = sum.wrapping_add(sum_of(hashes));
                sorted.extend(hashes.iter().map(|hash| hash.0));
            })?;
            sorted.sort_unstable();
            take(&sorted)?;
        }
        if sum != self.distinct.sum() {
            let (written, read) = ("that deduplication kept", "that were written");
            return Err(io::Error::other(Error::Changed { written, read }));
        }
        Ok(())
    }
}

impl fmt::Debug for LiveHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hashes = self.len();
        f.debug_struct("LiveHashes").field("hashes", &hashes).finish_non_exhaustive()
    }
}
