//! `bloomsday plan`: size, probes and memory for each layout, and the time and memory of a build
//! here, before any day is built.

mod estimate;

use std::process::ExitCode;

use bloomsday_builder::source::MAX_WINDOW_DAYS;
use bloomsday_common::delta;
use bloomsday_common::filter::shape::{classic_bits, classic_fpp, classic_probes, recommend};
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_server::live;
use clap::Args;
use serde_json::{Value, json};

use self::estimate::{Estimate, Workload};
use crate::defaults::FPP;
use crate::error::Error;
use crate::output::{Output, binary_size, table, thousands};
use crate::resources::Resources;

/// Show size, probes and memory of a filter, and the time and memory that a build takes here.
///
/// Runs two small builds in a temporary folder, which takes some seconds.
///
/// Example: bloomsday plan --ids 300m --fpp 0.03 --memory 1GiB
#[derive(Args)]
pub(crate) struct Plan {
    /// How many distinct IDs: a number, or with k, m, g for thousands, millions, billions.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    ids: u64,
    /// How many live IDs there are at a time: IDs a day × (days of live_for + 1), or IDs a second ×
    /// (window + step).
    #[arg(long, value_name = "N", value_parser = parse_count)]
    live: Option<u64>,
    /// The false-positive probability to size for.
    #[arg(long, value_name = "P", default_value_t = FPP)]
    fpp: f64,
    /// How many rows a day's input has [default: one for each ID].
    #[arg(long, value_name = "N", value_parser = parse_count)]
    rows: Option<u64>,
    /// From how many days' inputs a filter is built, as in `window_days`. A build then reads N
    /// times the rows; --ids counts the IDs of all these days together.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WINDOW_DAYS)))]
    window_days: u32,
    #[command(flatten)]
    resources: Resources,
    /// Print only sizes; run no build to estimate time and memory.
    #[arg(long)]
    sizes_only: bool,
}

/// The shares of IDs that leave, and as many arrive, for which the size of a delta is shown.
const CHURNS: [f64; 3] = [0.01, 0.03, 0.1];

struct Row {
    name: &'static str,
    bits: u64,
    bytes: u64,
    probes: u32,
    fpp: f64,
}

/// What is known without a build.
struct Sizes {
    ids: u64,
    live_ids: Option<u64>,
    fpp: f64,
    window_days: u32,
    layouts: Vec<Row>,
    /// Why the blocked layout is not among them.
    not_blocked: Option<String>,
    recommended: Layout,
    because: &'static str,
    /// The shape of the recommended layout.
    shape: Shape,
}

impl Plan {
    pub(crate) async fn run(self, output: &Output) -> Result<ExitCode, Error> {
        let sizes = self.sizes()?;
        let estimate = if self.sizes_only {
            None
        } else {
            Some(estimate::estimate(self.workload(sizes.shape)?).await?)
        };
        let mut report = sizes.json();
        report["build"] = json!(estimate.as_ref().map(Estimate::json));
        output.show(&report, || {
            sizes.page() + &estimate.map_or(String::new(), |estimate| estimate.page())
        });
        Ok(ExitCode::SUCCESS)
    }

    fn sizes(&self) -> Result<Sizes, Error> {
        let (ids, fpp) = (self.ids, self.fpp);
        let blocked = Shape::for_ids(Layout::Blocked, ids, fpp);
        let guava = match (Shape::for_ids(Layout::Guava, ids, fpp), &blocked) {
            (Ok(guava), _) => Some(guava),
            // More IDs than that layout can have.
            (Err(_), Ok(_)) => None,
            // It supports every fpp; an impossible one is refused here, with the remedy.
            (Err(error), Err(_)) => return Err(error.into()),
        };
        let bits = classic_bits(ids, fpp);
        let probes = classic_probes(ids, bits);
        let classic = Row {
            name: "classic formula",
            bits,
            bytes: bits.div_ceil(64) * 8,
            probes,
            fpp: classic_fpp(bits as f64 / ids as f64, probes),
        };
        let of = |shape: Shape| Row {
            name: shape.layout().name(),
            bits: shape.bits(),
            bytes: shape.body_bytes(),
            probes: shape.probes(),
            fpp: shape.expected_fpp(ids),
        };
        let mut layouts = vec![classic];
        layouts.extend(blocked.iter().copied().map(of));
        layouts.extend(guava.map(of));
        let (recommended, because) = match (recommend(fpp), guava) {
            ((Layout::Guava, _), None) => (
                Layout::Blocked,
                "a classic filter cannot have so many IDs: Guava has int counters",
            ),
            (best, _) => best,
        };
        let shape = match (recommended, &blocked) {
            (Layout::Blocked, Ok(shape)) => *shape,
            (_, Ok(shape)) => guava.unwrap_or(*shape),
            (_, Err(_)) => guava.expect("one of the two is possible, or an error was returned"),
        };
        Ok(Sizes {
            ids,
            live_ids: self.live,
            fpp,
            window_days: self.window_days,
            layouts,
            not_blocked: blocked.err().map(|error| error.to_string()),
            recommended,
            because,
            shape,
        })
    }

    fn workload(self, shape: Shape) -> Result<Workload, Error> {
        Ok(Workload {
            rows: self.rows.unwrap_or(self.ids).saturating_mul(u64::from(self.window_days)),
            ids: self.ids,
            shape,
            fpp: self.fpp,
            memory: self.resources.memory(None),
            threads: self.resources.threads(),
            spill_folder: self.resources.spill_folder(None)?,
        })
    }
}

impl Sizes {
    fn json(&self) -> Value {
        let Sizes { ids, fpp, window_days, .. } = *self;
        let layouts: Vec<Value> = self.layouts.iter().map(|row| row.json(ids)).collect();
        let deltas =
            CHURNS.map(|churn| json!({ "churn": churn, "bytes": self.delta_bytes(churn) }));
        json!({
            "ids": ids, "fpp_target": fpp, "window_days": window_days, "layouts": layouts,
            "recommended": self.recommended.name(), "because": self.because,
            "not_blocked": self.not_blocked, "live": self.live_ids.map(live_json), "deltas": deltas,
        })
    }

    fn page(&self) -> String {
        let Sizes { ids, fpp, window_days, recommended, because, .. } = *self;
        let head = ["layout", "bits", "64-bit words", "MiB", "probes", "bits per ID", "fpp"];
        let lines: Vec<Vec<String>> = self.layouts.iter().map(|row| row.line(ids)).collect();
        let what = match window_days {
            1 => "IDs".to_owned(),
            days => format!("distinct IDs of {days} days together"),
        };
        let mut page = format!("{} {what}, fpp target {fpp}\n\n", thousands(ids));
        page += &table(&head, &lines);
        if let Some(why) = &self.not_blocked {
            page += &format!("\nblocked: {why}\n");
        }
        page += &format!("\nchoose --layout {recommended}: {because}\n");
        if let Some(ids) = self.live_ids {
            let (least, most) = live::memory_of(ids);
            page += &format!(
                "\n{} live IDs: {} to {} of memory, {} of log for each {0} adds\n",
                thousands(ids),
                binary_size(least),
                binary_size(most),
                binary_size(log_bytes(ids))
            );
        }
        let sizes = CHURNS.map(|churn| {
            format!("{} at {} %", binary_size(self.delta_bytes(churn)), churn * 100.0)
        });
        page + &format!("a delta has, by the share of IDs that change: {}\n", sizes.join(", "))
    }

    fn delta_bytes(&self, churn: f64) -> u64 {
        delta::expected_bytes(self.shape, self.ids, churn) as u64
    }
}

fn live_json(ids: u64) -> Value {
    let (least, most) = live::memory_of(ids);
    json!({ "ids": ids, "memory_min": least, "memory_max": most, "log_bytes": log_bytes(ids) })
}

/// A log has 8 bytes for each hash.
fn log_bytes(ids: u64) -> u64 {
    ids.saturating_mul(8)
}

impl Row {
    fn json(&self, ids: u64) -> Value {
        json!({
            "layout": self.name, "bits": self.bits, "words": self.bits.div_ceil(64),
            "bytes": self.bytes, "mib": self.bytes >> 20, "probes": self.probes,
            "bits_per_id": self.bits as f64 / ids as f64, "fpp": self.fpp,
        })
    }

    fn line(&self, ids: u64) -> Vec<String> {
        vec![
            self.name.to_owned(),
            thousands(self.bits),
            thousands(self.bits.div_ceil(64)),
            thousands(self.bytes >> 20),
            self.probes.to_string(),
            format!("{:.2}", self.bits as f64 / ids as f64),
            match self.fpp {
                fpp if fpp >= 1e-4 => format!("{fpp:.6}"),
                fpp => format!("{fpp:.3e}"),
            },
        ]
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.replace([',', '_'], "").to_ascii_lowercase();
    let (digits, unit) = match plain.as_bytes().last() {
        Some(b'k') => (&plain[..plain.len() - 1], 1_000),
        Some(b'm') => (&plain[..plain.len() - 1], 1_000_000),
        Some(b'g' | b'b') => (&plain[..plain.len() - 1], 1_000_000_000),
        _ => (&plain[..], 1),
    };
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    count
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("`{text}` is not a number of IDs: write 300000000 or 300m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_have_a_unit() {
        assert_eq!(parse_count("300m"), Ok(300_000_000));
        assert_eq!(parse_count("1_000"), Ok(1_000));
        assert_eq!(parse_count("2B"), Ok(2_000_000_000));
        for wrong in ["", "m", "0", "-1", "1.5m", "99999999999g", "é"] {
            assert!(parse_count(wrong).is_err(), "{wrong} passed");
        }
    }
}
