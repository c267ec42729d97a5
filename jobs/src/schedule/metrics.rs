//! The metrics of the schedule, `bloomsday_build_*`: over HTTP, or as a file for node_exporter.
//!
//! Both, because Prometheus can scrape a scheduler that keeps running, while a run from a timer
//! (`--once`) ends before a scrape: its file remains.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bloomsday_common::atomic_file;
use bloomsday_server::http;
use prometheus::{Encoder, GaugeVec, IntCounterVec, Opts, Registry, TextEncoder, core::Collector};

use crate::error::Error;

/// The metrics of all filters.
#[derive(Clone)]
pub(super) struct Metrics {
    registry: Registry,
    /// By filter and outcome.
    pub(super) runs: IntCounterVec,
    /// 1 while a build runs.
    pub(super) running: GaugeVec,
    /// Days that were due and are not published.
    pub(super) pending: GaugeVec,
    /// Those of them past their deadline.
    pub(super) late: GaugeVec,
    /// Days that a gate refused or that failed too often: a person must act.
    pub(super) stuck: GaugeVec,
    /// Days that are to be built, by the reason that each waits.
    pub(super) waiting: GaugeVec,
    /// When a day was last published, or found unchanged.
    pub(super) last_success: GaugeVec,
    /// How long the last build took.
    pub(super) duration: GaugeVec,
    /// Distinct IDs of the last build.
    pub(super) ids: GaugeVec,
    /// When the next run is due.
    pub(super) next_run: GaugeVec,
    /// Whether the store and the input could be read.
    pub(super) up: GaugeVec,
    is_write_failed: Arc<AtomicBool>,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            let opts = Opts::new(format!("bloomsday_build_{name}"), help);
            register(&registry, GaugeVec::new(opts, &["filter"]))
        };
        let waiting = Opts::new(
            "bloomsday_build_waiting",
            "Days that were due and are to be built, by the reason that they wait.",
        );
        let runs = Opts::new("bloomsday_build_runs_total", "Builds, by outcome.");
        Metrics {
            runs: register(&registry, IntCounterVec::new(runs, &["filter", "outcome"])),
            running: gauge("running", "1 while a build runs."),
            pending: gauge("pending", "Days that were due and are not published."),
            late: gauge("late", "Days past their deadline that are not published."),
            stuck: gauge("stuck", "Days refused or given up: a person must act."),
            waiting: register(&registry, GaugeVec::new(waiting, &["filter", "reason"])),
            last_success: gauge(
                "last_success_timestamp_seconds",
                "When a day was last published or found unchanged.",
            ),
            duration: gauge("duration_seconds", "How long the last build took."),
            ids: gauge("ids", "Distinct IDs of the last build."),
            next_run: gauge("next_run_timestamp_seconds", "When the next run is due."),
            up: gauge("up", "1 if the store and the input could be read, else 0."),
            registry,
            is_write_failed: Arc::default(),
        }
    }

    /// The metrics in Prometheus's text format.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut page = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        encoded.expect("names and labels are plain, and memory takes the text");
        page
    }

    /// Replaces the file atomically: a reader sees the old or the new one. Logs the first error.
    pub(super) fn write(&self, file: &Path) {
        let written = atomic_file::write(file, &self.text(), |_| {});
        let is_failed = written.is_err();
        if !self.is_write_failed.swap(is_failed, Ordering::Relaxed)
            && let Err(error) = written
        {
            tracing::warn!("cannot write the metrics to {}: {error}", file.display());
        }
    }

    /// Whether the file could not be written the last time.
    pub(super) fn is_write_failed(&self) -> bool {
        self.is_write_failed.load(Ordering::Relaxed)
    }

    /// Answers scrapes for as long as the program runs. Returns the address it listens on.
    pub(super) async fn serve(self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let text = move |path: &str| match path {
            "/metrics" => Ok(self.text()),
            "/livez" => Ok(b"live\n".to_vec()),
            _ => Err("GET /metrics or /livez\n"),
        };
        Ok(http::serve_texts(address, None, text).await?)
    }
}

fn register<C: Collector + Clone + 'static>(to: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("the name is well formed");
    to.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}
