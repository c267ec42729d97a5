//! Runs a future of the libraries from Python: without the interpreter's lock, and Ctrl-C ends it.

use std::future::Future;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;

/// How often signals are looked at.
const SIGNALS: Duration = Duration::from_millis(100);

/// Waits for `work`. A signal whose handler raises (Ctrl-C) drops the work and is raised here.
///
/// `begin` makes the work on this thread, where it stays: the work of a build cannot be sent to another one.
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
