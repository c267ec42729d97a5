//! Races against peers and the machine's limit, side by side in one run, as ratios.
//!
//! ```text
//! cargo run --release -p bloomsday-bench -- all
//! cargo run --release -p bloomsday-bench -- lookup --ids 300m --json
//! ```

#![forbid(unsafe_code)]

mod build;
mod daemon;
mod delta;
mod fixtures;
mod growth;
mod ids;
mod insert;
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
    Daemon,
    /// IDs that are added one by one over Redis's protocol, compared with Redis.
    Live,
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
    let arguments = Arguments::parse();
    let options = Options { ids: arguments.ids, rounds: arguments.rounds, plots: arguments.plots };
    let races: [(Race, Run); 9] = [
        (Race::Lookup, lookup::run),
        (Race::Insert, insert::run),
        (Race::Build, build::run),
        (Race::Load, load::run),
        (Race::Delta, delta::run),
        (Race::Swap, swap::run),
        (Race::Daemon, daemon::run),
        (Race::Live, live::run),
        (Race::Growth, growth::run),
    ];
    for (race, run) in races {
        if arguments.race == Race::All || arguments.race == race {
            for outcome in run(&options) {
                outcome.print(arguments.json);
            }
        }
    }
}
