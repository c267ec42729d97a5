//! `bloomsday inspect`: prints a blob's header, after every check that a server makes; or a delta's
//! numbers.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use bloomsday_common::blob::{self, OpenedBlob, Origin, RawBlob, Summary};
use bloomsday_common::delta;
use bloomsday_common::key::{BlobKey, DeltaKey, split_url};
use bloomsday_common::memory::Buffer;
use bloomsday_common::store::{MAX_BLOB_BYTES, Store, open_file};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::config::Settings;
use crate::error::Error;
use crate::output::{Output, binary_size, pairs, thousands};

/// Show a blob's header, and verify all of it; or a delta's numbers.
///
/// Example: bloomsday inspect rt/blobs/2026-11-19-9c41….bloom --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct Inspect {
    /// A blob or delta: a local file, a key in the store, or a URL.
    blob: String,
}

/// A blob that passed every check.
#[derive(Serialize)]
struct Report {
    blob: String,
    #[serde(flatten)]
    summary: Summary,
    fpp_of_bits: f64,
    sound: bool,
}

impl Inspect {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        if let Some(bytes) = delta_bytes(&self.blob, settings).await? {
            return show_delta(&self.blob, &bytes, output);
        }
        let OpenedBlob { key, header, filter } = open(&self.blob, settings).await?;
        let shape = header.shape;
        let summary = Summary::of(&key, &header, &filter);
        let (bytes, version) = (summary.bytes, summary.format);
        let report = Report {
            blob: key.to_string(),
            summary,
            fpp_of_bits: filter.fpp_of_bits(),
            sound: true,
        };
        let estimated =
            if header.origin == Origin::Imported { " (estimated from the fill)" } else { "" };
        output.show(&report, || {
            pairs(&[
                ("blob", key.to_string()),
                ("filter", header.filter.to_string()),
                ("day", header.day.to_string()),
                ("digest", key.digest.to_string()),
                ("format", format!("version {version}")),
                ("ID", header.id_form.to_string()),
                ("layout", format!("{}, {} probes", shape.layout(), shape.probes())),
                ("size", format!("{} bytes ({})", thousands(bytes), binary_size(bytes))),
                ("IDs", thousands(header.ids) + estimated),
                ("fpp target", header.fpp_target.to_string()),
                (
                    "fpp measured",
                    format!(
                        "{:.6} ({} of {})",
                        header.fpp_measured(),
                        thousands(header.fpp_hits),
                        thousands(header.fpp_lookups)
                    ),
                ),
                ("fpp of its bits", format!("{:.3e}", filter.fpp_of_bits())),
                ("fill", format!("{:.4}", header.fill())),
                ("checked", "digest, header, test vector, bits: all sound".into()),
            ])
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// The bytes of a delta, if the name that a person gives is one: a local file, or a key of the
/// store.
async fn delta_bytes(text: &str, settings: &Settings) -> Result<Option<Vec<u8>>, Error> {
    let path = Path::new(text);
    if path.is_file() {
        let mut magic = [0; delta::MAGIC.len()];
        let mut file = open_to_read(path)?;
        let is_delta = file.read_exact(&mut magic).is_ok() && magic == delta::MAGIC;
        return is_delta.then(|| read(path).map(|bytes| bytes.to_vec())).transpose();
    }
    if !text.contains("/deltas/") {
        return Ok(None);
    }
    let store = store_of(text, settings)?;
    let key = DeltaKey::parse(text, store.roots())?;
    Ok(Some(store.read_delta(&key, delta::max_bytes(MAX_BLOB_BYTES)).await?))
}

fn open_to_read(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            Error::NotFound(format!("there is no file {}", path.display()))
        }
        _ => reading(path, source),
    })
}

/// What the system said of a file that is read.
fn reading(path: &Path, source: std::io::Error) -> Error {
    let path = path.display();
    if source.kind() == std::io::ErrorKind::IsADirectory {
        return Error::Usage(format!("{path} is a folder: name a file"));
    }
    Error::System { doing: format!("read {path}"), source }
}

/// Prints what a delta states, after every check that needs neither of its blobs.
fn show_delta(text: &str, bytes: &[u8], output: &Output) -> Result<ExitCode, Error> {
    let stated = delta::summary(bytes, text)?;
    let (size, entropy) = (bytes.len() as u64, stated.entropy_bytes());
    let [low, high] = stated.digests;
    let report = json!({
        "delta": text,
        "format": stated.version,
        "digests": [low, high],
        "bytes": size,
        "blob_bytes": stated.blob_bytes,
        "sections": stated.sections,
        "flips": stated.flips,
        "entropy_bytes": entropy as u64,
        "sound": true,
    });
    output.show(&report, || {
        let share = 100.0 * size as f64 / stated.blob_bytes.max(1) as f64;
        pairs(&[
            ("delta", text.to_owned()),
            ("between", low.to_string()),
            ("and", high.to_string()),
            ("format", format!("version {}", stated.version)),
            (
                "size",
                format!(
                    "{} bytes ({}), {share:.2} % of a blob of {}",
                    thousands(size),
                    binary_size(size),
                    binary_size(stated.blob_bytes)
                ),
            ),
            ("flips", format!("{} bits, in {} sections", thousands(stated.flips), stated.sections)),
            ("entropy", format!("{} bytes", thousands(entropy as u64))),
            ("checked", "digest, header, sections' lengths: sound; the codes need a blob".into()),
        ])
    });
    Ok(ExitCode::SUCCESS)
}

/// Opens a blob by the name that a person gives: a local file if there is one, else a key or URL of
/// the store.
pub(crate) async fn open(text: &str, settings: &Settings) -> Result<OpenedBlob, Error> {
    let path = Path::new(text);
    // A key of the store has its folder in it.
    if path.is_file() || !text.contains("blobs/") {
        return open_blob_file(path).map_err(|error| match error {
            Error::NotFound(_) if text.contains("://") => Error::NotFound(format!(
                "{text} is not the URL of a blob, which ends with `/FILTER/blobs/DAY-DIGEST.bloom`"
            )),
            Error::NotFound(why) => Error::NotFound(format!(
                "{why}: name a file, or a blob of the store by its key or URL"
            )),
            other => other,
        });
    }
    let store = store_of(text, settings)?;
    let key = key(text, store.roots())?;
    let (header, filter) = store.open_blob(&key).await?;
    Ok(OpenedBlob { key, header, filter })
}

/// The store of a blob or delta: the one that is configured, else that of its URL.
fn store_of(text: &str, settings: &Settings) -> Result<Store, Error> {
    match split_url(text) {
        Some((address, _)) if settings.store_and_source().is_none() => Ok(Store::open(address)?),
        _ => settings.open_store(),
    }
}

/// Whether a local file begins as a blob does.
pub(crate) fn is_blob(path: &Path) -> bool {
    let first = File::open(path).and_then(|mut file| first_bytes(&mut file));
    first.is_ok_and(|first| first.starts_with(&blob::MAGIC))
}

/// The first bytes of a file, fewer than a header has.
fn first_bytes(file: &mut File) -> std::io::Result<Vec<u8>> {
    const FIRST_BYTES: u64 = 64;
    let mut first = Vec::new();
    file.take(FIRST_BYTES).read_to_end(&mut first)?;
    Ok(first)
}

/// Opens a local file, after every check.
pub(crate) fn open_blob_file(path: &Path) -> Result<OpenedBlob, Error> {
    if path.is_file() {
        return Ok(open_file(path)?);
    }
    // A pipe, such as `<(curl …)`, can be read only once.
    let (mut file, name) = (open_to_read(path)?, path.display().to_string());
    let first = first_bytes(&mut file).map_err(|source| reading(path, source))?;
    if !first.starts_with(&blob::MAGIC) {
        blob::key_of(&first, &name)?;
    }
    let memory = read_all(path, first.chain(file))?;
    let key = blob::key_of(&memory, &name)?;
    let opened = blob::open(RawBlob::of(memory), &key);
    let (header, filter) = opened.map_err(|error| error.of_file(&name))?;
    Ok(OpenedBlob { key, header, filter })
}

/// Reads a local file into memory that a filter can use.
pub(crate) fn read(path: &Path) -> Result<Buffer, Error> {
    let mut file = open_to_read(path)?;
    let metadata = file.metadata().map_err(|source| reading(path, source))?;
    if !metadata.is_file() {
        return read_all(path, file);
    }
    let failed = |source| reading(path, source);
    let bytes = usize::try_from(metadata.len()).map_err(std::io::Error::other);
    let mut memory = bytes.and_then(Buffer::zeroed).map_err(failed)?;
    file.read_exact(&mut memory).map_err(failed)?;
    Ok(memory)
}

/// Reads a stream whose length nobody knows, up to the largest blob.
fn read_all(path: &Path, stream: impl Read) -> Result<Buffer, Error> {
    let failed = |source| reading(path, source);
    let mut bytes = Vec::new();
    stream.take(MAX_BLOB_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BLOB_BYTES {
        let why = format!("it has more than {MAX_BLOB_BYTES} bytes, the most of a blob");
        return Err(failed(std::io::Error::other(why)));
    }
    let mut memory = Buffer::zeroed(bytes.len()).map_err(failed)?;
    memory.copy_from_slice(&bytes);
    Ok(memory)
}

/// Parses a blob's key. Its filter is the name of the folder before `/blobs/`.
fn key(text: &str, roots: &[String]) -> Result<BlobKey, Error> {
    let folder = text.rsplit_once("/blobs/").map(|(before, _)| before);
    let filter = folder.map(|folder| folder.rsplit('/').next().unwrap_or(folder));
    let Some(filter) = filter else {
        return Err(Error::Usage(format!(
            "`{text}` is neither a file nor a blob's key: write FILTER/blobs/DAY-DIGEST.bloom"
        )));
    };
    Ok(BlobKey::parse(text, &filter.parse()?, roots)?)
}
