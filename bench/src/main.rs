//! Races against peers and the machine's limit, side by side in one run, as ratios.
//!
//! ```text
//! cargo run --release -p bloomsday-bench -- all
//! cargo run --release -p bloomsday-bench -- lookup --ids 300m --json
//! ```

#![forbid(unsafe_code)]

mod bidder;
mod build;
#[cfg(feature = "live")]
mod daemon;
mod delta;
mod fixtures;
mod growth;
mod ids;
mod insert;
#[cfg(feature = "live")]
mod live;
mod load;
mod lookup;
mod measure;
mod peers;
mod plot;
mod swap;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use measure::Outcome;

/// Race Bloomsday against its peers and the machine's limit.
#[derive(Parser)]
struct Arguments {
    /// What to race.
    #[arg(default_value = "all")]
    race: Race,
    /// How many IDs the filters hold: 300m, 1g.
    #[arg(long, default_value = "100m", value_parser = count)]
    ids: u64,
    /// Rounds of each race of lookups.
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// One JSON object a race, for machines.
    #[arg(long)]
    json: bool,
    /// Where to write plots of growth and of latency during swaps, as SVG.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Another build of this program, to race it with.
    #[arg(long, value_name = "PROGRAM")]
    other: Option<PathBuf>,
    /// Where the filter of `answer` is.
    #[arg(long, value_name = "DIR", hide = true)]
    store: Option<PathBuf>,
}

/// What can be raced.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Race {
    /// Everything.
    All,
    /// Hashes on their way into a filter.
    Insert,
    /// Parquet to a filled filter, and to a published one.
    Build,
    /// A published blob to memory that answers.
    Load,
    /// What changed between two blobs: its size, and how long it takes to make and to apply it.
    Delta,
    /// Lookups at a fixed rate while filters are swapped below them.
    Swap,
    /// The daemon over loopback, compared with Redis.
    #[cfg(feature = "live")]
    Daemon,
    /// IDs that are added one by one over Redis's protocol, compared with Redis.
    #[cfg(feature = "live")]
    Live,
    /// Lookups in a day's filter, with and without live IDs over it.
    #[cfg(feature = "live")]
    LiveLayer,
    /// A live filter of 20 million entries: pauses, memory, restarts, many clients, false
    /// positives.
    #[cfg(feature = "live")]
    LiveTable,
    /// New URLs of a crawl, compared with scrapy-redis-bloomfilter's requests to Redis.
    #[cfg(feature = "live")]
    LiveCrawl,
    /// Clicks of a sliding window, compared with a script in Redis.
    #[cfg(feature = "live")]
    LiveWindow,
    /// Near duplicates among 50 million fingerprints.
    #[cfg(feature = "live")]
    LiveNear,
    /// This build and another one, as a bidder uses them.
    Bidder,
    /// Answers another process, for `bidder`.
    #[value(hide = true)]
    Answer,
    /// The same figures at 1 million to 1 billion IDs, as far as --ids.
    Growth,
    /// Lookups, one at a time, in batches and on two threads.
    Lookup,
}

/// Runs a race.
type Run = fn(&Options) -> Vec<Outcome>;

/// The options of every race.
pub(crate) struct Options {
    pub(crate) ids: u64,
    pub(crate) rounds: usize,
    pub(crate) plots: Option<PathBuf>,
    pub(crate) other: Option<PathBuf>,
    pub(crate) store: Option<PathBuf>,
}

/// Reads 300m as 300 million.
fn count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" | "b" => 1_000_000_000,
        other => return Err(format!("`{other}` is no unit: k, m or g")),
    };
    let number: u64 = digits.parse().map_err(|e| format!("{digits}: {e}"))?;
    number.checked_mul(unit).filter(|n| *n > 0).ok_or_else(|| "not that many".to_owned())
}

fn main() {
    let Arguments { race: wanted, ids, rounds, json, plots, other, store } = Arguments::parse();
    let options = Options { ids, rounds, plots, other, store };
    let races: &[(Race, Run)] = &[
        (Race::Lookup, lookup::run),
        (Race::Insert, insert::run),
        (Race::Build, build::run),
        (Race::Load, load::run),
        (Race::Delta, delta::run),
        (Race::Swap, swap::run),
        #[cfg(feature = "live")]
        (Race::Daemon, daemon::run),
        #[cfg(feature = "live")]
        (Race::Live, live::speed::run),
        #[cfg(feature = "live")]
        (Race::LiveLayer, live::layer::run),
        #[cfg(feature = "live")]
        (Race::LiveTable, live::table::run),
        #[cfg(feature = "live")]
        (Race::LiveCrawl, live::peers::crawl),
        #[cfg(feature = "live")]
        (Race::LiveWindow, live::peers::window),
        #[cfg(feature = "live")]
        (Race::LiveNear, live::near::run),
        (Race::Bidder, bidder::run),
        (Race::Answer, bidder::answer),
        (Race::Growth, growth::run),
    ];
    for (race, run) in races {
        if wanted == Race::All || wanted == *race {
            for outcome in run(&options) {
                outcome.print(json);
            }
        }
    }
}
