//! [`Tail`]: the frames of a log's files that follow a number, read while the writer appends and
//! closes files.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bloomsday_common::live::segment::{DIGEST_BYTES, Frames, HEADER_BYTES, Header};

/// How much of a file is read at once: many times the longest frame.
const MAX_READ_BYTES: u64 = 16 << 20;

/// Where the next frame of a log is.
pub(in crate::live) struct Tail {
    folder: PathBuf,
    position: Option<TailPosition>,
}

/// A position in a file.
struct TailPosition {
    /// The file's path without its extension, which a close changes.
    stem: PathBuf,
    header: Header,
    at: u64,
    next_seq: u64,
}

/// Frames that follow each other in one file.
pub(in crate::live) struct Piece {
    pub(in crate::live) header: Header,
    pub(in crate::live) bytes: Vec<u8>,
    /// The number of the first frame.
    pub(in crate::live) first_seq: u64,
}

impl Piece {
    pub(in crate::live) fn frames(&self) -> Frames<'_> {
        Frames::of_rest(&self.bytes, self.first_seq)
    }
}

impl Tail {
    pub(in crate::live) fn new(folder: &Path) -> Tail {
        Tail { folder: folder.to_owned(), position: None }
    }

    /// Begins anew with the next read.
    pub(in crate::live) fn restart(&mut self) {
        self.position = None;
    }

    /// The next piece that has a frame from `wanted` to `through`, and none after it; `None` when
    /// there is none yet.
    ///
    /// Cost: from one call to the next one, what was appended meanwhile is read. The first call
    /// reads the file that has the frame from its beginning.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidData`] for damage in a closed file.
    pub(in crate::live) fn read(&mut self, wanted: u64, through: u64) -> io::Result<Option<Piece>> {
        loop {
            let Some(position) = &mut self.position else {
                let Some(stem) = first_file(&self.folder, wanted)? else { return Ok(None) };
                let Some(position) = TailPosition::open(stem)? else { return Ok(None) };
                self.position = Some(position);
                continue;
            };
            let (mut bytes, closed) = position.read()?;
            let (mut good, mut last) = (0, None);
            let frames = Frames::of_rest(&bytes, position.next_seq);
            for frame in frames.map_while(Result::ok).take_while(|frame| frame.seq <= through) {
                (good, last) = (good + frame.bytes().len(), Some(frame.seq));
            }
            let is_all = good == bytes.len();
            bytes.truncate(good);
            let piece = Piece { header: position.header, bytes, first_seq: position.next_seq };
            let found = last.is_some_and(|last| last >= wanted);
            (position.at, position.next_seq) =
                (position.at + good as u64, last.map_or(position.next_seq, |last| last + 1));
            if found {
                return Ok(Some(piece));
            }
            if good > 0 {
                continue;
            }
            if position.next_seq > through {
                return Ok(None);
            }
            let next = file_after(&self.folder, &position.stem)?;
            // A file may be closed long after the one behind it was begun.
            let is_over = || next.as_deref().and_then(first_seq) == Some(position.next_seq);
            if closed.is_none() && !is_over() {
                return Ok(None);
            }
            if closed.is_some() && !is_all {
                let why =
                    format!("{}.seg is damaged at byte {}", position.stem.display(), position.at);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let Some(next) = next else { return Ok(None) };
            self.position = TailPosition::open(next)?;
            if self.position.is_none() {
                return Ok(None);
            }
        }
    }
}

/// A file that is closed: nothing will be appended.
struct IsClosed;

impl TailPosition {
    /// The first frame of a file. `None` while its header is not complete.
    fn open(stem: PathBuf) -> io::Result<Option<TailPosition>> {
        let (mut file, _) = open(&stem)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        file.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut header)?;
        if header.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::parse(&header).map_err(|bad| {
            let why = format!("{} cannot be used: {bad}", stem.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        let (at, next_seq) = (HEADER_BYTES as u64, header.first_seq);
        Ok(Some(TailPosition { stem, header, at, next_seq }))
    }

    /// What follows, and whether the file is closed and this is all of it.
    fn read(&self) -> io::Result<(Vec<u8>, Option<IsClosed>)> {
        let (mut file, closed) = open(&self.stem)?;
        let length = file.metadata()?.len();
        let trailer = if closed.is_some() { DIGEST_BYTES as u64 } else { 0 };
        let end = length.saturating_sub(trailer);
        let rest = end.saturating_sub(self.at);
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take(rest.min(MAX_READ_BYTES)).read_to_end(&mut bytes)?;
        Ok((bytes, closed))
    }
}

/// Opens a file that may be closed, and so renamed, at this moment.
fn open(stem: &Path) -> io::Result<(File, Option<IsClosed>)> {
    match File::open(stem.with_extension("open")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok((File::open(stem.with_extension("seg"))?, Some(IsClosed)))
        }
        opened => Ok((opened?, None)),
    }
}

/// The files of a log without their extensions, in the order in which they were written.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(folder) {
        // Nothing was written yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "open" || extension == "seg") {
            found.push(path.with_extension(""));
        }
    }
    // Names begin with epoch and number, in digits of one length.
    found.sort_unstable();
    // A file that was renamed while the folder was read is listed twice.
    found.dedup();
    Ok(found)
}

/// The file that has the frame with this number, or the first one after it.
fn first_file(folder: &Path, wanted: u64) -> io::Result<Option<PathBuf>> {
    let files = files(folder)?;
    let after = files.partition_point(|file| first_seq(file).is_none_or(|first| first <= wanted));
    Ok(files.into_iter().nth(after.saturating_sub(1)))
}

fn file_after(folder: &Path, stem: &Path) -> io::Result<Option<PathBuf>> {
    Ok(files(folder)?.into_iter().find(|file| file.as_path() > stem))
}

fn first_seq(stem: &Path) -> Option<u64> {
    let name = stem.file_name()?.to_str()?;
    u64::from_str_radix(name.split_once('-')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bloomsday_common::live::segment::{Op, append_hashes, closed};
    use tempfile::TempDir;

    use super::*;

    fn header(first_seq: u64) -> Header {
        Header { set: 1, node: 2, epoch: 1, first_seq, created_ms: 3 }
    }

    fn frames(seqs: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        seqs.for_each(|seq| append_hashes(&mut bytes, seq, 5, Op::Add, &[seq]));
        bytes
    }

    fn stem(folder: &TempDir, first_seq: u64) -> PathBuf {
        folder.path().join(format!("00000001-{first_seq:016x}"))
    }

    fn append(folder: &TempDir, first_seq: u64, bytes: &[u8]) {
        let path = stem(folder, first_seq).with_extension("open");
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.unwrap().write_all(bytes).unwrap();
    }

    fn close(folder: &TempDir, first_seq: u64, last_seq: u64) {
        fs::remove_file(stem(folder, first_seq).with_extension("open")).unwrap();
        let bytes = closed(&header(first_seq), &frames(first_seq..=last_seq));
        fs::write(stem(folder, first_seq).with_extension("seg"), bytes).unwrap();
    }

    fn read(tail: &mut Tail, wanted: u64, through: u64) -> Option<Vec<u64>> {
        let piece = tail.read(wanted, through).unwrap()?;
        Some(piece.frames().map(|frame| frame.unwrap().seq).collect())
    }

    #[test]
    fn frames_are_read_once_while_files_grow_are_closed_and_follow_each_other() {
        let folder = TempDir::new().unwrap();
        let mut tail = Tail::new(&folder.path().join("not yet"));
        assert_eq!(read(&mut tail, 1, 9), None);
        let mut tail = Tail::new(folder.path());
        append(&folder, 1, &header(1).encode()[..20]);
        assert_eq!(read(&mut tail, 1, 9), None, "the header is not complete");
        append(&folder, 1, &header(1).encode()[20..]);
        append(&folder, 1, &frames(1..=3));
        let four = frames(4..=4);
        append(&folder, 1, &four[..30]);
        assert_eq!(read(&mut tail, 1, 2), Some(vec![1, 2]));
        assert_eq!(read(&mut tail, 3, 9), Some(vec![3]));
        assert_eq!(read(&mut tail, 4, 9), None);
        append(&folder, 1, &four[30..]);
        close(&folder, 1, 4);
        append(&folder, 5, &header(5).encode());
        append(&folder, 5, &frames(5..=6));
        assert_eq!(read(&mut tail, 4, 9), Some(vec![4]));
        assert_eq!(read(&mut tail, 5, 4), None);
        assert_eq!(read(&mut tail, 5, 9), Some(vec![5, 6]));
        assert_eq!(read(&mut tail, 7, 9), None);
        // A new process finds its position.
        for (wanted, found) in [(1, vec![1, 2, 3, 4]), (4, vec![1, 2, 3, 4]), (6, vec![5, 6])] {
            assert_eq!(read(&mut Tail::new(folder.path()), wanted, 9), Some(found));
        }
        assert_eq!(read(&mut Tail::new(folder.path()), 7, 9), None);
    }

    #[test]
    fn a_file_that_cannot_be_closed_ends_where_the_one_behind_it_begins() {
        let folder = TempDir::new().unwrap();
        let mut tail = Tail::new(folder.path());
        for seqs in [1..=3, 4..=5, 7..=8] {
            let first = *seqs.start();
            append(&folder, first, &header(first).encode());
            append(&folder, first, &frames(seqs));
        }
        assert_eq!(read(&mut tail, 1, 9), Some(vec![1, 2, 3]));
        assert_eq!(read(&mut tail, 4, 9), Some(vec![4, 5]));
        // Who appends frame 6 to the second file has not done so yet, or never will.
        assert_eq!(read(&mut tail, 6, 9), None);
        append(&folder, 4, &frames(6..=6)[..30]);
        assert_eq!(read(&mut tail, 6, 9), None);
        append(&folder, 4, &frames(6..=6)[30..]);
        assert_eq!(read(&mut tail, 6, 9), Some(vec![6]));
        assert_eq!(read(&mut tail, 7, 9), Some(vec![7, 8]));
    }

    #[test]
    fn damage_in_a_closed_file_is_an_error() {
        let folder = TempDir::new().unwrap();
        append(&folder, 1, b"");
        close(&folder, 1, 4);
        let path = stem(&folder, 1).with_extension("seg");
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER_BYTES + 44] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = Tail::new(folder.path()).read(1, 9).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("damaged at byte 64"), "{error}");
    }
}
