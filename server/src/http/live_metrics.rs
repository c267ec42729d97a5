//! The metrics of the live layer of a process: its memory, its logs, and the filters that clients
//! made. Those of the configuration are in `metrics`.

use prometheus::{CounterVec, Encoder, Gauge, GaugeVec, Opts, Registry, TextEncoder};

use crate::live::Live;

/// The metrics of the live filters of a process as Prometheus text, for one that serves Redis
/// clients alone. A server with filters of a store has them in its own metrics.
pub(super) fn text(live: &Live) -> Vec<u8> {
    let registry = Registry::new();
    let mut page = Vec::new();
    let encoded = register(live, &registry)
        .and_then(|()| TextEncoder::new().encode(&registry.gather(), &mut page));
    encoded.expect("names and labels are plain, and memory takes the text");
    page
}

pub(super) fn register(live: &Live, registry: &Registry) -> prometheus::Result<()> {
    let gauge = |name: &str, help: &str, value: f64| {
        let gauge = Gauge::new(name, help)?;
        gauge.set(value);
        registry.register(Box::new(gauge))
    };
    let (used, limit) = live.memory();
    let help = "Memory of all live filters of this server.";
    gauge("bloomsday_live_memory_used_bytes", help, used as f64)?;
    let help = "The limit on that memory: adds beyond it are refused.";
    gauge("bloomsday_live_memory_limit_bytes", help, limit as f64)?;
    let help =
        "1 while a log of live IDs cannot be written or synced, and adds are refused; else 0.";
    let is_failed = live.log_error().is_some();
    gauge("bloomsday_live_log_failed", help, f64::from(u8::from(is_failed)))?;
    of_clients(live, registry)
}

/// The filters that clients made.
fn of_clients(live: &Live, registry: &Registry) -> prometheus::Result<()> {
    let labels = ["database", "filter"];
    let entries = GaugeVec::new(
        Opts::new("bloomsday_resp_filter_entries", "IDs of a filter that a Redis client made."),
        &labels,
    )?;
    let memory = GaugeVec::new(
        Opts::new(
            "bloomsday_resp_filter_memory_bytes",
            "Memory of a filter that a Redis client made.",
        ),
        &labels,
    )?;
    let adds = CounterVec::new(
        Opts::new("bloomsday_resp_filter_adds_total", "Adds to a filter that a Redis client made."),
        &["database", "filter", "result"],
    )?;
    for (key, status) in live.made_by_clients() {
        let (database, name) = (key.database.to_string(), String::from_utf8_lossy(&key.name));
        entries.with_label_values(&[&*database, &*name]).set(status.entries as f64);
        memory.with_label_values(&[&*database, &*name]).set(status.memory_bytes as f64);
        for (result, count) in [("new", status.added_new), ("seen", status.added_seen)] {
            adds.with_label_values(&[&*database, &*name, result]).inc_by(count as f64);
        }
    }
    registry.register(Box::new(entries))?;
    registry.register(Box::new(memory))?;
    registry.register(Box::new(adds))
}
