//! `bloomsday query`: looks IDs up in the blob that a server would load.

use std::ffi::OsString;
use std::io::{self, BufRead, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::error::Error as StoreError;
use bloomsday_common::filter::Filter;
use bloomsday_common::hash::is_valid_len;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::{BlobKey, FilterName};
use clap::Args;
use serde_json::json;

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::followed::followed_blob;
use crate::output::{Output, say};

/// How many IDs from stdin are looked up at once.
const BATCH: usize = 4096;

/// Look up IDs in the blob that a server would load: the pin's, else the newest pointer's.
///
/// Prints `1 ID` for a hit and `0 ID` for a miss, one a line. With one ID as argument it ends with
/// 3 on a miss. Live IDs are not read: see `bloomsday trace`.
///
/// Example: bloomsday query rt 0f8fad5bd9cb469fa16570867728950e --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct Query {
    /// The name of the filter.
    filter: FilterName,
    /// The IDs [default: one a line from stdin].
    ids: Vec<OsString>,
}

/// Says that an ID of this length is in no filter.
pub(crate) fn note_invalid(id: &[u8]) {
    if !is_valid_len(id) {
        let bytes = id.len();
        say("note", &format!("an ID has 1 to 1,024 bytes, this one {bytes}: it is always a miss"));
    }
}

impl Query {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let target =
            followed_blob(&store, &self.filter, None, settings.max_age_days(&self.filter)).await?;
        // A store behind HTTP lists nothing.
        if !store.is_read_only() && !store.segment_days(&self.filter).await?.is_empty() {
            let why = format!(
                "`{}` has live IDs, which are not read here: a server may answer otherwise; see `bloomsday \
                 trace`",
                self.filter
            );
            say("warning", &why);
        }
        let (header, filter) = store.open_blob(&target.blob).await?;
        self.check_id_form(settings, &target.blob, header.id_form)?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.ids.is_empty() {
            let mut lines = Lines { input: io::stdin().lock(), is_crlf: None };
            let (mut batch, mut has_more) = (Vec::new(), true);
            while has_more {
                has_more = lines.read(&mut batch)?;
                if hits_of(look_up(&filter, &batch, output, &mut out))?.is_none() {
                    break;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let ids: Vec<Vec<u8>> = self.ids.into_iter().map(OsString::into_vec).collect();
        ids.iter().for_each(|id| note_invalid(id));
        let hits = hits_of(look_up(&filter, &ids, output, &mut out))?;
        // Whoever reads the status need not read the line.
        let is_miss = |id: &Vec<u8>| hits.map_or_else(|| !filter.contains(id), |hits| hits == 0);
        let is_miss = matches!(&ids[..], [id] if is_miss(id));
        Ok(if is_miss { ExitCode::from(exit::MISS) } else { ExitCode::SUCCESS })
    }

    /// Refuses a blob whose form of IDs is not the configured one, as a server does.
    fn check_id_form(
        &self,
        settings: &Settings,
        blob: &BlobKey,
        got: IdForm,
    ) -> Result<(), StoreError> {
        let expected = settings.id_form(&self.filter);
        if settings.file().filters.contains_key(&self.filter) && got != expected {
            return Err(StoreError::IdForm { key: blob.to_string(), expected, got });
        }
        Ok(())
    }
}

/// The IDs of some lines, which end in LF. If the first one ends in CRLF, so must all, and no CR
/// belongs to an ID.
struct Lines<R> {
    input: R,
    /// Whether they end in CRLF; known after the first one.
    is_crlf: Option<bool>,
}

impl<R: BufRead> Lines<R> {
    /// Reads up to [`BATCH`] of them. Returns whether there may be more.
    fn read(&mut self, batch: &mut Vec<Vec<u8>>) -> Result<bool, Error> {
        batch.clear();
        while batch.len() < BATCH {
            let mut line = Vec::new();
            if self.input.read_until(b'\n', &mut line).map_err(system)? == 0 {
                return Ok(false);
            }
            let is_ended = line.pop_if(|byte| *byte == b'\n').is_some();
            let has_cr = line.ends_with(b"\r");
            if is_ended && *self.is_crlf.get_or_insert(has_cr) && !has_cr {
                let why = "some lines end in CRLF and others in LF: end each ID with LF alone";
                return Err(Error::Usage(why.into()));
            }
            if self.is_crlf == Some(true) {
                line.pop_if(|byte| *byte == b'\r');
            }
            batch.push(line);
        }
        Ok(true)
    }
}

/// `None` when the reader of the results has enough, as `head` has: that is no error.
fn hits_of(result: io::Result<usize>) -> Result<Option<usize>, Error> {
    match result {
        Ok(hits) => Ok(Some(hits)),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(error) => Err(system(error)),
    }
}

fn system(source: io::Error) -> Error {
    Error::System { doing: "read IDs or write results".into(), source }
}

/// Prints the result for each ID. Returns the number of hits.
fn look_up(
    filter: &Filter,
    ids: &[Vec<u8>],
    output: &Output,
    out: &mut impl Write,
) -> io::Result<usize> {
    let mut results = vec![false; ids.len()];
    filter.contains_batch(ids, &mut results);
    for (id, contains) in ids.iter().zip(&results) {
        if output.is_json() {
            writeln!(
                out,
                "{}",
                json!({ "id": String::from_utf8_lossy(id), "contains": contains })
            )?;
        } else {
            out.write_all(if *contains { b"1 " } else { b"0 " })?;
            out.write_all(id)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(results.iter().filter(|contains| **contains).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cr_belongs_to_an_id_unless_the_first_line_ends_in_crlf() {
        let read = |input: &str| {
            let mut batch = Vec::new();
            let has_more = Lines { input: input.as_bytes(), is_crlf: None }.read(&mut batch)?;
            assert!(!has_more);
            Ok::<_, Error>(batch)
        };
        for (input, ids) in [
            ("", vec![]),
            ("a", vec!["a"]),
            ("a\nb\n", vec!["a", "b"]),
            ("a\r\nb\r\n", vec!["a", "b"]),
            ("a\r\nb", vec!["a", "b"]),
            ("a\r\nb\r", vec!["a", "b"]),
            ("a\nb\r", vec!["a", "b\r"]),
            ("a\nb\r\n", vec!["a", "b\r"]),
            ("a\r", vec!["a\r"]),
        ] {
            let expected: Vec<_> = ids.iter().map(|id| id.as_bytes().to_vec()).collect();
            assert_eq!(read(input).unwrap(), expected, "{input:?}");
        }
        for input in ["a\r\nb\n", "\r\n\n"] {
            assert!(matches!(read(input), Err(Error::Usage(_))), "{input:?}");
        }
    }

    #[test]
    fn lines_come_in_batches_and_all_end_as_the_first_one() {
        let many = "id\r\n".repeat(BATCH) + "id\n";
        let mut lines = Lines { input: many.as_bytes(), is_crlf: None };
        let mut batch = Vec::new();
        assert!(lines.read(&mut batch).unwrap());
        assert_eq!(batch, vec![b"id"; BATCH]);
        assert!(lines.read(&mut batch).is_err());
    }
}
