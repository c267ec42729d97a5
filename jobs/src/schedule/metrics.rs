//! The metrics of the schedule, `bloomsday_build_*`: over HTTP, or as a file for node_exporter.
//!
//! Both, because Prometheus can scrape a scheduler that keeps running, while a run from a timer (`--once`)
//! ends before a scrape: its file remains.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::atomic_file;
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Encoder, GaugeVec, IntCounterVec, Opts, Registry, TextEncoder, core::Collector};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::error::Error;

/// How many scrapes are served at once.
const MAX_CONNECTIONS: usize = 16;
/// How long a scraper may take to send a request, and how long an idle connection is kept.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);

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
        }
    }

    /// The metrics in Prometheus's text format.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut page = Vec::new();
        let encoded = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        encoded.expect("names and labels are plain, and memory takes the text");
        page
    }

    /// Replaces the file atomically: a reader sees the old or the new one.
    pub(super) fn write(&self, file: &Path) -> Result<(), Error> {
        atomic_file::write(file, &self.text(), |_| {}).map_err(|source| {
            let doing = format!("write the metrics to {}", file.display());
            Error::System { doing, source }
        })
    }

    /// Answers scrapes for as long as the program runs. Returns the address it listens on.
    pub(super) async fn serve(self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let doing = format!("listen on {address} (is another one running there?)");
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind.await.map_err(|source| Error::System { doing, source })?;
        tokio::spawn(accept(listener, self));
        Ok(address)
    }
}

async fn accept(listener: TcpListener, metrics: Metrics) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = connections.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            // Probably out of file descriptors: wait until connections end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let metrics = metrics.clone();
        let answer = service_fn(move |request| {
            let reply = answer(&metrics, &request);
            async move { Ok::<_, std::convert::Infallible>(reply) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
        let connection = builder.serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(async move {
            // An error here is the scraper's: it has closed the connection.
            let _ = connection.await;
            drop(permit);
        });
    }
}

fn answer<B>(metrics: &Metrics, request: &Request<B>) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, metrics.text()),
        (&Method::GET | &Method::HEAD, "/livez") => (StatusCode::OK, b"live\n".to_vec()),
        _ => (StatusCode::NOT_FOUND, b"GET /metrics or /livez\n".to_vec()),
    };
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let headers = reply.headers_mut();
    headers.insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    reply
}

fn register<C: Collector + Clone + 'static>(to: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("the name is well formed");
    to.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}
