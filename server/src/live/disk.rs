//! [`Disk`]: the data folder of a process, with a folder for the log of each set; `replay` makes a
//! set from its log.

pub(super) mod replay;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use bloomsday_common::random::random;

use self::replay::{Contents, Replayed};
use super::log::syncer::Syncer;
use super::log::{Identity, Log, sync_folder};
use super::memory::budget::Budget;
use super::options::Key;
use super::set::{LiveSet, MAX_CLOCK_SKEW_MS};
use crate::error::Error;

/// The end of the name of a folder whose set was dropped.
const DROPPED: &str = "dropped";
/// How far a clock may go back between two starts without a word.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(60);

/// Where logs are.
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    syncer: Arc<Syncer>,
    epoch: u32,
    opened_ms: u64,
    /// Makes the name of each folder new.
    next_folder: AtomicU32,
    /// That of the folder.
    lock: Arc<File>,
}

impl Disk {
    /// Reads all logs. `acks_wait_for_sync` is whether adds wait until they are synced.
    pub(super) fn open(
        folder: &Path,
        acks_wait_for_sync: bool,
        opened_ms: u64,
        budget: &Arc<Budget>,
        sets: &mut BTreeMap<Key, Arc<LiveSet>>,
    ) -> Result<Disk, Error> {
        let lock = Arc::new(replay::lock_folder(folder)?);
        let system = |source| Error::System { doing: format!("read {}", folder.display()), source };
        let folders = folders(folder).map_err(system)?;
        let (mut epoch, mut found) = (0, BTreeMap::<Key, (&PathBuf, Replayed)>::new());
        for path in &folders {
            let Some(replayed) = replay::replay(path, budget)? else { continue };
            epoch = epoch.max(replayed.epoch);
            if let Some((before, _)) = found.get(&replayed.key) {
                let (folder, other) = (path.display().to_string(), before.display().to_string());
                return Err(Error::TwoLogs { folder, other });
            }
            found.insert(replayed.key.clone(), (path, replayed));
        }
        let epoch = epoch.saturating_add(1);
        let next = folders.iter().filter_map(|path| number_of(path)).max();
        let next = next.map_or(0, |last| last.wrapping_add(1));
        let (syncer, next_folder) =
            (Syncer::start(acks_wait_for_sync).map_err(system)?, AtomicU32::new(next));
        for (key, (path, mut replayed)) in found {
            let allowed = if replayed.options.is_over_day {
                // Of changes after those of another server.
                Duration::from_millis(MAX_CLOCK_SKEW_MS)
            } else {
                MAX_CLOCK_STEP
            };
            warn_if_clock_is_behind(path, replayed.before.last_ms, opened_ms, allowed);
            replayed.writer.tick(opened_ms);
            let node = replayed.node.unwrap_or_else(new_node);
            let step = replayed.options.window.step_at(opened_ms);
            replayed.near.iter_mut().for_each(|near| near.go_to(step));
            let identity = Identity { set: key.number(), node, epoch, created_ms: opened_ms };
            let next_seq = replayed.next_seq;
            let log = Log::new(path.clone(), lock.clone(), identity, next_seq, syncer.clone());
            let (options, writer, near) = (replayed.options, replayed.writer, replayed.near);
            let log = Some(Arc::new(log));
            let before = replayed.before;
            // A log over a day's filter has no end: its IDs would go with it.
            let ends = replayed.expires_at.filter(|_| !options.is_over_day);
            let set = LiveSet::new(key.clone(), options, writer, near, log, ends, before);
            sets.insert(key, Arc::new(set));
        }
        Ok(Disk { folder: folder.to_owned(), syncer, epoch, opened_ms, next_folder, lock })
    }

    /// The log of a new set, in a folder of its own.
    pub(super) fn log(&self, key: &Key) -> Arc<Log> {
        let text = std::str::from_utf8(&key.name).ok();
        let name = text.and_then(|text| text.parse::<FilterName>().ok());
        let name = match name {
            Some(name) if key.database == 0 => name.to_string(),
            _ => format!("{}-{:016x}", key.database, key.number()),
        };
        let next = || self.next_folder.fetch_add(1, Ordering::Relaxed);
        let mut folders =
            std::iter::repeat_with(|| self.folder.join(format!("{name}-{:08x}", next())));
        let folder =
            folders.find(|folder| !folder.exists()).expect("it goes on until one is found");
        let (set, epoch, created_ms) = (key.number(), self.epoch, self.opened_ms);
        let identity = Identity { set, node: new_node(), epoch, created_ms };
        Arc::new(Log::new(folder, self.lock.clone(), identity, 1, self.syncer.clone()))
    }

    /// Removes a log, so that its set is not found at the next start, whatever happens until then.
    /// Returns the folder that is left to [`delete`].
    pub(super) fn remove(&self, log: &Log) -> std::io::Result<Option<PathBuf>> {
        let gone = log.folder().with_extension(DROPPED);
        if !log.remove(&gone)? {
            return Ok(None);
        }
        sync_folder(&self.folder)?;
        Ok(Some(gone))
    }
}

/// Deletes what [`Disk::remove`] left, which takes long for a large log.
pub(super) fn delete(gone: &Path) {
    if let Err(error) = fs::remove_dir_all(gone) {
        tracing::warn!("{} stays until the next start: {error}", gone.display());
    }
}

/// The number of a new log. Never 0.
fn new_node() -> u64 {
    random().max(1)
}

/// The folders of logs. Those whose sets were dropped are removed, and what is none of ours stays.
fn folders(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let is_dropped = path.extension().is_some_and(|extension| extension == DROPPED);
        let is_named = number_of(&path.with_extension("")).is_some();
        let Contents { has_segment, has_other } = Contents::of(&path)?;
        match is_dropped {
            true if is_named && !has_other => fs::remove_dir_all(&path)?,
            // Whatever else somebody put into it, a folder with segments is a log.
            false if is_named && (has_segment || !has_other) => found.push(path),
            _ => tracing::warn!("{} is not the folder of a log, and is left alone", path.display()),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The number at the end of a folder's name: eight digits.
fn number_of(folder: &Path) -> Option<u32> {
    let name = folder.file_name()?.to_str()?;
    let digits =
        name.rsplit_once('-').map(|(_, digits)| digits).filter(|digits| digits.len() == 8)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Tells when the clock is behind the last change of a log by so much that a window waits for it.
fn warn_if_clock_is_behind(folder: &Path, last_ms: u64, now_ms: u64, allowed: Duration) {
    let ahead = Duration::from_millis(last_ms.saturating_sub(now_ms));
    if ahead > allowed {
        tracing::error!(
            "{}: its last change is {} s in the future by this clock. Until then no window of it ends, and what is \
             added has that time and day: set the clock; delete a filter that clients made",
            folder.display(),
            ahead.as_secs()
        );
    }
}
