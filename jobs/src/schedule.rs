//! `bloomsday schedule`: every filter's build by its cron expression, with retries and catch-up.
//!
//! What to do next is decided by [`decide`], a pure function; here are the clock, the store and the
//! builds. Within this program one build runs at a time, whatever the filter: each may use all of its
//! memory budget. Two schedulers of one store do no harm: both would build the same bytes, the
//! pointer's compare-and-set lets one of them move it, and the other ends `unchanged`.

mod decide;
mod expression;
mod input;
mod metrics;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::Store;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::build::Build;
use crate::config::{MAX_CATCH_UP_DAYS, Settings};
use crate::error::{Error, exit};
use crate::output::{Output, table};
pub(crate) use decide::Rules;
use decide::{Found, Known, Next, Standing};
pub(crate) use expression::Expression;
use input::{Reason, Waits};
use metrics::Metrics;

/// The longest sleep: a clock that was set, or a machine that slept, is noticed after it.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// How long after a store that could not be looked at it is looked at again.
const STORE_PAUSE: Duration = Duration::from_secs(60);
/// How long this program remembers what it did, should the history lack it.
const REMEMBER_DAYS: u32 = MAX_CATCH_UP_DAYS + 1;

/// Run every filter's build by its cron expression (UTC), with retries and catch-up.
///
/// A run waits for its day's input: until a success marker lies beside the files, or two looks find
/// them the same. Failures are tried again. Missed days are caught up, the newest first. To run a day
/// again: bloomsday build.
///
/// Example: bloomsday schedule --config /etc/bloomsday/bloomsday.toml --metrics 127.0.0.1:8644
#[derive(Args)]
pub(crate) struct Schedule {
    /// A filter to build; may repeat [default: every filter with a `schedule`].
    #[arg(long, value_name = "NAME")]
    filter: Vec<FilterName>,
    /// Build what is due now and can be built, and end: for timers and CronJobs.
    #[arg(long)]
    once: bool,
    /// Where GET /metrics and /livez are answered [default: nowhere].
    #[arg(long, value_name = "ADDRESS", env = "BLOOMSDAY_SCHEDULE_METRICS")]
    metrics: Option<SocketAddr>,
    /// A file to keep the metrics in, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_SCHEDULE_METRICS_FILE")]
    metrics_file: Option<PathBuf>,
    /// Show what is due and when the next runs are, and build nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Schedule {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let mut names = self.filter.clone();
        if names.is_empty() {
            let filters = settings.file().filters.iter();
            let scheduled = filters.filter(|(_, filter)| filter.schedule.is_some());
            names = scheduled.map(|(name, _)| name.clone()).collect();
        }
        if names.is_empty() {
            return Err(Error::Usage(
                "nothing is scheduled: write `schedule = \"0 2 * * *\"` under [filters.NAME] in \
                 bloomsday.toml"
                    .into(),
            ));
        }
        let metrics = Metrics::new();
        let store = settings.store_to_write(self.dry_run)?;
        let one_build = Arc::new(Semaphore::new(1));
        let runners = names.into_iter().map(|filter| {
            Ok(Runner {
                rules: settings.rules(&filter)?,
                marker: settings.filter(&filter).marker,
                job: Build::of(filter.clone(), Day::of(Timestamp::now())).job(settings)?,
                filter,
                store: store.clone(),
                known: Known::default(),
                own: Vec::new(),
                waits: BTreeMap::new(),
                metrics: metrics.clone(),
                metrics_file: self.metrics_file.clone(),
                one_build: one_build.clone(),
                output: output.clone(),
            })
        });
        let runners = runners.collect::<Result<Vec<Runner>, Error>>()?;
        if self.dry_run {
            return show(runners, output).await;
        }
        if let Some(address) = self.metrics {
            let address = metrics.serve(address).await?;
            let at = json!({ "metrics": address.to_string() });
            output.show(&at, || format!("metrics at http://{address}/metrics\n"));
        }
        let mut tasks = JoinSet::new();
        for runner in runners {
            tasks.spawn(runner.run(self.once));
        }
        until_done(tasks).await
    }
}

/// Waits for every runner, which without `--once` is for ever, or for SIGTERM or Ctrl-C.
async fn until_done(mut tasks: JoinSet<Result<u8, Error>>) -> Result<ExitCode, Error> {
    let listen = |kind: SignalKind| {
        let doing = "listen for signals".to_owned();
        signal(kind).map_err(|source| Error::System { doing, source })
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut worst = 0;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return Ok(ExitCode::from(worst)),
                Some(Ok(ended)) => worst = worst.max(ended?),
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // A build that is under way dies with the process, which is safe at any moment: the next start
    // builds the same blob.
    tracing::info!("stopping");
    std::process::exit(0);
}

/// One filter's schedule, being kept.
struct Runner {
    filter: FilterName,
    rules: Rules,
    marker: Option<String>,
    job: Job,
    store: Store,
    known: Known,
    /// What this program did, also when the history could not take it.
    own: Vec<HistoryEvent>,
    /// What each day's input was waiting for when it was last looked at.
    waits: BTreeMap<Day, Waits>,
    metrics: Metrics,
    metrics_file: Option<PathBuf>,
    one_build: Arc<Semaphore>,
    output: Output,
}

impl Runner {
    /// Acts when something is due. With `once` until there is nothing left to do now; then the exit
    /// status that says how it stands.
    async fn run(mut self, once: bool) -> Result<u8, Error> {
        let mut worst = 0;
        loop {
            let pause = match self.step(&mut worst).await {
                Ok(pause) => pause,
                Err(error) if once => return Err(error),
                Err(error) => {
                    tracing::warn!(filter = %self.filter, "{error}");
                    self.gauge(&self.metrics.up, 0.0);
                    Some(STORE_PAUSE)
                }
            };
            self.report();
            let Some(pause) = pause else { continue };
            if once && !self.is_settling() {
                let now = Timestamp::now();
                let open = self.rules.open(now, &self.known).into_iter();
                let pending =
                    open.filter(|(_, standing, _)| matches!(standing, Standing::Pending(_)));
                for (day, ..) in pending {
                    let why = self.because(day).map_or("it was not looked at".into(), |w| w.why);
                    tracing::warn!(filter = %self.filter, "not built yet: {day}: {why}");
                    worst = worst.max(exit::TRY_AGAIN);
                }
                return Ok(worst);
            }
            tokio::time::sleep(pause.min(LONGEST_SLEEP)).await;
        }
    }

    /// Does the next thing; how long to sleep after it, or not at all.
    async fn step(&mut self, worst: &mut u8) -> Result<Option<Duration>, Error> {
        let now = Timestamp::now();
        self.look_at_pointers(now).await?;
        self.gauge(&self.metrics.up, 1.0);
        match self.rules.next(now, &self.known) {
            Next::Wait(until) => {
                let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                return Ok(Some(pause.max(Duration::from_millis(10))));
            }
            Next::Look(day) => self.look(day, now).await?,
            Next::Build(day) => {
                // Somebody may have built it by hand, or another scheduler, since it was last read.
                self.read_history().await?;
                self.look_at_pointers(now).await?;
                if self.rules.next(now, &self.known) == Next::Build(day) {
                    *worst = (*worst).max(self.build(day).await);
                }
            }
        }
        Ok(None)
    }

    /// Looks at a day's input, and says once what it waits for.
    async fn look(&mut self, day: Day, now: Timestamp) -> Result<(), Error> {
        let (inputs, window, settle) = (&self.job.inputs, self.job.window, self.rules.settle);
        let looked = input::look(inputs, self.marker.as_deref(), settle, window, day).await;
        // Noted before it may fail: or else it would be looked at again without a pause.
        let found = looked.as_ref().map_or(Found::Nothing, |looked| looked.found);
        self.known.looked(day, now, found);
        tracing::debug!(filter = %self.filter, %day, ?found, "looked at the input");
        let waits = match &looked {
            Ok(looked) => looked.waits.clone(),
            Err(error) => Some(Waits { reason: Reason::Store, why: error.to_string() }),
        };
        let before = match &waits {
            Some(waits) => self.waits.insert(day, waits.clone()),
            None => self.waits.remove(&day),
        };
        if let Some(Waits { reason, why }) = waits.filter(|waits| before.as_ref() != Some(waits)) {
            let reason = reason.name();
            tracing::info!(filter = %self.filter, %day, reason, "not ready yet: {why}");
        }
        looked?;
        Ok(())
    }

    /// Why a due day is not built yet, as far as is known.
    fn because(&self, day: Day) -> Option<Waits> {
        let failed = |act: &&HistoryEvent| {
            let of_day = act.day == Some(day) && act.act == EventKind::Build;
            of_day && act.outcome == Outcome::Failed
        };
        let last = self.known.acts.iter().filter(failed).max_by_key(|act| act.at);
        let looked = self.known.looks.get(&day).map(|look| look.at);
        match (last, self.waits.get(&day)) {
            // Something else has come in the way since.
            (Some(act), Some(waits)) if looked > Some(act.at) => Some(waits.clone()),
            (Some(act), _) => {
                let told = act.reason.as_deref().unwrap_or("no reason is recorded");
                let told = told.lines().next().unwrap_or_default();
                let why = format!("the last build failed and will be tried again: {told}");
                Some(Waits { reason: Reason::Failed, why })
            }
            (None, waits) => waits.cloned(),
        }
    }

    /// Reads the pointers of days that still look undone; and once, if there are any, the history.
    async fn look_at_pointers(&mut self, now: Timestamp) -> Result<(), Error> {
        for (day, _, _) in self.rules.open(now, &self.known) {
            if self.known.acts.is_empty() {
                self.read_history().await?;
            }
            match self.store.pointer(&self.filter, day).await?.state {
                RecordState::Absent => self.known.pointers.remove(&day),
                // Something is there that somebody meant: as if written by hand, which it may be.
                RecordState::Unreadable(_) => self.known.pointers.insert(day, None),
                RecordState::Found(pointer) => {
                    self.known.pointers.insert(day, pointer.published_at)
                }
            };
        }
        Ok(())
    }

    async fn read_history(&mut self) -> Result<(), Error> {
        let mut acts = self.store.history(&self.filter).await?;
        let oldest = Day::of(Timestamp::now()).minus(REMEMBER_DAYS);
        self.own.retain(|act| Day::of(act.at) >= oldest);
        acts.retain(|act| Day::of(act.at) >= oldest);
        let missing = self.own.iter().filter(|own| acts.iter().all(|act| act.at != own.at));
        let missing: Vec<HistoryEvent> = missing.cloned().collect();
        acts.extend(missing);
        self.known.acts = acts;
        Ok(())
    }

    /// Whether a due day's files are there and only have to hold still.
    fn is_settling(&self) -> bool {
        let now = Timestamp::now();
        let open = self.rules.open(now, &self.known);
        open.iter().any(|(day, standing, _)| {
            let look = self.known.looks.get(day);
            let files = look.is_some_and(|look| matches!(look.found, Found::Files(_)));
            let can_run = matches!(standing, Standing::Pending(not_before) if *not_before <= now);
            files && !self.rules.marker_only && can_run
        })
    }

    /// Builds a day, and reports it: a line in the log, a record in the history, the metrics, and the
    /// report on stdout. Returns the exit status that the run alone would have had.
    async fn build(&mut self, day: Day) -> u8 {
        let began = Timestamp::now();
        let built = {
            let alone = self.one_build.clone().acquire_owned().await;
            let _alone = alone.expect("the semaphore is never closed");
            self.gauge(&self.metrics.running, 1.0);
            self.report();
            on_a_thread(Job { day, ..self.job.clone() }, self.store.clone()).await
        };
        self.gauge(&self.metrics.running, 0.0);
        let seconds = Timestamp::now().duration_since(began).as_secs_f64();
        let mut act = HistoryEvent {
            day: Some(day),
            seconds: Some(seconds),
            ..HistoryEvent::new(EventKind::Build, Outcome::Failed, began, &self.job.by)
        };
        let filter = self.filter.as_str();
        let mut ended = None;
        let status = match built {
            Ok(report) => {
                act.outcome = report.outcome;
                act.blob.clone_from(&report.blob);
                act.ids = Some(report.ids);
                let (ids, rows, overlap) = (report.ids, report.rows, report.overlap);
                let (outcome, reason) = (report.outcome.name(), report.reason.as_deref());
                tracing::info!(
                    filter, %day, outcome, ids, rows, overlap, seconds, reason, "run"
                );
                self.gauge(&self.metrics.ids, ids as f64);
                let status = match report.outcome {
                    Outcome::Superseded => exit::SUPERSEDED,
                    Outcome::Refused => exit::REFUSED,
                    _ => 0,
                };
                ended = Some(report);
                status
            }
            Err(why) => {
                tracing::error!(filter, %day, outcome = "failed", seconds, reason = why, "run");
                act.reason = Some(why);
                // Whether it will be tried again is decided later; then this is said once more.
                0
            }
        };
        self.gauge(&self.metrics.duration, seconds);
        self.metrics.runs.with_label_values(&[filter, act.outcome.name()]).inc();
        // The builder records every other end itself.
        let told = matches!(act.outcome, Outcome::Unchanged | Outcome::Failed);
        if told && let Err(error) = self.store.append_event(&self.filter, &act).await {
            tracing::warn!(filter, "the history lacks this run: {error}");
        }
        self.own.push(act.clone());
        self.known.acts.push(act);
        // Last: who reads the report finds history and metrics that say the same.
        self.report();
        if let Some(report) = ended {
            self.output.show(&report, || format!("{}\n", crate::build::describe(&report)));
        }
        status
    }

    fn gauge(&self, gauge: &prometheus::GaugeVec, value: f64) {
        gauge.with_label_values(&[self.filter.as_str()]).set(value);
    }

    /// Brings the metrics up to date.
    fn report(&self) {
        let now = Timestamp::now();
        let open = self.rules.open(now, &self.known);
        let count = |of: &dyn Fn(&(Day, Standing, bool)) -> bool| {
            open.iter().filter(|day| of(day)).count() as f64
        };
        self.gauge(&self.metrics.pending, count(&|_| true));
        self.gauge(&self.metrics.late, count(&|(_, _, late)| *late));
        let pending = |day: &&(Day, Standing, bool)| matches!(day.1, Standing::Pending(_));
        let waits = open.iter().filter(pending).filter_map(|(day, ..)| self.because(*day));
        let reasons: Vec<Reason> = waits.map(|waits| waits.reason).collect();
        for reason in Reason::ALL {
            let labels = [self.filter.as_str(), reason.name()];
            let days = reasons.iter().filter(|other| **other == reason).count();
            self.metrics.waiting.with_label_values(&labels).set(days as f64);
        }
        let stuck = count(&|(_, how, _)| matches!(how, Standing::Refused | Standing::GaveUp));
        self.gauge(&self.metrics.stuck, stuck);
        if let Some((run, _)) = self.rules.upcoming(now).next() {
            self.gauge(&self.metrics.next_run, run.as_second() as f64);
        }
        let ended_well =
            |act: &&HistoryEvent| matches!(act.outcome, Outcome::Published | Outcome::Unchanged);
        let builds = self.known.acts.iter().filter(|act| act.act == EventKind::Build);
        let built = builds.filter(ended_well).map(|act| act.at);
        let pointed = self.known.pointers.values().flatten().copied();
        if let Some(last) = built.chain(pointed).max() {
            self.gauge(&self.metrics.last_success, last.as_second() as f64);
        }
        if let Some(file) = &self.metrics_file
            && let Err(error) = self.metrics.write(file)
        {
            tracing::warn!("{error}");
        }
    }
}

/// Builds on a thread of its own, so that scrapes and other filters' looks go on meanwhile.
async fn on_a_thread(job: Job, store: Store) -> Result<Report, String> {
    let (send, receive) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let name = format!("build {} {}", job.filter, job.day);
    let run = move || {
        let built = runtime.block_on(build(&job, &store, &|_| {}));
        // Whoever waited may be gone, with the whole program.
        let _ = send.send(built.map_err(|error| error.to_string()));
    };
    match std::thread::Builder::new().name(name).spawn(run) {
        Err(error) => Err(format!("no thread can be started: {error}")),
        Ok(_) => receive.await.unwrap_or_else(|_| Err("the build panicked; see the log".into())),
    }
}

#[derive(Serialize)]
struct Shown {
    filter: FilterName,
    schedule: String,
    /// Due days that are not done.
    open: Vec<Open>,
    /// The next three runs.
    next: Vec<Upcoming>,
}

#[derive(Serialize)]
struct Open {
    day: Day,
    standing: &'static str,
    late: bool,
    /// What a day that is to be built waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

#[derive(Serialize)]
struct Upcoming {
    at: Timestamp,
    day: Day,
}

/// What is due and what comes next, of every filter.
async fn show(runners: Vec<Runner>, output: &Output) -> Result<ExitCode, Error> {
    let now = Timestamp::now();
    let mut rows = Vec::new();
    for mut runner in runners {
        runner.read_history().await?;
        runner.look_at_pointers(now).await?;
        for (day, standing, _) in runner.rules.open(now, &runner.known) {
            // An input that cannot be looked at is told as what the day waits for.
            if matches!(standing, Standing::Pending(_))
                && let Err(error) = runner.look(day, now).await
            {
                tracing::debug!("{error}");
            }
        }
        let open = runner.rules.open(now, &runner.known).into_iter();
        let open = open.map(|(day, standing, late)| {
            let is_pending = matches!(standing, Standing::Pending(_));
            let because = runner.because(day).filter(|_| is_pending).map(|waits| waits.why);
            let standing = match standing {
                Standing::Done => "done",
                Standing::Pending(_) => "to be built",
                Standing::Refused => "refused",
                Standing::GaveUp => "given up",
            };
            Open { day, standing, late, because }
        });
        let next = runner.rules.upcoming(now).take(3).map(|(at, day)| Upcoming { at, day });
        let shown = Shown {
            filter: runner.filter.clone(),
            schedule: runner.rules.expression.to_string(),
            open: open.collect(),
            next: next.collect(),
        };
        output.show(&shown, String::new);
        let name = shown.filter.to_string();
        for open in &shown.open {
            let late = if open.late { ", late" } else { "" };
            let what = format!("{}{late}", open.standing);
            let because = open.because.clone().unwrap_or_default();
            rows.push(vec![name.clone(), "due".into(), open.day.to_string(), what, because]);
        }
        for next in &shown.next {
            let at = format!("{:.0}", next.at);
            let (day, empty) = (next.day.to_string(), String::new());
            rows.push(vec![name.clone(), at, day, empty.clone(), empty]);
        }
    }
    if !output.is_json() {
        crate::output::print(&table(&["filter", "when", "day", "standing", "because"], &rows));
    }
    Ok(ExitCode::SUCCESS)
}
