//! [`write()`]: writes or replaces a small or large file, completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How many names are tried for the temporary file, where something else has the first.
const MAX_NAMES: u32 = 8;

/// A step of [`write()`] that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The temporary file is complete and durable.
    Staged,
    /// It has the name.
    Renamed,
}

/// Writes `bytes` to `path`, in place of what is there. After a crash at any moment the file is
/// complete: the old one or the new one. `done` is called after each step.
///
/// Cost: a write and three calls that wait for the disk.
/// Shape: the temporary file is `.NAME.tmp` in the same folder. One that a crash left there is
/// replaced; if something other than a file has the name, another name is tried. Of several writers
/// at once one may fail: they need a lock.
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
pub fn write(path: &Path, bytes: &[u8], done: impl Fn(Step)) -> io::Result<()> {
    let (mut file, temporary) = create_temporary(path)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        done(Step::Staged);
        fs::rename(&temporary, path)?;
        done(Step::Renamed);
        Ok(())
    };
    write().inspect_err(|_: &io::Error| {
        // Half a file would only fill the disk; if this fails, too, the next write tries again.
        let _ = fs::remove_file(&temporary);
    })?;
    // Without this the rename itself may not survive a power failure.
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a new file: a link that somebody left under the name must not be written through, and a
/// pipe would make the writer wait.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut last = None;
    for n in 0..MAX_NAMES {
        let number = if n == 0 { String::new() } else { n.to_string() };
        let temporary = folder_of(path).join(format!(".{name}.tmp{number}"));
        if fs::symlink_metadata(&temporary).is_ok_and(|about| about.is_file()) {
            fs::remove_file(&temporary)?;
        }
        match File::create_new(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.expect("at least one name was tried"))
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
        assert_eq!(*steps.borrow(), [Step::Staged, Step::Renamed]);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read(&foreign).unwrap(), b"foreign");
        assert_eq!(fs::read_link(&link).unwrap(), foreign);
        assert!(!folder.path().join(".state.tmp1").exists());
    }
}
