//! A piece of a column chunk → its IDs, on one thread.
//!
//! No I/O. Whatever the bytes are, the result is IDs or an error that names the file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;
use tokio::sync::mpsc;

use super::chunk::{ChunkPiece, range_len};
use super::limits::page_limits;
use super::limits::page_source::OnePiece;
use super::memory_budget::UnpackBudget;
use super::plain::PlainPages;
use super::sink::Sink;
use super::work::Work;
use crate::error::Error;
use crate::ids::{IdValidator, RowCounts};

/// How many rows a thread decodes between two reports.
const ROWS_PER_REPORT: u64 = 1 << 16;

/// What a decoding thread reports.
pub(super) enum Event {
    /// It decoded this many more rows.
    Rows(u64),
    /// It finished a piece of this many bytes.
    Piece(u64),
    /// It ended with this error.
    Failed(Error),
}

/// Decodes pieces until the channel closes or `stop` is set. Returns no output if the scan failed.
pub(super) fn run<S: Sink>(
    mut sink: S,
    received: &Mutex<mpsc::UnboundedReceiver<Work>>,
    budget: &UnpackBudget,
    stop: &AtomicBool,
    report: &mpsc::UnboundedSender<Event>,
) -> (RowCounts, Option<S::Output>) {
    let mut reporter = ProgressReporter::new(report);
    let mut counts = RowCounts::default();
    while !stop.load(Ordering::Relaxed) {
        // One thread waits for work and the others for the lock. Nothing panics with the lock.
        let next = received.lock().expect("receiving does not panic").blocking_recv();
        let Some(work) = next else { break };
        match decode_catching_panics(&work, &mut sink, budget, stop, &mut reporter) {
            Ok(more) => {
                counts += more;
                // The receiver is gone if the scan is dropped.
                let _ = report.send(Event::Piece(range_len(&work.piece.range)));
            }
            Err(error) => {
                let _ = report.send(Event::Failed(error));
                return (counts, None);
            }
        }
    }
    let output = (!stop.load(Ordering::Relaxed)).then(|| sink.finish());
    (counts, output)
}

/// Catches the panics of the decoder, which a forged file can cause. A panic of the sink passes
/// through.
fn decode_catching_panics<S: Sink>(
    work: &Work,
    sink: &mut S,
    budget: &UnpackBudget,
    stop: &AtomicBool,
    reporter: &mut ProgressReporter<'_>,
) -> Result<RowCounts, Error> {
    let in_sink = Cell::new(false);
    let mut push = |id: &[u8]| {
        in_sink.set(true);
        sink.push(id);
        in_sink.set(false);
    };
    // After a panic of the decoder nothing of it is used again.
    let decoded =
        catch_unwind(AssertUnwindSafe(|| decode(work, &mut push, budget, stop, reporter)));
    match decoded {
        Ok(decoded) => decoded,
        // The file is not the cause.
        Err(panic) if in_sink.get() => {
            stop.store(true, Ordering::Relaxed);
            resume_unwind(panic)
        }
        Err(_) => Err(work.corrupt("the decoder panicked on its bytes")),
    }
}

/// Decodes a piece and calls `push` for each valid ID.
///
/// # Errors
/// [`Error::Corrupt`]: the piece contradicts itself or the footer. [`Error::OverBudget`]: its
/// pages exceed the budget.
pub(super) fn decode(
    work: &Work,
    push: &mut impl FnMut(&[u8]),
    budget: &UnpackBudget,
    stop: &AtomicBool,
    reporter: &mut ProgressReporter<'_>,
) -> Result<RowCounts, Error> {
    let ChunkPiece { bytes, rows: promised, .. } = &work.piece;
    let (chunk, column) = (&work.plan.chunks[work.group], &work.plan.column);
    let corrupt = |why: String| work.corrupt(why);
    let differ =
        |rows| corrupt(format!("its pages have {rows} rows, and {promised} were promised"));
    let format = work.plan.format(chunk);
    let pages = page_limits::check(bytes, &format, budget.total()).map_err(corrupt)?;
    if pages.values != *promised {
        return Err(differ(pages.values));
    }
    let _permit = budget
        .acquire(pages.unpacked)
        .ok_or_else(|| work.plan.over_budget(work.place(), pages.unpacked, budget.total()))?;
    let mut counts = PieceCounts { counts: RowCounts::default(), reporter, stop };
    let text = column.is_text();
    let (front, rows) = match text {
        Some(_) => (pages.plain_from, pages.rows_before_plain),
        None => (bytes.len(), *promised),
    };
    if front > 0 {
        let metadata = work.plan.single_column_metadata(chunk, rows);
        let metadata = Arc::new(metadata.map_err(|e| corrupt(e.to_string()))?);
        let (bytes, rows) = (bytes.slice(..front), rows as usize);
        let piece = OnePiece { bytes, format, rows, metadata };
        decode_with_arrow(work, &piece, pages.batch_rows, push, &mut counts)?;
    }
    if let Some(text) = text {
        let pages = PlainPages::new(bytes.slice(front..), format, text).map_err(corrupt)?;
        decode_plain(pages, push, &mut counts).map_err(corrupt)?;
    }
    let PieceCounts { counts, .. } = counts;
    // After a stop nobody uses the counts.
    if counts.rows != *promised && !stop.load(Ordering::Relaxed) {
        return Err(differ(counts.rows));
    }
    Ok(counts)
}

/// Decodes pages of any type and encoding.
fn decode_with_arrow(
    work: &Work,
    piece: &OnePiece,
    batch_rows: usize,
    push: &mut impl FnMut(&[u8]),
    counts: &mut PieceCounts<'_, '_>,
) -> Result<(), Error> {
    let damaged = |e: ParquetError| work.corrupt(e);
    let column = &work.plan.column;
    let levels = column.levels();
    let batches =
        ParquetRecordBatchReader::try_new_with_row_groups(levels, piece, batch_rows, None);
    for batch in batches.map_err(damaged)? {
        let batch = batch.map_err(|e| work.corrupt(e))?;
        counts.add(column.for_each_id(&batch, push).map_err(|why| work.corrupt(why))?);
        if counts.is_stopped() {
            break;
        }
    }
    Ok(())
}

/// Decodes PLAIN pages of byte arrays.
fn decode_plain(
    mut pages: PlainPages,
    push: &mut impl FnMut(&[u8]),
    counts: &mut PieceCounts<'_, '_>,
) -> Result<(), String> {
    while !counts.is_stopped() {
        let mut validator = IdValidator::new(push);
        let Some(rows) = pages.next(|value| validator.pass(value))? else { break };
        counts.add(validator.counts(rows));
    }
    Ok(())
}

/// The counts of a piece so far, which it also reports.
struct PieceCounts<'a, 'm> {
    counts: RowCounts,
    reporter: &'a mut ProgressReporter<'m>,
    stop: &'a AtomicBool,
}

impl PieceCounts<'_, '_> {
    fn add(&mut self, more: RowCounts) {
        self.counts += more;
        self.reporter.count(more.rows);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Reports decoded rows, [`ROWS_PER_REPORT`] or more at a time.
pub(super) struct ProgressReporter<'a> {
    report: &'a mpsc::UnboundedSender<Event>,
    unreported: u64,
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(report: &'a mpsc::UnboundedSender<Event>) -> ProgressReporter<'a> {
        ProgressReporter { report, unreported: 0 }
    }

    fn count(&mut self, rows: u64) {
        self.unreported += rows;
        if self.unreported >= ROWS_PER_REPORT {
            let _ = self.report.send(Event::Rows(self.unreported));
            self.unreported = 0;
        }
    }
}
