//! [`Log`]: what was changed in one set, on disk before it is acknowledged. The one owner of its
//! files; it knows hashes and records, not who sends them.
//!
//! Changes are appended in memory in the order of the table's changes. Then whoever waits for them
//! writes all that there is, or one thread does that and syncs, for all that wait (group commit).
//!
//! After a failed sync nobody knows what is on disk, and the next sync would not tell: so a failed
//! sync is final. A failed write is taken back, and tried again.
//!
//! | module | contents |
//! |---|---|
//! | `syncer` | the thread that syncs logs, and what waits for it |
//! | `sync` | one sync of a log, for all that wait |
//! | `older_copy` | whether the folder was restored from an older copy |
//! | `tail` | the frames of a log that follow a number, while its writer appends |

mod older_copy;
mod sync;
pub(super) mod syncer;
pub(super) mod tail;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::live::segment::{self, Frames, Header, MAX_FRAME_HASHES, Op};
use tokio::sync::watch;

use self::syncer::Syncer;
use super::lock::lock;

/// A segment that is longer is closed as soon as all of it is synced, and another begun.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The most bytes of an open segment. One that is written to during each sync grows past
/// [`SEGMENT_BYTES`]; here the writer waits for the sync, because a start reads a whole segment
/// into memory.
const MAX_OPEN_BYTES: u64 = if cfg!(test) { 16 << 20 } else { 256 << 20 };
/// The most segments that wait until they can be closed; with more, the open one grows on.
const MAX_FULL: usize = 16;
/// How long after a segment could not be closed that is tried again: it is read for that.
const CLOSE_INTERVAL: Duration = Duration::from_secs(60);
/// The most bytes that wait for the disk; with more, changes are refused.
const MAX_PENDING_BYTES: usize = 64 << 20;
/// How long an acknowledgement waits for the engine or the store.
const MAX_SHIP_WAIT: Duration = Duration::from_secs(30);
/// The capacity that a buffer keeps when it is empty again.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Who writes a log, and for whom: what its segments' headers say.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) set: u64,
    /// A number that only this log has, for as long as its folder exists.
    pub(super) node: u64,
    pub(super) epoch: u32,
    /// When this process opened the log.
    pub(super) created_ms: u64,
}

/// The log of one set.
pub(super) struct Log {
    folder: PathBuf,
    /// The lock file of the data folder, kept until the last log is dropped: no second process
    /// opens a folder that is still written to.
    _lock: Arc<File>,
    identity: Identity,
    pending: Mutex<Pending>,
    files: Mutex<LogFiles>,
    /// The number of the last frame that was there when the log was opened.
    opened_seq: u64,
    /// The number of the last frame that is synced.
    synced: watch::Sender<u64>,
    failure: ArcSwapOption<Failure>,
    /// Whether the store has other frames under its numbers.
    is_older_copy: AtomicBool,
    syncer: Arc<Syncer>,
    /// Whether it is in the syncer's queue.
    is_queued: AtomicBool,
    /// Set under the lock of `files`.
    is_removed: AtomicBool,
    /// Whether it was reported that its folder cannot be removed.
    is_stuck: AtomicBool,
    #[cfg(test)]
    pub(super) failing_syncs: AtomicBool,
    #[cfg(test)]
    pub(super) failing_writes: AtomicBool,
    /// The number of the last frame that is written, synced or not.
    written: AtomicU64,
    /// The number of the last frame that others can read, if acknowledgements wait for that.
    shipped: OnceLock<watch::Receiver<u64>>,
}

/// Frames that are not written yet.
struct Pending {
    bytes: Vec<u8>,
    next_seq: u64,
}

/// The segments that are not closed yet.
#[derive(Default)]
struct LogFiles {
    open: Option<OpenSegment>,
    /// Those that are long enough and synced, in order, until they are closed. Nothing is written
    /// behind a segment that is not synced: after a loss of power it could be there, and the end of
    /// that one not.
    full: Vec<OpenSegment>,
    /// When one of them could not be closed.
    not_closed: Option<Instant>,
    /// What could not be written, or was taken to be written.
    unwritten: Vec<u8>,
    /// The number of the last frame in it. The first one is the one after `Log::written`.
    last_unwritten: u64,
}

struct OpenSegment {
    path: PathBuf,
    file: Arc<File>,
    /// The length of what is good.
    bytes: u64,
    /// Whether there may be a part of a frame after it.
    is_torn: bool,
    /// The folders whose sync makes its name safe, until it is: open, since a log that is dropped
    /// gives its folder another name.
    unsynced_folders: Arc<[File]>,
}

/// Why changes are refused.
struct Failure {
    why: Arc<str>,
    is_final: bool,
}

impl Log {
    /// A log whose next frame has this number. The first segment is made with the first frame.
    pub(super) fn new(
        folder: PathBuf,
        lock: Arc<File>,
        identity: Identity,
        next_seq: u64,
        syncer: Arc<Syncer>,
    ) -> Log {
        Log {
            folder,
            _lock: lock,
            identity,
            pending: Mutex::new(Pending { bytes: Vec::new(), next_seq }),
            files: Mutex::default(),
            opened_seq: next_seq.saturating_sub(1),
            synced: watch::Sender::new(next_seq.saturating_sub(1)),
            failure: ArcSwapOption::empty(),
            is_older_copy: AtomicBool::new(false),
            syncer,
            is_queued: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            #[cfg(test)]
            failing_syncs: AtomicBool::new(false),
            #[cfg(test)]
            failing_writes: AtomicBool::new(false),
            written: AtomicU64::new(next_seq.saturating_sub(1)),
            shipped: OnceLock::new(),
        }
    }

    /// Whether changes can be taken now.
    pub(super) fn check(&self) -> Result<(), Arc<str>> {
        if let Some(failure) = &*self.failure.load() {
            return Err(failure.why.clone());
        }
        if lock(&self.pending).bytes.len() > MAX_PENDING_BYTES {
            return Err("the disk is slower than the adds: add less at a time".into());
        }
        Ok(())
    }

    /// Why nothing can be written, or was synced, if that is so.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.failure.load().as_ref().map(|failure| failure.why.clone())
    }

    /// Appends hashes, in the order of the calls; returns the number of the last frame.
    pub(super) fn append(&self, ms: u64, op: Op, hashes: &[u64]) -> u64 {
        let mut pending = lock(&self.pending);
        let Pending { bytes, next_seq } = &mut *pending;
        for some in hashes.chunks(MAX_FRAME_HASHES) {
            segment::append_hashes(bytes, *next_seq, ms, op, some);
            *next_seq += 1;
        }
        *next_seq - 1
    }

    /// Appends a record; returns the number of its frame.
    pub(super) fn append_record(&self, ms: u64, op: Op, record: &[u8]) -> u64 {
        let mut pending = lock(&self.pending);
        let Pending { bytes, next_seq } = &mut *pending;
        segment::append_record(bytes, *next_seq, ms, op, record);
        *next_seq += 1;
        *next_seq - 1
    }

    /// The number of the last frame that was appended.
    pub(super) fn last_seq(&self) -> u64 {
        lock(&self.pending).next_seq - 1
    }

    /// The number of the last frame that is on the disk for certain.
    pub(super) fn synced_seq(&self) -> u64 {
        *self.synced.borrow()
    }

    /// The number that only this log has.
    pub(super) fn node(&self) -> u64 {
        self.identity.node
    }

    /// Changes whenever more is synced.
    #[cfg_attr(not(feature = "redis-streams"), allow(dead_code))] // streams wait for it
    pub(super) fn synced(&self) -> watch::Receiver<u64> {
        self.synced.subscribe()
    }

    /// From now on acknowledgements wait until others can read the frame, too.
    pub(super) fn require_shipped(&self, shipped: watch::Receiver<u64>) {
        // A log is shipped in one way that counts.
        let _ = self.shipped.set(shipped);
    }

    /// Whether acknowledgements wait until others can read the frame.
    pub(super) fn is_shipped_before_answers(&self) -> bool {
        self.shipped.get().is_some()
    }

    /// Waits until the frame with this number is as safe as promised.
    pub(super) async fn wait(self: &Arc<Log>, seq: u64) -> Result<(), Arc<str>> {
        self.wait_local(seq).await?;
        let Some(shipped) = self.shipped.get() else { return Ok(()) };
        let mut shipped = shipped.clone();
        let there = shipped.wait_for(|last| *last >= seq);
        match tokio::time::timeout(MAX_SHIP_WAIT, there).await {
            Ok(Ok(_)) => Ok(()),
            _ => {
                Err("it is on the disk, and other servers cannot read it yet: see ship_error and \
                      engine_error in /status"
                    .into())
            }
        }
    }

    async fn wait_local(self: &Arc<Log>, seq: u64) -> Result<(), Arc<str>> {
        if self.syncer.acks_wait_for_sync() {
            return self.wait_synced(seq).await;
        }
        if self.written.load(Ordering::Acquire) >= seq {
            return Ok(());
        }
        self.write()
    }

    /// Waits until the frame with this number is synced, whatever is promised.
    pub(super) async fn wait_synced(self: &Arc<Log>, seq: u64) -> Result<(), Arc<str>> {
        if *self.synced.borrow() >= seq {
            return Ok(());
        }
        self.queue();
        let mut synced = self.synced.subscribe();
        loop {
            if *synced.borrow_and_update() >= seq {
                return Ok(());
            }
            if let Some(failure) = &*self.failure.load() {
                return Err(failure.why.clone());
            }
            // The sender is in `self`.
            let _ = synced.changed().await;
        }
    }

    /// Puts the log into the syncer's queue.
    pub(super) fn queue(self: &Arc<Log>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.syncer.add(self.clone());
        }
    }

    /// Writes all frames that wait. They are synced later, and what cannot be written now is tried
    /// again.
    pub(super) fn write(self: &Arc<Log>) -> Result<(), Arc<str>> {
        let written = self.write_to(&mut lock(&self.files));
        // After it: a sync that began before does not have these frames.
        self.queue();
        written
    }

    /// Whether no sync has failed.
    fn check_synced(&self) -> Result<(), Arc<str>> {
        match &*self.failure.load() {
            Some(failure) if failure.is_final => Err(failure.why.clone()),
            _ => Ok(()),
        }
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        if self.failing_syncs.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk of this test"));
        }
        file.sync_data()
    }

    /// Writes all pending frames to the open segment. The caller has the lock of the files: a
    /// failure that is noted after another thread's success would stay for ever, and after a failed
    /// sync nobody writes.
    fn write_to(&self, files: &mut LogFiles) -> Result<(), Arc<str>> {
        self.check_synced()?;
        let LogFiles { unwritten, last_unwritten, .. } = files;
        {
            let mut pending = lock(&self.pending);
            if unwritten.is_empty() {
                mem::swap(unwritten, &mut pending.bytes);
            } else {
                unwritten.append(&mut pending.bytes);
            }
            *last_unwritten = pending.next_seq - 1;
        }
        if unwritten.is_empty() {
            return Ok(());
        }
        if self.is_removed.load(Ordering::Relaxed) {
            // Nobody will look for these.
            unwritten.clear();
            (files.open, files.full) = (None, Vec::new());
            self.written.store(*last_unwritten, Ordering::Release);
            return Ok(());
        }
        let mut begin = 0;
        let mut result = Ok(());
        while result.is_ok() && begin < files.unwritten.len() {
            let written = self.write_frames(files, begin).map(|bytes| begin += bytes);
            result = written.map_err(|error| self.fail("write", &error, false));
            result = result.and_then(|()| {
                let synced = self.end_full(files);
                synced.map_err(|error| self.fail("sync", &error, true))
            });
            result = result.and_then(|()| self.check_synced());
        }
        files.unwritten.drain(..begin);
        files.unwritten.shrink_to(KEPT_BUFFER_BYTES);
        result?;
        if !self.syncer.acks_wait_for_sync() {
            self.replace_failure(None);
        }
        Ok(())
    }

    /// Writes as many of the unwritten frames that begin at this byte as the open segment takes.
    /// Returns their length.
    fn write_frames(&self, files: &mut LogFiles, begin: usize) -> io::Result<usize> {
        #[cfg(test)]
        if self.failing_writes.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk of this test"));
        }
        let LogFiles { open, unwritten, last_unwritten, .. } = files;
        let first_seq = self.written.load(Ordering::Relaxed) + 1;
        let segment = match open {
            Some(segment) => segment,
            None => open.insert(self.create(first_seq)?),
        };
        if segment.is_torn {
            // A part of a frame would make all later ones unreadable.
            segment.file.set_len(segment.bytes)?;
        }
        let unwritten = &unwritten[begin..];
        let missing = MAX_OPEN_BYTES.saturating_sub(segment.bytes) as usize;
        let (bytes, next_seq) = if unwritten.len() <= missing {
            (unwritten.len(), *last_unwritten + 1)
        } else {
            first_frames(unwritten, first_seq, missing)?
        };
        segment.is_torn = true;
        (&*segment.file).write_all(&unwritten[..bytes])?;
        crash_point("live-written");
        segment.is_torn = false;
        segment.bytes += bytes as u64;
        self.written.store(next_seq - 1, Ordering::Release);
        Ok(bytes)
    }

    /// Syncs the open segment if it takes no more, and lets the next frame begin another.
    fn end_full(&self, files: &mut LogFiles) -> io::Result<()> {
        let Some(open) = files.open.take_if(|open| open.bytes >= MAX_OPEN_BYTES) else {
            return Ok(());
        };
        open.unsynced_folders.iter().try_for_each(File::sync_all)?;
        self.sync_data(&open.file)?;
        files.full.push(open);
        Ok(())
    }

    /// Notes a failure, or that there is none. A final one stays, whoever comes later.
    fn replace_failure(&self, failure: Option<Failure>) {
        let failure = failure.map(Arc::new);
        self.failure.rcu(|before| match before {
            Some(before) if before.is_final => Some(before.clone()),
            _ => failure.clone(),
        });
    }

    /// Makes an open segment.
    fn create(&self, first_seq: u64) -> io::Result<OpenSegment> {
        let Identity { set, node, epoch, created_ms } = self.identity;
        let path = self.folder.join(format!("{epoch:08x}-{first_seq:016x}.open"));
        let header = Header { set, node, epoch, first_seq, created_ms }.encode();
        fs::create_dir_all(&self.folder)?;
        // A file that a failed attempt left has no frame: it can be cut.
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        file.set_len(0)?;
        file.write_all(&header)?;
        let parent = self.folder.parent().unwrap_or(&self.folder);
        let unsynced_folders = Arc::new([File::open(&self.folder)?, File::open(parent)?]);
        crash_point("live-created");
        let (file, bytes) = (Arc::new(file), header.len() as u64);
        Ok(OpenSegment { path, file, bytes, is_torn: false, unsynced_folders })
    }

    /// Closes segments that are long enough, if all of them is synced: of the open one so many
    /// bytes. The next frame begins another. Those that cannot be closed now are tried again later.
    fn rotate(&self, synced: u64) {
        let mut files = lock(&self.files);
        let may_wait = files.full.len() < MAX_FULL;
        let is_full = |open: &mut OpenSegment| open.bytes == synced && synced >= SEGMENT_BYTES;
        let ended = files.open.take_if(|open| may_wait && is_full(open));
        files.full.extend(ended);
        if files.not_closed.is_some_and(|at| at.elapsed() < CLOSE_INTERVAL) {
            return;
        }
        let full = mem::take(&mut files.full);
        drop(files);
        let mut left = Vec::new();
        for segment in full.into_iter().take_while(|_| !self.is_removed()) {
            if let Err(error) = close(&segment.file, &segment.path, segment.bytes) {
                let path = segment.path.display();
                tracing::warn!("cannot close {path}: {error}; it is tried again");
                left.push(segment);
            }
        }
        let mut files = lock(&self.files);
        files.not_closed = (!left.is_empty()).then(Instant::now);
        files.full.splice(..0, left);
    }

    /// Refuses changes from now on: until a write succeeds, or until a restart.
    pub(super) fn fail(&self, doing: &str, error: &io::Error, is_final: bool) -> Arc<str> {
        let folder = self.folder.display();
        let remedy = if is_final { "restart the server" } else { "it is tried again" };
        let why: Arc<str> = format!("cannot {doing} the log in {folder}: {error}; {remedy}").into();
        self.refuse(why.clone(), is_final);
        why
    }

    fn refuse(&self, why: Arc<str>, is_final: bool) {
        if self.failure.load().as_ref().is_none_or(|was| !was.is_final && was.why != why) {
            tracing::error!("{why}");
        }
        self.replace_failure(Some(Failure { why, is_final }));
        // Those that wait look again.
        self.synced.send_modify(|_| ());
    }

    /// Gives the folder another name, and writes no more. Returns whether there was a folder.
    ///
    /// # Errors
    /// The system's: then the log goes on.
    pub(super) fn remove(&self, to: &Path) -> io::Result<bool> {
        let _files = lock(&self.files);
        let is_there = match fs::rename(&self.folder, to) {
            // Nothing was written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            renamed => renamed.map(|()| true)?,
        };
        self.is_removed.store(true, Ordering::Relaxed);
        Ok(is_there)
    }

    /// Whether the folder has another name.
    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Why it was not removed, which is reported once.
    pub(super) fn not_removed(&self, error: &io::Error) -> Arc<str> {
        let why = format!("cannot remove the log in {}: {error}", self.folder.display());
        if !self.is_stuck.swap(true, Ordering::Relaxed) {
            tracing::error!("{why}");
        }
        why.into()
    }

    /// The folder of its segments.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The length of the fewest of the first frames that have at least `bytes` bytes, or of all; and
/// the number of the frame after them. The frames are whole, and the first has the number `seq`.
fn first_frames(frames: &[u8], seq: u64, bytes: usize) -> io::Result<(usize, u64)> {
    let (mut length, mut next_seq) = (0, seq);
    for frame in Frames::of_rest(frames, seq) {
        let frame = frame.map_err(|bad| io::Error::other(bad.to_string()))?;
        (length, next_seq) = (length + frame.bytes().len(), frame.seq + 1);
        if length >= bytes {
            break;
        }
    }
    Ok((length, next_seq))
}

/// Ends an open segment of `bytes` bytes with its digest, and gives it its final name. The file
/// takes appends, and no new one is opened.
///
/// # Errors
/// The system's; then it may be tried again.
pub(super) fn close(mut file: &File, path: &Path, bytes: u64) -> io::Result<()> {
    // Without what a failed attempt, or a frame that was being written, left.
    file.set_len(bytes)?;
    let mut content = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut content, 0)?;
    file.write_all(blake3::hash(&content).as_bytes())?;
    file.sync_data()?;
    crash_point("live-closing");
    fs::rename(path, path.with_extension("seg"))?;
    crash_point("live-closed");
    // If the rename is lost in a crash, the file is read under its old name.
    let _ = path.parent().map_or(Ok(()), sync_folder);
    Ok(())
}

/// Makes the names in a folder safe.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
