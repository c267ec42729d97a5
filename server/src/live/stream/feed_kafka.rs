//! A topic of Kafka as a feed: one worker for each broker that leads partitions of it. A partition without a
//! leader, or whose broker is away, does not keep the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bloomsday_common::redact::describe_source;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::time::{Duration, Instant, interval, sleep_until};

use super::feed::{Feeding, Ids, KEEP_INTERVAL, NotFed, Pause};
use crate::live::kafka::{
    At, Broker, Connection, KafkaUrl, Metadata, NotRead, PartitionRecords, Start, Where, batches,
};
use crate::live::syncer::lock;

/// How often new partitions and new leaders are looked for.
const REFRESH: Duration = Duration::from_secs(5);
/// The error of a broker for an offset that a partition does not have.
const OUT_OF_RANGE: i16 = 1;

/// Reads the topic until nothing of it can be read, or another server decides.
pub(super) async fn session(
    feeding: &Feeding,
    url: &KafkaUrl,
    place: &mut Option<String>,
    pause: &mut Pause,
) -> Result<(), NotFed> {
    // Who does not decide has to know where it would begin, so that nothing is missed when it does.
    if place.is_some() || url.start == Start::Earliest {
        feeding.check()?;
    }
    let metadata = look(url).await.map_err(|why| failed(url, &why))?;
    let name = format!("kafka:{}/{}", metadata.cluster, url.topic);
    let known =
        place.take().and_then(|place| place.strip_suffix(&*format!(" {name}")).map(str::to_owned));
    let known = known.or_else(|| feeding.place(&name));
    let all = metadata.leaders.iter().map(|(partition, _)| *partition);
    let state = State {
        first: if known.is_none() { all.collect() } else { BTreeSet::new() },
        at: known.map(|at| parse(&at)).unwrap_or_default(),
        ..State::default()
    };
    let topic = Topic { feeding, url, name, state: Mutex::new(state) };
    let ended = topic.read(metadata, pause).await;
    let at = format(&lock(&topic.state).at);
    if at.is_empty() {
        return ended;
    }
    let kept = feeding.keep(&topic.name, &at);
    *place = Some(format!("{at} {}", topic.name));
    ended.and(kept)
}

/// The cluster as the first broker that answers knows it.
async fn look(url: &KafkaUrl) -> Result<Metadata, NotRead> {
    let mut last = None;
    for broker in &url.brokers {
        let looked = async { Connection::open(url, broker).await?.metadata(&url.topic).await };
        match looked.await {
            Ok(metadata) => return Ok(metadata),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("an address has a broker"))
}

fn failed(url: &KafkaUrl, error: &NotRead) -> NotFed {
    NotFed::Stream(describe_source(&format!("topic {}: {error}", url.topic)))
}

/// A place: `PARTITION:OFFSET,…`.
fn parse(place: &str) -> BTreeMap<i32, i64> {
    let pair = |pair: &str| {
        let (partition, offset) = pair.split_once(':')?;
        Some((partition.parse().ok()?, offset.parse().ok()?))
    };
    place.split(',').filter_map(pair).collect()
}

fn format(at: &BTreeMap<i32, i64>) -> String {
    let pairs: Vec<String> = at.iter().map(|(p, offset)| format!("{p}:{offset}")).collect();
    pairs.join(",")
}

/// The reading of a topic.
struct Topic<'a> {
    feeding: &'a Feeding,
    url: &'a KafkaUrl,
    /// The cluster and the topic, as the place names them.
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// If no place was kept, the partitions that there were: they begin where the address says.
    first: BTreeSet<i32>,
    /// The next offset of each partition: all before it is as safe as promised.
    at: BTreeMap<i32, i64>,
    /// Where partitions ended when they were read last.
    ends: BTreeMap<i32, i64>,
    /// All partitions of the topic.
    all: BTreeSet<i32>,
    /// Those that have a worker.
    taken: BTreeSet<i32>,
    /// Those that were read since it began.
    working: BTreeSet<i32>,
    /// By partition, the offset of a batch that could not be read.
    suspects: BTreeMap<i32, i64>,
}

/// A worker that has ended: its partitions, and why.
type Ended = (Vec<i32>, Result<(), NotFed>);

impl Topic<'_> {
    async fn read(&self, mut metadata: Metadata, pause: &mut Pause) -> Result<(), NotFed> {
        let mut workers: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
        let mut keep = interval(KEEP_INTERVAL);
        let mut kept = String::new();
        loop {
            let mut refresh_at = Instant::now() + REFRESH;
            for (broker, partitions) in self.idle(&metadata)? {
                workers.push(self.work(broker, partitions).boxed());
            }
            while Instant::now() < refresh_at {
                tokio::select! {
                    Some((partitions, ended)) = workers.next() => {
                        self.release(&partitions);
                        match ended {
                            Ok(()) => {}
                            Err(NotFed::NotNow) => return Err(NotFed::NotNow),
                            Err(error) if workers.is_empty() => return Err(error),
                            Err(error) => {
                                self.feeding.gate.set_engine_error("feed", Some(error.to_string()));
                                refresh_at = refresh_at.min(Instant::now() + pause.next());
                            }
                        }
                    }
                    _ = keep.tick() => {
                        let at = format(&lock(&self.state).at);
                        if at != kept {
                            self.feeding.keep(&self.name, &at)?;
                            kept = at;
                        }
                        if self.is_whole() {
                            *pause = Pause::FIRST;
                        }
                    }
                    () = sleep_until(refresh_at) => {}
                }
            }
            match look(self.url).await {
                Ok(found) => metadata = found,
                // The workers may go on without.
                Err(error) => {
                    let why = failed(self.url, &error).to_string();
                    self.feeding.gate.set_engine_error("feed", Some(why));
                }
            }
        }
    }

    /// The partitions that nobody reads, by their leader.
    fn idle(&self, metadata: &Metadata) -> Result<Vec<(Broker, Vec<i32>)>, NotFed> {
        let mut state = lock(&self.state);
        state.all = metadata.leaders.iter().map(|(partition, _)| *partition).collect();
        let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (partition, leader) in &metadata.leaders {
            if !state.taken.contains(partition) {
                by_leader.entry(*leader).or_default().push(*partition);
            }
        }
        let mut idle = Vec::new();
        for (leader, partitions) in by_leader {
            match metadata.brokers.iter().find(|(node, _)| *node == leader) {
                Some((_, broker)) => {
                    state.taken.extend(&partitions);
                    idle.push((broker.clone(), partitions));
                }
                None => {
                    let why = format!(
                        "topic {}: partitions {partitions:?} have no leader: start their brokers",
                        self.url.topic
                    );
                    if state.taken.is_empty() && metadata.leaders.len() == partitions.len() {
                        return Err(NotFed::Stream(why));
                    }
                    self.feeding.gate.set_engine_error("feed", Some(why));
                }
            }
        }
        Ok(idle)
    }

    fn release(&self, partitions: &[i32]) {
        let mut state = lock(&self.state);
        for partition in partitions {
            state.taken.remove(partition);
            state.working.remove(partition);
        }
    }

    /// Whether all partitions are read.
    fn is_whole(&self) -> bool {
        let state = lock(&self.state);
        !state.all.is_empty() && state.working.is_superset(&state.all)
    }

    async fn work(&self, broker: Broker, partitions: Vec<i32>) -> Ended {
        let ended = self.read_from(&broker, partitions.clone()).await;
        (partitions, ended)
    }

    /// Reads partitions from their leader until that fails.
    async fn read_from(&self, broker: &Broker, mut partitions: Vec<i32>) -> Result<(), NotFed> {
        let wrong = |error: NotRead| failed(self.url, &error);
        let mut connection = Connection::open(self.url, broker).await.map_err(wrong)?;
        self.begin(&mut connection, &partitions).await.map_err(wrong)?;
        loop {
            self.feeding.check()?;
            // A batch may fill a response: each partition is the first one once.
            partitions.rotate_left(1);
            let mut read = Read::of(self.feeding.ids());
            let from: Vec<(i32, i64)> = {
                let state = lock(&self.state);
                partitions.iter().map(|p| (*p, state.at.get(p).copied().unwrap_or(0))).collect()
            };
            let topic = &self.url.topic;
            let fetched =
                connection.records(topic, &from, |part| self.take(part, &from, &mut read));
            fetched.await.map_err(wrong)?;
            // What was read before an error counts.
            self.feeding.add(read.ids).await?;
            self.go_on(&partitions, &read.next, &read.ends);
            if let Some(why) = read.damaged {
                // Over another connection: bytes may have changed on their way.
                tracing::warn!(filter = %self.feeding.filter, "topic {topic}, {why}: it is fetched again");
                connection = Connection::open(self.url, broker).await.map_err(wrong)?;
            }
            for (partition, error) in read.errors {
                if error == OUT_OF_RANGE {
                    self.start_anew(&mut connection, partition).await.map_err(wrong)?;
                } else {
                    connection.check(error).map_err(wrong)?;
                }
            }
        }
    }

    /// Finds out where partitions begin that have no place yet.
    async fn begin(&self, connection: &mut Connection, partitions: &[i32]) -> Result<(), NotRead> {
        // A partition that is made later is read from its beginning: nobody has read it.
        let (first, later): (Vec<i32>, Vec<i32>) = {
            let state = lock(&self.state);
            let new = partitions.iter().filter(|partition| !state.at.contains_key(partition));
            new.partition(|partition| state.first.contains(partition))
        };
        let at_first = match self.url.start {
            Start::Earliest => At::Earliest,
            Start::Latest => At::Latest,
        };
        for (new, at) in [(first, at_first), (later, At::Earliest)] {
            if !new.is_empty() {
                let offsets = connection.offsets(&self.url.topic, &new, at).await?;
                let found = offsets.iter().map(|found| (found.partition, found.offset));
                let found = found.filter(|(partition, _)| new.contains(partition));
                lock(&self.state).at.extend(found);
            }
        }
        Ok(())
    }

    /// Takes the IDs of the messages of a partition.
    fn take(&self, part: PartitionRecords<'_>, from: &[(i32, i64)], read: &mut Read) {
        let partition = part.partition;
        let Some((_, from)) = from.iter().find(|(asked, _)| *asked == partition) else { return };
        if part.error != 0 {
            read.errors.push((partition, part.error));
            return;
        }
        read.ends.push((partition, part.end));
        let skip = |read: &mut Read, messages: i64, why: &dyn std::fmt::Display| {
            let (filter, topic) = (&self.feeding.filter, &self.url.topic);
            tracing::warn!(%filter, "topic {topic}, partition {partition}: {messages} messages are skipped: {why}");
            read.ids.skip(u64::try_from(messages).unwrap_or(0));
        };
        let mut next = *from;
        for batch in batches(part.bytes, &part.aborted) {
            match batch {
                Ok(batch) => {
                    for record in batch.records() {
                        match record {
                            // Whole batches come, also of messages that were read before.
                            Ok(record) if record.offset < next => {}
                            Ok(record) => {
                                push(&mut read.ids, &self.url.id, record.key, record.value);
                                next = record.offset.saturating_add(1);
                            }
                            Err(error) => skip(read, batch.next - next, &error),
                        }
                    }
                    next = next.max(batch.next);
                }
                Err(damaged) if self.is_damaged_twice(partition, damaged.first) => {
                    skip(read, damaged.next - damaged.first, &damaged);
                    next = next.max(damaged.next);
                }
                Err(damaged) => {
                    read.damaged = Some(format!("partition {partition}: {damaged}"));
                    break;
                }
            }
        }
        read.next.insert(partition, next);
    }

    /// Whether the batch at this offset could not be read before.
    fn is_damaged_twice(&self, partition: i32, first: i64) -> bool {
        lock(&self.state).suspects.insert(partition, first) == Some(first)
    }

    /// What was read is as safe as promised.
    fn go_on(&self, partitions: &[i32], next: &BTreeMap<i32, i64>, ends: &[(i32, i64)]) {
        let mut state = lock(&self.state);
        state.at.extend(next);
        state.ends.extend(ends.iter().copied());
        state.working.extend(partitions);
        if state.working.is_superset(&state.all) {
            let ends = state.ends.iter().filter(|(partition, _)| state.all.contains(partition));
            let left =
                ends.map(|(p, end)| end.saturating_sub(state.at.get(p).copied().unwrap_or(0)));
            let behind = left.map(|left| u64::try_from(left).unwrap_or(0)).sum();
            self.feeding.gate.set_feed_behind(behind);
            self.feeding.gate.set_engine_error("feed", None);
        }
    }

    /// A partition does not have the offset: its messages were dropped, or it was made anew.
    async fn start_anew(&self, connection: &mut Connection, partition: i32) -> Result<(), NotRead> {
        let topic = &self.url.topic;
        let first = connection.offsets(topic, &[partition], At::Earliest).await?;
        let last = connection.offsets(topic, &[partition], At::Latest).await?;
        let (Some(first), Some(last)) = (first.first(), last.first()) else { return Ok(()) };
        let at = lock(&self.state).at.get(&partition).copied().unwrap_or(0);
        let filter = &self.feeding.filter;
        if at < first.offset {
            let lost = first.offset - at;
            self.feeding.gate.count_lost(u64::try_from(lost).unwrap_or(0));
            tracing::warn!(
                %filter,
                "topic {topic}, partition {partition}: up to {lost} messages were dropped before \
                 they were read: keep them longer (retention.ms)"
            );
        } else if at > last.offset {
            tracing::warn!(%filter, "topic {topic}, partition {partition} began anew: so does its reading");
        } else {
            return Ok(());
        }
        lock(&self.state).at.insert(partition, first.offset);
        Ok(())
    }
}

/// What one response had.
struct Read {
    ids: Ids,
    next: BTreeMap<i32, i64>,
    ends: Vec<(i32, i64)>,
    errors: Vec<(i32, i16)>,
    damaged: Option<String>,
}

impl Read {
    fn of(ids: Ids) -> Read {
        Read { ids, next: BTreeMap::new(), ends: Vec::new(), errors: Vec::new(), damaged: None }
    }
}

/// Adds the ID of a message.
fn push(ids: &mut Ids, place: &Where, key: Option<&[u8]>, value: Option<&[u8]>) {
    match place {
        Where::Value => ids.push(value),
        Where::Key => ids.push(key),
        Where::Json(field) => {
            let value: Option<Value> = value.and_then(|value| serde_json::from_slice(value).ok());
            match value.as_ref().and_then(|value| value.get(field)) {
                Some(Value::String(text)) => ids.push(Some(text.as_bytes())),
                Some(Value::Number(number)) if !number.is_f64() => {
                    ids.push(Some(number.to_string().as_bytes()));
                }
                _ => ids.push(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let at = BTreeMap::from([(0, 7), (1, i64::MAX), (12, 0)]);
        assert_eq!(format(&at), "0:7,1:9223372036854775807,12:0");
        assert_eq!(parse(&format(&at)), at);
        assert!(parse("").is_empty() && parse("x,1:y").is_empty());
    }
}
