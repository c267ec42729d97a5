//! Files → IDs: tokio fetches a column's bytes ahead, and a thread for each sink decodes them.
//!
//! | module | does |
//! |---|---|
//! | `footer` | a file → where its column lies, and every request for a part of it |
//! | `cut` | a column chunk → pieces of whole pages; a small one is one piece |
//! | `thrift`, `grammar` | Thrift, read in one way, and Parquet's structures in it |
//! | `metadata`, `header` | what a footer, and a page's header, say |
//! | `pages` | bounds what a piece may unpack to, before it does |
//! | `source` | a piece → its pages, looked through: all that the parquet crate gets |
//! | `unpack` | a page's body → as many bytes as its header says |
//! | `levels`, `values`, `delta` | whether a page's levels, counts and bytes agree |
//! | `plain` | pages of values as they are → these values |
//! | `decode` | a piece → its IDs, on a thread of its own |
//! | `room` | how much memory all of that may take |
//! | `spare` | memory of one piece, for the next one |
//!
//! Nothing here knows what becomes of an ID.

mod cut;
mod decode;
mod delta;
mod footer;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod grammar;
mod header;
mod levels;
mod metadata;
mod pages;
mod plain;
mod room;
mod source;
mod spare;
mod thrift;
mod unpack;
mod values;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use futures::{StreamExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::cut::{Cutter, Piece};
use self::decode::Event;
pub use self::footer::MAX_FOOTER_BYTES;
use self::footer::Plan;
pub use self::room::Room;
use self::room::{Footers, Unpacked};
use self::spare::Spare;
use crate::error::Error;
use crate::source::InputFile;

/// What a small piece counts as, so that there are not too many in flight.
const LEAST_BYTES: u32 = 1 << 20;

/// Smaller pieces are not made for more threads: what a piece ends within is fetched again.
const LEAST_PIECE_BYTES: u32 = 4 << 20;

/// Footers read, or chunks fetched, at the same time.
const FETCHES_AT_ONCE: usize = 16;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Rows, nulls and invalid ones too.
    pub rows: u64,
    /// Rows without an ID.
    pub nulls: u64,
    /// Rows whose ID was empty or too long.
    pub invalid: u64,
    /// Bytes of footers and of the column, each counted once.
    pub bytes_read: u64,
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows decoded.
    pub rows_done: u64,
    /// Rows of all files; 0 until every footer is read.
    pub rows_total: u64,
    /// Bytes fetched of footers, and decoded of the column.
    pub bytes_done: u64,
}

/// What becomes of the IDs that one thread decodes: made, fed and ended on that thread. A closure is one, too.
pub trait Sink {
    /// What is left of it for others.
    type Left: Send + 'static;

    /// Takes a legal ID. Its bytes are gone afterwards.
    fn take(&mut self, id: &[u8]);

    /// Comes after the last ID; not after a failure.
    fn end(self) -> Self::Left;
}

impl<F: FnMut(&[u8])> Sink for F {
    type Left = ();

    #[inline]
    fn take(&mut self, id: &[u8]) {
        self(id);
    }

    fn end(self) {}
}

/// Calls a sink for each legal ID in `column` of `files`, and gives what is left of the sinks.
///
/// Every footer is read first, so a file without the column fails a scan before any ID is taken. Then
/// each thread makes its own with `sink`, which is told how many rows there are for all of them
/// together. Which sink gets an ID, and in what order, is by chance. `progress` is called by this future:
/// after the footers, then about every 65,536 rows of each thread, or a page of more, and at the end.
///
/// Cost: `threads` threads; of memory, what `room` says. Usually a thread unpacks two pages of 1 MB; pages
/// that claim more than there is room for are refused unopened, so that a small file cannot ask for all
/// memory.
///
/// An error ends the scan at once, and every thread with it. Dropping the future does the same,
/// except that a thread may be unpacking one more page by then. A panic of a sink is passed on.
///
/// # Errors
/// [`Error::NotParquet`], [`Error::Corrupt`]: the file is none, or damaged.
/// [`Error::NoColumn`], [`Error::NotAnId`], [`Error::Unsupported`]: sound, but not with these IDs.
/// [`Error::Replaced`]: a file changed meanwhile. [`Error::Input`]: the store failed.
/// [`Error::TooMany`]: a footer beyond its limit, or footers or pages beyond `room`.
pub async fn scan<S: Sink>(
    files: Vec<InputFile>,
    column: &str,
    room: Room,
    threads: usize,
    sink: impl Fn(u64) -> S + Send + Sync + 'static,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Totals, Vec<S::Left>), Error> {
    let plans = read_footers(files, column, room.footers).await?;
    let mut totals = Totals {
        files: plans.len() as u64,
        bytes_read: plans.iter().map(|plan| plan.footer_bytes).sum(),
        ..Totals::default()
    };
    let mut done = Progress {
        rows_done: 0,
        rows_total: plans.iter().map(|plan| plan.rows).sum(),
        bytes_done: totals.bytes_read,
    };
    progress(done);
    if done.rows_total == 0 {
        return Ok((totals, Vec::new()));
    }
    assert!(threads > 0, "{} rows to read and no thread to do it", done.rows_total);

    let rows = done.rows_total;
    let (work, waiting) = mpsc::unbounded_channel();
    let (report, mut reports) = mpsc::unbounded_channel();
    let crew = Crew::start(threads, move || sink(rows), room.unpacked, waiting, report)?;
    let fetching = fetch_chunks(plans, room, threads, work);
    let watching = async {
        // Ends when the last thread does.
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
        crew.stop.0.store(true, Ordering::Relaxed);
        while reports.recv().await.is_some() {}
    }
    let (counts, left) = crew.join();
    outcome?;
    for counts in counts {
        totals.rows += counts.rows;
        totals.nulls += counts.nulls;
        totals.invalid += counts.invalid;
    }
    done.rows_done = totals.rows;
    progress(done);
    // All of them, since nothing failed.
    Ok((totals, left.into_iter().flatten().collect()))
}

async fn read_footers(
    files: Vec<InputFile>,
    column: &str,
    room: u64,
) -> Result<Vec<Arc<Plan>>, Error> {
    let room = &Arc::new(Footers::new(room));
    futures::stream::iter(files)
        .map(|file| Plan::read(file, column, room))
        .buffered(FETCHES_AT_ONCE)
        .map_ok(Arc::new)
        .try_collect()
        .await
}

/// Fetches every chunk and hands it on. Ends, and with it the threads, when all are handed on.
async fn fetch_chunks(
    plans: Vec<Arc<Plan>>,
    Room { in_flight, unpacked, .. }: Room,
    threads: usize,
    work: mpsc::UnboundedSender<Work>,
) -> Result<(), Error> {
    let a_thread = in_flight / u32::try_from(threads).unwrap_or(u32::MAX);
    let all = in_flight.max(LEAST_BYTES);
    let fetcher = Fetcher {
        // Each thread decodes one while another arrives.
        most: (a_thread / 2).max(LEAST_PIECE_BYTES).min(in_flight / 2),
        in_flight: all,
        unpacked,
        // The channel needs no bound of its own: what is in it holds a part of this.
        room: Arc::new(Semaphore::new(all as usize)),
        spare: Arc::new(Spare::new(in_flight as usize)),
        work,
    };
    let chunks = plans.iter().flat_map(|plan| {
        let read = (0..plan.chunks.len()).filter(|&group| plan.chunks[group].rows > 0);
        read.map(move |group| Ok((plan, group)))
    });
    futures::stream::iter(chunks)
        .try_for_each_concurrent(FETCHES_AT_ONCE, |(plan, group)| fetcher.fetch(plan, group))
        .await
        .or_else(|error| error.map_or(Ok(()), Err))
}

/// Fetches chunks, some at a time.
struct Fetcher {
    /// Bytes of a piece.
    most: u32,
    /// Bytes in flight.
    in_flight: u32,
    /// Bytes that a page may unpack to.
    unpacked: u64,
    room: Arc<Semaphore>,
    spare: Arc<Spare>,
    work: mpsc::UnboundedSender<Work>,
}

impl Fetcher {
    /// Fetches a chunk and hands it on, piece by piece. Why it failed, unless that is already reported.
    async fn fetch(&self, plan: &Arc<Plan>, group: usize) -> Result<(), Option<Error>> {
        let refused = |refused| plan.refused(group, refused, self.unpacked);
        let mut cutter = Cutter::new(&plan.chunks[group], u64::from(self.most), self.unpacked);
        while let Some(wanted) = cutter.wanted() {
            let bytes = u32::try_from(wanted.bytes()).unwrap_or(u32::MAX);
            let share = bytes.clamp(LEAST_BYTES, self.in_flight);
            let share = Arc::clone(&self.room).acquire_many_owned(share).await;
            let share = share.expect("nobody closes this semaphore");
            let fetched = plan.fetch(&wanted, &self.spare).await?;
            if let Some(piece) = cutter.cut(fetched).map_err(refused)? {
                let work = Work { plan: Arc::clone(plan), group, piece, _share: share };
                // With no thread left to take it, why is already reported.
                self.work.send(work).map_err(|_| None)?;
            }
        }
        Ok(())
    }
}

/// A piece of a row group's column, to be decoded.
struct Work {
    plan: Arc<Plan>,
    group: usize,
    piece: Piece,
    _share: OwnedSemaphorePermit,
}

impl Work {
    /// Where in its file it lies, for whoever reads an error.
    fn place(&self) -> String {
        let (group, own) = (self.group, &self.piece.range);
        if *own == self.plan.chunks[group].range {
            return format!("row group {group}");
        }
        format!("row group {group}, from byte {} of the file on", own.start)
    }

    fn corrupt(&self, why: impl std::fmt::Display) -> Error {
        self.plan.corrupt(self.place(), why)
    }
}

/// Tells the threads to stop, at the latest when it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The decoding threads.
struct Crew<L> {
    threads: Vec<JoinHandle<(crate::ids::Counts, Option<L>)>>,
    stop: Stop,
}

impl<L: Send + 'static> Crew<L> {
    fn start<S: Sink<Left = L>>(
        threads: usize,
        sink: impl Fn() -> S + Send + Sync + 'static,
        unpacked: u64,
        waiting: mpsc::UnboundedReceiver<Work>,
        report: mpsc::UnboundedSender<Event>,
    ) -> Result<Crew<L>, Error> {
        let sink = Arc::new(sink);
        let waiting = Arc::new(Mutex::new(waiting));
        let room = Arc::new(Unpacked::new(unpacked));
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let mut crew = Vec::with_capacity(threads);
        for number in 0..threads {
            let (sink, waiting, room) =
                (Arc::clone(&sink), Arc::clone(&waiting), Arc::clone(&room));
            let (stop, report) = (Arc::clone(&stop.0), report.clone());
            let thread = std::thread::Builder::new()
                .name(format!("decode-{number}"))
                .spawn(move || decode::run(sink(), &waiting, &room, &stop, &report))
                // Those that did start end by themselves: their channel closes.
                .map_err(|source| Error::Thread { source })?;
            crew.push(thread);
        }
        Ok(Crew { threads: crew, stop })
    }

    /// Takes what is left, once all threads have ended or are about to.
    fn join(self) -> (Vec<crate::ids::Counts>, Vec<Option<L>>) {
        let joined = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.unzip()
    }
}

#[cfg(test)]
mod tests;
