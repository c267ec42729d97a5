//! The metrics, as Prometheus text. Each scrape makes them anew from the status: there are no
//! second counters.

use bloomsday_common::key::FilterName;
use hyper::StatusCode;
use jiff::Timestamp;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{Counter, CounterVec, Encoder, Gauge, GaugeVec, Opts, Registry, TextEncoder};

use super::reply::{Reply, error, of};
use crate::bloomsday::Bloomsday;
use crate::generation::Via;
use crate::guard::Verdict;
use crate::handle::Readiness;
use crate::status::{FilterStatus, State};

/// The content type of the text format of Prometheus.
pub(super) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Of a process that runs since `started`.
pub(super) fn render(bloomsday: &Bloomsday, started: Timestamp) -> Reply {
    match encode(bloomsday, started) {
        Ok(page) => of(StatusCode::OK, PROMETHEUS_TEXT, page),
        Err(e) => error(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()),
    }
}

fn encode(bloomsday: &Bloomsday, started: Timestamp) -> prometheus::Result<Vec<u8>> {
    let metrics = Metrics { registry: Registry::new(), filters: &bloomsday.status() };
    metrics.of_filters()?;
    let waiting = bloomsday.readiness().filter(|(_, readiness)| *readiness != Readiness::Ready);
    let waiting: Vec<&FilterName> = waiting.map(|(name, _)| name).collect();
    let help = "0 while /readyz waits for this filter, else 1.";
    metrics.gauge("bloomsday_filter_ready", help, &[], |status, set| {
        set(&[], is(!waiting.contains(&&status.filter)));
    })?;
    metrics.of_polls(started)?;
    metrics.of_guard()?;
    #[cfg(feature = "live")]
    {
        metrics.of_live_ids()?;
        metrics.of_sharing()?;
        metrics.of_feeds()?;
        if let Some(live) = bloomsday.live() {
            super::live_metrics::register(live, &metrics.registry)?;
        }
    }
    let mut page = Vec::new();
    TextEncoder::new().encode(&metrics.registry.gather(), &mut page)?;
    Ok(page)
}

/// Takes the values of one filter: of each the labels that follow the filter's name, and the value.
type Set<'a> = &'a mut dyn FnMut(&[&str], f64);

/// All metrics of some filters. Each has the filter's name as its first label.
struct Metrics<'a> {
    registry: Registry,
    filters: &'a [FilterStatus],
}

impl Metrics<'_> {
    fn gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl Fn(&FilterStatus, Set<'_>),
    ) -> prometheus::Result<()> {
        self.add(name, help, labels, GaugeVec::new, values, Gauge::set)
    }

    fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl Fn(&FilterStatus, Set<'_>),
    ) -> prometheus::Result<()> {
        self.add(name, help, labels, CounterVec::new, values, Counter::inc_by)
    }

    fn add<B: MetricVecBuilder>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        make: fn(Opts, &[&str]) -> prometheus::Result<MetricVec<B>>,
        values: impl Fn(&FilterStatus, Set<'_>),
        give: fn(&B::M, f64),
    ) -> prometheus::Result<()>
    where
        MetricVec<B>: Collector + 'static,
    {
        let metric = make(Opts::new(name, help), &[&["filter"][..], labels].concat())?;
        for status in self.filters {
            values(status, &mut |labels, value| {
                let labels = [&[status.filter.as_str()][..], labels].concat();
                give(&metric.with_label_values(&labels), value);
            });
        }
        self.registry.register(Box::new(metric))
    }

    /// The current filter, and its lookups.
    fn of_filters(&self) -> prometheus::Result<()> {
        let labels = &["day", "digest"];
        self.gauge(
            "bloomsday_filter_info",
            "The blob of the current filter.",
            labels,
            |status, set| {
                if let (Some(day), Some(digest)) = (status.day, status.digest) {
                    set(&[&day.to_string(), &digest.to_string()], 1.0);
                }
            },
        )?;
        let help = "1 for the state that the filter is in, 0 for the others.";
        self.gauge("bloomsday_filter_state", help, &["state"], |status, set| {
            State::ALL.iter().for_each(|one| set(&[one.name()], is(*one == status.state)));
        })?;
        let help = "1 if the last round that found a blob followed a pin.";
        self.gauge("bloomsday_filter_pinned", help, &[], |status, set| {
            set(&[], is(status.pinned))
        })?;
        let help =
            "1 if the last round that found a blob followed a pointer that names another day's.";
        self.gauge("bloomsday_filter_rolled_back", help, &[], |status, set| {
            set(&[], is(status.rolled_back));
        })?;
        let help = "Seconds since the end of the day of the current filter.";
        self.gauge("bloomsday_filter_age_seconds", help, &[], |status, set| {
            status.age_seconds.into_iter().for_each(|seconds| set(&[], seconds as f64));
        })?;
        self.gauge("bloomsday_filter_bytes", "Size of the filter.", &[], |status, set| {
            set(&[], status.bytes.unwrap_or(0) as f64);
        })?;
        let help = "How much of the filter lies in huge pages.";
        self.gauge("bloomsday_filter_huge_bytes", help, &[], |status, set| {
            status.huge_bytes.into_iter().for_each(|bytes| set(&[], bytes as f64));
        })?;
        self.gauge("bloomsday_filter_ids", "Distinct IDs in the filter.", &[], |status, set| {
            set(&[], status.ids.unwrap_or(0) as f64);
        })?;
        let help = "False-positive probability.";
        self.gauge("bloomsday_filter_fpp_ratio", help, &["kind"], |status, set| {
            if let (Some(target), Some(measured)) = (status.fpp_target, status.fpp_measured) {
                set(&["target"], target);
                set(&["measured"], measured);
            }
        })?;
        self.counter("bloomsday_lookups_total", "Lookups.", &["result"], |status, set| {
            set(&["hit"], status.hits as f64);
            set(&["miss"], status.misses as f64);
        })
    }

    /// Polls of the pointers, and loads of blobs.
    fn of_polls(&self, started: Timestamp) -> prometheus::Result<()> {
        let help = "When a poll of the store last succeeded; until the first one does, when this process started.";
        self.gauge("bloomsday_last_success_timestamp_seconds", help, &[], |status, set| {
            set(&[], seconds_of(status.last_success.unwrap_or(started)));
        })?;
        let help = "How long the last load took.";
        self.gauge("bloomsday_load_duration_seconds", help, &[], |status, set| {
            set(&[], status.counts.load_seconds);
        })?;
        let help = "Polls of the pointers.";
        self.counter("bloomsday_polls_total", help, &["result"], |status, set| {
            set(&["ok"], status.counts.polls_ok as f64);
            set(&["failed"], status.counts.polls_failed as f64);
        })?;
        let (full, delta, cache) = (Via::Full.name(), Via::Delta.name(), Via::Cache.name());
        let help = "Loads of a blob; a failed delta is followed by a load of the full blob.";
        self.counter("bloomsday_loads_total", help, &["result", "via"], |status, set| {
            let counts = status.counts;
            let by_full = counts.loads_ok - counts.loads_by_delta - counts.loads_by_cache;
            set(&["ok", full], by_full as f64);
            set(&["ok", delta], counts.loads_by_delta as f64);
            set(&["ok", cache], counts.loads_by_cache as f64);
            set(&["failed", full], counts.loads_failed as f64);
            set(&["failed", delta], counts.deltas_failed as f64);
            set(&["rejected", full], counts.loads_rejected as f64);
        })?;
        let help = "Bytes of the blobs and deltas that were loaded.";
        self.counter("bloomsday_download_bytes_total", help, &["via"], |status, set| {
            set(&[full], status.counts.full_bytes as f64);
            set(&[delta], status.counts.delta_bytes as f64);
        })
    }

    /// What keeps a newer day back: the guard, and a pin.
    fn of_guard(&self) -> prometheus::Result<()> {
        let help = "The guard's verdicts on newer days; a day on hold is judged at each poll.";
        self.counter("bloomsday_guard_verdicts_total", help, &["verdict"], |status, set| {
            for (verdict, count) in Verdict::ALL.iter().zip(status.counts.verdicts) {
                set(&[verdict.name()], count as f64);
            }
        })?;
        let help = "1 while the guard holds a newer day back.";
        self.gauge("bloomsday_guard_held", help, &[], |status, set| set(&[], is(status.held)))?;
        let help = "Share of hits among recent lookups, when a newer day was last judged.";
        self.gauge("bloomsday_guard_hit_ratio", help, &["side"], |status, set| {
            let Some(judged) = &status.judged else { return };
            judged.hit_ratio_old.into_iter().for_each(|ratio| set(&["old"], ratio));
            judged.hit_ratio_new.into_iter().for_each(|ratio| set(&["new"], ratio));
        })?;
        let help = "When the pin ends.";
        self.gauge("bloomsday_pin_expires_timestamp_seconds", help, &[], |status, set| {
            status.pin_until.into_iter().for_each(|until| set(&[], seconds_of(until)));
        })
    }
}

#[cfg(feature = "live")]
impl Metrics<'_> {
    /// The live IDs of a filter, and what was added.
    fn of_live_ids(&self) -> prometheus::Result<()> {
        let help = "Live IDs that are hits by themselves.";
        self.gauge("bloomsday_live_entries", help, &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.entries as f64));
        })?;
        self.gauge(
            "bloomsday_live_memory_bytes",
            "Memory of the live IDs.",
            &[],
            |status, set| {
                status.live.iter().for_each(|live| set(&[], live.memory_bytes as f64));
            },
        )?;
        let help = "Live IDs that the day's filter had when it became current; they were dropped from memory.";
        self.gauge("bloomsday_live_confirmed", help, &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.confirmed as f64));
        })?;
        let help = "Live IDs that the day's filter lacked when it became current, and should have.";
        self.gauge("bloomsday_live_unconfirmed", help, &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.unconfirmed as f64));
        })?;
        self.counter(
            "bloomsday_live_adds_total",
            "Adds of live IDs.",
            &["result"],
            |status, set| {
                let Some(live) = &status.live else { return };
                set(&["new"], live.added_new as f64);
                set(&["seen"], live.added_seen as f64);
            },
        )?;
        let help =
            "Adds of live IDs by what knew the ID: the live IDs, the day's filter, or neither.";
        self.counter("bloomsday_live_tier_total", help, &["tier"], |status, set| {
            let Some(live) = &status.live else { return };
            set(&["live"], live.added_seen.saturating_sub(live.seen_by_day) as f64);
            set(&["day"], live.seen_by_day as f64);
            set(&["none"], live.added_new as f64);
        })?;
        let help =
            "Share of the adds since the start that belong to a domain, of the 20 with most.";
        self.gauge("bloomsday_live_domain_share", help, &["domain"], |status, set| {
            let domains = status.live.iter().flat_map(|live| &live.domains);
            domains.for_each(|one| set(&[one.domain.as_str()], one.share));
        })?;
        self.counter("bloomsday_live_deleted_total", "Deleted live IDs.", &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.deleted as f64));
        })?;
        let help = "Seconds by which the time of this server's last change of live IDs is ahead of its clock.";
        self.gauge("bloomsday_live_clock_ahead_seconds", help, &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.clock_ahead_seconds));
        })
    }

    /// The live IDs of a filter on several servers, and in the store.
    fn of_sharing(&self) -> prometheus::Result<()> {
        let help = "How many seconds ago everything added until then was in the store; on a follower, was here.";
        self.gauge("bloomsday_live_lag_seconds", help, &[], |status, set| {
            let lag = status.live.as_ref().and_then(|live| live.lag_seconds);
            lag.into_iter().for_each(|seconds| set(&[], seconds));
        })?;
        let help =
            "How many seconds ago everything that this server added until then was in the store.";
        self.gauge("bloomsday_live_ship_lag_seconds", help, &[], |status, set| {
            let lag = status.live.as_ref().and_then(|live| live.ship_lag_seconds);
            lag.into_iter().for_each(|seconds| set(&[], seconds));
        })?;
        let help = "Segments of live IDs that were written to the store.";
        self.counter("bloomsday_live_segments_total", help, &[], |status, set| {
            status.live.iter().for_each(|live| set(&[], live.segments as f64));
        })?;
        let help = "1 where this server takes live IDs and decides which are new, 0 where another one does.";
        self.gauge("bloomsday_live_decides", help, &[], |status, set| {
            share(status).iter().for_each(|share| set(&[], is(share.decides)));
        })?;
        let help = "The epoch of the lease of the server that decides, as far as this one knows.";
        self.gauge("bloomsday_live_lease_epoch", help, &[], |status, set| {
            let lease = share(status).and_then(|share| share.lease.as_ref());
            lease.iter().for_each(|lease| set(&[], lease.epoch as f64));
        })?;
        let help = "Segments of other servers' live IDs that were read from the store.";
        self.counter("bloomsday_live_followed_segments_total", help, &[], |status, set| {
            share(status).iter().for_each(|share| set(&[], share.followed_segments as f64));
        })
    }

    /// The streams that IDs are added from.
    fn of_feeds(&self) -> prometheus::Result<()> {
        let help = "Messages of the stream that IDs are added from: read, skipped (without an ID, or damaged), or lost (dropped unread).";
        let results = &["result"];
        self.counter("bloomsday_live_feed_messages_total", help, results, |status, set| {
            let Some(feed) = feed(status) else { return };
            set(&["read"], feed.read as f64);
            set(&["skipped"], feed.skipped as f64);
            set(&["lost"], feed.lost as f64);
        })?;
        let help = "Unread messages of the Kafka topic that IDs are added from.";
        self.gauge("bloomsday_live_feed_behind", help, &[], |status, set| {
            let behind = feed(status).and_then(|feed| feed.behind);
            behind.into_iter().for_each(|messages| set(&[], messages as f64));
        })?;
        let help = "Seconds since all of the stream that IDs are added from had been read, where it is read.";
        self.gauge("bloomsday_live_feed_lag_seconds", help, &[], |status, set| {
            let lag = feed(status).and_then(|feed| feed.lag_seconds);
            lag.into_iter().for_each(|seconds| set(&[], seconds));
        })
    }
}

#[cfg(feature = "live")]
fn feed(status: &FilterStatus) -> Option<&crate::live::FeedStatus> {
    share(status)?.feed.as_ref()
}

#[cfg(feature = "live")]
fn share(status: &FilterStatus) -> Option<&crate::live::ShareStatus> {
    status.live.as_ref()?.share.as_ref()
}

/// 1 if it is so.
fn is(so: bool) -> f64 {
    f64::from(u8::from(so))
}

fn seconds_of(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1e3
}
