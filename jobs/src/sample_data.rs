//! IDs to try things with, as Parquet.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bloomsday_common::hash::mix64;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::error::Error;

/// The column they are in.
pub(crate) const COLUMN: &str = "device_id";
/// Rows of a row group: enough groups for every core, each large enough to be read in one piece.
const GROUP_ROWS: usize = 1 << 18;

/// The `n`th user's device ID: 32 hex characters that look random and are always the same.
/// The demo depends on it: its new user must not be a false positive.
pub(crate) fn user(n: u64) -> String {
    format!("{:016x}{:016x}", mix64(2 * n + 1), mix64(2 * n + 2))
}

/// Writes IDs as one file, compressed as Spark does.
pub(crate) fn write(path: &Path, ids: impl Iterator<Item = String>) -> Result<(), Error> {
    let failed = |source| Error::System { doing: format!("write {}", path.display()), source };
    let file = File::create(path).map_err(failed)?;
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
    let batch = RecordBatch::try_from_iter([(COLUMN, ids)]).expect("one column has one length");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}
