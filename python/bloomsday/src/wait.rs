//! Runs a future of the libraries from Python: without the interpreter's lock, and Ctrl-C ends it.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;

/// How often signals are looked at.
const SIGNALS: Duration = Duration::from_millis(100);

/// A runtime whose end waits for nothing: after Ctrl-C a read under way may take minutes, and the
/// interpreter's lock would be held for so long.
pub(crate) struct DetachedRuntime(Option<Runtime>);

impl From<Runtime> for DetachedRuntime {
    fn from(runtime: Runtime) -> DetachedRuntime {
        DetachedRuntime(Some(runtime))
    }
}

impl Deref for DetachedRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for DetachedRuntime {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Waits for `work`. A signal whose handler raises (Ctrl-C) drops the work and is raised here.
///
/// `begin` makes the work on this thread, where it stays: the work of a build cannot be sent to
/// another one.
pub(crate) fn wait<T: Send, W: Future<Output = T>>(
    py: Python<'_>,
    runtime: &Runtime,
    begin: impl FnOnce() -> W + Send,
) -> PyResult<T> {
    let signal = async {
        loop {
            tokio::time::sleep(SIGNALS).await;
            if let Err(raised) = Python::attach(|py| py.check_signals()) {
                return raised;
            }
        }
    };
    py.detach(|| {
        runtime.block_on(async {
            tokio::select! {
                done = begin() => Ok(done),
                raised = signal => Err(raised),
            }
        })
    })
}
