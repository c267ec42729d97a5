//! `bloomsday compact`: what was added to a live filter on a day, as a Parquet file of hashes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use bloomsday_builder::segments::HASH_COLUMN;
use bloomsday_builder::source::LIVE;
use bloomsday_builder::{LiveHashes, compact};
use bloomsday_common::atomic_file;
use bloomsday_common::day::Day;
use bloomsday_common::error::Kind;
use bloomsday_common::key::FilterName;
use clap::Args;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::config::{BuildOverrides, Settings, WindowMissing};
use crate::error::Error;
use crate::filters::unknown;
use crate::output::{Output, binary_size, thousands};
use crate::place::{ensure_not_in_store, real_file};
use crate::resources::Resources;

/// Rows of a row group: some MB.
const GROUP_ROWS: usize = 1 << 20;

/// Write what was added to a live filter on a day as Parquet, from the segments in the store.
///
/// The file has one column, `bloomsday_hash`: the distinct 64-bit hashes of the day's IDs,
/// ascending, without those that were deleted after they were added. A build reads it again:
/// --input FILE --column bloomsday_hash gives the same blob as --input live:.
///
/// Example: bloomsday compact urls --day 2026-11-22 --to urls-2026-11-22.parquet
#[derive(Args)]
pub(crate) struct Compact {
    /// The name of the filter.
    filter: FilterName,
    /// The UTC day on which the IDs were added.
    #[arg(long)]
    day: Day,
    /// The file to write, over an older one [default: FILTER-DAY.parquet in this folder].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// What to do when segments of the day are missing: fail (error), or name them and go on
    /// (allow) [default: error].
    #[arg(long, value_name = "error|allow")]
    window_missing: Option<WindowMissing>,
    #[command(flatten)]
    resources: Resources,
    /// Read and count, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Compact {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let Compact { filter, day, to, window_missing, resources, dry_run } = self;
        let overrides = BuildOverrides {
            inputs: vec![LIVE.to_owned()],
            window_days: Some(1),
            window_missing,
            resources,
            dry_run,
            ..BuildOverrides::default()
        };
        let file = real_file(&to.unwrap_or_else(|| format!("{filter}-{day}.parquet").into()))?;
        ensure_not_in_store(&file)?;
        let job = settings.build_job(filter.clone(), day, overrides)?;
        let store = settings.open_store()?;
        let found = match compact(&job, &store, &output.build_progress()).await {
            Ok(found) => found,
            Err(error) if error.kind() == Kind::NotFound => {
                return Err(unknown(&store, &filter).await.unwrap_or(error.into()));
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = if dry_run { None } else { Some(write(&file, &found)?) };
        let (hashes, rows, segments) = (found.len(), found.rows, found.segments);
        let report = json!({
            "filter": filter,
            "day": day,
            "file": file.display().to_string(),
            "hashes": hashes,
            "rows": rows,
            "segments": segments,
            "bytes": bytes,
            "warnings": found.warnings,
            "dry_run": dry_run,
        });
        output.show(&report, || {
            let counted = format!(
                "{filter} {day}: {} distinct hashes of {} adds in {} segments",
                thousands(hashes),
                thousands(rows),
                thousands(segments)
            );
            match bytes {
                Some(bytes) => format!("{counted}; {} ({})\n", file.display(), binary_size(bytes)),
                None => format!("{counted}; nothing was written (--dry-run)\n"),
            }
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a file that is complete or not there. Returns its size.
fn write(path: &Path, found: &LiveHashes) -> Result<u64, Error> {
    let failed = |source| Error::System { doing: format!("write {}", path.display()), source };
    atomic_file::write_by(path, |file| write_to(file, found), |_| ()).map_err(failed)?;
    Ok(std::fs::metadata(path).map_err(failed)?.len())
}

fn write_to(file: &File, found: &LiveHashes) -> io::Result<()> {
    let batch = |hashes: &[u64]| {
        let hashes: ArrayRef = Arc::new(UInt64Array::from(hashes.to_vec()));
        RecordBatch::try_from_iter([(HASH_COLUMN, hashes)]).expect("one column has one length")
    };
    // Hashes do not compress, and none comes twice.
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer = ArrowWriter::try_new(file, batch(&[]).schema(), Some(properties))?;
    found.for_each(|hashes| Ok(writer.write(&batch(hashes))?))?;
    writer.close()?;
    Ok(())
}
