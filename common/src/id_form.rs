//! [`IdForm`]: what is hashed of an ID.

use std::fmt;
use std::str::FromStr;

use crate::hash::IdHash;
use crate::url_id;

/// What is hashed of an ID: every ID of a filter in the same way, by builders and by servers. It is
/// in the header of a blob.
///
/// ```
/// use bloomsday_common::hash::Xxh3;
/// use bloomsday_common::id_form::IdForm;
///
/// let form: IdForm = "url".parse()?;
/// let (a, b) = (form.hash::<Xxh3>(b"https://Example.org/?b&a"), form.hash(b"http://example.org?a&b"));
/// assert_eq!(a, b);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdForm {
    /// Its bytes.
    #[default]
    Bytes,
    /// Those of its normalised form, if it is a URL: see [`url_id`].
    Url,
}

impl IdForm {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            IdForm::Bytes => "bytes",
            IdForm::Url => "url",
        }
    }

    /// The hash of an ID.
    ///
    /// Cost: for [`IdForm::Url`] many times that of the hash, and an allocation.
    #[inline]
    pub fn hash<H: IdHash>(self, id: &[u8]) -> H {
        match self {
            IdForm::Bytes => H::of(id),
            IdForm::Url => H::of(&url_id::normalised(id)),
        }
    }
}

impl fmt::Display for IdForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IdForm {
    type Err = String;

    fn from_str(text: &str) -> Result<IdForm, String> {
        let known = [IdForm::Bytes, IdForm::Url];
        let found = known.into_iter().find(|form| form.name() == text);
        found.ok_or_else(|| "it is `bytes` or `url`".to_owned())
    }
}
