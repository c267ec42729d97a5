//! [`EngineInbox`]: what comes by an engine, in the order of each log.

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::live::stream::{Entry, FromEngine};

/// How many entries are kept that came too early.
const MAX_OUT_OF_ORDER: usize = 8;

/// What comes by an engine.
pub(super) struct EngineInbox {
    queue: mpsc::Receiver<FromEngine>,
    /// When the engine was last read to its end.
    read_to_end: Option<Instant>,
    /// While [`MAX_OUT_OF_ORDER`] wait, the queue is not read.
    out_of_order: Vec<OutOfOrder>,
}

/// An entry that came too early: earlier frames of its log are missing.
pub(super) struct OutOfOrder {
    pub(super) entry: Entry,
    /// For how many rounds it has waited.
    pub(super) rounds: u32,
}

impl EngineInbox {
    pub(super) fn new(queue: mpsc::Receiver<FromEngine>) -> EngineInbox {
        EngineInbox { queue, read_to_end: None, out_of_order: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.out_of_order.len() >= MAX_OUT_OF_ORDER
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> FromEngine {
        let next = if self.is_full() { None } else { self.queue.recv().await };
        match next {
            Some(next) => next,
            None => std::future::pending().await,
        }
    }

    /// The next one, if it is here.
    pub(super) fn try_next(&mut self) -> Option<FromEngine> {
        if self.is_full() { None } else { self.queue.try_recv().ok() }
    }

    /// Notes that all that was in the engine at this moment came before.
    pub(super) fn note_end(&mut self, at: Instant) {
        self.read_to_end = Some(at);
    }

    /// Whether all that was in the engine at this moment was received.
    pub(super) fn is_read_since(&self, since: Instant) -> bool {
        self.read_to_end.is_some_and(|at| at >= since) && self.out_of_order.is_empty()
    }

    /// Keeps an entry that came too early.
    pub(super) fn keep(&mut self, early: OutOfOrder) {
        self.out_of_order.push(early);
    }

    /// Takes those that came too early.
    pub(super) fn take_out_of_order(&mut self) -> Vec<OutOfOrder> {
        std::mem::take(&mut self.out_of_order)
    }
}
