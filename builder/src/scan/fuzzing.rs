//! A scan of one file in memory, on the caller's thread: what `fuzz/` can do ten thousand times a second.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore};
use tokio::sync::{Semaphore, mpsc};

use super::Work;
use super::cut::Cutter;
use super::decode::{Meter, decode};
use super::footer::Plan;
use super::room::{Footers, Room, Unpacked};
use crate::error::Error;
use crate::ids::Counts;
use crate::source::InputFile;

/// Reads `column` of a file with these bytes, in pieces of at most `most` bytes.
///
/// # Errors
/// As [`super::scan`].
pub fn read(
    file: &[u8],
    column: &str,
    room: Room,
    most: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<Counts, Error> {
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
    let input = InputFile { name: "fuzzed".into(), objects: Arc::clone(&NOWHERE), meta };
    let plan = Plan::of(input, &rest[footer..], column, &Footers::new(room.footers))?;
    let plan = Arc::new(plan);
    let (report, _reports) = mpsc::unbounded_channel();
    let mut meter = Meter::new(&report);
    let (stop, unpacked) = (AtomicBool::new(false), Unpacked::new(room.unpacked));
    let one = Arc::new(Semaphore::new(1));
    let mut all = Counts::default();
    for (group, chunk) in plan.chunks.iter().enumerate().filter(|(_, chunk)| chunk.rows > 0) {
        let mut cutter = Cutter::new(chunk, most, room.unpacked);
        while let Some(wanted) = cutter.wanted() {
            let parts = [part(file, &wanted.dictionary), part(file, &wanted.pages)];
            let refused = |why| plan.refused(group, why, room.unpacked);
            let Some(piece) = cutter.cut(Bytes::from(parts.concat())).map_err(refused)? else {
                continue;
            };
            let share = Arc::clone(&one).try_acquire_owned().expect("nobody else has it");
            let work = Work { plan: Arc::clone(&plan), group, piece, _share: share };
            let counts = decode(&work, &mut take, &unpacked, &stop, &mut meter)?;
            all.rows += counts.rows;
            all.nulls += counts.nulls;
            all.invalid += counts.invalid;
        }
    }
    Ok(all)
}

/// Chunks lie within their file.
fn part<'a>(file: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &file[range.start as usize..range.end as usize]
}
