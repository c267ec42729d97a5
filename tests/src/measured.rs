//! Runs a build in a process with a memory limit, and measures its memory.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::backend::Backend;
use crate::program::high_water;
use crate::publisher::Publisher;

/// The limit of the address space, set with `ulimit -v`: a larger allocation fails. Threads and the
/// allocator's arenas reserve addresses that are never touched, so this is a wide bound.
const MAX_KIB: u64 = 3 << 20;

/// How a build ended.
pub struct Measured {
    /// Its exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its report.
    pub stdout: String,
    /// Its errors and warnings.
    pub stderr: String,
    /// The most memory that it touched, as the kernel counted it.
    pub touched_kib: u64,
}

/// Builds from the column `id` of a file with this `--memory`, without publishing.
pub fn build(backend: &Backend, file: &Path, memory: &str) -> Measured {
    fs::create_dir_all(&backend.store).expect("a folder");
    let limits = ["--memory", memory, "--threads", "1", "--dry-run"];
    let build = Publisher::days_ago(backend, 0).input(file).column("id").with(&limits);
    let plain = build.prepare().into_command();
    let script = format!("ulimit -v {MAX_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("MALLOC_ARENA_MAX", "2").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("a shell");
    let process = child.id();
    let watcher = std::thread::spawn(move || {
        // The kernel records the peak, so reading it from time to time is enough.
        let mut touched = 0;
        while let Some(bytes) = high_water(process) {
            touched = bytes >> 10;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        touched
    });
    let (mut stdout, mut stderr) = (String::new(), String::new());
    // A report has a few kilobytes, which fit into its pipe.
    let mut errors = child.stderr.take().expect("it is piped");
    errors.read_to_string(&mut stderr).expect("text");
    let mut report = child.stdout.take().expect("it is piped");
    report.read_to_string(&mut stdout).expect("text");
    let code = child.wait().expect("a child").code();
    Measured { code, stdout, stderr, touched_kib: watcher.join().expect("it only looks") }
}
