//! Campaigns: the same test small in continuous integration and large on demand, with seeds to
//! replay.
//!
//! `BLOOMSDAY_CAMPAIGN=full` makes them large, `BLOOMSDAY_SEED=n` repeats what failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bloomsday_common::hash::{SplitMix64, mix64};

/// Whether campaigns run at full size.
pub fn full() -> bool {
    std::env::var("BLOOMSDAY_CAMPAIGN").is_ok_and(|size| size == "full")
}

/// The size of a campaign: `small` in continuous integration, `large` at full size.
pub fn size(small: u64, large: u64) -> u64 {
    if full() { large } else { small }
}

/// One campaign: prints the line that `tests/campaign.sh` makes a table of.
pub struct Campaign {
    name: String,
    began: Instant,
}

impl Campaign {
    /// Starts the clock.
    pub fn new(name: &str) -> Campaign {
        Campaign { name: name.to_owned(), began: Instant::now() }
    }

    /// Prints its size and its result. A campaign that fails panics before.
    pub fn passed(self, size: &str, result: &str) {
        let Campaign { name, began } = self;
        println!("CAMPAIGN {name} | {size} | {result} | {:.0}", began.elapsed().as_secs_f64());
    }
}

/// Runs `work` for `0..count` on this many threads; a free thread takes the next number.
pub fn on_threads(threads: u64, count: u64, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    work(n);
                }
            });
        }
    });
}

/// Random numbers that a printed seed repeats.
#[derive(Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Starts from `BLOOMSDAY_SEED`, else from the clock, and prints the seed, so that the output
    /// of a failed test has it.
    pub fn new() -> Random {
        let given = std::env::var("BLOOMSDAY_SEED").ok();
        let seed = given.map_or_else(
            || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64 >> 10),
            |seed| seed.parse().expect("BLOOMSDAY_SEED is a number"),
        );
        println!("to repeat this: BLOOMSDAY_SEED={seed}");
        Random(SplitMix64::new(seed))
    }

    /// Independent numbers for one of several threads or cases.
    pub fn branch(&self, n: u64) -> Random {
        Random(SplitMix64::new(self.clone().draw() ^ mix64(n)))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}
