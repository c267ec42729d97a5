//! A topic of Kafka as a feed: one worker for each partition, over one client. A partition without
//! a leader, or whose broker is away, does not delay the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bloomsday_common::redact::describe_source;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rdkafka::Message;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tokio::time::{Duration, Instant, interval, sleep, timeout_at};

use super::feed::{FeedError, FeedIds, FeedReader, KEEP_INTERVAL, MAX_ADDED};
use super::json_field::id_in;
use super::kafka_client::{At, Client, Messages, Queue, Topic};
use super::kafka_progress::{FROM_END, Progress, ReadState};
use super::kafka_url::{IdSource, KafkaUrl, Start};
use crate::backoff::Backoff;
use crate::live::lock::lock;
use crate::live::replication::access::StreamTask;

/// How often new partitions, and leaders of those without one, are looked for.
const REFRESH: Duration = Duration::from_secs(5);
/// How long a partition may not be read without a known reason, before the topic is connected to
/// again: more than librdkafka needs to find a new leader.
const MAX_STUCK: Duration = Duration::from_secs(20);
/// How many partitions the first client of a session is made for; another one is made for more.
const FEW_PARTITIONS: usize = 16;

/// Reads the topic until something is wrong with it, it has other partitions, or another server
/// decides.
pub(super) async fn session(
    reader: &FeedReader,
    url: &KafkaUrl,
    position: &mut Option<String>,
    backoff: &mut Backoff,
) -> Result<(), FeedError> {
    // A standby with `from=latest` records where it would begin now: else it would miss messages
    // when it takes over.
    let begins = position.as_ref().map(|position| ReadState::from_position(position));
    if begins.is_some_and(|begins| begins.is_complete()) || url.start == Start::Earliest {
        reader.check()?;
    }
    let mut client = Client::open(url, FEW_PARTITIONS).await?;
    let topic = client.topic().await.map_err(redacted)?;
    if topic.leaders.is_empty() {
        return Err(client.no_topic());
    }
    if topic.leaders.len() > FEW_PARTITIONS {
        client = Client::open(url, topic.leaders.len()).await?;
    }
    let name = format!("kafka:{}/{}", topic.cluster, url.topic);
    let known = position
        .take()
        .and_then(|position| position.strip_suffix(&*format!(" {name}")).map(str::to_owned));
    let known = match known {
        Some(known) => Some(known),
        None => reader.saved_position(&name)?,
    };
    let state = ReadState::from_position(known.as_deref().unwrap_or_default());
    let state = Mutex::new(state);
    let reading = TopicReader { reader, url, client: &client, name, topic, state };
    let ended = reading.read(known.is_none(), backoff).await.map_err(redacted);
    let at = lock(&reading.state).position();
    if at.is_empty() {
        return ended;
    }
    let kept = reader.save_position(&reading.name, &at).await;
    *position = Some(format!("{at} {}", reading.name));
    ended.and(kept)
}

fn redacted(error: FeedError) -> FeedError {
    match error {
        FeedError::Stream(why) => FeedError::Stream(describe_source(&why)),
        other => other,
    }
}

/// The reading of a topic.
struct TopicReader<'a> {
    reader: &'a FeedReader,
    url: &'a KafkaUrl,
    client: &'a Client,
    /// The cluster and the topic, as the position names them.
    name: String,
    topic: Topic,
    state: Mutex<ReadState>,
}

impl TopicReader<'_> {
    async fn read(&self, is_first: bool, backoff: &mut Backoff) -> Result<(), FeedError> {
        let begun = self.begin(&self.topic.leaders, is_first).await?;
        let all: BTreeSet<i32> = self.topic.leaders.keys().copied().collect();
        let at: BTreeMap<i32, i64> = {
            let mut state = lock(&self.state);
            state.waiting = all.into_iter().filter(|p| !begun.contains_key(p)).collect();
            state.at.extend(&begun);
            begun
        };
        if let Err(another_decides) = self.reader.check() {
            // It looks again for where the others end.
            if !lock(&self.state).is_complete() {
                sleep(REFRESH).await;
            }
            return Err(another_decides);
        }
        let is_all = |state: &ReadState| state.is_complete() && state.waiting.is_empty();
        if is_all(&lock(&self.state)) {
            self.reader.take_turn();
        }
        let mut workers = FuturesUnordered::new();
        for (partition, queue) in self.client.read(&at).await? {
            workers.push(self.work(partition, queue));
        }
        tokio::select! {
            Some(ended) = workers.next() => ended,
            ended = self.keep() => ended,
            ended = self.refresh() => ended,
            stuck = self.judge(backoff) => Err(stuck),
            wrong = self.client.listen() => Err(wrong),
            () = self.say_failures() => unreachable!("the client sends for as long as it lives"),
        }
    }

    /// Says what is wrong with brokers, for ever.
    async fn say_failures(&self) {
        let mut failures = self.client.failures();
        while failures.changed().await.is_ok() {
            let why = failures.borrow_and_update().clone();
            why.into_iter().for_each(|why| self.say(why));
        }
    }

    /// Says what is wrong, while what works goes on. Where another server decides, that is its
    /// task.
    fn say(&self, why: String) {
        if self.reader.check().is_err() {
            return;
        }
        lock(&self.state).is_explained = true;
        self.reader.access.set_stream_error(StreamTask::Feed, Some(describe_source(&why)));
    }

    /// Where reading begins, of each of these partitions whose leader answers. At the first start
    /// with `from=latest` all leaders have to answer, and partitions without one are noted, to be
    /// read from their end.
    async fn begin(
        &self,
        leaders: &BTreeMap<i32, Option<i32>>,
        is_first: bool,
    ) -> Result<BTreeMap<i32, i64>, FeedError> {
        let ends = self.ends(leaders).await;
        let is_from_end = is_first && self.url.start == Start::Latest;
        if is_from_end {
            let unanswered = leaders.iter().filter(|(partition, _)| !ends.contains_key(partition));
            if let Some((partition, _)) = unanswered.clone().find(|(_, leader)| leader.is_some()) {
                let topic = &self.url.topic;
                return Err(FeedError::Stream(format!(
                    "topic {topic}: the leader of partition {partition} does not say where it ends"
                )));
            }
            let noted = unanswered.map(|(partition, _)| (*partition, FROM_END));
            lock(&self.state).at.extend(noted);
        }
        let mut begin = BTreeMap::new();
        for (partition, (first, last)) in ends {
            let known = lock(&self.state).at.get(&partition).copied();
            let (filter, topic) = (&self.reader.filter, &self.url.topic);
            let at = match known {
                Some(FROM_END) => last,
                // Where another server decides, that one has read them.
                Some(_) if self.reader.check().is_err() => continue,
                // One that decided in between may have read them.
                Some(at) if at < first && self.reader.may_take_over() => {
                    tracing::info!(
                        %filter,
                        "topic {topic}, partition {partition}: {} messages are gone; another server may \
                         have read them",
                        first - at
                    );
                    first
                }
                Some(at) if at < first => {
                    let lost = first - at;
                    self.reader.access.count_lost(u64::try_from(lost).unwrap_or(0));
                    tracing::warn!(
                        %filter,
                        "topic {topic}, partition {partition}: up to {lost} messages were dropped before \
                         they were read: keep them longer (retention.ms)"
                    );
                    first
                }
                Some(at) if at > last => {
                    tracing::warn!(%filter, "topic {topic}, partition {partition} began anew: so does its reading");
                    first
                }
                Some(at) => at,
                None if is_from_end => last,
                // A partition that is made later is read from its beginning: nobody has read it.
                None => first,
            };
            begin.insert(partition, at);
        }
        Ok(begin)
    }

    /// Both ends of partitions. Each leader gets a request of its own: one that is away does not
    /// delay the others.
    async fn ends(&self, leaders: &BTreeMap<i32, Option<i32>>) -> BTreeMap<i32, (i64, i64)> {
        let mut led: BTreeMap<Option<i32>, Vec<i32>> = BTreeMap::new();
        for (partition, leader) in leaders {
            led.entry(*leader).or_default().push(*partition);
        }
        if let Some(partitions) = led.remove(&None) {
            let topic = &self.url.topic;
            self.say(format!(
                "topic {topic}: partitions {partitions:?} have no leader: start their brokers"
            ));
        }
        let mut ends = BTreeMap::new();
        for found in join_all(led.into_values().map(|partitions| self.ends_of(partitions))).await {
            match found {
                Ok(found) => ends.extend(found),
                Err(error) => self.say(error.to_string()),
            }
        }
        ends
    }

    async fn ends_of(&self, partitions: Vec<i32>) -> Result<Vec<(i32, (i64, i64))>, FeedError> {
        let first = self.client.offsets(&partitions, At::Earliest).await?;
        let last = self.client.offsets(&partitions, At::Latest).await?;
        let both = |(partition, first)| Some((partition, (first, *last.get(&partition)?)));
        Ok(first.into_iter().filter_map(both).collect())
    }

    /// Keeps the position, until another server decides.
    async fn keep(&self) -> Result<(), FeedError> {
        let mut keep = interval(KEEP_INTERVAL);
        let mut kept = String::new();
        loop {
            keep.tick().await;
            let at = lock(&self.state).position();
            if at != kept {
                self.reader.save_position(&self.name, &at).await?;
                kept = at;
            }
            self.reader.check()?;
        }
    }

    /// Ends when the topic has other partitions than those that are read.
    async fn refresh(&self) -> Result<(), FeedError> {
        loop {
            sleep(REFRESH).await;
            let topic = match self.client.topic().await {
                Ok(topic) => topic,
                // The workers may go on without.
                Err(error) => {
                    self.say(error.to_string());
                    continue;
                }
            };
            if !topic.leaders.keys().eq(self.topic.leaders.keys()) {
                return Ok(());
            }
            let mut leaders = topic.leaders;
            leaders.retain(|partition, _| lock(&self.state).waiting.contains(partition));
            if !leaders.is_empty() && !self.ends(&leaders).await.is_empty() {
                return Ok(());
            }
        }
    }

    /// Says how much is left, and that nothing is wrong if all partitions are read. Ends when one
    /// has not been read for long, and nobody said why.
    async fn judge(&self, backoff: &mut Backoff) -> FeedError {
        let mut statistics = self.client.statistics();
        let mut last = Instant::now();
        loop {
            let changed = timeout_at(last + MAX_STUCK, statistics.changed()).await;
            let is_new = matches!(changed, Ok(Ok(())));
            let (progress, is_explained) = {
                let (statistics, mut state) = (statistics.borrow_and_update(), lock(&self.state));
                let partitions = self.topic.leaders.keys();
                let progress = state.progress(&statistics, &self.url.topic, partitions);
                // What was said before is over.
                state.is_explained &= !matches!(progress, Progress::Behind(_));
                (progress, state.is_explained)
            };
            let why = match progress {
                Progress::Behind(behind) if is_new => {
                    self.reader.access.set_feed_behind(behind);
                    self.reader.access.set_stream_error(StreamTask::Feed, None);
                    backoff.reset();
                    last = Instant::now();
                    continue;
                }
                // The others are not delayed.
                Progress::Unread { is_away: true, .. } if is_new && is_explained => {
                    last = Instant::now();
                    continue;
                }
                Progress::Behind(_) => "librdkafka reports nothing".into(),
                Progress::Unread { why, .. } => why,
            };
            if !is_new || last.elapsed() >= MAX_STUCK {
                let (topic, seconds) = (&self.url.topic, MAX_STUCK.as_secs());
                return FeedError::Stream(format!(
                    "topic {topic} has not been read for {seconds} s and is connected to again: {why}"
                ));
            }
        }
    }

    /// Adds the messages of a partition.
    async fn work(&self, partition: i32, queue: Queue) -> Result<(), FeedError> {
        let mut next = lock(&self.state).at.get(&partition).copied().unwrap_or(0);
        let mut messages = queue.stream();
        let mut damage = None;
        // Where reading was begun again after a damaged batch.
        let mut restarted_at = None;
        loop {
            let mut ids = self.reader.ids();
            let wrong = self.take(&mut messages, &mut next, &mut ids).await;
            if ids.len() > 0 {
                damage = None;
                lock(&self.state).at_end.remove(&partition);
                // What was read before an error counts.
                self.reader.add(ids).await?;
                lock(&self.state).at.insert(partition, next);
            }
            let Some(error) = wrong else { continue };
            match error.rdkafka_error_code() {
                _ if matches!(error, KafkaError::PartitionEOF(_)) => {
                    lock(&self.state).at_end.insert(partition);
                }
                // Messages were dropped, or the topic was made anew: the next session finds out.
                // Or librdkafka has stopped this partition, since after a damaged batch it looked
                // for an offset that does not exist.
                Some(Code::AutoOffsetReset | Code::LogTruncation) => {
                    if damage.is_none() || restarted_at.replace(next) == Some(next) {
                        return Ok(());
                    }
                    self.client.restart(partition, next).await?;
                }
                Some(
                    Code::BadMessage
                    | Code::BadCompression
                    | Code::InvalidMessage
                    | Code::NotImplemented,
                ) => {
                    let found = self.damaged(partition, next, damage, &error).await?;
                    next = found.at;
                    damage = Some(found);
                }
                _ => return Err(self.client.failed(&error)),
            }
        }
    }

    /// Waits for messages, and takes those that are there. An error ends that.
    async fn take(
        &self,
        messages: &mut Messages<'_>,
        next: &mut i64,
        ids: &mut FeedIds,
    ) -> Option<KafkaError> {
        let mut read = messages.next().await;
        while let Some(message) = read {
            match message {
                Ok(message) if message.offset() < *next => {}
                Ok(message) => {
                    push(ids, &self.url.id, message.key(), message.payload());
                    *next = message.offset() + 1;
                }
                Err(error) => return Some(error),
            }
            let is_full = ids.len() >= MAX_ADDED;
            read = if is_full { None } else { messages.next().now_or_never().flatten() };
        }
        None
    }

    /// The batch at `next` cannot be read. It is fetched once more, since bytes may have changed on
    /// their way, and then skipped, message by message, with a fetch for each: librdkafka does not
    /// say where it ends, and goes on at an offset that it reads from the middle of it. Returns
    /// what is known of the batch now, with the next offset to read.
    async fn damaged(
        &self,
        partition: i32,
        next: i64,
        known: Option<Damage>,
        error: &KafkaError,
    ) -> Result<Damage, FeedError> {
        let (filter, why) = (&self.reader.filter, self.client.failed(error));
        let damage = match known {
            None => {
                tracing::warn!(%filter, "{why}, partition {partition}: it is fetched again");
                Damage { at: next, is_skipped: false }
            }
            Some(Damage { is_skipped, .. }) => {
                if !is_skipped {
                    tracing::warn!(%filter, "{why}, partition {partition}: it is skipped");
                }
                let mut ids = self.reader.ids();
                ids.skip(1);
                self.reader.add(ids).await?;
                Damage { at: next + 1, is_skipped: true }
            }
        };
        {
            let mut state = lock(&self.state);
            state.at_end.remove(&partition);
            state.at.insert(partition, damage.at);
        }
        self.client.seek(partition, damage.at)?;
        Ok(damage)
    }
}

/// A batch that cannot be read.
#[derive(Clone, Copy)]
struct Damage {
    /// The offset from which it is tried next.
    at: i64,
    /// Whether messages of it were skipped.
    is_skipped: bool,
}

/// Adds the ID of a message.
fn push(ids: &mut FeedIds, source: &IdSource, key: Option<&[u8]>, value: Option<&[u8]>) {
    match source {
        IdSource::Value => ids.push(value),
        IdSource::Key => ids.push(key),
        IdSource::Json(field) => {
            let id = value.and_then(|value| id_in(value, field));
            ids.push(id.as_deref().map(str::as_bytes));
        }
    }
}
