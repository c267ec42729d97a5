//! `bloomsday export` and `bloomsday import`: blobs as files of other systems, and back.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bloomsday_builder::{ForeignFormat, Import as ImportJob, import};
use bloomsday_common::atomic_file;
use bloomsday_common::blob::OpenedBlob;
use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use clap::{Args, ValueEnum};

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::inspect;
use crate::output::{Output, say, who};
use crate::place::{ensure_not_in_store, real_file};
use crate::remedy;
use crate::report::describe;

/// Another system's file format.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// What Guava's BloomFilter.writeTo writes, with stringFunnel(UTF_8).
    Guava,
    /// What the writeTo of Spark's util.sketch.BloomFilter writes, version 1 or 2.
    Spark,
}

impl Format {
    /// Whether a blob of this layout is such a file.
    fn has(self, layout: Layout) -> bool {
        match self {
            Format::Guava => layout == Layout::Guava,
            Format::Spark => matches!(layout, Layout::Spark1 | Layout::Spark2),
        }
    }
}

/// Export a blob in another system's format.
///
/// Example: bloomsday export rt/blobs/2026-11-19-9c41….bloom --format guava --output rt.guava
#[derive(Args)]
pub(crate) struct Export {
    /// A local file, a key in the store, or the URL of a blob in the store.
    blob: String,
    /// The format to write.
    #[arg(long)]
    format: Format,
    /// The file to write [default: stdout].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the other system is given to look up: IDs as they are, or the normalised form of a URL,
    /// which whoever calls it must make. The blob must be of this form.
    #[arg(long, value_name = "bytes|url", default_value = "bytes")]
    id: IdForm,
    /// Check that the blob can be exported, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Import a file in another system's format as a day.
///
/// Example: bloomsday import rt --day 2026-11-19 --format guava rt.guava
#[derive(Args)]
pub(crate) struct Import {
    /// The name of the filter.
    filter: FilterName,
    /// The UTC day whose IDs the file contains.
    #[arg(long)]
    day: Day,
    /// The format of the file.
    #[arg(long)]
    format: Format,
    /// What was hashed of an ID: its bytes, or the normalised form of a URL [default: `id` of the
    /// configuration, else bytes].
    #[arg(long, value_name = "bytes|url")]
    id: Option<IdForm>,
    /// The file to import.
    file: PathBuf,
    /// Check the file, but write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Export {
    pub(crate) async fn run(self, settings: &Settings, _: &Output) -> Result<ExitCode, Error> {
        let (system, layout) = match self.format {
            Format::Guava => ("Guava", Layout::Guava),
            Format::Spark => ("Spark", Layout::Spark2),
        };
        let file = self.output.filter(|path| path != Path::new("-"));
        let file = file.map(|path| real_file(&path)).transpose()?;
        match &file {
            Some(path) if is_same_file(Path::new(&self.blob), path) => {
                let path = path.display();
                return Err(Error::Usage(format!("{path} is the blob itself: name another file")));
            }
            Some(path) => drop(ensure_not_in_store(path)?),
            None if std::io::stdout().is_terminal() && !self.dry_run => {
                let why = "a terminal cannot show the bytes of a filter: name a file with `--output FILE`";
                return Err(Error::Usage(why.into()));
            }
            None => {}
        }
        let OpenedBlob { key, header, filter } = inspect::open(&self.blob, settings).await?;
        if !self.format.has(header.shape.layout()) {
            return Err(Error::Usage(format!(
                "{key} has the layout `{}`, which {system} cannot read: build the day with \
                 `--layout {layout}`",
                header.shape.layout()
            )));
        }
        // The file does not say it, and one that hashes otherwise would miss every ID.
        let (has, id) = (header.id_form, self.id);
        if has != id {
            return Err(Error::Usage(format!(
                "{key} has IDs of the form `{has}`, and {system} would be given `{id}`: write `--id {has}` if \
                 whoever looks IDs up there brings them to this form first"
            )));
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        let (doing, written) = match &file {
            Some(path) => (format!("write {}", path.display()), write_file(path, filter.body())),
            None => ("write to stdout".into(), std::io::stdout().write_all(filter.body())),
        };
        // Whoever reads it may have enough.
        let has_enough = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        let written = written.or_else(|error| if has_enough(&error) { Ok(()) } else { Err(error) });
        written.map_err(|source| Error::System { doing, source })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Replaces a file by a rename: if the disk is full, what was there stays. A pipe or a device is
/// written to.
fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match path.metadata() {
        Ok(there) if !there.is_file() => std::fs::write(path, bytes),
        _ => atomic_file::write(path, bytes, |_| {}),
    }
}

impl Import {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.store_to_write(self.dry_run)?;
        let retention = settings.retention(&self.filter);
        let id_form = self.id.unwrap_or_else(|| settings.id_form(&self.filter));
        let job = ImportJob {
            filter: self.filter,
            day: self.day,
            id_form,
            format: match self.format {
                Format::Guava => ForeignFormat::Guava,
                Format::Spark => ForeignFormat::Spark,
            },
            file: inspect::read(&self.file)?,
            name: self.file.display().to_string(),
            by: who(),
            retention,
            remedy_words: remedy::words,
            dry_run: self.dry_run,
        };
        let report = import(job, &store).await?;
        output.show(&report, || describe(&report));
        if let Some(reason) = &report.reason {
            say(report.outcome.name(), reason);
        }
        Ok(ExitCode::from(exit::of(report.outcome)))
    }
}
