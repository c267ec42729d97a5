//! Parquet and IDs.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use bloomsday_common::day::Day;
use jiff::Timestamp;
use parquet::arrow::ArrowWriter;

/// Today, UTC.
pub fn today() -> Day {
    Day::of(Timestamp::now())
}

/// The `n`th user's ID: 32 hex characters, different for every `n`. Frozen: the golden blobs
/// contain them.
pub fn user(n: u64) -> String {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0123_4567_89ab_cdef;
    format!("{mixed:016x}{n:016x}")
}

/// IDs as standard input has them: LF ends each.
pub fn lines(ids: impl Iterator<Item = String>) -> Vec<u8> {
    ids.map(|id| id + "\n").collect::<String>().into_bytes()
}

/// Writes the users of a range to `file`, one row each, in the column `device_id`.
pub fn write_users(file: &Path, users: Range<u64>) {
    write_rows(file, users.map(|n| Some(user(n))));
}

/// Writes these IDs, or nulls, to `file`, one row each, in the column `device_id`.
pub fn write_rows(file: &Path, rows: impl Iterator<Item = Option<String>>) {
    std::fs::create_dir_all(file.parent().expect("a file has a folder")).expect("a folder");
    let ids: ArrayRef = Arc::new(StringArray::from_iter(rows));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("device_id", ids, true)]).expect("one column");
    let file = File::create(file).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a Parquet writer");
    writer.write(&batch).expect("rows are written");
    writer.close().expect("a footer is written");
}
