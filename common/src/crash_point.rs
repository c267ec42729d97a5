//! [`crash_point`]: named places at which a test stops a program, to kill it exactly there.
//!
//! In a release build a call does nothing.

/// Every crash point of a build, in order. `pointer-…` exist only where the store is a local
/// folder.
pub const BUILD: &[&str] = &[
    "spill-created",
    "scanned",
    "counted",
    "filled",
    "part-uploaded",
    "uploaded",
    "read-back",
    "verified",
    "recorded",
    "pointer-locked",
    "pointer-staged",
    "pointer-renamed",
    "pointed",
    "recorded",
];

/// The crash point of a build with deltas, between `verified` and `recorded`.
pub const BUILD_DELTAS: &[&str] = &["delta-uploaded"];

/// Every crash point of a server, from a pointer to a swap and to its cache, in order.
pub const SERVE: &[&str] =
    &["fetched", "opened", "swapping", "swapped", "cache-staged", "cache-renamed", "cached"];

/// Every crash point of an operator's command, in order.
pub const OPERATE: &[&str] = &["pinned"];

/// Every crash point of the thread that ships live IDs, in order.
pub const SHIP: &[&str] = &["shipping", "shipped"];

/// Every crash point of the log and the table of live IDs while IDs are added.
pub const LIVE: &[&str] =
    &["live-created", "live-written", "live-syncing", "live-synced", "live-growing"];

/// Those of a start that finds an open segment.
pub const LIVE_START: &[&str] = &["live-cut", "live-closing", "live-closed"];

/// Those of a swap over live IDs: while the new filter's are dropped, and while those that it lacks
/// come back.
pub const LIVE_SWAP: &[&str] = &["live-absorbing", "live-returning"];

/// Stops here when the environment says `BLOOMSDAY_PAUSE_AT=name`, or `name:n` for the `n`th time:
/// says so on stderr, and waits to be killed; or, with `BLOOMSDAY_PAUSE_UNTIL=FILE`, until that
/// file exists.
///
/// # Panics
/// When `name` is in none of the lists, or the variable is not of these forms.
#[cfg(debug_assertions)]
pub fn crash_point(name: &'static str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static PAUSE_AT: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let at = std::env::var("BLOOMSDAY_PAUSE_AT").ok()?;
        let (name, time) = at.split_once(':').unwrap_or((&at, "1"));
        let time = time.parse().expect("BLOOMSDAY_PAUSE_AT is NAME or NAME:NUMBER");
        Some((name.to_owned(), time))
    });
    static PASSED: AtomicU32 = AtomicU32::new(0);

    let lists = [BUILD, BUILD_DELTAS, SERVE, OPERATE, SHIP, LIVE, LIVE_START, LIVE_SWAP];
    assert!(lists.iter().any(|list| list.contains(&name)), "{name} is in no list");
    let Some((wanted, time)) = &*PAUSE_AT else { return };
    if wanted != name || PASSED.fetch_add(1, Ordering::Relaxed) + 1 != *time {
        return;
    }
    eprintln!("paused at {name}");
    let until = std::env::var_os("BLOOMSDAY_PAUSE_UNTIL").map(std::path::PathBuf::from);
    while !until.as_ref().is_some_and(|file| file.exists()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Does nothing: this is a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn crash_point(_: &'static str) {}
