//! `bloomsday query`: looks IDs up, as a server does.

use std::ffi::OsString;
use std::io::{self, BufRead, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use bloomsday_common::filter::Filter;
use bloomsday_common::key::FilterName;
use clap::Args;
use serde_json::json;

use crate::config::Settings;
use crate::error::{Error, exit};
use crate::output::Output;
use crate::target::target;

/// How many IDs from stdin are looked up at once.
const BATCH: usize = 4096;

/// Look up IDs, as a server does: in the pin's blob, else in the newest pointer's.
///
/// Prints `1 ID` for a hit and `0 ID` for a miss, one a line. With one ID as argument it ends with
/// 3 on a miss.
///
/// Example: bloomsday query rt 0f8fad5bd9cb469fa16570867728950e --store s3://ads-filters/prod
#[derive(Args)]
pub(crate) struct Query {
    /// The name of the filter.
    filter: FilterName,
    /// The IDs [default: one a line from stdin].
    ids: Vec<OsString>,
}

impl Query {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let store = settings.open_store()?;
        let target = target(&store, &self.filter, settings.max_age_days(&self.filter)).await?;
        let (_, filter) = store.open_blob(&target.blob).await?;
        let mut out = BufWriter::new(io::stdout().lock());
        let system = |source| Error::System { doing: "read IDs or write results".into(), source };
        if self.ids.is_empty() {
            let mut input = io::stdin().lock();
            let mut batch = Vec::new();
            loop {
                let ended = !read_batch(&mut input, &mut batch).map_err(system)?;
                look_up(&filter, &batch, output, &mut out).map_err(system)?;
                if ended {
                    break;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let ids: Vec<Vec<u8>> = self.ids.into_iter().map(OsString::into_vec).collect();
        let hits = look_up(&filter, &ids, output, &mut out).map_err(system)?;
        let is_miss = ids.len() == 1 && hits == 0;
        Ok(if is_miss { ExitCode::from(exit::NO) } else { ExitCode::SUCCESS })
    }
}

/// Reads up to [`BATCH`] lines. Returns whether there may be more.
///
/// If all of them end in CRLF, no CR belongs to an ID.
fn read_batch(input: &mut impl BufRead, batch: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    batch.clear();
    let mut has_more = true;
    while batch.len() < BATCH {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            has_more = false;
            break;
        }
        batch.push(line);
    }
    let ended = || batch.iter().filter(|line| line.ends_with(b"\n"));
    let is_crlf = ended().next().is_some() && ended().all(|line| line.ends_with(b"\r\n"));
    for line in batch {
        line.pop_if(|byte| *byte == b'\n');
        if is_crlf {
            line.pop_if(|byte| *byte == b'\r');
        }
    }
    Ok(has_more)
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
    fn a_cr_belongs_to_an_id_unless_all_lines_end_in_crlf() {
        for (input, ids) in [
            ("", vec![]),
            ("a", vec!["a"]),
            ("a\nb\n", vec!["a", "b"]),
            ("a\r\nb\r\n", vec!["a", "b"]),
            ("a\r\nb", vec!["a", "b"]),
            ("a\r\nb\r", vec!["a", "b"]),
            ("a\r\nb\n", vec!["a\r", "b"]),
            ("a\r", vec!["a\r"]),
            ("\r\n\n", vec!["\r", ""]),
        ] {
            let mut batch = Vec::new();
            assert!(!read_batch(&mut input.as_bytes(), &mut batch).unwrap());
            assert_eq!(batch, ids.iter().map(|id| id.as_bytes()).collect::<Vec<_>>(), "{input:?}");
        }
        let many = "id\n".repeat(BATCH + 1);
        let (mut input, mut batch) = (many.as_bytes(), Vec::new());
        assert!(read_batch(&mut input, &mut batch).unwrap() && batch.len() == BATCH);
        assert!(!read_batch(&mut input, &mut batch).unwrap() && batch.len() == 1);
    }
}
