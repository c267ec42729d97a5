//! A scan of one file in memory, on the caller's thread: `fuzz/` runs it thousands of times per
//! second.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore};
use tokio::sync::{Semaphore, mpsc};

use super::chunk_splitter::ChunkSplitter;
use super::decode::{ProgressReporter, decode};
use super::footer::FilePlan;
use super::memory_budget::{FooterBudget, ScanBudget, UnpackBudget};
use super::work::Work;
use crate::error::Error;
use crate::ids::RowCounts;
use crate::source::InputFile;

/// Reads `column` of a file with these bytes, in pieces of at most `max_piece_bytes`.
///
/// # Errors
/// As [`super::scan`].
pub fn read(
    file: &[u8],
    column: &str,
    budget: ScanBudget,
    max_piece_bytes: u64,
    mut push: impl FnMut(&[u8]),
) -> Result<RowCounts, Error> {
    static NOWHERE: LazyLock<Arc<dyn ObjectStore>> = LazyLock::new(|| Arc::new(InMemory::new()));
    let not_parquet = || Error::NotParquet { file: "fuzzed".into(), why: "it is too short".into() };
    let (rest, end) = file.split_last_chunk::<8>().ok_or_else(not_parquet)?;
    let length = u32::from_le_bytes([end[0], end[1], end[2], end[3]]) as usize;
    let footer = rest.len().checked_sub(length).filter(|at| *at >= 4).ok_or_else(not_parquet)?;
    let meta = ObjectMeta {
        location: "fuzzed".into(),
        last_modified: Default::default(),
        size: file.len() as u64,
        e_tag: None,
        version: None,
    };
    let input = InputFile {
        name: "fuzzed".into(),
        address: "fuzzed".into(),
        objects: Arc::clone(&NOWHERE),
        meta,
    };
    let plan = FilePlan::of(input, &rest[footer..], column, &FooterBudget::new(budget.footers))?;
    let plan = Arc::new(plan);
    let (report, _reports) = mpsc::unbounded_channel();
    let mut reporter = ProgressReporter::new(&report);
    let (stop, unpacked) = (AtomicBool::new(false), UnpackBudget::new(budget.unpacked));
    let semaphore = Arc::new(Semaphore::new(1));
    let mut all = RowCounts::default();
    for (group, chunk) in plan.chunks.iter().enumerate().filter(|(_, chunk)| chunk.rows > 0) {
        let mut splitter = ChunkSplitter::new(chunk, max_piece_bytes, budget.unpacked);
        while let Some(range) = splitter.next_range() {
            let parts = [part(file, &range.dictionary), part(file, &range.pages)];
            let named = |why| plan.chunk_error(group, why, budget.unpacked);
            let Some(piece) = splitter.split(Bytes::from(parts.concat())).map_err(named)? else {
                continue;
            };
            let permit = Arc::clone(&semaphore).try_acquire_owned().expect("nobody else has it");
            let work = Work { plan: Arc::clone(&plan), group, piece, _permit: permit };
            all += decode(&work, &mut push, &unpacked, &stop, &mut reporter)?;
        }
    }
    Ok(all)
}

/// Chunks lie within their file.
fn part<'a>(file: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &file[range.start as usize..range.end as usize]
}
