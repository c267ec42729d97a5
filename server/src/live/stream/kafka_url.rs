//! [`KafkaUrl`]: the brokers, the topic and the options of a feed. Its debug text has no password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

/// The port of a broker, if none is named.
const PORT: u16 = 9092;
/// The most brokers to begin with: any of them knows all others.
const MAX_BROKERS: usize = 16;
/// The longest name of a topic that Kafka takes.
const MAX_TOPIC_BYTES: usize = 249;

/// `kafka://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/TOPIC[?OPTION=VALUE&…]`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KafkaUrl {
    pub(crate) brokers: Vec<Broker>,
    pub(crate) topic: String,
    pub(crate) id: IdSource,
    pub(crate) start: Start,
    pub(super) login: Option<Login>,
    pub(super) tls: Option<TlsFiles>,
}

/// Where a broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broker {
    host: String,
    port: u16,
}

/// Where the ID of a message is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdSource {
    /// Its value.
    #[default]
    Value,
    /// Its key.
    Key,
    /// This field of its value, which is a JSON object: a text, or an integer in decimal.
    Json(String),
}

/// Where reading begins, if no position was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    #[default]
    Earliest,
    Latest,
}

/// Who reads.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) mechanism: Mechanism,
}

/// How a login is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

/// The PEM files of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Whom to trust; without it, whom the system trusts.
    pub(super) ca: Option<PathBuf>,
    /// The certificate of this client, and its key.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

impl Mechanism {
    const ALL: [Mechanism; 3] = [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512];

    /// Its name for brokers; in an address it is in lower case.
    pub(super) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl KafkaUrl {
    /// The address without user, password and options.
    pub(crate) fn name(&self) -> String {
        let brokers: Vec<String> = self.brokers.iter().map(Broker::to_string).collect();
        format!("kafka://{}/{}", brokers.join(","), self.topic)
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for KafkaUrl {
    type Err = String;

    /// No error repeats the text: it may have a password.
    fn from_str(text: &str) -> Result<KafkaUrl, String> {
        let rest = text.strip_prefix("kafka://").ok_or("it begins with kafka://")?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let wrong = || "it is kafka://HOST:PORT/TOPIC, or kafka://HOST:PORT,HOST:PORT/TOPIC";
        let (hosts, topic) = rest.split_once('/').ok_or_else(wrong)?;
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if topic.is_empty() || topic.len() > MAX_TOPIC_BYTES || !topic.chars().all(is_legal) {
            let letters = "letters, digits, `.`, `_` and `-`";
            return Err(format!("a topic has 1 to {MAX_TOPIC_BYTES} {letters}: {}", wrong()));
        }
        let brokers: Option<Vec<Broker>> = hosts.split(',').map(broker).collect();
        let brokers = brokers.filter(|all| all.len() <= MAX_BROKERS).ok_or_else(wrong)?;
        let mut url = KafkaUrl {
            brokers,
            topic: topic.to_owned(),
            id: IdSource::Value,
            start: Start::Earliest,
            login: login.map(read_login).transpose()?,
            tls: None,
        };
        url.read_options(options)?;
        Ok(url)
    }
}

/// `HOST`, `HOST:PORT` or `[IPv6]:PORT`.
fn broker(text: &str) -> Option<Broker> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port {
        "" => PORT,
        port => port.strip_prefix(':')?.parse().ok().filter(|port| *port > 0)?,
    };
    let is_legal = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '[' | ']');
    (!host.is_empty() && host.chars().all(is_legal)).then(|| Broker { host: host.to_owned(), port })
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| "what follows a % in it is no UTF-8".to_owned())
}

fn read_login(text: &str) -> Result<Login, String> {
    let wrong = "a login is USER:PASSWORD, in which `:`, `/`, `?`, `@` and `%` are %3A, %2F, %3F, %40 and %25";
    let (user, password) = text.split_once(':').ok_or(wrong)?;
    if user.is_empty() || text.contains('/') {
        return Err(wrong.into());
    }
    let mechanism = Mechanism::ScramSha512;
    Ok(Login { user: decoded(user)?, password: decoded(password)?, mechanism })
}

impl KafkaUrl {
    /// Checks that the files of TLS can be read.
    pub(super) fn check_files(&self) -> Result<(), String> {
        let Some(TlsFiles { ca, own }) = &self.tls else { return Ok(()) };
        let own = own.iter().flat_map(|(cert, key)| [("cert", cert), ("key", key)]);
        for (option, path) in ca.iter().map(|ca| ("ca", ca)).chain(own) {
            std::fs::read(path).map_err(|e| format!("`{option}`, {}: {e}", path.display()))?;
        }
        Ok(())
    }

    fn read_options(&mut self, text: &str) -> Result<(), String> {
        let (mut files, mut cert, mut key, mut tls) = (TlsFiles::default(), None, None, None);
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value)?;
            let path = || Some(PathBuf::from(&value));
            match name {
                "id" => self.id = read_source(&value)?,
                "from" => {
                    self.start = match &*value {
                        "earliest" => Start::Earliest,
                        "latest" => Start::Latest,
                        _ => return Err("`from` is `earliest` or `latest`".into()),
                    }
                }
                "sasl" => {
                    let login = self.login.as_mut();
                    let login = login.ok_or("`sasl` needs USER:PASSWORD@ before the host")?;
                    let named =
                        Mechanism::ALL.into_iter().find(|m| m.name().eq_ignore_ascii_case(&value));
                    let wrong = "`sasl` is `plain`, `scram-sha-256` or `scram-sha-512`";
                    login.mechanism = named.ok_or(wrong)?;
                }
                "tls" => {
                    let read: Result<bool, _> = value.parse();
                    tls = Some(read.map_err(|_| "`tls` is `true` or `false`")?);
                }
                "ca" => files.ca = path(),
                "cert" => cert = path(),
                "key" => key = path(),
                _ => {
                    let known = "`id`, `from`, `sasl`, `tls`, `ca`, `cert` and `key`";
                    return Err(format!("its options are {known}"));
                }
            }
        }
        files.own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("`cert` and `key` belong together".into()),
        };
        let has_files = files != TlsFiles::default();
        if tls == Some(false) && has_files {
            return Err("`ca`, `cert` and `key` are for TLS, and `tls` is `false`".into());
        }
        self.tls = (tls == Some(true) || has_files).then_some(files);
        Ok(())
    }
}

fn read_source(text: &str) -> Result<IdSource, String> {
    match (text, text.strip_prefix("json:")) {
        ("value", _) => Ok(IdSource::Value),
        ("key", _) => Ok(IdSource::Key),
        (_, Some(field)) if !field.is_empty() => Ok(IdSource::Json(field.to_owned())),
        _ => Err("`id` is `value`, `key` or `json:FIELD`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> KafkaUrl {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn an_address_names_brokers_and_a_topic() {
        let url = read("kafka://a,b:9093,[::1]:1/clicks.v1");
        assert_eq!(url.name(), "kafka://a:9092,b:9093,[::1]:1/clicks.v1");
        assert_eq!((url.id, url.start), (IdSource::Value, Start::Earliest));
        assert!(url.login.is_none() && url.tls.is_none());
    }

    #[test]
    fn options_say_where_the_id_is_and_how_to_connect() {
        let url = read(
            "kafka://me:p%40ss%2F@h/t?id=json:user.id&from=latest&sasl=plain&ca=/ca.pem&cert=c&key=k",
        );
        assert_eq!(url.name(), "kafka://h:9092/t");
        assert_eq!((url.id, url.start), (IdSource::Json("user.id".into()), Start::Latest));
        let login = url.login.unwrap();
        assert_eq!((&*login.user, &*login.password), ("me", "p@ss/"));
        assert_eq!(login.mechanism, Mechanism::Plain);
        let own = Some(("c".into(), "k".into()));
        assert_eq!(url.tls, Some(TlsFiles { ca: Some("/ca.pem".into()), own }));
        assert_eq!(read("kafka://h/t?id=key&tls=true").tls, Some(TlsFiles::default()));
        let by_default = read("kafka://u:p@h/t").login.unwrap().mechanism;
        assert_eq!(by_default, Mechanism::ScramSha512);
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (text, expected) in [
            ("kafka://host", "HOST:PORT/TOPIC"),
            ("kafka:///topic", "HOST:PORT/TOPIC"),
            ("kafka://h:0/t", "HOST:PORT/TOPIC"),
            ("kafka://h:x/t", "HOST:PORT/TOPIC"),
            ("kafka://h,/t", "HOST:PORT/TOPIC"),
            ("kafka://a b/t", "HOST:PORT/TOPIC"),
            ("kafka://[[a]/t", "HOST:PORT/TOPIC"),
            ("kafka://h/", "a topic has"),
            ("kafka://h/a/b", "a topic has"),
            ("kafka://secret@h/t", "USER:PASSWORD"),
            ("kafka://u:sec/ret@h/t", "%2F"),
            ("kafka://u:%ff@h/t", "UTF-8"),
            ("kafka://h/t?id=json:", "json:FIELD"),
            ("kafka://h/t?from=now", "`latest`"),
            ("kafka://h/t?sasl=plain", "USER:PASSWORD"),
            ("kafka://u:secret@h/t?sasl=gssapi", "scram-sha-256"),
            ("kafka://h/t?tls=yes", "`true`"),
            ("kafka://h/t?tls=false&ca=x", "for TLS"),
            ("kafka://h/t?cert=x", "belong together"),
            ("kafka://h/t?group=x", "its options"),
        ] {
            let why = text.parse::<KafkaUrl>().err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(why.contains(expected), "{text}: {why}");
            assert!(!why.contains("secret") && !why.contains("sec/"), "{why}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let files = |text: &str| text.parse::<KafkaUrl>().unwrap().check_files();
        for option in ["ca=/nowhere/x.pem", "cert=/nowhere/x.pem&key=/nowhere/k", "tls=true&ca=/"] {
            let why = files(&format!("kafka://h/t?{option}")).unwrap_err();
            let name = option.trim_start_matches("tls=true&").split('=').next().unwrap();
            assert!(why.starts_with(&format!("`{name}`, /")), "{why}");
        }
        assert_eq!(files("kafka://h/t?tls=true"), Ok(()));
    }
}
