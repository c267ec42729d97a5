//! [`Disk`]: the data folder of a process, with a folder for the log of each set.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bloomsday_common::key::FilterName;

use super::ack::Ack;
use super::budget::Budget;
use super::log::{Identity, Log, sync_folder};
use super::options::Key;
use super::replay;
use super::set::LiveSet;
use super::syncer::Syncer;
use crate::error::Error;
use crate::random::random;

/// The end of the name of a folder whose set was dropped.
const DROPPED: &str = "dropped";

/// Where logs are.
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    syncer: Arc<Syncer>,
    epoch: u32,
    opened_ms: u64,
    /// Makes the name of each folder new.
    next_folder: AtomicU32,
    _lock: File,
}

impl Disk {
    /// Reads all logs.
    pub(super) fn open(
        folder: &Path,
        ack: Ack,
        opened_ms: u64,
        budget: &Arc<Budget>,
        sets: &mut BTreeMap<Key, Arc<LiveSet>>,
    ) -> Result<Disk, Error> {
        let lock = replay::lock_folder(folder)?;
        let system = |source| Error::System { doing: format!("read {}", folder.display()), source };
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder).map_err(system)? {
            let path = entry.map_err(system)?.path();
            if path.extension().is_some_and(|extension| extension == DROPPED) {
                fs::remove_dir_all(&path).map_err(system)?;
            } else if path.is_dir() {
                folders.push(path);
            }
        }
        // The later of two folders of one name was made when the set of the other was dropped.
        folders.sort_by_key(|path| number_of(path));
        let (mut epoch, mut found) = (0, BTreeMap::new());
        for path in &folders {
            let Some(replayed) = replay::replay(path, budget)? else {
                fs::remove_dir_all(path).map_err(system)?;
                continue;
            };
            epoch = epoch.max(replayed.epoch);
            if let Some((before, _)) = found.insert(replayed.key.clone(), (path, replayed)) {
                let before: &PathBuf = before;
                fs::remove_dir_all(before).map_err(system)?;
            }
        }
        let epoch = epoch.saturating_add(1);
        let next = folders.last().and_then(|path| number_of(path)).map_or(0, |last| last + 1);
        let (syncer, next_folder) = (Syncer::start(ack).map_err(system)?, AtomicU32::new(next));
        for (key, (path, mut replayed)) in found {
            replayed.writer.tick(opened_ms);
            let node = replayed.node.unwrap_or_else(new_node);
            let step = replayed.options.window.step_at(opened_ms);
            replayed.near.iter_mut().for_each(|near| near.go_to(step));
            let identity = Identity { set: key.number(), node, epoch, created_ms: opened_ms, ack };
            let log = Log::new(path.clone(), identity, replayed.next_seq, syncer.clone());
            let (options, writer, near) = (replayed.options, replayed.writer, replayed.near);
            let log = Some(Arc::new(log));
            let before = (replayed.last_ms, replayed.deletions);
            let ends = replayed.expires_at;
            let set = LiveSet::new(key.clone(), options, writer, near, log, ends, before);
            sets.insert(key, Arc::new(set));
        }
        Ok(Disk { folder: folder.to_owned(), syncer, epoch, opened_ms, next_folder, _lock: lock })
    }

    /// The log of a new set, in a folder of its own.
    pub(super) fn log(&self, key: &Key) -> Arc<Log> {
        let number = self.next_folder.fetch_add(1, Ordering::Relaxed);
        let text = std::str::from_utf8(&key.name).ok();
        let name = text.and_then(|text| text.parse::<FilterName>().ok());
        let name = match name {
            Some(name) if key.database == 0 => name.to_string(),
            _ => format!("{}-{:016x}", key.database, key.number()),
        };
        let folder = self.folder.join(format!("{name}-{number:08x}"));
        let ack = if self.syncer.is_prompt() { Ack::Synced } else { Ack::Written };
        let (set, epoch, created_ms) = (key.number(), self.epoch, self.opened_ms);
        let identity = Identity { set, node: new_node(), epoch, created_ms, ack };
        Arc::new(Log::new(folder, identity, 1, self.syncer.clone()))
    }

    /// Removes a log, so that its set is not found at the next start.
    pub(super) fn remove(&self, log: &Log) -> std::io::Result<()> {
        let gone = log.folder().with_extension(DROPPED);
        if !log.remove(&gone)? {
            return Ok(());
        }
        if self.syncer.is_prompt() {
            sync_folder(&self.folder)?;
        }
        fs::remove_dir_all(&gone)
    }
}

/// The number of a new log. Never 0.
fn new_node() -> u64 {
    random().max(1)
}

/// The number at the end of a folder's name.
fn number_of(folder: &Path) -> Option<u32> {
    let name = folder.file_name()?.to_str()?;
    u32::from_str_radix(name.rsplit_once('-')?.1, 16).ok()
}
