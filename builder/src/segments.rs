//! Segments of live IDs as the input of a build: a day's segments in the store → distinct hashes.
//! There are no raw IDs in them, so none is sampled.
//!
//! An ID is in the day's filter if its newest change, over all logs, is not a deletion. Deletions
//! are few and stay in memory; what was added goes to a temporary file until all deletions are
//! known. A segment that is missing shows in the numbers of the frames: `gaps`.

mod gaps;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::Arc;

use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::hash::IdHash;
use bloomsday_common::key::{FilterName, SegmentKey};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::segment::{ChangeOrder, Frames, Op};
use bloomsday_common::store::Store;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use jiff::SignedDuration;

use crate::error::Error;
use crate::job::{Job, Progress};
use crate::partition::{PartitionWriter, Partitions};
use crate::report::Report;
use crate::scan;
use gaps::{Gap, MAX_CONCURRENT_FETCHES, ReadFrames};

/// The most segments of a build: those of 46 days with one each second.
pub const MAX_SEGMENTS: usize = 4_000_000;
/// The most deleted IDs of a build: they are kept in memory, 48 bytes each.
pub const MAX_DELETED: usize = 16_000_000;
/// The column of a file with hashes instead of IDs: unsigned integers of 64 bits, as the layout
/// `blocked` hashes IDs. A build of this column takes them as they are.
pub const HASH_COLUMN: &str = "bloomsday_hash";
/// A server without adds writes its head at least this often.
const IDLE: SignedDuration = SignedDuration::from_secs(60);
/// The most days without segments that an error names.
const MAX_NAMED_DAYS: usize = 20;
/// The most gaps that an error or a report names.
const MAX_NAMED_GAPS: usize = 20;

/// Whether all that was added on a day is in the store.
///
/// Cost: a listing, and a read for each log of the filter.
///
/// # Errors
/// [`Error::NoSegments`]; the store's.
pub async fn check_shipped(store: &Store, filter: &FilterName, day: Day) -> Result<Shipped, Error> {
    let found = store.segments(filter, day).await?;
    if found.is_empty() {
        return Err(Error::NoSegments { filter: filter.to_string(), day });
    }
    let keys: Vec<SegmentKey> = found.into_iter().map(|(key, _)| key).collect();
    let heads = store.heads(filter).await?;
    Ok(Shipped { segments: keys.len(), late_log: late_logs(&heads, day, &keys).next() })
}

/// How much of a day is in the store.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// The number of segments.
    pub segments: usize,
    /// Which log is not there up to the day's end, if there is one.
    pub late_log: Option<String>,
}

/// Reads the segments of a job's days, and writes what they add to `partitions`.
pub(crate) async fn gather<H: IdHash>(
    job: &Job,
    store: &Store,
    partitions: &Arc<Partitions<H>>,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), Error> {
    check_job(&job.inputs, job.layout)?;
    // Before the segments: what a head says is in the store, this build then finds there.
    let mut heads = store.heads(&job.filter).await?;
    let listed_before = heads.len();
    let keys = list(job, store, report).await?;
    add_unlisted_heads(store, &job.filter, &keys, &mut heads).await?;
    late_logs(&heads, job.day, &keys).for_each(|log| report.warn(log));
    silent_logs(&heads, job.day, &keys).for_each(|log| report.warn(log));
    let mut read = SegmentReader::begin(job)?;
    let mut done = scan::ScanProgress::default();
    let fetching = futures::stream::iter(
        keys.iter().map(|key| async move { Ok::<_, Error>((key, store.segment(key).await?)) }),
    );
    let mut fetching = fetching.buffered(MAX_CONCURRENT_FETCHES);
    while let Some((key, bytes)) = fetching.try_next().await? {
        read.take(key, &bytes)?;
        (done.rows_done, done.bytes_done) = (read.rows, done.bytes_done + bytes.len() as u64);
        progress(Progress::Scan(done));
    }
    let frames = std::mem::take(&mut read.frames_of_logs);
    let days = first_day(job)..=job.day;
    let missing = frames.missing(store, &job.filter, days, &heads[..listed_before]).await?;
    judge_gaps(job, &missing, &heads, report)?;
    report.rows = read.rows;
    read.finish(PartitionWriter::new(partitions.clone()))
}

/// Refuses a job that segments cannot be the input of: they are the only input, of the layout
/// `blocked`.
///
/// # Errors
/// [`Error::LiveInput`].
pub fn check_job(inputs: &[String], layout: Layout) -> Result<(), Error> {
    crate::source::check_live_is_alone(inputs)?;
    if layout == Layout::Blocked {
        return Ok(());
    }
    let why = "they contain the hashes of the layout `blocked`: build with that layout".to_owned();
    Err(Error::LiveInput { why })
}

/// Refuses a job that the column with hashes cannot be the input of.
pub(crate) fn check_hash_column(job: &Job) -> Result<(), Error> {
    if job.layout == Layout::Blocked {
        return Ok(());
    }
    let why = format!(
        "the column {HASH_COLUMN} contains the hashes of the layout `blocked`: build with that layout"
    );
    Err(Error::LiveInput { why })
}

fn first_day(job: &Job) -> Day {
    job.window.days_up_to(job.day).min().unwrap_or(job.day)
}

/// The segments of all days of the window, oldest day first.
async fn list(job: &Job, store: &Store, report: &mut Report) -> Result<Vec<SegmentKey>, Error> {
    let mut days: Vec<Day> = job.window.days_up_to(job.day).collect();
    days.reverse();
    let (mut keys, mut missing) = (Vec::new(), Vec::new());
    for day in days {
        let found = store.segments(&job.filter, day).await?;
        if found.is_empty() {
            missing.push(day);
        }
        report.input_bytes += found.iter().map(|(_, bytes)| bytes).sum::<u64>();
        keys.extend(found.into_iter().map(|(key, _)| key));
        if keys.len() > MAX_SEGMENTS {
            return Err(Error::TooMany {
                name: job.filter.to_string(),
                what: "segments",
                got: keys.len() as u64,
                limit: MAX_SEGMENTS as u64,
                remedy: "build fewer days",
            });
        }
    }
    if missing.contains(&job.day) {
        return Err(Error::NoSegments { filter: job.filter.to_string(), day: job.day });
    }
    if !missing.is_empty() && !job.window.may_lack_input {
        let days: Vec<String> = missing.iter().take(MAX_NAMED_DAYS).map(Day::to_string).collect();
        let (day, of, missing) = (job.day, job.window.days, missing.len());
        return Err(Error::NoDays { day, of, missing, days: days.join(", ") });
    }
    report.segments = keys.len() as u64;
    report.window_missing = missing;
    Ok(keys)
}

/// Adds the heads of logs that have one of these segments, and that a listing of heads left out.
async fn add_unlisted_heads(
    store: &Store,
    filter: &FilterName,
    keys: &[SegmentKey],
    heads: &mut Vec<(u64, Head)>,
) -> Result<(), Error> {
    let listed: BTreeSet<u64> = heads.iter().map(|(node, _)| *node).collect();
    let nodes: BTreeSet<u64> = keys.iter().map(|key| key.node).collect();
    for node in nodes.difference(&listed) {
        heads.extend(store.head_of(filter, *node).await?.map(|head| (*node, head)));
    }
    Ok(())
}

/// Refuses to build without the frames that are missing, or warns if the job allows that.
fn judge_gaps(
    job: &Job,
    gaps: &[Gap],
    heads: &[(u64, Head)],
    report: &mut Report,
) -> Result<(), Error> {
    if gaps.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = gaps.iter().take(MAX_NAMED_GAPS).map(|gap| gap.named(heads)).collect();
    let logs = named.join("; ");
    if !job.window.may_lack_input {
        return Err(Error::MissingSegments {
            filter: job.filter.to_string(),
            gaps: gaps.len(),
            logs,
        });
    }
    report.warn(format!("segments are missing in the store, and their IDs are left out: {logs}"));
    Ok(())
}

/// The logs with segments of the day that are not in the store up to the day's end, as sentences.
fn late_logs(heads: &[(u64, Head)], day: Day, keys: &[SegmentKey]) -> impl Iterator<Item = String> {
    let nodes: BTreeSet<u64> =
        keys.iter().filter(|key| key.day == day).map(|key| key.node).collect();
    let heads: BTreeMap<u64, &Head> = heads.iter().map(|(node, head)| (*node, head)).collect();
    nodes.into_iter().filter_map(move |node| match heads.get(&node) {
        Some(head) if head.through >= day.end() => None,
        Some(head) => Some(format!(
            "the log {node:016x} of {} is in the store up to {:.0}: what was added to it after that, and \
             before the end of {day}, is not in a filter that is built now",
            head.server, head.through
        )),
        None => Some(format!(
            "no readable record says how much of the log {node:016x} is in the store: what is not, is not in \
             a filter of {day} that is built now"
        )),
    })
}

/// The logs that ended within the day or the one before, and have no segment of the day, as
/// sentences. Their servers are gone, or cannot write to the store: a build does not wait for them.
fn silent_logs(
    heads: &[(u64, Head)],
    day: Day,
    keys: &[SegmentKey],
) -> impl Iterator<Item = String> {
    let silent = heads.iter().filter(move |(node, head)| {
        (day.minus(2).end()..day.end() - IDLE).contains(&head.through)
            && !keys.iter().any(|key| key.day == day && key.node == *node)
    });
    silent.map(move |(node, head)| {
        format!(
            "the log {node:016x} of {} is in the store up to {:.0} and has nothing of {day}: if that server \
             still takes IDs, what was added to it after that is not in a filter that is built now",
            head.server, head.through
        )
    })
}

/// What the segments say, while they are read.
struct SegmentReader {
    /// What was added: for each frame its place in the order, the number of its hashes, and these.
    added: BufWriter<File>,
    frames: u64,
    rows: u64,
    /// The sum of all hashes in the temporary file.
    sum: u64,
    /// The last deletion of each hash that was ever deleted.
    deleted: HashMap<u64, ChangeOrder>,
    folder: String,
    frames_of_logs: ReadFrames,
    first_day: Day,
}

impl SegmentReader {
    fn begin(job: &Job) -> Result<SegmentReader, Error> {
        let folder = job.spill_folder.display().to_string();
        let file = tempfile::tempfile_in(&job.spill_folder).map_err(|e| {
            Error::spill(io::Error::new(e.kind(), format!("no temporary file in {folder}: {e}")))
        })?;
        Ok(SegmentReader {
            added: BufWriter::with_capacity(1 << 20, file),
            frames: 0,
            rows: 0,
            sum: 0,
            deleted: HashMap::new(),
            folder,
            frames_of_logs: ReadFrames::default(),
            first_day: first_day(job),
        })
    }

    /// Reads one segment.
    fn take(&mut self, key: &SegmentKey, bytes: &Bytes) -> Result<(), Error> {
        let corrupt = |why: String| Error::Segment { key: key.to_string(), why };
        let frames = Frames::of_named(key, bytes);
        let (header, frames) = frames.map_err(|bad| corrupt(bad.to_string()))?;
        let mut last = None;
        for frame in frames.map_while(Result::ok) {
            if Day::at_unix_ms(frame.ms) != key.day {
                return Err(corrupt("it has a change of another day".into()));
            }
            last = Some(frame.seq);
            let order = ChangeOrder::of(&header, &frame);
            match frame.op {
                Op::Add => self.keep_added(order, frame.hashes()).map_err(|e| self.named(e))?,
                Op::Delete => {
                    for hash in frame.hashes() {
                        let last = self.deleted.entry(hash).or_insert(order);
                        *last = order.max(*last);
                    }
                    if self.deleted.len() > MAX_DELETED {
                        return Err(Error::TooMany {
                            name: key.filter.to_string(),
                            what: "deleted IDs",
                            got: self.deleted.len() as u64,
                            limit: MAX_DELETED as u64,
                            remedy: "build fewer days",
                        });
                    }
                }
                Op::Reserve | Op::Drop | Op::Expire => {}
            }
        }
        let logs = &mut self.frames_of_logs;
        if let Some(last) = last {
            logs.add(key.node, header.first_seq..=last);
        }
        if header.epoch == 1 && Day::at_unix_ms(header.created_ms) >= self.first_day {
            // The log began within these days, with frame 1.
            logs.add(key.node, 0..=0);
        }
        Ok(())
    }

    fn keep_added(
        &mut self,
        order: ChangeOrder,
        hashes: impl ExactSizeIterator<Item = u64>,
    ) -> io::Result<()> {
        let ChangeOrder { ms, node, epoch, seq } = order;
        for number in [ms, node, u64::from(epoch), seq, hashes.len() as u64] {
            self.added.write_all(&number.to_le_bytes())?;
        }
        self.frames += 1;
        self.rows += hashes.len() as u64;
        for hash in hashes {
            self.sum = self.sum.wrapping_add(hash);
            self.added.write_all(&hash.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes what was added and not deleted after that.
    fn finish<H: IdHash>(
        self,
        writer: PartitionWriter<H, Arc<Partitions<H>>>,
    ) -> Result<(), Error> {
        let (sum, folder) = (self.sum, self.folder.clone());
        let failed = |e: io::Error| spilled(&folder, e);
        if self.write_to(writer).map_err(failed)? != sum {
            let (written, read) =
                ("that the segments contain", "that were kept in a temporary file");
            return Err(Error::Changed { written, read });
        }
        Ok(())
    }

    fn write_to<H: IdHash>(
        self,
        mut writer: PartitionWriter<H, Arc<Partitions<H>>>,
    ) -> io::Result<u64> {
        let mut file = self.added.into_inner()?;
        file.rewind()?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut number = || {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let mut sum = 0_u64;
        for _ in 0..self.frames {
            let (ms, node, epoch, seq) = (number()?, number()?, number()? as u32, number()?);
            let order = ChangeOrder { ms, node, epoch, seq };
            for _ in 0..number()? {
                let hash = number()?;
                sum = sum.wrapping_add(hash);
                if self.deleted.get(&hash).is_none_or(|last| *last < order) {
                    // Only the layout `blocked` comes here, whose hash is these 64 bits.
                    writer.push(bytemuck::cast::<u64, H>(hash));
                }
            }
        }
        writer.finish()?;
        Ok(sum)
    }

    fn named(&self, e: io::Error) -> Error {
        spilled(&self.folder, e)
    }
}

fn spilled(folder: &str, e: io::Error) -> Error {
    Error::spill(io::Error::new(e.kind(), format!("the temporary file in {folder}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_late_until_a_record_says_that_the_day_is_in_the_store() {
        let day: Day = "2026-11-19".parse().unwrap();
        let filter: FilterName = "rt".parse().unwrap();
        let keys = [SegmentKey { filter, day, node: 7, epoch: 1, first_seq: 1 }];
        let late = |heads: &[(u64, Head)]| late_logs(heads, day, &keys).collect::<Vec<_>>();
        let head = |through| Head { server: "vm".into(), seq: 3, through, created_ms: None };
        assert_eq!(late(&[(7, head(day.end()))]), [""; 0]);
        assert!(late(&[(7, head(day.minus(1).end()))])[0].contains("up to 2026-11-19T00:00:00Z"));
        // Another log's says nothing.
        assert!(late(&[(8, head(day.end()))])[0].contains("no readable record"));
    }
}
