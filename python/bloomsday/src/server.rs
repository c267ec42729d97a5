//! [`Server`]: the library that follows a store, and [`ServedFilter`], a handle of one of its
//! filters.

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bloomsday_server::error::Error;
use bloomsday_server::{
    Bloomsday, Config, FilterConfig, FilterHandle, Guard, Reloaded, start, start_unloaded,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::errors::{self, ErrorClass};
use crate::ids::{self, Lookup};
use crate::wait::wait;

/// Filters of a store, kept up to date by a thread that Python does not see.
///
/// >>> with Server("s3://ads-filters/prod", ["rt"]) as server:
/// ...     "0f8fad5b-d9cb-469f-a165-70867728950e" in server.filter("rt")
/// True
#[pyclass(frozen, module = "bloomsday")]
#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    stage: Mutex<Stage>,
}

/// What a server is doing.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Ended,
    /// A thread of this process starts it, until it is notified: then it was closed.
    Starting {
        process: u32,
        closed: Arc<Notify>,
    },
    /// It was closed while a thread starts it.
    Closing {
        process: u32,
    },
    Running(Box<Running>),
}

impl Stage {
    /// The process that started it.
    fn process(&self) -> Option<u32> {
        match self {
            Stage::Ended => None,
            Stage::Starting { process, .. } | Stage::Closing { process } => Some(*process),
            Stage::Running(running) => Some(running.process),
        }
    }

    fn running(&self) -> Option<&Running> {
        match self {
            Stage::Running(running) => Some(running),
            _ => None,
        }
    }

    fn end(self) {
        if let Stage::Running(running) = self {
            running.end();
        }
    }
}

/// A started server.
#[derive(Debug)]
struct Running {
    bloomsday: Bloomsday,
    /// Where it was started: connections to the store that were opened then live there.
    runtime: Runtime,
    /// The process that started it: a forked child has its memory, but none of its threads.
    process: u32,
}

impl Running {
    fn end(self) {
        let Running { bloomsday, runtime, process } = self;
        if process == std::process::id() {
            drop(bloomsday);
            // A load under way may take minutes.
            runtime.shutdown_background();
        } else {
            // Their threads are not in this process, and ending would wait for them.
            mem::forget((bloomsday, runtime));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        mem::take(self.stage.get_mut().unwrap_or_else(PoisonError::into_inner)).end();
    }
}

#[pymethods]
impl Server {
    /// Reads the configuration; nothing is started yet.
    #[new]
    #[pyo3(signature = (store, filters, *, poll_interval=None, retry_interval=None,
        load_deadline=None, start_deadline=None, cache_dir=None))]
    #[expect(clippy::too_many_arguments, reason = "the settings of `Config`, by name in Python")]
    fn new(
        py: Python<'_>,
        store: PathBuf,
        filters: &Bound<'_, PyAny>,
        poll_interval: Option<f64>,
        retry_interval: Option<f64>,
        load_deadline: Option<f64>,
        start_deadline: Option<f64>,
        cache_dir: Option<PathBuf>,
    ) -> PyResult<Server> {
        let store = store.to_str().ok_or_else(|| {
            errors::new(py, ErrorClass::Usage, "the path of the store has bytes that are no UTF-8")
        })?;
        let mut config = Config::new(store, filter_configs(filters)?);
        let times = [
            ("poll_interval", poll_interval, &mut config.poll_interval),
            ("retry_interval", retry_interval, &mut config.retry_interval),
            ("load_deadline", load_deadline, &mut config.load_deadline),
            ("start_deadline", start_deadline, &mut config.start_deadline),
        ];
        for (name, seconds, place) in times {
            if let Some(given) = seconds {
                *place = seconds_of(py, name, given)?;
            }
        }
        config.cache_dir = cache_dir;
        config.remedy_words = errors::words;
        Ok(Server { config, stage: Mutex::default() })
    }

    /// Starts it and waits until every filter is loaded. With `wait=False` it does not wait, and
    /// each lookup returns `answer_until_loaded` until then.
    #[pyo3(signature = (*, wait=true, answer_until_loaded=false))]
    fn start<'py>(
        slf: &Bound<'py, Self>,
        wait: bool,
        answer_until_loaded: bool,
    ) -> PyResult<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        this.check_process(py)?;
        if wait && answer_until_loaded {
            let message = "answer_until_loaded needs wait=False: without it, start() returns when all is loaded";
            return Err(errors::new(py, ErrorClass::Usage, message));
        }
        let closed = Arc::new(Notify::new());
        let Some(begun) = Begun::new(this, &closed) else {
            return Err(errors::new(py, ErrorClass::Server, "this server is started already"));
        };
        let running = this.run(py, &closed, wait, answer_until_loaded)?;
        if let Some(running) = running {
            match begun.succeed(running) {
                None => return Ok(slf.clone()),
                Some(closed) => closed.end(),
            }
        }
        Err(errors::new(py, ErrorClass::Server, "this server was closed while it was started"))
    }

    /// The handle of one filter.
    fn filter(slf: &Bound<'_, Self>, name: &str) -> PyResult<ServedFilter> {
        let (py, bloomsday) = (slf.py(), slf.get().bloomsday(slf.py())?);
        let handle = bloomsday.filter(name).map_err(|error| server_error(py, &error))?;
        let process = slf.get().stage(|stage| stage.process()).unwrap_or_else(std::process::id);
        Ok(ServedFilter { handle, _server: slf.clone().unbind(), process })
    }

    /// Polls the store now, and says what each filter did; `force` goes past the guard.
    #[pyo3(signature = (filter=None, *, force=false))]
    fn reload<'py>(
        &self,
        py: Python<'py>,
        filter: Option<String>,
        force: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bloomsday = self.bloomsday(py)?;
        self.check_process(py)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let reloaded = wait(py, &runtime, || async {
            match (filter, force) {
                (Some(name), false) => bloomsday.reload_filter(&name).await,
                (None, false) => bloomsday.reload().await,
                (name, true) => bloomsday.force_reload(name.as_deref()).await,
            }
        })?;
        let reloaded: Vec<Reloaded> = reloaded.map_err(|error| server_error(py, &error))?;
        from_json(py, &reloaded)
    }

    /// The status of every filter, by its name.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check_process(py)?;
        let bloomsday = self.bloomsday(py)?;
        let filters = py.detach(|| bloomsday.status());
        let by_name: BTreeMap<_, _> =
            filters.iter().map(|status| (status.filter.as_str(), status)).collect();
        from_json(py, &by_name)
    }

    /// Whether every filter is loaded and followed.
    fn is_ready(&self) -> bool {
        self.other_process().is_none()
            && self.stage(|stage| stage.running().is_some_and(|it| it.bloomsday.is_ready()))
    }

    /// Ends the polling, as does the end of the last handle and of the server itself. Handles go on
    /// answering from the filters that they have.
    fn close(&self) {
        let ended = self.stage(|stage| match stage {
            Stage::Closing { .. } => Stage::Ended,
            Stage::Starting { process, closed } => {
                closed.notify_one();
                *stage = Stage::Closing { process: *process };
                Stage::Ended
            }
            _ => mem::take(stage),
        });
        ended.end();
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().check_process(slf.py())?;
        let is_started = slf.get().stage(|stage| stage.running().is_some());
        if is_started { Ok(slf.clone()) } else { Server::start(slf, true, false) }
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl Server {
    /// Looks at the stage, or changes it. Nothing in it runs Python or waits: this thread has the
    /// interpreter's lock all the time, so that no other one waits for the stage, and it is free in
    /// a forked child.
    fn stage<T>(&self, look: impl FnOnce(&mut Stage) -> T) -> T {
        look(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts the library; `None` if the server was closed before it was ready.
    fn run(
        &self,
        py: Python<'_>,
        closed: &Notify,
        wait: bool,
        answer_until_loaded: bool,
    ) -> PyResult<Option<Running>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("bloomsday-python")
            .enable_all()
            .build()?;
        let mut config = self.config.clone();
        config.answer_until_loaded = answer_until_loaded;
        let started = if wait {
            self::wait(py, &runtime, || async {
                tokio::select! {
                    started = start(config) => Some(started),
                    () = closed.notified() => None,
                }
            })
        } else {
            Ok(Some(py.detach(|| start_unloaded(config))))
        };
        let ended = match started {
            Ok(Some(Ok(bloomsday))) => {
                return Ok(Some(Running { bloomsday, runtime, process: std::process::id() }));
            }
            Ok(Some(Err(error))) => Err(server_error(py, &error)),
            Ok(None) => Ok(None),
            Err(signal) => Err(signal),
        };
        runtime.shutdown_background();
        ended
    }

    fn bloomsday(&self, py: Python<'_>) -> PyResult<Bloomsday> {
        let bloomsday = self.stage(|stage| stage.running().map(|it| it.bloomsday.clone()));
        bloomsday.ok_or_else(|| {
            let message =
                "this server is not started: call start(), or use it in a `with` statement";
            errors::new(py, ErrorClass::Server, message)
        })
    }

    /// The process that started it, if that is another one.
    fn other_process(&self) -> Option<u32> {
        let process = self.stage(|stage| stage.process());
        process.filter(|process| *process != std::process::id())
    }

    /// A server of another process is polled there only.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.other_process().map_or(Ok(()), |process| Err(of_process(py, process)))
    }
}

fn of_process(py: Python<'_>, process: u32) -> PyErr {
    let message = format!(
        "process {process} started this server, and its threads are there: start a new one in this process"
    );
    errors::new(py, ErrorClass::Server, &message)
}

/// A start that has begun. However it ends, the server can be started again.
struct Begun<'a>(&'a Server);

impl<'a> Begun<'a> {
    /// `None` if the server is started, or another thread starts it.
    fn new(server: &'a Server, closed: &Arc<Notify>) -> Option<Begun<'a>> {
        let is_begun = server.stage(|stage| {
            let is_ended = matches!(stage, Stage::Ended);
            if is_ended {
                *stage = Stage::Starting { process: std::process::id(), closed: closed.clone() };
            }
            is_ended
        });
        is_begun.then(|| Begun(server))
    }

    /// The server runs from now on; returns one that was closed.
    fn succeed(&self, running: Running) -> Option<Running> {
        self.0.stage(|stage| match stage {
            Stage::Starting { .. } => {
                *stage = Stage::Running(Box::new(running));
                None
            }
            _ => Some(running),
        })
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.stage(|stage| {
            if !matches!(stage, Stage::Running(_)) {
                *stage = Stage::Ended;
            }
        });
    }
}

/// A filter of a server. Lookups wait for no load and no swap.
#[pyclass(frozen, module = "bloomsday")]
pub(crate) struct ServedFilter {
    handle: FilterHandle,
    /// It goes on polling for as long as there is a handle, unless it is closed.
    _server: Py<Server>,
    /// The process in which it polls.
    process: u32,
}

const _: () =
    assert!(align_of::<ServedFilter>() <= 16, "Python does not align its objects to more");

impl Lookup for ServedFilter {
    #[inline]
    fn one(&self, id: &[u8]) -> bool {
        self.handle.contains(id)
    }

    fn many(&self, ids: &[&[u8]], answers: &mut [bool]) {
        self.handle.contains_batch(ids, answers);
    }
}

#[pymethods]
impl ServedFilter {
    #[inline]
    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        ids::contains(self, id)
    }

    /// Looks up many IDs. The answers have the kind of `ids`: a numpy array for numpy and pandas, a
    /// column of pyarrow or polars for theirs, `Answers` for other Arrow, else a list.
    fn contains_batch<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        ids::contains_batch(self, ids)
    }

    /// The name of the filter.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    /// Whether a filter is loaded.
    fn is_loaded(&self) -> bool {
        self.handle.is_loaded()
    }

    /// Its state, day, digest and counts.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // A thread of the other process may hold a lock that it needs.
        if self.process != std::process::id() {
            return Err(of_process(py, self.process));
        }
        from_json(py, &py.detach(|| self.handle.status()))
    }

    fn __repr__(&self) -> String {
        format!("<bloomsday.ServedFilter {}>", self.handle.name())
    }
}

/// Names, or a mapping of names to the settings of each.
fn filter_configs(filters: &Bound<'_, PyAny>) -> PyResult<Vec<FilterConfig>> {
    if let Ok(name) = filters.cast::<PyString>() {
        return Ok(vec![named(filters.py(), name.to_str()?)?]);
    }
    let of_filters = |error| errors::of_argument(filters.py(), "filters", error);
    let Ok(settings) = filters.cast::<PyMapping>() else {
        let names = filters.try_iter().map_err(of_filters)?;
        return names
            .map(|name| named(filters.py(), &name?.extract::<String>().map_err(of_filters)?))
            .collect();
    };
    let mut configs = Vec::new();
    for item in settings.items()? {
        let (name, settings): (String, Bound<'_, PyAny>) = item.extract().map_err(of_filters)?;
        let no_mapping = || format!("filters.{name} is a mapping of settings, not {settings}");
        let of_filter = settings.cast().map_err(|_| PyTypeError::new_err(no_mapping()))?;
        configs.push(filter_config(&name, of_filter)?);
    }
    Ok(configs)
}

fn named(py: Python<'_>, name: &str) -> PyResult<FilterConfig> {
    let name = name.parse().map_err(|error| errors::of_common(py, &error))?;
    Ok(FilterConfig::new(name))
}

fn filter_config(name: &str, settings: &Bound<'_, PyMapping>) -> PyResult<FilterConfig> {
    let py = settings.py();
    let mut config = named(py, name)?;
    for item in settings.items()? {
        let (key, value): (String, Bound<'_, PyAny>) = item.extract()?;
        let of_key = |error| errors::of_argument(py, &format!("filters.{name}.{key}"), error);
        match key.as_str() {
            "max_age_days" => config.max_age_days = value.extract().map_err(of_key)?,
            "id" => {
                let form = value.extract::<String>().map_err(of_key)?.parse();
                let wrong = |why: String| format!("filters.{name}.id cannot be {value}: {why}");
                config.id_form =
                    form.map_err(|why| errors::new(py, ErrorClass::Usage, &wrong(why)))?;
            }
            "guard" => {
                let word = value.extract::<String>().map_err(of_key)?;
                config.guard = guard(py, name, &word)?;
            }
            "guard_max_hold" => {
                let seconds = value.extract().map_err(of_key)?;
                config.guard_max_hold = seconds_of(py, &key, seconds)?;
            }
            _ => {
                let message = format!(
                    "filters.{name} has no setting {key}: there are id, max_age_days, guard and guard_max_hold"
                );
                return Err(errors::new(py, ErrorClass::Usage, &message));
            }
        }
    }
    Ok(config)
}

fn guard(py: Python<'_>, name: &str, word: &str) -> PyResult<Guard> {
    Ok(match word {
        "off" => Guard::Off,
        "warn" => Guard::Warn,
        "hold" => Guard::Hold,
        other => {
            let message = format!("filters.{name}.guard is off, warn or hold, not {other:?}");
            return Err(errors::new(py, ErrorClass::Usage, &message));
        }
    })
}

fn seconds_of(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let message = format!("{name} is a number of seconds, not {seconds}");
        errors::new(py, ErrorClass::Usage, &message)
    })
}

fn server_error(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::NotReady { .. } => {
            errors::new_transient(py, ErrorClass::NotReady, &error.to_string())
        }
        Error::Busy => errors::new_transient(py, ErrorClass::Server, &error.to_string()),
        Error::Stopped | Error::System { .. } => {
            errors::new(py, ErrorClass::Server, &error.to_string())
        }
        _ => errors::of_kind(py, error.kind(), error, error.remedy()),
    }
}

/// A value of the libraries as Python's own dictionaries and lists.
fn from_json<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).expect("what the libraries report has JSON");
    py.import("json")?.call_method1("loads", (text,))
}
