//! `bloomsday follow`: keeps a local file equal to the blob that a server would load, for programs
//! that open the file themselves.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bloomsday_common::atomic_file;
use bloomsday_common::day::Day;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::protocol::FollowedBy;
use bloomsday_common::random::random;
use bloomsday_common::store::Store;
use bloomsday_server::Config;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use crate::config::{Settings, poll_interval};
use crate::error::Error;
use crate::followed::followed_blob;
use crate::inspect;
use crate::output::{Output, binary_size, say};
use crate::place::{ensure_not_in_store, in_store, real_file};
use crate::signals::EndSignals;

/// Keep a file equal to the blob that a server would load: the pin's, else the newest pointer's.
///
/// Polls the pointers, verifies a new blob completely, and replaces the file by a rename: a program
/// that has the old file open keeps it. A rollback is followed, too. While the store fails the file
/// stays as it is, and a warning says why. SIGTERM ends it with 0; SIGHUP does not end it.
///
/// Example: bloomsday follow rt --to /var/lib/bloomsday/rt.bloom --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct Follow {
    /// The name of the filter.
    filter: FilterName,
    /// The file to write. Its folder must exist.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Fetch it once and end; a failure is then an error.
    #[arg(long)]
    once: bool,
    /// Time between two polls, up to a tenth longer or shorter [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = poll_interval)]
    poll_interval: Option<Duration>,
}

impl Follow {
    pub(crate) async fn run(
        mut self,
        settings: &Settings,
        output: &Output,
    ) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        self.to = real_file(&self.to)?;
        check_place(&self.to, &store)?;
        let max_age_days = settings.max_age_days(&self.filter);
        let mut last_followed = self.followed_before();
        if self.once {
            self.round(&store, max_age_days, &mut last_followed, output).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let interval = self.poll_interval.or(settings.file().poll_interval);
        let interval = interval.unwrap_or(Config::new("", Vec::new()).poll_interval);
        let mut end = EndSignals::new()?;
        let mut last_failure = None;
        loop {
            let round = async {
                let round = self.round(&store, max_age_days, &mut last_followed, output);
                let failure = round.await.err();
                let failure = failure.map(|error| error.to_string());
                match &failure {
                    Some(why) if failure != last_failure => {
                        tracing::warn!("{} stays as it is: {why}", self.to.display());
                    }
                    None if last_failure.is_some() => {
                        tracing::info!("{} is up to date again", self.to.display())
                    }
                    _ => {}
                }
                last_failure = failure;
                tokio::time::sleep(spread(interval)).await;
            };
            tokio::select! {
                () = round => {}
                () = end.recv() => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    /// The day of the blob in the file, which stands for the day of the pointer that was followed:
    /// after a clock was set back it stays known.
    fn followed_before(&self) -> Option<Day> {
        let day = sound_blob(&self.to)?.day;
        if day > Day::of(Timestamp::now()) {
            let path = self.to.display();
            say(
                "warning",
                &format!(
                    "{path} has the blob of {day}, which has not begun: the pointer of {day} or the newest before it \
                     is followed, as after a clock that was set back; if that blob was pinned, delete the file to \
                     follow today's pointer"
                ),
            );
        }
        Some(day)
    }

    /// Replaces the file if the store names another blob than the one in it. `last_followed` is the
    /// newest day whose pointer was followed: a clock that is set back does not remove its blob.
    async fn round(
        &self,
        store: &Store,
        max_age_days: u32,
        last_followed: &mut Option<Day>,
        output: &Output,
    ) -> Result<(), Error> {
        // Read each time: another program may have changed the file. A damaged blob is replaced.
        let there = sound_blob(&self.to);
        if let Some(there) = there.as_ref().filter(|there| there.filter != self.filter) {
            let (path, other) = (self.to.display(), &there.filter);
            let why = format!("{path} is of the filter `{other}`: name another file");
            return Err(Error::Usage(why));
        }
        let target = followed_blob(store, &self.filter, *last_followed, max_age_days).await?;
        if let FollowedBy::Pointer { day } = target.by {
            *last_followed = Some(day).max(*last_followed);
        }
        if there.is_some_and(|there| there.digest == target.blob.digest) {
            return Ok(());
        }
        check_file(&self.to)?;
        let (header, filter) = store.open_blob(&target.blob).await?;
        let bytes = filter.memory();
        let (path, n_bytes) = (self.to.clone(), bytes.len() as u64);
        // The fetch may have taken minutes.
        check_file(&path)?;
        let written = tokio::task::block_in_place(|| atomic_file::write(&path, bytes, |_| {}));
        written.map_err(|source| {
            let doing = format!("write {} (is there space, and the right to?)", path.display());
            Error::System { doing, source }
        })?;
        let (blob, path) = (target.blob.to_string(), path.display().to_string());
        let report = json!({
            "filter": self.filter,
            "day": header.day,
            "blob": blob,
            "digest": target.blob.digest,
            "bytes": n_bytes,
            "file": path,
        });
        output.show(&report, || format!("{path} is {blob} now, {}\n", binary_size(n_bytes)));
        Ok(())
    }
}

/// Which blob the file is, if it is a sound one.
fn sound_blob(path: &Path) -> Option<BlobKey> {
    let sound = || inspect::open_blob_file(path).map(|opened| opened.key).ok();
    tokio::task::block_in_place(sound)
}

/// Whether a file can be written there: an error before the first blob is fetched.
fn check_place(path: &Path, store: &Store) -> Result<(), Error> {
    let folder = ensure_not_in_store(path)?;
    if store.folder().is_some_and(|own| folder.starts_with(own)) {
        return Err(in_store(path));
    }
    check_file(path)
}

/// Refuses to replace what somebody put there that is no blob.
fn check_file(path: &Path) -> Result<(), Error> {
    // Follows a link. What is not there yet is made.
    let Ok(there) = path.metadata() else { return Ok(()) };
    if there.is_dir() {
        let why = format!("--to names a folder, {}: name a file in it", path.display());
        return Err(Error::Usage(why));
    }
    let is_kept = there.is_file() && (there.len() == 0 || inspect::is_blob(path));
    if !is_kept {
        let why = format!(
            "{} is no blob, so it stays as it is: name another file, or move this one away",
            path.display()
        );
        return Err(Error::Usage(why));
    }
    Ok(())
}

/// The interval, up to a tenth longer or shorter, so that a fleet does not poll at one moment.
fn spread(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * (random() as f64 / u64::MAX as f64))
}
