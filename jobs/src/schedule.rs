//! `bloomsday schedule`: runs every filter's build by its cron expression, with retries and
//! catch-up.
//!
//! The rules ([`crate::scheduling::rules`]) decide what to do next; here are the clock, the store
//! and the builds. Within this program one build runs at a time, whatever the filter: each may use
//! all of its memory budget. Two schedulers of one store do no harm: both would build the same
//! bytes, the pointer's compare-and-set lets one of them move it, and the other ends `unchanged`.

mod input;
mod metrics;
mod show;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomsday_builder::{Job, Report, build};
use bloomsday_common::day::Day;
use bloomsday_common::key::FilterName;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::RecordState;
use bloomsday_common::store::Store;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use self::input::{Reason, Waits};
use self::metrics::Metrics;
use crate::config::{BuildOverrides, MAX_CATCH_UP_DAYS, Settings};
use crate::error::{Error, exit};
use crate::output::{Output, say};
use crate::remedy::explain;
use crate::report::describe;
use crate::scheduling::rules::{Action, Found, Observed, OpenDay, Rules, Standing, later};
use crate::signals::EndSignals;

/// The shortest sleep: an action may be due within less than the clock can tell.
const MIN_SLEEP: Duration = Duration::from_millis(10);
/// The longest sleep. A change of the clock, or a machine that was suspended, is noticed after it.
const MAX_SLEEP: Duration = Duration::from_secs(600);
/// How often the metrics are brought up to date during a build.
const METRICS_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait after a failed read of the store.
const STORE_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// How often an input may change within its `settle` before a run with `--once` leaves it to the
/// next.
const MAX_SETTLES: u32 = 3;
/// The time for the checks of such an input.
const CHECKS_TIME: Duration = Duration::from_secs(60);
/// How many days this program keeps its own events, in case the history lacks them.
const KEEP_EVENTS_DAYS: u32 = MAX_CATCH_UP_DAYS + 1;

/// Run every filter's build by its cron expression (UTC), with retries and catch-up.
///
/// A run waits for its day's input: for a success marker next to the files, or until two checks
/// find the same files. Failures are retried. Missed days are caught up, the newest first. To run a
/// day again: bloomsday build.
///
/// Example: bloomsday schedule --config /etc/bloomsday/bloomsday.toml --metrics 127.0.0.1:8644
#[derive(Args)]
pub(crate) struct Schedule {
    /// A filter to build; may repeat [default: every filter with a `schedule`].
    #[arg(long, value_name = "NAME")]
    filter: Vec<FilterName>,
    /// Build what is due and ready, then end: for timers and CronJobs. Files without a marker are
    /// waited for, up to `settle`.
    #[arg(long)]
    once: bool,
    /// The address that answers GET /metrics and /livez [default: none].
    #[arg(long, value_name = "ADDRESS", value_parser = crate::config::address, env = "BLOOMSDAY_SCHEDULE_METRICS")]
    metrics: Option<SocketAddr>,
    /// A file to write the metrics to, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE", env = "BLOOMSDAY_SCHEDULE_METRICS_FILE")]
    metrics_file: Option<PathBuf>,
    /// Show what is due and when the next runs are, but build nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Schedule {
    pub(crate) async fn run(self, settings: &Settings, output: &Output) -> Result<ExitCode, Error> {
        let metrics = Metrics::new();
        let runners = self.runners(settings, &metrics, output)?;
        if self.dry_run {
            return show::run(runners, output).await;
        }
        if let Some(address) = self.metrics {
            let address = metrics.clone().serve(address).await?;
            let at = json!({ "metrics": address.to_string() });
            output.show(&at, || format!("metrics at http://{address}/metrics\n"));
        }
        let mut tasks = JoinSet::new();
        for runner in runners {
            tasks.spawn(runner.run(self.once));
        }
        let mut status = until_done(tasks, self.once).await?;
        if metrics.is_write_failed() {
            say(
                "error",
                "the metrics could not be written: without them no alert says that builds fail",
            );
            status = exit::worse(status, exit::FAILED);
        }
        Ok(ExitCode::from(status))
    }

    /// The filters to build: those that are named, else all with a schedule.
    fn filters(&self, settings: &Settings) -> Result<Vec<FilterName>, Error> {
        let mut names = self.filter.clone();
        // Two runners of one filter would try the same days.
        names.sort_unstable();
        names.dedup();
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
        Ok(names)
    }

    /// A runner for each filter. One of them builds at a time.
    fn runners(
        &self,
        settings: &Settings,
        metrics: &Metrics,
        output: &Output,
    ) -> Result<Vec<Runner>, Error> {
        let names = self.filters(settings)?;
        let store = settings.store_to_write(self.dry_run)?;
        let turns = Arc::new(Semaphore::new(1));
        let busy = watch::Sender::new(0);
        let runners = names.into_iter().map(|filter| {
            Ok(Runner {
                rules: settings.rules(&filter)?,
                marker: settings.filter(&filter).marker,
                job: settings.build_job(
                    filter.clone(),
                    Day::of(Timestamp::now()),
                    BuildOverrides::default(),
                )?,
                filter,
                store: store.clone(),
                observed: Observed::default(),
                own_events: Vec::new(),
                waits: BTreeMap::new(),
                metrics: metrics.clone(),
                metrics_file: self.metrics_file.clone(),
                turns: turns.clone(),
                busy: Some(Busy::new(&busy)),
                busy_runners: busy.clone(),
                output: output.clone(),
            })
        });
        runners.collect()
    }
}

/// Waits for every runner, or for SIGTERM or Ctrl-C. Without `--once` runners do not end.
async fn until_done(mut tasks: JoinSet<u8>, once: bool) -> Result<u8, Error> {
    let (mut end, mut worst) = (EndSignals::new()?, 0);
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return Ok(worst),
                Some(Ok(ended)) => worst = exit::worse(worst, ended),
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            },
            () = end.recv() => break,
        }
    }
    // A running build ends with the process. That is safe at any moment: the next start builds the
    // same blob.
    tracing::info!("stopping");
    // A daemon that is stopped has done its work; a run that was to build what is due has not.
    let status = if once { exit::worse(worst, exit::TRY_AGAIN) } else { 0 };
    std::process::exit(status.into());
}

/// What a runner did.
enum Step {
    /// It ended a check or a build, with this exit status. There may be more to do.
    Ended(u8),
    /// It waited for its turn to build, and then the day was not ready or not due any more.
    WaitedForTurn,
    /// There is nothing to do for so long.
    Sleep(Duration),
}

/// Runs one filter's schedule.
struct Runner {
    filter: FilterName,
    rules: Rules,
    marker: Option<String>,
    job: Job,
    store: Store,
    observed: Observed,
    /// The events of this program, also those that could not be written to the history.
    own_events: Vec<HistoryEvent>,
    /// What each day's input lacked at its last check.
    waits: BTreeMap<Day, Waits>,
    metrics: Metrics,
    metrics_file: Option<PathBuf>,
    /// One filter builds at a time.
    turns: Arc<Semaphore>,
    /// While it has something to do.
    busy: Option<Busy>,
    /// How many runners have something to do.
    busy_runners: watch::Sender<usize>,
    output: Output,
}

/// One more of a number, for as long as it lives.
struct Busy(watch::Sender<usize>);

impl Busy {
    fn new(count: &watch::Sender<usize>) -> Busy {
        count.send_modify(|count| *count += 1);
        Busy(count.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Runner {
    /// Acts when something is due. With `once`, returns when nothing is left to do now, for no
    /// filter, with the exit status of that state.
    async fn run(mut self, once: bool) -> u8 {
        let mut worst = 0;
        // Before the first answer, which may never come: alerts need something to go by.
        self.gauge(&self.metrics.up, 0.0);
        self.show_next_run(Timestamp::now());
        // An input that keeps changing is left to the next run.
        let settling = self.rules.settle.saturating_mul(MAX_SETTLES).saturating_add(CHECKS_TIME);
        let mut settled_by = later(Timestamp::now(), settling);
        loop {
            let pause = match self.step().await {
                Ok(Step::Ended(status)) => {
                    worst = exit::worse(worst, status);
                    None
                }
                Ok(Step::WaitedForTurn) => {
                    // Its input may have changed in that time, and has to settle again.
                    settled_by = later(Timestamp::now(), settling);
                    None
                }
                Ok(Step::Sleep(pause)) => Some(pause),
                Err(error) => {
                    self.gauge(&self.metrics.up, 0.0);
                    if once {
                        // The other filters are built all the same.
                        say("error", &format!("{}: {error}", self.filter));
                        self.update_metrics();
                        return exit::worse(worst, error.exit_status());
                    }
                    tracing::warn!(filter = %self.filter, "{error}");
                    Some(STORE_RETRY_PAUSE)
                }
            };
            self.update_metrics();
            let Some(pause) = pause else { continue };
            let now = Timestamp::now();
            if once && !(self.is_settling() && now < settled_by) {
                if !self.others_end_within(pause.min(MAX_SLEEP)).await {
                    continue;
                }
                for day in self.pending(now) {
                    let why =
                        self.waits_for(day).map_or("its input was not checked".into(), |w| w.why);
                    tracing::warn!(filter = %self.filter, "not built yet: {day}: {why}");
                    worst = exit::worse(worst, exit::TRY_AGAIN);
                }
                return worst;
            }
            tokio::time::sleep(pause.min(MAX_SLEEP)).await;
        }
    }

    /// Whether no filter has anything to do before this time is over. The build of another one may
    /// take hours, in which this one may become due.
    async fn others_end_within(&mut self, pause: Duration) -> bool {
        self.busy = None;
        let mut count = self.busy_runners.subscribe();
        let ended = tokio::select! {
            _ = count.wait_for(|count| *count == 0) => true,
            () = self.updating_metrics(tokio::time::sleep(pause)) => false,
        };
        if !ended {
            self.busy = Some(Busy::new(&self.busy_runners));
        }
        ended
    }

    /// Does the next action.
    async fn step(&mut self) -> Result<Step, Error> {
        let now = Timestamp::now();
        self.read_pointers(now).await?;
        // An input that could not be read stays a failure until its next check succeeds.
        let is_input_unknown = self.observed.checks.is_empty() && self.is_check_due(now);
        if self.is_input_away(now) {
            self.gauge(&self.metrics.up, 0.0);
        } else if !is_input_unknown {
            self.gauge(&self.metrics.up, 1.0);
        }
        match self.rules.next(now, &self.observed) {
            Action::Wait(until) => {
                let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                Ok(Step::Sleep(pause.max(MIN_SLEEP)))
            }
            Action::CheckInput(day) => {
                self.check_input(day, now).await?;
                Ok(Step::Ended(0))
            }
            Action::Build(day) => {
                // The builds of other filters may take hours.
                let turn = self.updating_metrics(self.turns.clone().acquire_owned()).await;
                let turn = turn.expect("the semaphore is never closed");
                // A person or another scheduler may have built it since the last read.
                self.read_history().await?;
                let now = Timestamp::now();
                self.read_pointers(now).await?;
                if self.next() == Action::CheckInput(day) {
                    self.check_input(day, now).await?;
                }
                if self.next() == Action::Build(day) {
                    Ok(Step::Ended(self.build(day, turn).await))
                } else {
                    Ok(Step::WaitedForTurn)
                }
            }
        }
    }

    fn next(&self) -> Action {
        self.rules.next(Timestamp::now(), &self.observed)
    }

    /// Checks a day's input, and logs once what it waits for.
    async fn check_input(&mut self, day: Day, now: Timestamp) -> Result<(), Error> {
        let (inputs, window, settle) = (&self.job.inputs, self.job.window, self.rules.settle);
        let (store, marker) = (&self.store, self.marker.as_deref());
        let checked =
            input::check_input(store, &self.filter, inputs, marker, settle, window, day).await;
        // Recorded before a failure is returned: otherwise the next check would follow without a
        // pause.
        let found = checked.as_ref().map_or(Found::Nothing, |checked| checked.found);
        self.observed.checked(day, now, Timestamp::now(), found);
        tracing::debug!(filter = %self.filter, %day, ?found, "checked the input");
        let waits = match &checked {
            Ok(checked) => checked.waits.clone(),
            Err(error) => {
                let why = explain(error, error.remedy());
                Some(Waits { reason: Reason::Store, why })
            }
        };
        let before = match &waits {
            Some(waits) => self.waits.insert(day, waits.clone()),
            None => self.waits.remove(&day),
        };
        if let Some(Waits { reason, why }) = waits.filter(|waits| before.as_ref() != Some(waits)) {
            let reason = reason.name();
            tracing::info!(filter = %self.filter, %day, reason, "not ready yet: {why}");
        }
        checked?;
        Ok(())
    }

    /// What a due day waits for, if that is known.
    fn waits_for(&self, day: Day) -> Option<Waits> {
        let due = self.rules.due(Timestamp::now()).get(&day).copied();
        let failed = |event: &&HistoryEvent| {
            let of_run = event.day == Some(day) && due.is_none_or(|due| event.at >= due);
            of_run && event.kind == EventKind::Build && event.outcome == Outcome::Failed
        };
        let last = self.observed.events.iter().filter(failed).max_by_key(|event| event.at);
        let checked = self.observed.checks.get(&day).map(|check| check.at);
        match (last, self.waits.get(&day)) {
            // The input has failed a check since.
            (Some(event), Some(waits)) if checked > Some(event.at) => Some(waits.clone()),
            (Some(event), _) => {
                let reason = event.reason.as_deref().unwrap_or("no reason is recorded");
                let reason = reason.lines().next().unwrap_or_default();
                let why = format!("the last build failed and will be retried: {reason}");
                Some(Waits { reason: Reason::Failed, why })
            }
            (None, waits) => waits.cloned(),
        }
    }

    /// Reads the pointers of days that are not done; and once, if there are such days, the history.
    async fn read_pointers(&mut self, now: Timestamp) -> Result<(), Error> {
        for OpenDay { day, .. } in self.rules.open(now, &self.observed) {
            if self.observed.events.is_empty() {
                self.read_history().await?;
            }
            match self.store.pointer(&self.filter, day).await?.state {
                RecordState::Absent => self.observed.pointers.remove(&day),
                // It may be written by hand, so it counts as an operator's decision.
                RecordState::Unreadable(_) => self.observed.pointers.insert(day, None),
                RecordState::Found(pointer) => {
                    self.observed.pointers.insert(day, pointer.published_at)
                }
            };
        }
        Ok(())
    }

    async fn read_history(&mut self) -> Result<(), Error> {
        let mut events = self.store.pointer_history(&self.filter).await?;
        let oldest = Day::of(Timestamp::now()).minus(KEEP_EVENTS_DAYS);
        self.own_events.retain(|event| Day::of(event.at) >= oldest);
        events.retain(|event| Day::of(event.at) >= oldest);
        let missing =
            self.own_events.iter().filter(|own| events.iter().all(|event| event.at != own.at));
        let missing: Vec<HistoryEvent> = missing.cloned().collect();
        events.extend(missing);
        self.observed.events = events;
        Ok(())
    }

    /// Whether the input of a day that is to be built could not be read at its last check.
    fn is_input_away(&self, now: Timestamp) -> bool {
        let waits = |day: Day| self.waits.get(&day).map(|waits| waits.reason);
        self.pending(now).any(|day| waits(day) == Some(Reason::Store))
    }

    /// Whether the input of a day is to be checked now, and not after a pause.
    fn is_check_due(&self, now: Timestamp) -> bool {
        self.rules.open(now, &self.observed).iter().any(|open| open.standing.may_run(now))
    }

    /// The days that are to be built.
    fn pending(&self, now: Timestamp) -> impl Iterator<Item = Day> + use<> {
        let open = self.rules.open(now, &self.observed).into_iter();
        open.filter(|open| matches!(open.standing, Standing::Pending(_))).map(|open| open.day)
    }

    /// Whether a due day's files are there, and it only remains to see that they do not change.
    fn is_settling(&self) -> bool {
        let now = Timestamp::now();
        let open = self.rules.open(now, &self.observed);
        open.iter().any(|open| {
            let check = self.observed.checks.get(&open.day);
            let files = check.is_some_and(|check| matches!(check.found, Found::Incomplete(_)));
            files && !self.rules.marker_only && open.standing.may_run(now)
        })
    }

    /// Builds a day and reports it: in the log, the history, the metrics and on stdout. Returns the
    /// exit status of this run alone. `turn` lets no other filter build at the same time.
    async fn build(&mut self, day: Day, turn: OwnedSemaphorePermit) -> u8 {
        let (began, timer) = (Timestamp::now(), Instant::now());
        self.gauge(&self.metrics.running, 1.0);
        let due = self.rules.due(began).get(&day).copied();
        let work = on_a_thread(Job { day, due, ..self.job.clone() }, self.store.clone());
        let built = self.updating_metrics(work).await;
        drop(turn);
        self.gauge(&self.metrics.running, 0.0);
        let seconds = timer.elapsed().as_secs_f64();
        self.gauge(&self.metrics.duration, seconds);
        let mut event = HistoryEvent {
            day: Some(day),
            seconds: Some(seconds),
            ..HistoryEvent::new(EventKind::Build, Outcome::Failed, began, &self.job.by)
        };
        match &built {
            Ok(report) => {
                event.outcome = report.outcome;
                event.blob.clone_from(&report.blob);
                event.ids = Some(report.ids);
                self.gauge(&self.metrics.ids, report.ids as f64);
            }
            Err(why) => event.reason = Some(why.clone()),
        }
        self.log(day, seconds, &built);
        self.record(event).await;
        // Last, so that history and metrics agree with the report that a reader sees.
        self.update_metrics();
        let Ok(report) = built else {
            // A failure that is retried later is logged again then; the last one is final.
            let open = self.rules.open(Timestamp::now(), &self.observed);
            let gave_up =
                open.iter().any(|open| open.day == day && open.standing == Standing::GaveUp);
            return if gave_up { exit::FAILED } else { 0 };
        };
        self.output.show(&report, || format!("{}\n", describe(&report)));
        exit::of(report.outcome)
    }

    /// Keeps the metrics up to date while something takes its time: a day may become late.
    async fn updating_metrics<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, mut due) = (pin!(work), tokio::time::interval(METRICS_INTERVAL));
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = due.tick() => self.update_metrics(),
            }
        }
    }

    fn log(&self, day: Day, seconds: f64, built: &Result<Report, String>) {
        let filter = self.filter.as_str();
        match built {
            Ok(report) => {
                let (ids, rows, overlap) = (report.ids, report.rows, report.overlap);
                let (outcome, reason) = (report.outcome.name(), report.reason.as_deref());
                tracing::info!(filter, %day, outcome, ids, rows, overlap, seconds, reason, "run");
            }
            Err(why) => {
                tracing::error!(filter, %day, outcome = "failed", seconds, reason = why, "run");
            }
        }
    }

    /// Counts a build that ended, and keeps its event. The builder writes every other outcome to
    /// the history itself.
    async fn record(&mut self, event: HistoryEvent) {
        let filter = self.filter.as_str();
        self.metrics.runs.with_label_values(&[filter, event.outcome.name()]).inc();
        let is_unrecorded = matches!(event.outcome, Outcome::Unchanged | Outcome::Failed);
        if is_unrecorded && let Err(error) = self.store.append_event(&self.filter, &event).await {
            tracing::warn!(filter, "this run cannot be recorded in the history: {error}");
        }
        self.own_events.push(event.clone());
        self.observed.events.push(event);
    }

    fn gauge(&self, gauge: &prometheus::GaugeVec, value: f64) {
        gauge.with_label_values(&[self.filter.as_str()]).set(value);
    }

    fn show_next_run(&self, now: Timestamp) {
        if let Some((run, _)) = self.rules.upcoming(now).next() {
            self.gauge(&self.metrics.next_run, run.as_second() as f64);
        }
    }

    fn update_metrics(&self) {
        let now = Timestamp::now();
        let open = self.rules.open(now, &self.observed);
        let count =
            |of: &dyn Fn(&OpenDay) -> bool| open.iter().filter(|day| of(day)).count() as f64;
        self.gauge(&self.metrics.pending, count(&|_| true));
        self.gauge(&self.metrics.late, count(&|open| open.is_late));
        let waits = self.pending(now).filter_map(|day| self.waits_for(day));
        let reasons: Vec<Reason> = waits.map(|waits| waits.reason).collect();
        for reason in Reason::ALL {
            let labels = [self.filter.as_str(), reason.name()];
            let days = reasons.iter().filter(|other| **other == reason).count();
            self.metrics.waiting.with_label_values(&labels).set(days as f64);
        }
        let stuck = count(&|open| matches!(open.standing, Standing::Refused | Standing::GaveUp));
        self.gauge(&self.metrics.stuck, stuck);
        self.show_next_run(now);
        let ended_well = |event: &&HistoryEvent| {
            matches!(event.outcome, Outcome::Published | Outcome::Unchanged)
        };
        let builds = self.observed.events.iter().filter(|event| event.kind == EventKind::Build);
        let built = builds.filter(ended_well).map(|event| event.at);
        let pointed = self.observed.pointers.values().flatten().copied();
        if let Some(last) = built.chain(pointed).max() {
            self.gauge(&self.metrics.last_success, last.as_second() as f64);
        }
        if let Some(file) = &self.metrics_file {
            self.metrics.write(file);
        }
    }
}

/// Builds on a separate thread, so that scrapes and the checks of other filters go on.
async fn on_a_thread(job: Job, store: Store) -> Result<Report, String> {
    let (send, receive) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let name = format!("build {} {}", job.filter, job.day);
    let run = move || {
        let built = runtime.block_on(build(&job, &store, &|_| {}));
        // The receiver is gone if the program is stopping.
        let _ = send.send(built.map_err(|error| Error::from(error).to_string()));
    };
    match std::thread::Builder::new().name(name).spawn(run) {
        Err(error) => Err(format!("no thread can be started: {error}")),
        Ok(_) => receive.await.unwrap_or_else(|_| Err("the build panicked; see the log".into())),
    }
}
