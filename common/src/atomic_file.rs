//! [`write()`]: writes or replaces a small or large file, completely or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many names are tried for the temporary file, where something else has the first, or another
/// writer.
const MAX_NAMES: u32 = 8;

/// A step of [`write()`] that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// The temporary file is complete and durable.
    Staged,
    /// It has the name.
    Renamed,
}

/// Writes `bytes` to `path`, in place of what is there. After a crash at any moment the file is
/// complete: the old one or the new one. `done` is called after each step.
///
/// Cost: a write and three calls that wait for the disk. Shape: the temporary file is `.NAME.tmp`
/// in the same folder. One that a crash left there is removed. If something other than a file has
/// the name, or a writer at work has it, one of seven more names is tried. Of up to eight writers
/// at once the last one wins.
///
/// ```
/// use bloomsday_common::atomic_file;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("state");
/// atomic_file::write(&path, b"first", |_| {})?;
/// atomic_file::write(&path, b"second", |_| {})?;
/// assert_eq!(std::fs::read(&path)?, b"second");
/// assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The system's. What was at `path` is still there then, unless only the last call failed, which
/// makes the new name durable.
pub fn write(path: &Path, bytes: &[u8], done: impl Fn(WriteStep)) -> io::Result<()> {
    write_by(path, |mut file| file.write_all(bytes), done)
}

/// As [`write()`], of what `fill` writes.
///
/// # Errors
/// Also those of `fill`.
pub fn write_by<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&File) -> Result<(), E>,
    done: impl Fn(WriteStep),
) -> Result<(), E> {
    let (file, temporary) = create_temporary(path)?;
    let write = || {
        fill(&file)?;
        file.sync_all()?;
        done(WriteStep::Staged);
        if !is_at(&file, &temporary) {
            return Err(io::Error::other("another program has taken the temporary file").into());
        }
        fs::rename(&temporary, path)?;
        done(WriteStep::Renamed);
        Ok(())
    };
    write().inspect_err(|_: &E| {
        // Half a file would only fill the disk; if this fails, too, the next write tries again.
        if is_at(&file, &temporary) {
            let _ = fs::remove_file(&temporary);
        }
    })?;
    // Without this the rename itself may not survive a power failure.
    Ok(File::open(folder_of(path))?.sync_all()?)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a new file: a link that somebody left under the name must not be written through, and a
/// pipe would make the writer wait.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = |n: u32| {
        let number = if n == 0 { String::new() } else { n.to_string() };
        folder_of(path).join(format!(".{name}.tmp{number}"))
    };
    (0..MAX_NAMES).for_each(|n| remove_if_left(&temporary(n)));
    for temporary in (0..MAX_NAMES).map(temporary) {
        match File::create_new(&temporary) {
            Ok(file) if lock(&file) && is_at(&file, &temporary) => return Ok((file, temporary)),
            // Another writer came between, and took it for one that was left.
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    let why = format!("{MAX_NAMES} names for a temporary file are in use");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

/// Removes a temporary file that a crash left: one that nobody has locked. If that fails, the next
/// name is tried.
fn remove_if_left(temporary: &Path) {
    if fs::symlink_metadata(temporary).is_ok_and(|about| about.is_file())
        // To write: some network file systems lock nothing else.
        && let Ok(file) = File::options().read(true).write(true).open(temporary)
        && lock(&file)
        && is_at(&file, temporary)
    {
        let _ = fs::remove_file(temporary);
    }
}

/// Locks a file until it is closed. `false` if another writer has locked it. Some network file
/// systems have no locks; there every file counts as free, and [`is_at`] tells a writer whose file
/// was taken.
fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether a file still has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let (file, there) = (file.metadata()?, fs::symlink_metadata(path)?);
        Ok((file.dev(), file.ino()) == (there.dev(), there.ino()))
    };
    same().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        // A folder with something in it cannot be replaced by a file.
        let path = folder.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("x"), "old").unwrap();
        assert!(write(&path, b"new", |_| {}).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read(path.join("x")).unwrap(), b"old");
    }

    #[test]
    fn of_two_writers_neither_takes_what_the_other_has_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        // The second one begins and ends while the first one is at work.
        write(&path, b"first", |step| {
            if step == WriteStep::Staged {
                write(&path, b"second", |_| {}).unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"second");
            }
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        // Or the first one ends while the second one is at work.
        let (mut half, temporary) = create_temporary(&path).unwrap();
        half.write_all(b"ha").unwrap();
        write(&path, b"third", |_| {}).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::read(&temporary).unwrap(), b"ha");
    }

    #[test]
    fn many_writers_at_once_leave_one_complete_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        write(path, &[writer; 50_000], |_| {}).unwrap();
                        let bytes = fs::read(path).unwrap();
                        assert!(bytes.len() == 50_000 && bytes.iter().all(|b| *b == bytes[0]));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_under_the_temporary_name_is_neither_followed_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, foreign) = (folder.path().join("state"), folder.path().join("foreign"));
        fs::write(&foreign, "foreign").unwrap();
        let link = folder.path().join(".state.tmp");
        std::os::unix::fs::symlink(&foreign, &link).unwrap();
        // What a crash left under the next name is replaced.
        fs::write(folder.path().join(".state.tmp1"), "half").unwrap();
        let steps = std::cell::RefCell::new(Vec::new());
        write(&path, b"new", |step| steps.borrow_mut().push(step)).unwrap();
        assert_eq!(*steps.borrow(), [WriteStep::Staged, WriteStep::Renamed]);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read(&foreign).unwrap(), b"foreign");
        assert_eq!(fs::read_link(&link).unwrap(), foreign);
        assert!(!folder.path().join(".state.tmp1").exists());
    }
}
