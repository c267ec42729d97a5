//! [`InputPattern`]: which names below a folder an input matches. Knows names only.

use glob::{MatchOptions, Pattern, PatternError};

/// `*` matches within one name.
const ONE_NAME_EACH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Which files below a folder an input matches.
#[derive(Clone, Debug)]
pub(super) enum InputPattern {
    /// All files, at any depth.
    All,
    /// The files that match a glob.
    Glob(Glob),
}

/// The part of a glob after its fixed folder.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    path: Pattern,
    /// The pattern of each folder; `None` if a character class contains a `/`, since the parts then
    /// have no meaning.
    folders: Option<Vec<PatternPart>>,
    any_depth: bool,
}

#[derive(Clone, Debug)]
enum PatternPart {
    /// `**`: any number of folders.
    Any,
    One(Pattern),
}

impl InputPattern {
    /// # Errors
    /// What is wrong with the glob.
    pub(super) fn glob(pattern: &str) -> Result<InputPattern, PatternError> {
        let path = Pattern::new(pattern)?;
        let parts = pattern.split('/').map(|part| match part {
            "**" => Some(PatternPart::Any),
            part => Pattern::new(part).ok().map(PatternPart::One),
        });
        let mut folders = parts.collect::<Option<Vec<PatternPart>>>();
        if let Some(parts) = &mut folders
            && !matches!(parts.last(), Some(PatternPart::Any))
        {
            parts.pop();
        }
        let any =
            |parts: &Vec<PatternPart>| parts.iter().any(|part| matches!(part, PatternPart::Any));
        let any_depth = folders.as_ref().is_none_or(any);
        Ok(InputPattern::Glob(Glob { path, folders, any_depth }))
    }

    /// Whether a file matches.
    pub(super) fn matches(&self, relative: &str) -> bool {
        match self {
            InputPattern::All => true,
            InputPattern::Glob(glob) => glob.path.matches_with(relative, ONE_NAME_EACH),
        }
    }

    /// Whether a file in or below a folder could match.
    pub(super) fn may_contain(&self, folder: &str) -> bool {
        self.matches_folder(folder, true)
    }

    /// Whether a file directly in the folder could match.
    pub(super) fn may_hold_file(&self, folder: &str) -> bool {
        self.matches_folder(folder, false)
    }

    /// Whether matching files may be at several depths, so a folder with subfolders may have no
    /// file.
    pub(super) fn any_depth(&self) -> bool {
        matches!(self, InputPattern::Glob(Glob { any_depth: true, .. }))
    }

    fn matches_folder(&self, folder: &str, or_prefix: bool) -> bool {
        let InputPattern::Glob(Glob { folders: Some(parts), .. }) = self else { return true };
        let names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
        match_names(parts, &names, or_prefix)
    }
}

/// Whether the names match the parts, or with `or_prefix` the first parts.
fn match_names(parts: &[PatternPart], names: &[&str], or_prefix: bool) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, names) => names.is_none(),
        (Some(_), None) if or_prefix => true,
        (Some((PatternPart::Any, rest)), None) => match_names(rest, names, or_prefix),
        (Some((PatternPart::Any, rest)), Some((_, below))) => {
            match_names(rest, names, or_prefix) || match_names(parts, below, or_prefix)
        }
        (Some((PatternPart::One(_), _)), None) => false,
        (Some((PatternPart::One(part), rest)), Some((name, below))) => {
            part.matches_with(name, ONE_NAME_EACH) && match_names(rest, below, or_prefix)
        }
    }
}

/// Whether a name begins with `.`, or with `_` unless it holds a `=`, as in `_hour=07`.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || (name.starts_with('_') && !name.contains('='))
}

/// Whether a path contains a hidden name.
pub(super) fn has_hidden(relative: &str) -> bool {
    relative.split('/').any(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_files_are_distinguished_from_those_on_the_way() {
        for (glob, folder, leads, holds) in [
            ("*.parquet", "", true, true),
            ("*.parquet", "a", false, false),
            ("hour=*/*.parquet", "", true, false),
            ("hour=*/*.parquet", "hour=01", true, true),
            ("hour=*/*.parquet", "other", false, false),
            ("hour=*/*.parquet", "hour=01/deep", false, false),
            ("*/dt=1/*.parquet", "a", true, false),
            ("*/dt=1/*.parquet", "a/dt=1", true, true),
            ("*/dt=1/*.parquet", "a/dt=2", false, false),
            ("**/*.parquet", "", true, true),
            ("**/*.parquet", "a/b/c", true, true),
            ("a/**/b/*", "a/x/y", true, false),
            ("a/**/b/*", "a/x/b", true, true),
            ("a/**", "a/x", true, true),
            ("a/**", "b", false, false),
            ("[a/b]x/*", "q", true, true),
        ] {
            let pattern = InputPattern::glob(glob).unwrap();
            let matched = (pattern.may_contain(folder), pattern.may_hold_file(folder));
            assert_eq!(matched, (leads, holds), "{glob} {folder}");
        }
    }
}
