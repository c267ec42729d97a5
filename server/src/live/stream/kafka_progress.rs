//! [`ReadState`]: how far a topic is read. [`Progress`] compares that with what librdkafka reports.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::statistics::Statistics;

/// In place of an offset: the partition is read from where it ends when its leader first answers.
pub(super) const FROM_END: i64 = -1;

/// How far each partition of a topic is read.
#[derive(Default)]
pub(super) struct ReadState {
    /// The next offset of each partition, or [`FROM_END`]: all before it is as safe as promised.
    pub(super) at: BTreeMap<i32, i64>,
    /// The partitions whose last message was read. What follows it may be marks of transactions.
    pub(super) at_end: BTreeSet<i32>,
    /// The partitions that are not read, because nobody says where they begin.
    pub(super) waiting: BTreeSet<i32>,
    /// Whether something was said to be wrong in this session.
    pub(super) is_explained: bool,
}

impl ReadState {
    /// Whether it is known of each partition in it where reading goes on.
    pub(super) fn is_complete(&self) -> bool {
        self.at.values().all(|at| *at != FROM_END)
    }

    /// The state after a position, as [`ReadState::position`] wrote it. What follows after a space
    /// is the name of the topic.
    pub(super) fn from_position(position: &str) -> ReadState {
        let position = position.split(' ').next().unwrap_or_default();
        let pair = |pair: &str| {
            let (partition, offset) = pair.split_once(':')?;
            Some((partition.parse().ok()?, offset.parse().ok()?))
        };
        let at = position.split(',').filter_map(pair).collect();
        ReadState { at, ..ReadState::default() }
    }

    /// `PARTITION:OFFSET,…`.
    pub(super) fn position(&self) -> String {
        let pairs: Vec<String> =
            self.at.iter().map(|(p, offset)| format!("{p}:{offset}")).collect();
        pairs.join(",")
    }

    /// Judges the reading of these partitions by what librdkafka reports.
    pub(super) fn progress<'a>(
        &self,
        statistics: &Statistics,
        topic: &str,
        partitions: impl Iterator<Item = &'a i32>,
    ) -> Progress {
        let of_topic = statistics.topics.get(topic);
        let is_up = |leader: i32| {
            statistics.brokers.values().any(|one| one.nodeid == leader && one.state == "UP")
        };
        let unread = |partition: i32, why: &str, is_away| Progress::Unread {
            why: format!("partition {partition}: {why}"),
            is_away,
        };
        let (mut behind, mut away) = (0, None);
        for partition in partitions {
            if self.waiting.contains(partition) {
                away = Some(unread(*partition, "nobody says where it begins", true));
                continue;
            }
            let Some(known) = of_topic.and_then(|topic| topic.partitions.get(partition)) else {
                return unread(*partition, "librdkafka does not know it", false);
            };
            if !is_up(known.leader) {
                away = Some(unread(*partition, "its leader is away", true));
                continue;
            }
            // What can be read ends before the first open transaction.
            let end = if known.ls_offset >= 0 { known.ls_offset } else { known.hi_offset };
            if known.fetch_state != "active" || end < 0 {
                let fetch = &known.fetch_state;
                return unread(
                    *partition,
                    &format!("its fetch is `{fetch}`, its end {end}"),
                    false,
                );
            }
            if !self.at_end.contains(partition) {
                let at = self.at.get(partition).copied().unwrap_or(end);
                behind += u64::try_from(end - at).unwrap_or(0);
            }
        }
        away.unwrap_or(Progress::Behind(behind))
    }
}

/// How far the reading of a topic is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All partitions are read, and so many messages are left.
    Behind(u64),
    /// A partition is not read; `is_away`: because nobody leads it, or its leader is away.
    Unread { why: String, is_away: bool },
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rdkafka::statistics::{Broker, Partition, Topic};

    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let at = BTreeMap::from([(0, 7), (1, i64::MAX), (12, 0), (13, FROM_END)]);
        let state = ReadState { at, ..ReadState::default() };
        assert_eq!(state.position(), "0:7,1:9223372036854775807,12:0,13:-1");
        let at = |position: &str| ReadState::from_position(position).at;
        assert_eq!(at(&state.position()), state.at);
        assert!(at("").is_empty() && at("x,1:y").is_empty());
        let is_complete = |position| ReadState::from_position(position).is_complete();
        assert!(is_complete("0:7,1:0 kafka:c/t") && !is_complete("0:7,1:-1 kafka:c/t"));
    }

    /// Two partitions, of which broker 1 leads the first and broker 2 the second.
    fn statistics(change: impl FnOnce(&mut Statistics)) -> Statistics {
        let mut statistics = Statistics::default();
        let mut partitions = HashMap::new();
        for partition in [0, 1] {
            let (leader, fetch_state) = (partition + 1, "active".to_owned());
            let (hi_offset, ls_offset) = (100, [-1, 90][partition as usize]);
            let known = Partition { leader, fetch_state, hi_offset, ls_offset, ..<_>::default() };
            partitions.insert(partition, known);
            let broker = Broker { nodeid: leader, state: "UP".into(), ..<_>::default() };
            statistics.brokers.insert(format!("host:9092/{leader}"), broker);
        }
        statistics.topics.insert("clicks".into(), Topic { partitions, ..<_>::default() });
        change(&mut statistics);
        statistics
    }

    #[test]
    fn what_is_left_is_known_when_all_partitions_are_read_else_why_one_is_not() {
        let state = ReadState { at: BTreeMap::from([(0, 70), (1, 85)]), ..ReadState::default() };
        let progress = |statistics: &Statistics, state: &ReadState| {
            state.progress(statistics, "clicks", [0, 1].iter())
        };
        assert_eq!(progress(&statistics(|_| ()), &state), Progress::Behind(30 + 5));
        let at_end =
            ReadState { at: state.at.clone(), at_end: BTreeSet::from([0]), ..ReadState::default() };
        assert_eq!(progress(&statistics(|_| ()), &at_end), Progress::Behind(5));
        let waiting = ReadState { waiting: BTreeSet::from([1]), ..ReadState::default() };
        let is_away = |progress| match progress {
            Progress::Unread { is_away, .. } => Some(is_away),
            Progress::Behind(_) => None,
        };
        assert_eq!(is_away(progress(&statistics(|_| ()), &waiting)), Some(true));
        fn first(all: &mut Statistics) -> &mut Partition {
            all.topics.get_mut("clicks").unwrap().partitions.get_mut(&0).unwrap()
        }
        type Change = fn(&mut Statistics);
        for (change, expected) in [
            ((|all| first(all).leader = -1) as Change, true),
            (|all| all.brokers.get_mut("host:9092/2").unwrap().state = "DOWN".into(), true),
            (|all| first(all).fetch_state = "offset-query".into(), false),
            (|all| first(all).hi_offset = -1_001, false),
            (|all| all.topics.clear(), false),
            // One that is away hides no other.
            (
                |all| {
                    first(all).leader = -1;
                    let partitions = &mut all.topics.get_mut("clicks").unwrap().partitions;
                    partitions.get_mut(&1).unwrap().fetch_state = "stopped".into();
                },
                false,
            ),
        ] {
            assert_eq!(is_away(progress(&statistics(change), &state)), Some(expected));
        }
    }
}
