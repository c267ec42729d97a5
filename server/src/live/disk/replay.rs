//! A set from its log: at the start of a process, and never later.
//!
//! An open segment may end in the middle of a frame: that is what a process leaves which was killed
//! while it wrote, and no client was answered that the frame is safe. The tail is cut, and the
//! segment closed. If sound frames are in that tail, it was damaged: then a copy of the file stays.
//! Damage anywhere else is an error: it would lose IDs that were acknowledged.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::live::segment::{Frame, Frames, HEADER_BYTES, Header, Op, has_frame};

use crate::error::Error;
use crate::live::log::{close, sync_folder};
use crate::live::memory::budget::Budget;
use crate::live::memory::near::Near;
use crate::live::memory::writer::{AddError, Writer};
use crate::live::options::{Key, Kind, Options};
use crate::live::set::Before;

/// The longest segment that is read: many times what is written.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The extension of the copy of a segment whose tail was cut although there were sound frames in
/// it.
const DAMAGED: &str = "damaged";
/// How long a start waits for the lock of its folder, and between two tries.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What a log says of its set.
pub(in crate::live) struct Replayed {
    pub(in crate::live) key: Key,
    pub(in crate::live) options: Options,
    pub(in crate::live) writer: Writer,
    pub(in crate::live) near: Option<Near>,
    pub(in crate::live) expires_at: Option<u64>,
    pub(in crate::live) next_seq: u64,
    pub(in crate::live) epoch: u32,
    /// The number of the log, if its segments have one.
    pub(in crate::live) node: Option<u64>,
    pub(in crate::live) before: Before,
}

/// Reads the log in a folder. `None` when it has no set: it was dropped, or never began.
///
/// # Errors
/// [`Error::Segment`] for a damaged segment: restore it, or remove the folder and lose the set.
/// [`Error::LiveMemory`] when the set does not fit.
pub(in crate::live) fn replay(
    folder: &Path,
    budget: &Arc<Budget>,
) -> Result<Option<Replayed>, Error> {
    let mut replaying = Replaying { number: None, set: None, next_seq: 1, epoch: 0, node: None };
    let segments = segments(folder)?;
    for (path, length) in &segments {
        let corrupt = |why: String| Error::Segment { file: path.display().to_string(), why };
        if *length > MAX_SEGMENT_BYTES {
            return Err(corrupt(format!("it has {length} bytes, and at most {MAX_SEGMENT_BYTES}")));
        }
        let content = fs::read(path).map_err(|source| system("read", path, source))?;
        let is_open = path.extension().is_some_and(|extension| extension == "open");
        if is_open && content.len() < HEADER_BYTES {
            // Killed before its header was written, and so before any frame.
            tracing::warn!("{}: it has no complete header, and is removed", path.display());
            fs::remove_file(path).map_err(|source| system("remove", path, source))?;
            continue;
        }
        let parsed = if is_open { Frames::of_open(&content) } else { Frames::of_closed(&content) };
        let (header, mut frames) = parsed.map_err(|bad| corrupt(bad.to_string()))?;
        replaying.begin_segment(&header).map_err(corrupt)?;
        for frame in frames.by_ref().map_while(Result::ok) {
            replaying.apply(&frame, &segments, budget).map_err(|why| match why {
                ReplayError::Corrupt(why) => corrupt(why.to_owned()),
                ReplayError::Memory => Error::LiveMemory { limit: budget.limit() },
            })?;
        }
        replaying.next_seq = frames.next_seq();
        if is_open {
            end(path, &content, frames.good_bytes())?;
        }
    }
    let Replaying { set, next_seq, epoch, node, .. } = replaying;
    let Some(set) = set else {
        // It never began, or was dropped. What cannot be removed now is read again at the next
        // start.
        segments.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
        segments.iter().for_each(|(path, _)| drop(fs::remove_file(path.with_extension("seg"))));
        let _ = fs::remove_dir(folder);
        return Ok(None);
    };
    Ok(Some(Replayed { next_seq, epoch, node, ..set }))
}

/// What is in a folder.
#[derive(Default)]
pub(in crate::live) struct Contents {
    /// Whether there is a segment, or what a start left of one.
    pub(in crate::live) has_segment: bool,
    /// Whether there is anything else.
    pub(in crate::live) has_other: bool,
}

impl Contents {
    pub(in crate::live) fn of(folder: &Path) -> std::io::Result<Contents> {
        let ours = ["open", "seg", DAMAGED];
        let mut contents = Contents::default();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if extension.is_some_and(|extension| ours.contains(&extension)) {
                contents.has_segment = true
            } else {
                contents.has_other = true
            }
        }
        Ok(contents)
    }
}

/// The segments of a folder with their lengths, in the order in which they were written.
fn segments(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let list = || -> std::io::Result<Vec<(PathBuf, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "open" || extension == "seg") {
                found.push((path, entry.metadata()?.len()));
            }
        }
        // Names begin with epoch and number, in digits of one length.
        found.sort_unstable();
        Ok(found)
    };
    let found = list().map_err(|source| system("list", folder, source))?;
    // A pipe would be waited for.
    match found.iter().find(|(path, _)| !path.is_file()) {
        Some((path, _)) => Err(Error::Segment {
            file: path.display().to_string(),
            why: "it is no file".to_owned(),
        }),
        None => Ok(found),
    }
}

/// How many entries a log without a window leaves: those that were added, less those that were
/// deleted. What cannot be read does not count.
///
/// Cost: the log is read twice, which takes less than the table's growth would.
fn entries(segments: &[(PathBuf, u64)]) -> u64 {
    let mut entries = 0_u64;
    for (path, _) in segments.iter().filter(|(_, length)| *length <= MAX_SEGMENT_BYTES) {
        let Ok(content) = fs::read(path) else { continue };
        // The tail of an open one does not matter.
        let Ok((_, frames)) = Frames::of_open(&content) else { continue };
        for frame in frames.map_while(Result::ok) {
            let many = frame.hashes().len() as u64;
            match frame.op {
                Op::Add => entries += many,
                Op::Delete => entries = entries.saturating_sub(many),
                Op::Reserve | Op::Drop | Op::Expire => {}
            }
        }
    }
    entries
}

/// Cuts the tail of an open segment, and closes it. A copy stays if the tail is more than a frame
/// that was being written.
fn end(path: &Path, content: &[u8], good: usize) -> Result<(), Error> {
    let cut = || {
        let (tail, name) = (&content[good..], path.display());
        if has_frame(tail) {
            let copy = path.with_extension(DAMAGED);
            fs::write(&copy, content)?;
            File::open(&copy)?.sync_all()?;
            let (lost, copy) = (tail.len(), copy.display());
            tracing::error!(
                "{name}: the frame at byte {good} is damaged; the {lost} bytes from there on are cut, and \
                 acknowledged IDs may be among them; the file as it was is {copy}"
            );
        } else if !tail.is_empty() {
            tracing::warn!("{name}: {} bytes of an incomplete frame are cut", tail.len());
        }
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        file.set_len(good as u64)?;
        file.sync_data()?;
        crash_point("live-cut");
        close(&file, path, good as u64)
    };
    cut().map_err(|source| system("close", path, source))
}

fn system(doing: &str, path: &Path, source: std::io::Error) -> Error {
    Error::System { doing: format!("{doing} {}", path.display()), source }
}

/// Takes the lock of a data folder, for as long as the file is open. One that just ended may still
/// have it for a moment: waits at most [`MAX_LOCK_WAIT`].
pub(in crate::live) fn lock_folder(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    create_folder(folder).map_err(|source| system("create", folder, source))?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|source| system("write", &path, source))?;
    let lock = || {
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if began.elapsed() < MAX_LOCK_WAIT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                locked => return locked,
            }
        }
    };
    match lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::FolderInUse { folder: folder.display().to_string() })
        }
        Err(TryLockError::Error(source)) => Err(system("lock", &path, source)),
    }
}

/// Creates a folder and those above it that are not there, for this user alone: whoever reads the
/// hashes in a log can test guessed IDs. What is in a folder is safe when the names of all of them
/// are.
fn create_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    // None above a name in the working directory, which is there even if nobody may look.
    let above = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    above.map_or(Ok(()), create_folder)?;
    let parent = above.unwrap_or(Path::new("."));
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        // By another process.
        Err(_) if folder.is_dir() => return Ok(()),
        created => created?,
    }
    match sync_folder(parent) {
        // Others' folder, in which this process may write and not read: its names are theirs.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        // Not left behind unsynced, to be taken for a safe one by the next start.
        synced => synced.inspect_err(|_| _ = fs::remove_dir(folder)),
    }
}

struct Replaying {
    /// The number of the set, as the first segment has it.
    number: Option<u64>,
    /// Its number, epoch and node are those of the whole log, which are known at its end.
    set: Option<Replayed>,
    next_seq: u64,
    epoch: u32,
    node: Option<u64>,
}

enum ReplayError {
    Corrupt(&'static str),
    Memory,
}

impl Replaying {
    /// Begins the next segment: checks that it continues this log, and takes its epoch and node.
    fn begin_segment(&mut self, header: &Header) -> Result<(), String> {
        let Header { set, node, first_seq, epoch, .. } = *header;
        let is_other_node = self.node.is_some_and(|before| node != 0 && node != before);
        if *self.number.get_or_insert(set) != set || is_other_node {
            return Err("it belongs to another log".to_owned());
        }
        match first_seq.cmp(&self.next_seq) {
            Ordering::Greater => {
                let (first, last) = (self.next_seq, first_seq - 1);
                return Err(format!(
                    "the frames {first} to {last}, which come before it, are missing"
                ));
            }
            Ordering::Less => return Err("its frames are in another segment already".to_owned()),
            Ordering::Equal => {}
        }
        self.epoch = self.epoch.max(epoch);
        self.node = Some(node).filter(|node| *node != 0).or(self.node);
        Ok(())
    }

    /// Makes the change of a frame of these segments.
    fn apply(
        &mut self,
        frame: &Frame<'_>,
        segments: &[(PathBuf, u64)],
        budget: &Arc<Budget>,
    ) -> Result<(), ReplayError> {
        if frame.op == Op::Reserve {
            return self.begin(frame, segments, budget);
        }
        let set = self.set.as_mut();
        let set = set.ok_or(ReplayError::Corrupt("it does not begin with a record of options"))?;
        set.before.last_ms = frame.ms.max(set.before.last_ms);
        if set.options.is_over_day {
            set.before.deletions.note(frame.op, frame.ms, frame.hashes());
        }
        match frame.op {
            Op::Add => set.add(frame)?,
            Op::Delete => {
                set.writer.tick(frame.ms);
                for hash in frame.hashes() {
                    if set.options.is_over_day {
                        // Of the IDs that a day has, the log does not say how many were hits.
                        set.writer.hide(hash).map_err(|_| ReplayError::Memory)?;
                    } else {
                        set.before.deleted += u64::from(set.writer.delete(hash));
                    }
                }
            }
            Op::Expire => {
                let at = frame.record().first_chunk();
                let at = at.ok_or(ReplayError::Corrupt("a time cannot be read"))?;
                set.expires_at = Some(u64::from_le_bytes(*at)).filter(|at| *at != u64::MAX);
            }
            Op::Drop => self.set = None,
            Op::Reserve => {}
        }
        Ok(())
    }

    /// Makes the set with the options of the first frame.
    fn begin(
        &mut self,
        frame: &Frame<'_>,
        segments: &[(PathBuf, u64)],
        budget: &Arc<Budget>,
    ) -> Result<(), ReplayError> {
        let (key, options) = Options::parse(frame.record())
            .ok_or(ReplayError::Corrupt("a record of options cannot be read"))?;
        if self.set.is_some() {
            return Err(ReplayError::Corrupt("it has a second record of options"));
        }
        if self.number != Some(key.number()) {
            return Err(ReplayError::Corrupt("its record of options is of another set"));
        }
        let mut writer = Writer::new(options.window, budget.clone()).ok_or(ReplayError::Memory)?;
        // So most shards grow once. What a window renews is in the log more than once, and not
        // counted.
        if options.window.steps.is_none() {
            writer.reserve(entries(segments));
        }
        let mut near = None;
        if options.kind == Kind::Near {
            let made = Near::new(options.window, budget.clone()).ok_or(ReplayError::Memory)?;
            near.insert(made).reserve(options.capacity);
        }
        let (expires_at, next_seq, epoch) = (None, 0, 0);
        self.set = Some(Replayed {
            key,
            options,
            writer,
            near,
            expires_at,
            next_seq,
            epoch,
            node: None,
            before: Before { last_ms: frame.ms, ..Before::default() },
        });
        Ok(())
    }
}

impl Replayed {
    /// Adds the hashes of a frame.
    fn add(&mut self, frame: &Frame<'_>) -> Result<(), ReplayError> {
        let Replayed { options, writer, near, .. } = self;
        let step = options.window.step_at(frame.ms);
        writer.tick(frame.ms);
        if let Some(near) = near {
            near.go_to(step);
            for fingerprint in frame.hashes() {
                near.insert(fingerprint).map_err(|_| ReplayError::Memory)?;
            }
        } else if options.kind == Kind::Cuckoo {
            for hash in frame.hashes() {
                // More copies than there may be are not there.
                writer.add_copy(hash).or_else(|refused| refused.or_memory())?;
            }
        } else if step < writer.table().step() || options.window.keeps_first() {
            // Hashes of an earlier step came from a set that this one was united with.
            for hash in frame.hashes() {
                writer.add_logged(hash, step).map_err(|_| ReplayError::Memory)?;
            }
        } else {
            let hashes: Vec<u64> = frame.hashes().collect();
            writer.add_each(&hashes, |_, _| ()).map_err(|_| ReplayError::Memory)?;
        }
        Ok(())
    }
}

impl AddError {
    fn or_memory(self) -> Result<(), ReplayError> {
        if self == AddError::Memory { Err(ReplayError::Memory) } else { Ok(()) }
    }
}
