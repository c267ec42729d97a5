//! [`TaskThread`]: a thread with tasks that go on for as long as a process runs.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio::sync::watch;

use crate::error::Error;

/// Each ends soon after [`TaskThread::finish`], or the drop of the thread.
pub(super) type Tasks = Vec<BoxFuture<'static, ()>>;

/// The thread. Its tasks end soon after this is dropped.
pub(super) struct TaskThread {
    stop: watch::Sender<bool>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

/// A thread that is not started yet: its tasks are made with [`stopping`](Self::stopping).
pub(super) struct TaskThreadBuilder {
    stop: watch::Sender<bool>,
    name: &'static str,
    doing: &'static str,
}

impl TaskThreadBuilder {
    /// A thread of this name; `doing` is for the error.
    pub(super) fn new(name: &'static str, doing: &'static str) -> TaskThreadBuilder {
        TaskThreadBuilder { stop: watch::channel(false).0, name, doing }
    }

    /// Changes, or closes, when a task should end.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs the tasks from now on, in a runtime of their own.
    pub(super) fn start(self, tasks: Tasks) -> Result<TaskThread, Error> {
        let TaskThreadBuilder { stop, name, doing } = self;
        let failed = |source| Error::System { doing: doing.to_owned(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let (ending, ended) = watch::channel(());
        let run = move || {
            let _ending = ending;
            runtime.block_on(join_all(tasks));
        };
        std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
        Ok(TaskThread { stop, ended })
    }
}

impl TaskThread {
    /// Ends the tasks, and waits for that, at most so long. Returns whether they have ended.
    pub(super) async fn finish(&self, deadline: Duration) -> bool {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        let wait = async { while ended.changed().await.is_ok() {} };
        tokio::time::timeout(deadline, wait).await.is_ok()
    }
}
