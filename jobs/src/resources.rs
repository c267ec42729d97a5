//! [`Resources`]: the memory, disk and threads that a build may use.

use std::path::PathBuf;

use bloomsday_builder::MAX_THREADS;
use bloomsday_builder::budget::default_memory;
use bytesize::ByteSize;
use clap::Args;

use crate::error::Error;
use crate::size::size;

/// Options of every command that builds.
#[derive(Args, Default)]
pub(crate) struct Resources {
    /// How much memory the build may use; what does not fit is spilled to disk [default: three
    /// quarters of what the machine or its cgroup has left].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// The folder for spilled data [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// How many threads to use, 1 to 1024 [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS as i64))]
    threads: Option<u16>,
}

impl Resources {
    /// Bytes of memory: the flag, else the configuration, else the default.
    pub(crate) fn memory(&self, configured: Option<ByteSize>) -> u64 {
        self.memory.or(configured).map_or_else(default_memory, |memory| memory.as_u64())
    }

    /// Where a build spills: the flag, else the configuration, else the system's folder. One that
    /// is named must exist, also for a build that will not need it.
    pub(crate) fn spill_folder(&self, configured: Option<PathBuf>) -> Result<PathBuf, Error> {
        match self.spill.clone().or(configured) {
            Some(folder) if !folder.is_dir() => Err(Error::Usage(format!(
                "there is no folder {} for what a build spills: make it, or change `spill` or --spill",
                folder.display()
            ))),
            Some(folder) => Ok(folder),
            None => Ok(std::env::temp_dir()),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(cores, usize::from)
    }
}
