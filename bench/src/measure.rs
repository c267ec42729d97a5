//! Interleaved rounds, medians, ratios and their spread; and how they are printed.
//!
//! Machines are shared and their clocks drift. So contestants take turns, a ratio is taken within a
//! round, where both saw the same machine, and what is printed is the median over rounds with
//! quartiles.

use std::time::Instant;

use bloomsday_common::memory::Buffer;
use cpu_time::ProcessTime;
use serde_json::{Value, json};

use crate::ids;

/// Runs `work` on all cores: seconds by the clock, and seconds that all threads of this process
/// ran, divided by the number of cores. On a quiet machine with work well spread they are the same;
/// on a busy one the second still shows what the work costs. `memory` is how many bytes it touches
/// anew.
pub(crate) fn timed<T>(memory: u64, work: impl FnOnce() -> T) -> (T, [f64; 2]) {
    put_at_hand(memory);
    let (clock, cpu) = (Instant::now(), ProcessTime::now());
    let result = work();
    let cores = crate::fixtures::threads() as f64;
    (result, [clock.elapsed().as_secs_f64(), cpu.elapsed().as_secs_f64() / cores])
}

/// Makes the system have so much free memory at hand. The host of a virtual machine may have taken
/// its free memory, and then the first touch takes many times longer than on a real machine, which
/// would be most of what a build takes. Twice as much is touched as is needed: what was freed last
/// is not always what is given next.
fn put_at_hand(bytes: u64) {
    const PAGE: usize = 4096;
    let mut memory = Buffer::zeroed(2 * bytes as usize).expect("memory");
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// What one contestant took, a figure a round.
#[derive(Clone, Default)]
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The quantile, 0 to 1.
    pub(crate) fn at(&self, quantile: f64) -> f64 {
        let sorted = self.sorted();
        let index = (sorted.len().max(1) - 1) as f64 * quantile;
        sorted.get(index.round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Round by round, this over the other.
    pub(crate) fn over(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

/// One contestant: given the number of the round, what it took in the race's unit.
pub(crate) struct Contestant<'a> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnMut(usize) -> f64 + 'a>,
}

pub(crate) fn contestant<'a>(name: &str, run: impl FnMut(usize) -> f64 + 'a) -> Contestant<'a> {
    Contestant { name: name.to_owned(), run: Box::new(run) }
}

/// What a race found.
pub(crate) struct Outcome {
    pub(crate) race: String,
    pub(crate) unit: &'static str,
    pub(crate) rows: Vec<(String, Samples)>,
    claims: Vec<(String, Samples, Bound)>,
    pub(crate) notes: Vec<String>,
}

/// What a ratio should keep to.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Printed without a bound.
    None,
}

/// Lets the contestants take turns, in another order each round: what runs before leaves caches and
/// clock in another state.
pub(crate) fn race(
    name: &str,
    unit: &'static str,
    rounds: usize,
    mut contestants: Vec<Contestant<'_>>,
) -> Outcome {
    let n = contestants.len();
    let mut samples = vec![Samples::default(); n];
    let mut order: Vec<usize> = (0..n).collect();
    for round in 0..rounds {
        order.sort_by_key(|index| ids::mix64((round * n + index) as u64));
        for &index in &order {
            let took = (contestants[index].run)(round);
            samples[index].0.push(took);
        }
    }
    let names = contestants.into_iter().map(|contestant| contestant.name);
    Outcome {
        race: name.to_owned(),
        unit,
        rows: names.zip(samples).collect(),
        claims: Vec::new(),
        notes: Vec::new(),
    }
}

impl Outcome {
    /// Figures that were taken in no race.
    pub(crate) fn of(race: &str, unit: &'static str) -> Outcome {
        Outcome {
            race: race.to_owned(),
            unit,
            rows: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn samples(&self, name: &str) -> Option<&Samples> {
        self.rows.iter().find(|(row, _)| row == name).map(|(_, samples)| samples)
    }

    /// Compares `name` with `other`, when both took part.
    pub(crate) fn compare(&mut self, name: &str, other: &str, bound: Bound) {
        if let (Some(one), Some(two)) = (self.samples(name), self.samples(other)) {
            let ratio = one.over(two);
            self.claim(&format!("{name} / {other}"), ratio, bound);
        }
    }

    pub(crate) fn claim(&mut self, what: &str, samples: Samples, bound: Bound) {
        self.claims.push((what.to_owned(), samples, bound));
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// For people, or as one line for machines.
    pub(crate) fn print(&self, as_json: bool) {
        if as_json { println!("{}", self.json()) } else { print!("{}", self.text()) }
    }

    fn text(&self) -> String {
        let mut text = format!("\n{} ({})\n", self.race, self.unit);
        for (name, samples) in &self.rows {
            let (low, high) = (samples.at(0.25), samples.at(0.75));
            let (middle, least) = (figure(samples.median()), figure(samples.at(0.0)));
            let spread = if samples.0.len() > 1 {
                format!("   [{} … {}], least {least}", figure(low), figure(high))
            } else {
                String::new()
            };
            text += &format!("  {name:<44} {middle:>10}{spread}\n");
        }
        for (what, samples, bound) in &self.claims {
            let value = samples.median();
            let verdict = match bound {
                Bound::AtMost(most) if value <= *most => format!("  (≤ {most}: yes)"),
                Bound::AtMost(most) => format!("  (≤ {most}: NO)"),
                Bound::AtLeast(least) if value >= *least => format!("  (≥ {least}: yes)"),
                Bound::AtLeast(least) => format!("  (≥ {least}: NO)"),
                Bound::None => String::new(),
            };
            let (low, high) = (samples.at(0.25), samples.at(0.75));
            text += &format!("  = {what:<60} {value:>7.3} [{low:.3} … {high:.3}]{verdict}\n");
        }
        for note in &self.notes {
            text += &format!("  {note}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let spread = |samples: &Samples| {
            json!({
                "median": samples.median(), "q1": samples.at(0.25), "q3": samples.at(0.75),
                "least": samples.at(0.0), "rounds": samples.0.len(),
            })
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(name, samples)| json!({ "name": name, "figure": spread(samples) }))
            .collect();
        let claims: Vec<Value> = self.claims.iter().map(|(what, samples, bound)| {
            let (at_most, at_least) = match bound {
                Bound::AtMost(most) => (Some(most), None),
                Bound::AtLeast(least) => (None, Some(least)),
                Bound::None => (None, None),
            };
            json!({ "ratio": what, "value": spread(samples), "at_most": at_most, "at_least": at_least })
        }).collect();
        json!({
            "race": self.race, "unit": self.unit, "rows": rows, "ratios": claims, "notes": self.notes,
        })
    }
}

/// Three digits, whatever the size.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.0}", value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
