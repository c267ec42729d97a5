//! [`Client`]: rdkafka's consumer of one topic: its settings, the requests of a feed, and its
//! errors in words. It reads from the offsets that it is given, is a member of no group, and
//! commits nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::MessageStream;
use rdkafka::consumer::stream_consumer::StreamPartitionQueue;
use rdkafka::consumer::{Consumer as _, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::feed::FeedError;
use super::kafka_url::{KafkaUrl, Login, TlsFiles};
use crate::live::lock::lock;

/// How long an answer may take, with the connection that it needs: a stop waits for it.
const DEADLINE: Duration = Duration::from_secs(5);
/// How often the status of each partition comes: librdkafka counts in seconds.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How often new leaders are looked for, if none is missed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// How long a broker may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest pause before a broker that is away is connected to again.
const MAX_RECONNECT: Duration = Duration::from_secs(8);
/// How long a broker waits for messages.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The pause while enough messages wait, or after a batch that cannot be unpacked.
const FETCH_PAUSE: Duration = Duration::from_millis(20);
/// About how many bytes of messages wait to be read: each partition has an equal share.
const QUEUED_BYTES: usize = 16 << 20;
/// The smallest share of a partition, and the largest. A larger batch comes whole all the same.
const MIN_SHARE: usize = 16 << 10;
const MAX_SHARE: usize = 1 << 20;
/// About how many bytes a response has at most.
const MAX_FETCHED_BYTES: usize = 8 << 20;
/// The largest response.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// The name of this client for brokers. A consumer has to name a group, too, although it is in
/// none.
const NAME: &str = "bloomsday";

/// A consumer of a topic.
pub(super) struct Client {
    /// `None` while it is dropped.
    consumer: Option<Arc<Consumer>>,
    url: KafkaUrl,
    statistics: watch::Receiver<Statistics>,
    /// What was last wrong with a broker.
    failures: watch::Sender<Option<String>>,
}

type Consumer = StreamConsumer<Events>;

/// The messages of a partition, and their stream.
pub(super) type Queue = StreamPartitionQueue<Events>;
pub(super) type Messages<'a> = MessageStream<'a, Events>;

/// What librdkafka reports while it is polled.
pub(super) struct Events {
    statistics: watch::Sender<Statistics>,
    /// The last error, with what it says of it.
    error: Mutex<Option<(Code, String)>>,
}

impl ClientContext for Events {
    fn log(&self, _: RDKafkaLogLevel, of: &str, text: &str) {
        // What matters comes as an error, too.
        tracing::debug!("librdkafka: {of}: {text}");
    }

    fn stats(&self, statistics: Statistics) {
        self.statistics.send_replace(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code().filter(|code| !is_noise(*code)) {
            *lock(&self.error) = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Events {}

/// Whether an error says nothing, or less than the one before it.
fn is_noise(code: Code) -> bool {
    // A group's coordinator is looked for, and never needed.
    let of_groups = [
        Code::GroupAuthorizationFailed,
        Code::CoordinatorNotAvailable,
        Code::CoordinatorLoadInProgress,
        Code::NotCoordinator,
    ];
    of_groups.contains(&code) || [Code::PartitionEOF, Code::AllBrokersDown].contains(&code)
}

/// A cluster and the partitions of one topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) cluster: String,
    /// The partitions, and their leaders if they have one.
    pub(super) leaders: BTreeMap<i32, Option<i32>>,
}

/// An end of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Earliest,
    Latest,
}

impl Client {
    /// A client of a topic with about this many partitions. It connects at the first request.
    pub(super) async fn open(url: &KafkaUrl, partitions: usize) -> Result<Client, FeedError> {
        let (sender, statistics) = watch::channel(Statistics::default());
        let settings = settings(url, partitions);
        let events = Events { statistics: sender, error: Mutex::new(None) };
        // It reads the files of TLS.
        let made = spawn_blocking(move || settings.create_with_context(events)).await;
        let why = match made.expect("it does not panic") {
            Ok(consumer) => {
                let consumer = Some(Arc::new(consumer));
                let failures = watch::Sender::new(None);
                return Ok(Client { consumer, url: url.clone(), statistics, failures });
            }
            Err(KafkaError::ClientCreation(why)) => why,
            // Not the value: it may be a password.
            Err(KafkaError::ClientConfig(_, why, name, _)) => format!("{name}: {why}"),
            Err(error) => error.to_string(),
        };
        Err(FeedError::Stream(format!("topic {}: {why}", url.topic)))
    }

    fn consumer(&self) -> &Arc<Consumer> {
        self.consumer.as_ref().expect("it is there until it is dropped")
    }

    /// Its statistics, once a second, while [`listen`](Client::listen) runs.
    pub(super) fn statistics(&self) -> watch::Receiver<Statistics> {
        self.statistics.clone()
    }

    /// What is wrong with a broker, while [`listen`](Client::listen) runs.
    pub(super) fn failures(&self) -> watch::Receiver<Option<String>> {
        self.failures.subscribe()
    }

    /// Receives what librdkafka reports. Ends only when the consumer cannot go on. Each request
    /// runs it, too: who of them receives an error is not defined.
    pub(super) async fn listen(&self) -> FeedError {
        loop {
            match self.consumer().recv().await {
                Err(error) => {
                    if error.rdkafka_error_code().is_some_and(|code| !is_noise(code)) {
                        self.failures.send_replace(Some(self.failed(&error).to_string()));
                    }
                }
                Ok(_) => {
                    return FeedError::Stream(
                        "a message came by a queue that it is not for".into(),
                    );
                }
            }
        }
    }

    /// Sends a request to a broker, on a thread that may block.
    async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Consumer) -> KafkaResult<T> + Send + 'static,
    ) -> Result<T, FeedError> {
        let consumer = Arc::clone(self.consumer());
        let answer = spawn_blocking(move || request(&consumer));
        let answer = tokio::select! {
            answer = answer => answer.expect("a request does not panic"),
            // So that it is known what is wrong.
            wrong = self.listen() => return Err(wrong),
        };
        answer.map_err(|error| self.failed(&error))
    }

    /// The topic as a broker knows it: without partitions, if there is none of this name.
    pub(super) async fn topic(&self) -> Result<Topic, FeedError> {
        let name = self.url.topic.clone();
        let found = self.call(move |consumer| {
            let metadata = consumer.fetch_metadata(Some(&name), DEADLINE)?;
            let cluster = consumer.client().fetch_cluster_id(DEADLINE).unwrap_or_default();
            let mut leaders = BTreeMap::new();
            for topic in metadata.topics().iter().filter(|topic| topic.name() == name) {
                match topic.error().map(Code::from) {
                    None | Some(Code::UnknownTopicOrPartition | Code::LeaderNotAvailable) => {}
                    Some(error) => return Err(KafkaError::MetadataFetch(error)),
                }
                let partitions = topic.partitions().iter();
                leaders.extend(
                    partitions.map(|p| (p.id(), Some(p.leader()).filter(|leader| *leader >= 0))),
                );
            }
            Ok(Topic { cluster, leaders })
        });
        found.await
    }

    /// There is no topic of this name.
    pub(super) fn no_topic(&self) -> FeedError {
        self.wrong(Code::UnknownTopicOrPartition, "")
    }

    /// The offsets at an end of partitions that one broker leads.
    pub(super) async fn offsets(
        &self,
        partitions: &[i32],
        at: At,
    ) -> Result<BTreeMap<i32, i64>, FeedError> {
        // Instead of times the protocol takes these, too.
        let at = match at {
            At::Earliest => Offset::Beginning,
            At::Latest => Offset::End,
        };
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            let added = list.add_partition_offset(&self.url.topic, *partition, at);
            added.map_err(|error| self.failed(&error))?;
        }
        let list = self.call(move |consumer| consumer.offsets_for_times(list, DEADLINE)).await?;
        let mut offsets = BTreeMap::new();
        for found in list.elements() {
            found.error().map_err(|error| self.failed(&error))?;
            if let Offset::Offset(offset) = found.offset() {
                offsets.insert(found.partition(), offset);
            }
        }
        Ok(offsets)
    }

    /// Reads partitions from these offsets. The queues have their messages.
    pub(super) async fn read(
        &self,
        at: &BTreeMap<i32, i64>,
    ) -> Result<Vec<(i32, Queue)>, FeedError> {
        let (mut queues, mut list) = (Vec::new(), TopicPartitionList::new());
        for (partition, offset) in at {
            // Before it is read: else its first messages come by the common queue.
            let queue = self.consumer().split_partition_queue(&self.url.topic, *partition);
            let queue = queue.ok_or_else(|| self.wrong(Code::UnknownPartition, ""))?;
            queues.push((*partition, queue));
            let offset = Offset::Offset(*offset);
            let added = list.add_partition_offset(&self.url.topic, *partition, offset);
            added.map_err(|error| self.failed(&error))?;
        }
        self.call(move |consumer| consumer.assign(&list)).await?;
        Ok(queues)
    }

    /// Reads a partition from this offset on, after librdkafka stopped it. Its queue stays.
    pub(super) async fn restart(&self, partition: i32, offset: i64) -> Result<(), FeedError> {
        let mut list = TopicPartitionList::new();
        let offset = Offset::Offset(offset);
        let added = list.add_partition_offset(&self.url.topic, partition, offset);
        added.map_err(|error| self.failed(&error))?;
        self.call(move |consumer| {
            consumer.incremental_unassign(&list)?;
            consumer.incremental_assign(&list)
        })
        .await
    }

    /// Reads a partition from this offset on. What its queue had is gone.
    pub(super) fn seek(&self, partition: i32, offset: i64) -> Result<(), FeedError> {
        let now = Duration::ZERO;
        let sought = self.consumer().seek(&self.url.topic, partition, Offset::Offset(offset), now);
        sought.map_err(|error| self.failed(&error))
    }

    /// An error in words, with the reason that librdkafka gave for the last one that was more than
    /// noise.
    pub(super) fn failed(&self, error: &KafkaError) -> FeedError {
        let last = lock(&self.consumer().client().context().error).clone();
        let own = error.rdkafka_error_code();
        match (own, last) {
            // A request fails because a connection did.
            (
                Some(Code::BrokerTransportFailure | Code::OperationTimedOut),
                Some((code, reason)),
            ) => self.wrong(code, &reason),
            (Some(own), Some((code, reason))) if own == code => self.wrong(code, &reason),
            (Some(own), _) => self.wrong(own, &own.to_string()),
            (None, _) => FeedError::Stream(format!("topic {}: {error}", self.url.topic)),
        }
    }

    fn wrong(&self, code: Code, reason: &str) -> FeedError {
        FeedError::Stream(format!(
            "topic {}: {}",
            self.url.topic,
            in_words(&self.url, code, reason)
        ))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closing waits for its threads.
        let consumer = self.consumer.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(consumer));
        }
    }
}

/// What is wrong, and what to do.
fn in_words(url: &KafkaUrl, code: Code, reason: &str) -> String {
    let user = url.login.as_ref().map_or("", |login| &*login.user);
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            format!("the broker refuses the login of `{user}`: {reason}")
        }
        Code::SSL => format!("TLS: {reason}"),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            "there is no such topic: create it, or mend the name in `live_from`".into()
        }
        Code::TopicAuthorizationFailed => {
            "the topic may not be read: give this user Read and Describe on it".into()
        }
        Code::BrokerTransportFailure | Code::OperationTimedOut if url.tls.is_none() => {
            let login = if url.login.is_none() { ", and without a login" } else { "" };
            format!("{reason}: is it a broker of Kafka{login}, and without TLS (else `tls=true`)?")
        }
        Code::UnsupportedFeature => {
            format!("{reason}: is it the address of a broker, and not of a controller?")
        }
        _ => reason.to_owned(),
    }
}

fn settings(url: &KafkaUrl, partitions: usize) -> ClientConfig {
    let share = (QUEUED_BYTES / partitions.max(1)).clamp(MIN_SHARE, MAX_SHARE);
    let brokers: Vec<String> = url.brokers.iter().map(ToString::to_string).collect();
    let ms = |time: Duration| time.as_millis().to_string();
    let mut settings = ClientConfig::new();
    let mut set = |name: &str, value: &str| {
        settings.set(name, value);
    };
    set("bootstrap.servers", &brokers.join(","));
    set("client.id", NAME);
    set("group.id", NAME);
    set("enable.auto.commit", "false");
    set("enable.auto.offset.store", "false");
    set("isolation.level", "read_committed");
    set("check.crcs", "true");
    set("enable.partition.eof", "true");
    // Whoever keeps the offsets decides.
    set("auto.offset.reset", "error");
    set("statistics.interval.ms", &ms(STATUS_INTERVAL));
    set("topic.metadata.refresh.interval.ms", &ms(REFRESH_INTERVAL));
    set("socket.timeout.ms", &ms(SILENCE));
    set("reconnect.backoff.max.ms", &ms(MAX_RECONNECT));
    set("fetch.wait.max.ms", &ms(MAX_WAIT));
    set("fetch.queue.backoff.ms", &ms(FETCH_PAUSE));
    set("fetch.error.backoff.ms", &ms(FETCH_PAUSE));
    set("queued.max.messages.kbytes", &(share >> 10).to_string());
    set("max.partition.fetch.bytes", &share.to_string());
    set("fetch.max.bytes", &MAX_FETCHED_BYTES.to_string());
    set("receive.message.max.bytes", &MAX_RESPONSE_BYTES.to_string());
    let protocol = match (&url.login, &url.tls) {
        (None, None) => "plaintext",
        (None, Some(_)) => "ssl",
        (Some(_), None) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    set("security.protocol", protocol);
    if let Some(Login { user, password, mechanism }) = &url.login {
        set("sasl.mechanism", mechanism.name());
        set("sasl.username", user);
        set("sasl.password", password);
    }
    if let Some(TlsFiles { ca, own }) = &url.tls {
        let mut file = |name: &str, path: &std::path::Path| set(name, &path.to_string_lossy());
        if let Some(ca) = ca {
            file("ssl.ca.location", ca);
        }
        if let Some((cert, key)) = own {
            file("ssl.certificate.location", cert);
            file("ssl.key.location", key);
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_partitions_share_what_may_wait() {
        let url: KafkaUrl = "kafka://h/t".parse().unwrap();
        let share = |partitions: usize| -> usize {
            let settings = settings(&url, partitions);
            let kib = settings.get("queued.max.messages.kbytes").unwrap();
            let fetched = settings.get("max.partition.fetch.bytes").unwrap();
            let fetched: usize = fetched.parse().unwrap();
            assert_eq!(kib.parse::<usize>().unwrap() << 10, fetched);
            fetched
        };
        assert_eq!([share(0), share(1), share(16)], [MAX_SHARE; 3]);
        assert_eq!(share(64) * 64, QUEUED_BYTES);
        assert_eq!(share(1_000_000), MIN_SHARE);
    }

    #[tokio::test]
    async fn librdkafka_takes_every_setting_and_names_a_file_that_is_not_there() {
        for address in ["kafka://h/t", "kafka://u:p@h/t", "kafka://u:p@h/t?sasl=plain&tls=true"] {
            Client::open(&address.parse().unwrap(), 1).await.map(drop).unwrap();
        }
        let missing = "kafka://u:secret@h/t?ca=/no/such/file";
        let error = Client::open(&missing.parse().unwrap(), 1).await.map(drop).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ssl.ca.location") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn an_error_says_what_to_do() {
        let url: KafkaUrl = "kafka://me:secret@h/t".parse().unwrap();
        for (code, expected) in [
            (Code::Authentication, "refuses the login of `me`: why"),
            (Code::UnknownTopicOrPartition, "create it"),
            (Code::TopicAuthorizationFailed, "Read and Describe"),
            (Code::BrokerTransportFailure, "tls=true"),
            (Code::SSL, "TLS: why"),
        ] {
            let text = in_words(&url, code, "why");
            assert!(text.contains(expected) && !text.contains("secret"), "{text}");
        }
    }
}
