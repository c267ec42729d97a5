//! The metrics, as Prometheus text. Each scrape makes them anew from the status: there are no
//! second counters.

use hyper::StatusCode;
use jiff::Timestamp;
use prometheus::{
    Encoder, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use super::reply::{Reply, error, of};
use crate::bloomsday::Bloomsday;
use crate::generation::Via;
use crate::guard::Verdict;
use crate::status::{FilterStatus, State};

/// The content type of the text format of Prometheus.
pub(super) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn render(bloomsday: &Bloomsday) -> Reply {
    match encode(&bloomsday.status()) {
        Ok(page) => of(StatusCode::OK, PROMETHEUS_TEXT, page),
        Err(e) => error(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()),
    }
}

fn encode(filters: &[FilterStatus]) -> prometheus::Result<Vec<u8>> {
    let registry = Registry::new();
    let info = gauge(
        &registry,
        "bloomsday_filter_info",
        "The blob that is live.",
        &["filter", "day", "digest"],
    )?;
    let per_filter = &["filter"];
    let state = gauge(
        &registry,
        "bloomsday_filter_state",
        "1 for the state that the filter is in, 0 for the others.",
        &["filter", "state"],
    )?;
    let age = gauge(
        &registry,
        "bloomsday_filter_age_seconds",
        "Seconds since the end of the day that is live.",
        per_filter,
    )?;
    let bytes = gauge(&registry, "bloomsday_filter_bytes", "Size of the filter.", per_filter)?;
    let huge = "bloomsday_filter_huge_bytes";
    let huge = gauge(&registry, huge, "How much of the filter lies in huge pages.", per_filter)?;
    let ids = gauge(&registry, "bloomsday_filter_ids", "Distinct IDs in the filter.", per_filter)?;
    let fpp = float(
        &registry,
        "bloomsday_filter_fpp_ratio",
        "False-positive probability.",
        &["filter", "kind"],
    )?;
    let success = float(
        &registry,
        "bloomsday_last_success_timestamp_seconds",
        "When a poll of the store last succeeded.",
        per_filter,
    )?;
    let duration = float(
        &registry,
        "bloomsday_load_duration_seconds",
        "How long the last load took.",
        per_filter,
    )?;
    let results = &["filter", "result"];
    let polls = counter(&registry, "bloomsday_polls_total", "Polls of the pointers.", results)?;
    let loads = counter(
        &registry,
        "bloomsday_loads_total",
        "Loads of a blob; a failed delta is followed by a load of the full blob.",
        &["filter", "result", "via"],
    )?;
    let downloads = counter(
        &registry,
        "bloomsday_download_bytes_total",
        "Bytes of the blobs and deltas that were loaded.",
        &["filter", "via"],
    )?;
    let verdicts = counter(
        &registry,
        "bloomsday_guard_verdicts_total",
        "The guard's verdicts on newer days; a day on hold is judged at each poll.",
        &["filter", "verdict"],
    )?;
    let held = gauge(
        &registry,
        "bloomsday_guard_held",
        "1 while the guard holds a newer day back.",
        per_filter,
    )?;
    let hits = float(
        &registry,
        "bloomsday_guard_hit_ratio",
        "Share of hits among recent lookups, when a newer day was last judged.",
        &["filter", "side"],
    )?;
    let pin = float(
        &registry,
        "bloomsday_pin_expires_timestamp_seconds",
        "When the pin ends.",
        per_filter,
    )?;
    let lookups = counter(&registry, "bloomsday_lookups_total", "Lookups.", results)?;

    for status in filters {
        let filter = status.filter.as_str();
        let counts = status.counts;
        if let (Some(day), Some(digest)) = (status.day, status.digest) {
            let (day, digest) = (day.to_string(), digest.to_string());
            info.with_label_values(&[filter, &day, &digest]).set(1);
        }
        for one in State::ALL {
            let here = i64::from(one == status.state);
            state.with_label_values(&[filter, one.name()]).set(here);
        }
        if let Some(seconds) = status.age_seconds {
            age.with_label_values(&[filter]).set(seconds);
        }
        bytes.with_label_values(&[filter]).set(status.bytes.unwrap_or(0) as i64);
        if let Some(bytes) = status.huge_bytes {
            huge.with_label_values(&[filter]).set(bytes as i64);
        }
        ids.with_label_values(&[filter]).set(status.ids.unwrap_or(0) as i64);
        if let (Some(target), Some(measured)) = (status.fpp_target, status.fpp_measured) {
            fpp.with_label_values(&[filter, "target"]).set(target);
            fpp.with_label_values(&[filter, "measured"]).set(measured);
        }
        let seconds = |at: Timestamp| at.as_millisecond() as f64 / 1e3;
        success.with_label_values(&[filter]).set(status.last_success.map_or(0.0, seconds));
        duration.with_label_values(&[filter]).set(counts.load_seconds);
        for (result, count) in [("ok", counts.polls_ok), ("failed", counts.polls_failed)] {
            polls.with_label_values(&[filter, result]).inc_by(count);
        }
        let (full, delta, cache) = (Via::Full, Via::Delta, Via::Cache);
        let loads_by_full = counts.loads_ok - counts.loads_by_delta - counts.loads_by_cache;
        for (result, via, count) in [
            ("ok", full, loads_by_full),
            ("ok", delta, counts.loads_by_delta),
            ("ok", cache, counts.loads_by_cache),
            ("failed", full, counts.loads_failed),
            ("failed", delta, counts.deltas_failed),
            ("rejected", full, counts.loads_rejected),
        ] {
            loads.with_label_values(&[filter, result, via.name()]).inc_by(count);
        }
        for (via, bytes) in [(full, counts.full_bytes), (delta, counts.delta_bytes)] {
            downloads.with_label_values(&[filter, via.name()]).inc_by(bytes);
        }
        for (verdict, count) in Verdict::ALL.iter().zip(counts.verdicts) {
            verdicts.with_label_values(&[filter, verdict.name()]).inc_by(count);
        }
        held.with_label_values(&[filter]).set(i64::from(status.held));
        if let Some(judged) = &status.judged {
            for (side, ratio) in [("old", judged.hit_ratio_old), ("new", judged.hit_ratio_new)] {
                if let Some(ratio) = ratio {
                    hits.with_label_values(&[filter, side]).set(ratio);
                }
            }
        }
        if let Some(until) = status.pin_until {
            pin.with_label_values(&[filter]).set(seconds(until));
        }
        for (result, count) in [("hit", status.hits), ("miss", status.misses)] {
            lookups.with_label_values(&[filter, result]).inc_by(count);
        }
    }
    #[cfg(feature = "live")]
    live(&registry, filters)?;
    let mut page = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut page)?;
    Ok(page)
}

/// The metrics of live IDs.
#[cfg(feature = "live")]
fn live(registry: &Registry, filters: &[FilterStatus]) -> prometheus::Result<()> {
    let per_filter = &["filter"];
    let gauge = |name: &str, help: &str| gauge(registry, name, help, per_filter);
    let entries = gauge("bloomsday_live_entries", "Live IDs that are hits by themselves.")?;
    let bytes = gauge("bloomsday_live_memory_bytes", "Memory of the live IDs.")?;
    let confirmed = gauge(
        "bloomsday_live_confirmed",
        "Live IDs that the day's filter had when it went live; they were dropped from memory.",
    )?;
    let unconfirmed = gauge(
        "bloomsday_live_unconfirmed",
        "Live IDs that the day's filter lacked when it went live, and should have.",
    )?;
    let results = &["filter", "result"];
    let adds = counter(registry, "bloomsday_live_adds_total", "Adds of live IDs.", results)?;
    let tiers = counter(
        registry,
        "bloomsday_live_tier_total",
        "Adds of live IDs by what knew the ID: the live IDs, the day's filter, or neither.",
        &["filter", "tier"],
    )?;
    let domains = float(
        registry,
        "bloomsday_live_domain_share",
        "Share of the adds since the start that belong to a domain, of the 20 with most.",
        &["filter", "domain"],
    )?;
    let deleted =
        counter(registry, "bloomsday_live_deleted_total", "Deleted live IDs.", per_filter)?;
    let lag = float(
        registry,
        "bloomsday_live_lag_seconds",
        "Seconds since everything that had been added until then was in the store; on a follower, was here.",
        per_filter,
    )?;
    let segments = counter(
        registry,
        "bloomsday_live_segments_total",
        "Segments of live IDs that were written to the store.",
        per_filter,
    )?;
    let decides = gauge(
        "bloomsday_live_decides",
        "1 where this server takes live IDs and decides which are new, 0 where another one does.",
    )?;
    let epoch = gauge(
        "bloomsday_live_lease_epoch",
        "The epoch of the lease of the server that decides, as far as this one knows.",
    )?;
    let followed = counter(
        registry,
        "bloomsday_live_followed_segments_total",
        "Segments of other servers' live IDs that were read from the store.",
        per_filter,
    )?;
    let feed_messages = counter(
        registry,
        "bloomsday_live_feed_messages_total",
        "Messages of the stream that IDs are added from: read, skipped (without an ID), or lost (dropped unread).",
        results,
    )?;
    let feed_behind = gauge(
        "bloomsday_live_feed_behind",
        "Messages of the Kafka topic that IDs are added from, which are still to be read.",
    )?;
    let feed_lag = float(
        registry,
        "bloomsday_live_feed_lag_seconds",
        "Seconds since all of the stream that IDs are added from had been read, where it is read.",
        per_filter,
    )?;
    for status in filters {
        let (filter, Some(live)) = (status.filter.as_str(), &status.live) else { continue };
        entries.with_label_values(&[filter]).set(live.entries as i64);
        bytes.with_label_values(&[filter]).set(live.bytes as i64);
        confirmed.with_label_values(&[filter]).set(live.confirmed as i64);
        unconfirmed.with_label_values(&[filter]).set(live.unconfirmed as i64);
        for (result, count) in [("new", live.added_new), ("seen", live.added_seen)] {
            adds.with_label_values(&[filter, result]).inc_by(count);
        }
        let by_live = live.added_seen.saturating_sub(live.seen_by_day);
        for (tier, count) in
            [("live", by_live), ("day", live.seen_by_day), ("none", live.added_new)]
        {
            tiers.with_label_values(&[filter, tier]).inc_by(count);
        }
        for domain in &live.domains {
            domains.with_label_values(&[filter, &domain.domain]).set(domain.share);
        }
        deleted.with_label_values(&[filter]).inc_by(live.deleted);
        segments.with_label_values(&[filter]).inc_by(live.segments);
        if let Some(share) = &live.share {
            decides.with_label_values(&[filter]).set(i64::from(share.decides));
            followed.with_label_values(&[filter]).inc_by(share.followed_segments);
            if let Some(feed) = &share.feed {
                for (result, count) in
                    [("read", feed.read), ("skipped", feed.skipped), ("lost", feed.lost)]
                {
                    feed_messages.with_label_values(&[filter, result]).inc_by(count);
                }
                if let Some(behind) = feed.behind {
                    feed_behind.with_label_values(&[filter]).set(behind as i64);
                }
                if let Some(seconds) = feed.lag_seconds {
                    feed_lag.with_label_values(&[filter]).set(seconds);
                }
            }
            if let Some(lease) = &share.lease {
                epoch.with_label_values(&[filter]).set(lease.epoch as i64);
            }
        }
        if let Some(seconds) = live.lag_seconds {
            lag.with_label_values(&[filter]).set(seconds);
        }
    }
    Ok(())
}

fn gauge(
    to: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    register(to, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn float(to: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
    register(to, GaugeVec::new(Opts::new(name, help), labels)?)
}

fn counter(
    to: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    register(to, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn register<C: Collector + Clone + 'static>(to: &Registry, metric: C) -> prometheus::Result<C> {
    to.register(Box::new(metric.clone()))?;
    Ok(metric)
}
