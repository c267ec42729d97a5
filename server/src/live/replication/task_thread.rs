//! [`TaskThread`]: a thread with tasks that go on for as long as a process runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::watch;

use crate::error::Error;

/// Each ends soon after [`TaskThread::finish`], or the drop of the thread.
pub(super) type Tasks = Vec<BoxFuture<'static, ()>>;

/// The thread. Its tasks end soon after this is dropped.
pub(super) struct TaskThread {
    stop: watch::Sender<bool>,
    /// Closed when the thread has ended; then true after a panic.
    panicked: watch::Receiver<bool>,
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

    /// A task that is dropped where it waits when the tasks should end.
    pub(super) fn until_stopped(&self, task: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let mut stopping = self.stopping();
        let either = async move {
            tokio::select! {
                () = task => {}
                _ = stopping.changed() => {}
            }
        };
        either.boxed()
    }

    /// Runs the tasks from now on, in a runtime of their own.
    pub(super) fn start(self, tasks: Tasks) -> Result<TaskThread, Error> {
        let TaskThreadBuilder { stop, name, doing } = self;
        let failed = |source| Error::System { doing: doing.to_owned(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let (ending, panicked) = watch::channel(false);
        let run = move || {
            // Nobody uses what the tasks leave.
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(join_all(tasks))));
            ending.send_replace(ended.is_err());
        };
        std::thread::Builder::new().name(name.into()).spawn(run).map_err(failed)?;
        Ok(TaskThread { stop, panicked })
    }
}

impl TaskThread {
    /// Ends the tasks, and waits for that, at most so long. Returns whether they have ended.
    pub(super) async fn finish(&self, deadline: Duration) -> bool {
        self.stop.send_replace(true);
        let mut ended = self.panicked.clone();
        let wait = async { while ended.changed().await.is_ok() {} };
        tokio::time::timeout(deadline, wait).await.is_ok()
    }

    /// Returns when a task has panicked, which ends the others, too.
    pub(super) fn panicked(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut panicked = self.panicked.clone();
        async move {
            if panicked.wait_for(|panicked| *panicked).await.is_err() {
                // It ended as it should.
                std::future::pending().await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_whose_task_panics_says_so_and_one_that_ends_does_not() {
        let thread = || TaskThreadBuilder::new("test", "start the thread of a test");
        let panics = thread().start(vec![async { panic!("of this test") }.boxed()]).unwrap();
        panics.panicked().await;
        let ends = thread();
        let tasks = vec![async {}.boxed(), ends.until_stopped(std::future::pending().boxed())];
        let ends = ends.start(tasks).unwrap();
        assert!(ends.finish(Duration::from_secs(60)).await);
        assert_eq!(ends.panicked().now_or_never(), None);
    }
}
