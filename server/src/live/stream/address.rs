//! [`EngineUrl`] and [`FeedUrl`]: where an engine and a feed are. Their debug text has no password.

use std::fmt;
use std::str::FromStr;

use bloomsday_common::redact::redact_url;

/// A Redis that tells other servers at once what one adds: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`.
///
/// ```
/// use bloomsday_server::live::EngineUrl;
///
/// # if cfg!(feature = "redis") {
/// let engine: EngineUrl = "redis://me:secret@redis:6379/2".parse()?;
/// assert!(!format!("{engine:?}").contains("secret"));
/// assert!("kafka://broker/topic".parse::<EngineUrl>().is_err());
/// # }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(String);

/// A stream of Redis whose IDs are added: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]/STREAM`. The ID of an
/// entry is its field `id`, or its only field.
///
/// ```
/// use bloomsday_server::live::FeedUrl;
///
/// # if cfg!(feature = "redis") {
/// let feed: FeedUrl = "redis://redis/0/clicks".parse()?;
/// assert!(format!("{feed:?}").contains("clicks"));
/// # }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FeedUrl {
    server: String,
    stream: String,
}

impl EngineUrl {
    /// The address, with its password.
    #[cfg(feature = "redis")]
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// The address without user and password.
    pub fn name(&self) -> String {
        redact_url(&self.0)
    }
}

impl FeedUrl {
    #[cfg(feature = "redis")]
    pub(super) fn secret(&self) -> &str {
        &self.server
    }

    #[cfg(feature = "redis")]
    pub(super) fn stream(&self) -> &str {
        &self.stream
    }

    /// The address without user and password.
    pub fn name(&self) -> String {
        format!("{}/{}", redact_url(&self.server).trim_end_matches('/'), self.stream)
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineUrl({})", self.name())
    }
}

impl fmt::Debug for FeedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeedUrl({})", self.name())
    }
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineUrl, String> {
        let (server, path) = split(text)?;
        match *path {
            [] => Ok(EngineUrl(server)),
            [database] if is_number(database) => Ok(EngineUrl(format!("{server}/{database}"))),
            _ => Err("it is redis://HOST:PORT, or redis://HOST:PORT/DATABASE with a number".into()),
        }
    }
}

impl FromStr for FeedUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<FeedUrl, String> {
        let (server, path) = split(text)?;
        let wrong =
            || "it is redis://HOST:PORT/STREAM, or redis://HOST:PORT/DATABASE/STREAM".to_owned();
        let (server, stream) = match *path {
            [stream] => (server, stream),
            [database, stream] if is_number(database) => (format!("{server}/{database}"), stream),
            _ => return Err(wrong()),
        };
        Ok(FeedUrl { server, stream: stream.to_owned() })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The address up to its path, and the parts of that. No error repeats the text: it may have a password.
fn split(text: &str) -> Result<(String, Vec<&str>), String> {
    if !cfg!(feature = "redis") {
        return Err("this program was compiled without the feature `redis`".into());
    }
    let Some(rest) = text.strip_prefix("redis://") else {
        return Err(
            "only redis:// is supported: of other brokers, read into a stream of Redis, or \
                    POST to /v1/filters/NAME/add"
                .into(),
        );
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.rsplit('@').next().is_none_or(str::is_empty) {
        return Err("it names no host".into());
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    Ok((format!("redis://{host}"), parts))
}
