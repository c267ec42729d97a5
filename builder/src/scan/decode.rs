//! A piece of a column chunk → its IDs, on a thread of its own.
//!
//! No I/O. Whatever the bytes are, what leaves here is IDs or an error that names the file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;
use tokio::sync::mpsc;

use super::cut::{Piece, length};
use super::plain::PlainPages;
use super::room::Unpacked;
use super::source::OnePiece;
use super::{Sink, Work, pages};
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
    let mut meter = Meter::new(report);
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

pub(super) fn decode(
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
    let layout = work.plan.layout(chunk);
    let pages = pages::check(bytes, &layout, room.all()).map_err(corrupt)?;
    if pages.values != *promised {
        return Err(differ(pages.values));
    }
    let _share = room
        .take(pages.unpacked)
        .ok_or_else(|| work.plan.no_room(work.place(), pages.unpacked, room.all()))?;
    let mut tally = Tally { counts: Counts::default(), meter, stop };
    let text = column.is_text();
    let (front, rows) = match text {
        Some(_) => (pages.plain_from, pages.rows_before_plain),
        None => (bytes.len(), *promised),
    };
    if front > 0 {
        let piece = OnePiece {
            bytes: bytes.slice(..front),
            layout,
            rows: rows as usize,
            metadata: Arc::new(work.plan.alone(chunk, rows).map_err(damaged)?),
        };
        let (levels, batch_rows) = (column.levels(), pages.batch_rows);
        let batches =
            ParquetRecordBatchReader::try_new_with_row_groups(levels, &piece, batch_rows, None);
        for batch in batches.map_err(damaged)? {
            let batch = batch.map_err(|e| corrupt(e.to_string()))?;
            tally.add(column.for_each_id(&batch, take).map_err(corrupt)?);
            if tally.is_cut_short() {
                break;
            }
        }
    }
    if let Some(text) = text {
        let plain = bytes.slice(front..);
        let mut plain = PlainPages::new(plain, layout, text).map_err(corrupt)?;
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
pub(super) struct Meter<'a> {
    report: &'a mpsc::UnboundedSender<Event>,
    since: u64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(report: &'a mpsc::UnboundedSender<Event>) -> Meter<'a> {
        Meter { report, since: 0 }
    }

    fn count(&mut self, rows: u64) {
        self.since += rows;
        if self.since >= ROWS_A_REPORT {
            let _ = self.report.send(Event::Rows(self.since));
            self.since = 0;
        }
    }
}
