//! [`expand`]: an input with its day filled in. Knows no store.

use bloomsday_common::day::Day;
use bloomsday_common::redact::redact_url;

use crate::error::Error;

/// Fills the day in. A misspelt `{dya}` would match nothing on any day, so it is refused.
///
/// # Errors
/// [`Error::Template`](bloomsday_common::error::Error::Template).
pub(super) fn expand(template: &str, day: Day) -> Result<String, Error> {
    if let Some(unknown) = unknown_placeholder(template) {
        let why = format!(
            "`{{{unknown}}}` is unknown: only `{{day}}` and `{{day:FORMAT}}` are filled in (`[{{]{unknown}}}` \
             matches these characters)"
        );
        let template = redact_url(template);
        return Err(bloomsday_common::error::Error::Template { template, why }.into());
    }
    Ok(day.expand(template)?)
}

/// What is between braces as `day` would be: a word, perhaps with a format.
fn unknown_placeholder(template: &str) -> Option<&str> {
    let in_braces = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let is_word = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    };
    // A word that begins with `day` is left to `Day::expand`.
    in_braces.map(|(inside, _)| inside).find(|inside| {
        is_word(inside.split(':').next().unwrap_or(inside)) && !inside.starts_with("day")
    })
}
