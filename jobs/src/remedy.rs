//! Remedies as the commands and settings of this program: the one place that knows both. The
//! libraries name what to do as data.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::OnceLock;

use bloomsday_common::redact::{redact_url, single_line};
use bloomsday_common::remedy::Remedy;

/// The flags with which this program was given its store and configuration. A command that somebody
/// pastes must not act on another store.
static FLAGS: OnceLock<String> = OnceLock::new();

/// The most characters of a flag that is repeated.
const MAX_FLAG_CHARS: usize = 1000;

/// Remembers the flags that commands in remedies repeat. Call it once, before any remedy.
pub(crate) fn repeat_flags(store: Option<&str>, config: Option<&Path>) {
    let mut flags = String::new();
    // With a part missing it is no address.
    let store = store.map(|url| if redact_url(url) == url { url.into() } else { "URL".into() });
    let config = config.map(|path| path.display().to_string());
    for (name, value) in [("store", store), ("config", config)] {
        if let Some(value) = value {
            let value = quoted(&single_line(&value, MAX_FLAG_CHARS));
            write!(flags, " --{name} {value}").expect("memory takes the text");
        }
    }
    FLAGS.set(flags).expect("it is called once");
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The flags to append to a command that somebody is to type; empty where there were none.
pub(crate) fn flags() -> &'static str {
    FLAGS.get().map_or("", String::as_str)
}

/// The text of an error, with its remedy as what to type.
pub(crate) fn explain(error: &impl Display, remedy: Option<Remedy>) -> String {
    let text = error.to_string();
    remedy.map_or(text.clone(), |remedy| remedy.reword(&text, words))
}

/// What to type, or what to write in the configuration.
pub(crate) fn words(remedy: &Remedy) -> String {
    let flags = flags();
    match remedy {
        Remedy::ReplacePointer { filter, day, to } => {
            let to = to.as_deref().unwrap_or("DAY");
            format!("with `bloomsday repoint {filter} {day} --to {to}{flags}`")
        }
        Remedy::RemovePin { filter } => format!("with `bloomsday unpin {filter}{flags}`"),
        Remedy::UseBlob { filter, day, blob } => {
            format!("bloomsday repoint {filter} {day} --to {blob}{flags}")
        }
        Remedy::BuildFirst => {
            "`bloomsday build` makes the folder with the first day it publishes".into()
        }
        Remedy::ReadAgain => "look at `bloomsday status` and repeat".into(),
        Remedy::NamePointers => {
            "If the pointers are in another place (`pointers = \"redis://HOST\"` or \
             BLOOMSDAY_POINTERS), name that place"
                .into()
        }
        Remedy::PointersInStore => {
            "leave out `pointers` in bloomsday.toml and BLOOMSDAY_POINTERS".into()
        }
        Remedy::PointersKey { key } => format!("set `pointers_key = \"{key}\"` in bloomsday.toml"),
        Remedy::PointersInRedis { address, key } => format!(
            "set `pointers = \"{address}\"` in bloomsday.toml, or BLOOMSDAY_POINTERS, with \
             `pointers_key = \"{key}\"`"
        ),
        Remedy::KeepLonger => {
            "write a larger `keep_days` for the filter in bloomsday.toml (which prune reads too)"
                .into()
        }
        Remedy::MoreMemory => "give the build more --memory".into(),
        Remedy::OtherMemory => "change --memory or --spill".into(),
        Remedy::LargerFpp => "with a larger --fpp".into(),
        Remedy::AllowMissingInput => "--window-missing allow (`window_missing = \"allow\"`)".into(),
        Remedy::AcceptChange => "build again with --accept-change 'why'".into(),
        // What names nothing of this program needs no other words.
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bloomsday_common::error::Error as StoreError;

    use crate::error::Error;

    use super::*;

    #[test]
    fn a_word_for_a_shell_is_quoted_if_it_must_be() {
        assert_eq!(quoted("s3://ads-filters/prod"), "s3://ads-filters/prod");
        assert_eq!(quoted("/my disk/it's"), r"'/my disk/it'\''s'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
    }

    #[test]
    fn an_error_of_a_library_says_what_to_type() {
        let to = Some("rt/blobs/x.bloom".to_owned());
        let (filter, day) = ("rt".to_owned(), "2026-11-19".to_owned());
        let record = StoreError::Record {
            key: "rt/pointers/2026-11-19".into(),
            why: "it is empty".into(),
            remedy: Box::new(Remedy::ReplacePointer { filter, day, to }),
        };
        assert!(!record.to_string().contains("bloomsday"), "{record}");
        assert_eq!(
            Error::from(record).to_string(),
            "rt/pointers/2026-11-19 cannot be read: it is empty; mend it by hand, or with `bloomsday \
             repoint rt 2026-11-19 --to rt/blobs/x.bloom`"
        );
    }
}
