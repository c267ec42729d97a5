//! [`Syncer`]: the thread that syncs all logs of a process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::live::lock::lock;

/// How often logs are synced whose changes are acknowledged before, and how long a failed write
/// waits until it is tried again.
const INTERVAL: Duration = Duration::from_secs(1);

/// How a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live) enum SyncEnd {
    /// Nothing is left to do, also of a log that takes nothing any more.
    Done,
    /// Something could not be written.
    TryAgain,
}

/// What is synced.
pub(in crate::live) trait Queued: Send + Sync {
    /// Writes and syncs.
    fn sync(&self) -> SyncEnd;

    /// After a panic of [`Queued::sync`]: nobody waits for it in vain.
    fn give_up(&self);
}

/// The queue of that thread.
pub(in crate::live) struct Syncer {
    queue: Mutex<Vec<Arc<dyn Queued>>>,
    wake: Condvar,
    /// Whether somebody waits for each sync.
    acks_wait_for_sync: bool,
}

impl Syncer {
    /// Starts the thread. It ends when nobody has this any more.
    pub(in crate::live) fn start(acks_wait_for_sync: bool) -> std::io::Result<Arc<Syncer>> {
        let syncer = Syncer { queue: Mutex::default(), wake: Condvar::new(), acks_wait_for_sync };
        let syncer = Arc::new(syncer);
        let weak = Arc::downgrade(&syncer);
        let thread = std::thread::Builder::new().name("live-log".into());
        thread.spawn(move || run(&weak, acks_wait_for_sync))?;
        Ok(syncer)
    }

    /// Whether acknowledgements wait for the sync.
    pub(in crate::live) fn acks_wait_for_sync(&self) -> bool {
        self.acks_wait_for_sync
    }

    pub(in crate::live) fn add(&self, log: Arc<dyn Queued>) {
        lock(&self.queue).push(log);
        self.wake.notify_one();
    }

    /// What is in the queue; waits until there is something, or for [`INTERVAL`].
    fn take(&self) -> Vec<Arc<dyn Queued>> {
        let queue = lock(&self.queue);
        let empty = |queue: &mut Vec<_>| queue.is_empty();
        let waited = self.wake.wait_timeout_while(queue, INTERVAL, empty);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

fn run(syncer: &Weak<Syncer>, acks_wait_for_sync: bool) {
    let mut again: Vec<Arc<dyn Queued>> = Vec::new();
    while let Some(syncer) = syncer.upgrade() {
        let logs = syncer.take();
        drop(syncer);
        if !acks_wait_for_sync || !again.is_empty() {
            std::thread::sleep(INTERVAL);
        }
        add_others(&mut again, logs);
        again.retain(|log| sync(&**log) == SyncEnd::TryAgain);
    }
}

/// Adds what is queued. What is tried again may be queued, too, and more than once.
fn add_others(again: &mut Vec<Arc<dyn Queued>>, queued: Vec<Arc<dyn Queued>>) {
    for log in queued {
        if !again.iter().any(|other| ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&log))) {
            again.push(log);
        }
    }
}

/// As [`Queued::sync`]; a panic ends this log, and not the thread that syncs all others.
fn sync(log: &dyn Queued) -> SyncEnd {
    catch_unwind(AssertUnwindSafe(|| log.sync())).unwrap_or_else(|_| {
        log.give_up();
        SyncEnd::Done
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A log whose first sync panics, and the messages of its calls.
    struct Panics(AtomicBool, mpsc::Sender<&'static str>);

    impl Queued for Panics {
        fn sync(&self) -> SyncEnd {
            assert!(self.0.swap(true, Ordering::Relaxed), "the panic of this test");
            self.1.send("synced").unwrap();
            SyncEnd::Done
        }

        fn give_up(&self) {
            self.1.send("given up").unwrap();
        }
    }

    #[test]
    fn a_log_that_is_tried_again_is_not_tried_twice() {
        let log = || Arc::new(Panics(AtomicBool::new(true), mpsc::channel().0)) as Arc<dyn Queued>;
        let (one, other) = (log(), log());
        let mut again = vec![one.clone()];
        add_others(&mut again, vec![one.clone(), other.clone(), one, other]);
        assert_eq!(again.len(), 2);
    }

    #[test]
    fn a_panic_ends_one_log_and_not_the_thread() {
        let syncer = Syncer::start(true).unwrap();
        let (sender, calls) = mpsc::channel();
        let log = Arc::new(Panics(AtomicBool::new(false), sender));
        for expected in ["given up", "synced"] {
            syncer.add(log.clone());
            assert_eq!(calls.recv_timeout(Duration::from_secs(60)), Ok(expected));
        }
    }
}
