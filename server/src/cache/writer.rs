//! [`CacheWriter`]: writes a filter to the cache while rounds go on: a slow disk delays none, and a
//! full disk only prevents a start without the store.

use std::sync::Arc;

use bloomsday_common::crash_point::crash_point;
use bloomsday_common::day::Day;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Cache;
use crate::generation::Generation;

/// What one filter writes to the cache.
#[derive(Default)]
pub(crate) struct CacheWriter {
    /// What to write next.
    next: Option<Write>,
    /// The error of the last write, which is logged once.
    last_error: Option<String>,
    running: Option<JoinHandle<Result<(), WriteError>>>,
}

/// A generation, and the day of the pointer that named it.
struct Write(Arc<Generation>, Option<Day>);

/// A failed write, and the error.
struct WriteError(Write, String);

impl CacheWriter {
    /// Writes this generation next, instead of one that waits. `pointer_day` is the day of the
    /// pointer that named it.
    pub(crate) fn set_next(&mut self, generation: Arc<Generation>, pointer_day: Option<Day>) {
        self.next = Some(Write(generation, pointer_day));
    }

    /// Writes nothing next: the cache has it.
    pub(crate) fn clear_next(&mut self) {
        self.next = None;
    }

    /// Begins the next write, unless one runs. Called after each round.
    pub(crate) async fn write(&mut self, cache: &Cache) {
        if let Some(ended) = self.running.take_if(|running| running.is_finished()) {
            // A failed write is retried at each round; one that panicked is not.
            match ended.await {
                Ok(Err(WriteError(write, why))) => {
                    self.next.get_or_insert(write);
                    self.last_error = Some(why);
                }
                _ => self.last_error = None,
            }
        }
        if self.running.is_some() {
            return;
        }
        let Some(Write(generation, pointer_day)) = self.next.take() else { return };
        let (cache, logged) = (cache.clone(), self.last_error.clone());
        self.running = Some(spawn_blocking(move || {
            let bytes = generation.filter.memory();
            let Err(error) = cache.keep(&generation.key, pointer_day, bytes) else {
                crash_point("cached");
                return Ok(());
            };
            let (filter, why) = (&generation.key.filter, error.to_string());
            if logged.as_ref() != Some(&why) {
                tracing::warn!(
                    %filter,
                    "the blob was not cached, so a start without the store does not find it: {why}"
                );
            }
            Err(WriteError(Write(generation, pointer_day), why))
        }));
    }
}
