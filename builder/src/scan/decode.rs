//! A piece of a column chunk → its IDs, on a thread of its own.
//!
//! No I/O. Whatever the bytes are, what leaves here is IDs or an error that names the file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use tokio::sync::mpsc;

use super::cut::{Piece, length};
use super::pages::Pages;
use super::plain::PlainPages;
use super::room::Unpacked;
use super::{Sink, Work, delta, pages};
use crate::error::Error;
use crate::ids::{Counts, Legal};

/// Rows between two reports of a thread.
const ROWS_A_REPORT: u64 = 1 << 16;

/// What a thread reports.
pub(super) enum Event {
    /// This many more rows.
    Rows(u64),
    /// A piece of this many bytes is done.
    Piece(u64),
    /// It has ended, for this reason.
    Failed(Error),
}

/// Decodes what is waiting until nothing more can come, or `stop`. A scan that failed leaves nothing of its
/// sinks.
pub(super) fn run<S: Sink>(
    mut sink: S,
    waiting: &Mutex<mpsc::UnboundedReceiver<Work>>,
    room: &Unpacked,
    stop: &AtomicBool,
    report: &mpsc::UnboundedSender<Event>,
) -> (Counts, Option<S::Left>) {
    let mut meter = Meter { report, since: 0 };
    let mut counts = Counts::default();
    while !stop.load(Ordering::Relaxed) {
        // One thread waits for work and the others for that one; nobody panics in between.
        let next = waiting.lock().expect("receiving does not panic").blocking_recv();
        let Some(work) = next else { break };
        match guarded(&work, &mut sink, room, stop, &mut meter) {
            Ok(more) => {
                counts.rows += more.rows;
                counts.nulls += more.nulls;
                counts.invalid += more.invalid;
                // Nobody listens to a scan that is being dropped.
                let _ = report.send(Event::Piece(length(&work.piece.range)));
            }
            Err(error) => {
                let _ = report.send(Event::Failed(error));
                return (counts, None);
            }
        }
    }
    let left = (!stop.load(Ordering::Relaxed)).then(|| sink.end());
    (counts, left)
}

/// Keeps the panics of the decoder, which bytes from outside can cause, from ending the thread.
fn guarded<S: Sink>(
    work: &Work,
    sink: &mut S,
    room: &Unpacked,
    stop: &AtomicBool,
    meter: &mut Meter<'_>,
) -> Result<Counts, Error> {
    let in_sink = Cell::new(false);
    let mut take = |id: &[u8]| {
        in_sink.set(true);
        sink.take(id);
        in_sink.set(false);
    };
    // After a panic the counts, the reader and the batch are gone, and the sink is not called.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(work, &mut take, room, stop, meter)));
    match decoded {
        Ok(decoded) => decoded,
        // Not the file's fault.
        Err(panic) if in_sink.get() => {
            stop.store(true, Ordering::Relaxed);
            resume_unwind(panic)
        }
        Err(_) => Err(work.corrupt("the decoder gave up on its bytes")),
    }
}

fn decode(
    work: &Work,
    take: &mut impl FnMut(&[u8]),
    room: &Unpacked,
    stop: &AtomicBool,
    meter: &mut Meter<'_>,
) -> Result<Counts, Error> {
    let Piece { bytes, rows: promised, .. } = &work.piece;
    let (chunk, column) = (&work.plan.chunks[work.group], &work.plan.column);
    let corrupt = |why: String| work.corrupt(why);
    let damaged = |e: ParquetError| corrupt(e.to_string());
    let differ =
        |rows| corrupt(format!("its pages have {rows} rows, and {promised} were promised"));
    let pages = pages::check(bytes, chunk.codec, room.all()).map_err(corrupt)?;
    if pages.values != *promised {
        return Err(differ(pages.values));
    }
    let _share = room
        .take(pages.unpacked)
        .ok_or_else(|| work.plan.no_room(work.place(), pages.unpacked, room.all()))?;
    let alone = work.plan.alone(chunk, *promised, bytes.len()).map_err(damaged)?;
    if pages.lengths {
        delta::check(bytes, column_of(&alone), *promised).map_err(corrupt)?;
    }
    let mut tally = Tally { counts: Counts::default(), meter, stop };
    let text = column.is_text();
    let as_arrays = if text.is_some() { pages.rows_before_plain } else { *promised };
    if as_arrays > 0 {
        for batch in arrays(bytes, alone.clone(), &pages, as_arrays).map_err(damaged)? {
            tally.add(column.for_each_id(&batch.map_err(|e| corrupt(e.to_string()))?, take));
            if tally.is_cut_short() {
                break;
            }
        }
    }
    if let Some(text) = text {
        let mut plain = PlainPages::new(bytes, column_of(&alone), &pages, text).map_err(corrupt)?;
        while !tally.is_cut_short() {
            let mut legal = Legal::new(take);
            let read = plain.next(|value| legal.pass(value)).map_err(corrupt)?;
            let Some(rows) = read else { break };
            tally.add(legal.counts(rows));
        }
    }
    let Tally { counts, .. } = tally;
    // One that was cut short nobody will look at.
    if counts.rows != *promised && !stop.load(Ordering::Relaxed) {
        return Err(differ(counts.rows));
    }
    Ok(counts)
}

/// The first `rows` rows, through arrow, which knows every type and encoding.
fn arrays(
    bytes: &Bytes,
    alone: ArrowReaderMetadata,
    pages: &Pages,
    rows: u64,
) -> Result<ParquetRecordBatchReader, ParquetError> {
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), alone)
        .with_batch_size(pages.batch_rows);
    let reader = if rows < pages.values { reader.with_limit(rows as usize) } else { reader };
    reader.build()
}

fn column_of(alone: &ArrowReaderMetadata) -> &ColumnChunkMetaData {
    alone.metadata().row_group(0).column(0)
}

/// What a piece's rows held so far, told to others as it grows.
struct Tally<'a, 'm> {
    counts: Counts,
    meter: &'a mut Meter<'m>,
    stop: &'a AtomicBool,
}

impl Tally<'_, '_> {
    fn add(&mut self, more: Counts) {
        self.counts.rows += more.rows;
        self.counts.nulls += more.nulls;
        self.counts.invalid += more.invalid;
        self.meter.count(more.rows);
    }

    fn is_cut_short(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Reports rows, though not every few of them.
struct Meter<'a> {
    report: &'a mpsc::UnboundedSender<Event>,
    since: u64,
}

impl Meter<'_> {
    fn count(&mut self, rows: u64) {
        self.since += rows;
        if self.since >= ROWS_A_REPORT {
            let _ = self.report.send(Event::Rows(self.since));
            self.since = 0;
        }
    }
}
