//! [`EngineUrl`] and [`FeedUrl`]: where an engine and a feed are. Their debug text has no password.

use std::fmt;
use std::str::FromStr;

use bloomsday_common::redact::redact_url;

/// A Redis that tells other servers at once what one adds:
/// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`.
///
/// ```
/// use bloomsday_server::live::EngineUrl;
///
/// # if cfg!(feature = "redis-streams") {
/// let engine: EngineUrl = "redis://me:secret@redis:6379/2".parse()?;
/// assert!(!format!("{engine:?}").contains("secret"));
/// assert!("kafka://broker/topic".parse::<EngineUrl>().is_err());
/// # }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(String);

/// A stream whose IDs are added.
///
/// - `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]/STREAM`, a stream of Redis: the ID of an entry
///   is its field `id`, or its only field.
/// - `kafka://[USER:PASSWORD@]HOST[:PORT][,HOST…]/TOPIC[?OPTION=VALUE&…]`, a topic of Kafka: the ID
///   of a message is its value; with `id=key` its key; with `id=json:FIELD` that field of its
///   value, a JSON object.
///
/// ```
/// use bloomsday_server::live::FeedUrl;
///
/// # if cfg!(feature = "redis-streams") {
/// let feed: FeedUrl = "redis://redis/0/clicks".parse()?;
/// assert_eq!(feed.name(), "redis://redis/0/clicks");
/// # }
/// # if cfg!(feature = "kafka") {
/// let feed: FeedUrl = "kafka://me:secret@kafka-1,kafka-2/clicks?id=json:user&tls=true".parse()?;
/// assert_eq!(feed.name(), "kafka://kafka-1:9092,kafka-2:9092/clicks");
/// # }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct FeedUrl(pub(super) Feed);

/// What is read.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Feed {
    #[cfg(feature = "redis-streams")]
    Redis(RedisStream),
    #[cfg(feature = "kafka")]
    Kafka(super::kafka_url::KafkaUrl),
}

/// A stream of Redis.
#[cfg(feature = "redis-streams")]
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RedisStream {
    /// The address of the server, with its password.
    pub(super) server: String,
    pub(super) stream: String,
}

impl EngineUrl {
    /// The address, with its password.
    #[cfg(feature = "redis-streams")]
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// The address without user and password.
    pub fn name(&self) -> String {
        redact_url(&self.0)
    }
}

impl FeedUrl {
    /// The address without user, password and options.
    pub fn name(&self) -> String {
        match self.0 {
            #[cfg(feature = "redis-streams")]
            Feed::Redis(RedisStream { ref server, ref stream }) => {
                format!("{}/{stream}", redact_url(server).trim_end_matches('/'))
            }
            #[cfg(feature = "kafka")]
            Feed::Kafka(ref topic) => topic.name(),
        }
    }

    /// Checks that the files that it names can be read.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        match self.0 {
            #[cfg(feature = "redis-streams")]
            Feed::Redis(_) => Ok(()),
            #[cfg(feature = "kafka")]
            Feed::Kafka(ref topic) => topic.check_files(),
        }
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
        #[cfg(feature = "kafka")]
        if text.starts_with("kafka://") {
            return text.parse().map(|topic| FeedUrl(Feed::Kafka(topic)));
        }
        #[cfg(feature = "redis-streams")]
        if text.starts_with("redis://") {
            return redis_stream(text).map(|stream| FeedUrl(Feed::Redis(stream)));
        }
        Err(match text.split_once("://") {
            Some(("kafka", _)) => without("kafka"),
            Some(("redis", _)) => without("redis-streams"),
            _ => "it is redis://HOST:PORT/STREAM or kafka://HOST:PORT/TOPIC: of other brokers, read into one of \
                  these, or POST to /v1/filters/NAME/add"
                .into(),
        })
    }
}

#[cfg(feature = "redis-streams")]
fn redis_stream(text: &str) -> Result<RedisStream, String> {
    let (server, path) = split(text)?;
    let wrong =
        || "it is redis://HOST:PORT/STREAM, or redis://HOST:PORT/DATABASE/STREAM".to_owned();
    let (server, stream) = match *path {
        [stream] => (server, stream),
        [database, stream] if is_number(database) => (format!("{server}/{database}"), stream),
        _ => return Err(wrong()),
    };
    Ok(RedisStream { server, stream: stream.to_owned() })
}

fn without(feature: &str) -> String {
    format!(
        "this program was compiled without the feature `{feature}`: compile it with this feature (docs/live.md)"
    )
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The address up to its path, and the parts of that. No error repeats the text: it may have a
/// password.
fn split(text: &str) -> Result<(String, Vec<&str>), String> {
    if !cfg!(feature = "redis-streams") {
        return Err(without("redis-streams"));
    }
    let Some(rest) = text.strip_prefix("redis://") else {
        return Err("the address of a Redis begins with redis://".into());
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.rsplit('@').next().is_none_or(str::is_empty) {
        return Err("it names no host".into());
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    Ok((format!("redis://{host}"), parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_whose_feature_was_left_out_names_it() {
        for (text, feature, is_in) in [
            ("kafka://host/topic", "kafka", cfg!(feature = "kafka")),
            ("redis://host/stream", "redis-streams", cfg!(feature = "redis-streams")),
        ] {
            let read = text.parse::<FeedUrl>();
            assert_eq!(read.err(), (!is_in).then(|| without(feature)));
        }
    }
}
