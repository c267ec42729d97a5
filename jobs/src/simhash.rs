//! `bloomsday simhash`: the fingerprints of texts, by which near duplicates are found.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bloomsday_common::simhash::simhash;
use clap::Args;
use serde_json::json;

use crate::error::{Error, exit};
use crate::output::{Output, say};

/// The longest text that is read.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// Print the simhash of texts: 64 bits, of which similar texts have nearly all in common.
///
/// Prints 16 hex digits and the file's name, one file a line. Texts are UTF-8. A file that is not,
/// or has no letter or digit, is named on stderr; the others are printed, and the exit status is 1.
///
/// Example: redis-cli -p 6380 SIM.ADD news "$(bloomsday simhash <article.txt)"
#[derive(Args)]
pub(crate) struct Simhash {
    /// The files [default: stdin, whose line has no name].
    files: Vec<PathBuf>,
}

impl Simhash {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Error> {
        if self.files.is_empty() {
            let hash = hash(io::stdin().lock()).map_err(|source| system("stdin", source))?;
            let hash = format!("{hash:016x}");
            output.show(&json!({ "simhash": hash }), || format!("{hash}\n"));
            return Ok(ExitCode::SUCCESS);
        }
        let mut code = ExitCode::SUCCESS;
        for path in &self.files {
            let name = path.display().to_string();
            match File::open(path).and_then(hash) {
                Ok(hash) => {
                    let hash = format!("{hash:016x}");
                    let object = json!({ "simhash": hash, "file": name });
                    output.show(&object, || format!("{hash}  {}\n", line_of(path)));
                }
                Err(source) => {
                    say("error", &system(&name, source).to_string());
                    code = ExitCode::from(exit::FAILED);
                }
            }
        }
        Ok(code)
    }
}

fn system(name: &str, source: io::Error) -> Error {
    Error::System { doing: format!("take the simhash of {name}"), source }
}

/// A file's name on one line.
fn line_of(path: &Path) -> String {
    bloomsday_common::redact::single_line(&path.display().to_string(), usize::MAX)
}

fn hash(from: impl Read) -> io::Result<u64> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut bytes = Vec::new();
    from.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(invalid(format!("it has more than {MAX_TEXT_BYTES} bytes: split it")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let at = error.valid_up_to();
        invalid(format!("it is not UTF-8 at byte {at}: convert it, for example with iconv"))
    })?;
    simhash(text).ok_or_else(|| invalid("it has no letter and no digit".to_owned()))
}
