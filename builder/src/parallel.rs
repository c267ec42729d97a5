//! [`parallel_map`]: numbered tasks on several threads. Knows nothing of hashes or filters.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` for each number in `0..count` on `threads` threads and returns the results in the
/// order of the numbers.
///
/// Each thread has its own `state` and takes the next number when it is free. The first error ends
/// its thread, and the call returns it when all threads have ended.
pub(crate) fn parallel_map<S, R: Send, E: Send>(
    threads: usize,
    count: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(count));
    let one_thread = || -> Result<(), E> {
        let mut state = state();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            let result = work(&mut state, index)?;
            done.lock().expect("pushing does not panic").push((index, result));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(one_thread)).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a worker's panic is a bug of ours"))
    })?;
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_unstable_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
