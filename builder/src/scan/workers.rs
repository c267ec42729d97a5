//! [`Workers`]: the decoding threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::decode::{self, Event};
use super::memory_budget::UnpackBudget;
use super::sink::Sink;
use super::work::Work;
use crate::error::Error;
use crate::ids::RowCounts;

/// Stops the threads when it is dropped, or before.
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.now();
    }
}

/// The decoding threads of a scan, whose sinks have outputs of type `T`.
pub(super) struct Workers<T> {
    threads: Vec<JoinHandle<(RowCounts, Option<T>)>>,
    pub(super) stop: Stop,
}

impl<T: Send + 'static> Workers<T> {
    /// Starts `threads` threads, which decode `work` until its channel closes.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system does not start one.
    pub(super) fn start<S: Sink<Output = T>>(
        threads: usize,
        sink: impl Fn() -> S + Send + Sync + 'static,
        unpacked: u64,
        work: mpsc::UnboundedReceiver<Work>,
        report: mpsc::UnboundedSender<Event>,
    ) -> Result<Workers<T>, Error> {
        let sink = Arc::new(sink);
        let work = Arc::new(Mutex::new(work));
        let budget = Arc::new(UnpackBudget::new(unpacked));
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let mut handles = Vec::with_capacity(threads);
        for number in 0..threads {
            let (sink, work, budget) = (Arc::clone(&sink), Arc::clone(&work), Arc::clone(&budget));
            let (stop, report) = (Arc::clone(&stop.0), report.clone());
            let thread = std::thread::Builder::new()
                .name(format!("decode-{number}"))
                .spawn(move || decode::run(sink(), &work, &budget, &stop, &report))
                // The threads that did start end when their channel closes.
                .map_err(|source| Error::Thread { source })?;
            handles.push(thread);
        }
        Ok(Workers { threads: handles, stop })
    }

    /// Waits for all threads and returns their counts and the outputs of their sinks. A panic of a
    /// sink goes on here.
    pub(super) fn join(self) -> (Vec<RowCounts>, Vec<Option<T>>) {
        let joined = self.threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.unzip()
    }
}
