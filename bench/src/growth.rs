//! Growth: the same figures at 1, 10, 100, 300 million and 1 billion IDs: flat where they should
//! be.

use std::hint::black_box;
use std::time::Instant;

use bloomsday_builder::fill;
use bloomsday_common::filter::{Filter, Layout, Shape};
use bloomsday_common::hash::Xxh3;

use crate::Options;
use crate::fixtures::{FPP, threads};
use crate::ids::{ABSENT, FreshIds, id};
use crate::insert;
use crate::measure::{Outcome, Samples, timed};
use crate::plot::{Plot, Series};

const SIZES: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 300_000_000, 1_000_000_000];
/// Lookups of a round.
const LOOKUPS: usize = 1 << 20;
const ROUNDS: usize = 9;

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let mut outcome = Outcome::of("growth", "ns an ID, by IDs in the filter");
    let sizes = SIZES.iter().filter(|size| **size <= options.ids);
    let (mut lookups, mut insertions) = (Vec::new(), Vec::new());
    for &n in sizes {
        let (partitions, partition) = timed(insert::memory(n), || insert::partition(n));
        let (distinct, deduplicate) = timed(0, || {
            partitions.distinct(threads(), u64::MAX).expect("memory keeps hashes as they were")
        });
        let shape = Shape::for_ids(Layout::Blocked, n, FPP).expect("a size there is");
        let (filter, fill) = timed(shape.body_bytes(), || {
            fill::fill(&distinct, shape, threads()).expect("memory for a filter")
        });
        assert_eq!(distinct.n_ids(), n, "hashes of different numbers differ");
        drop(distinct);
        insert::check(&filter, n);
        let seconds = |clock: usize| partition[clock] + deduplicate[clock] + fill[clock];
        let insertion = seconds(0) * 1e9 / n as f64;
        let lookup = look_up(&filter);
        let millions = n / 1_000_000;
        outcome.note(format!(
            "{millions:>5} million: {} MiB, {:.2} s to partition, deduplicate and fill \
             ({:.2} s of CPU time a core), fpp {:.4}",
            filter.body().len() >> 20,
            seconds(0),
            seconds(1),
            fpp(&filter),
        ));
        lookups.push((n as f64, lookup.median()));
        insertions.push((n as f64, insertion));
        outcome.rows.push((format!("{millions} million: lookup, 1024 a batch"), lookup));
        let insertion = Samples(vec![insertion]);
        outcome.rows.push((format!("{millions} million: insertion, all threads"), insertion));
    }
    if let Some(folder) = &options.plots {
        let plot = Plot {
            title: "Growth: ns an ID by IDs in the filter",
            x: "IDs in the filter (logarithmic)",
            y: "ns an ID",
            log_x: true,
            log_y: false,
            series: vec![
                Series { name: "lookup, 1,024 a batch", points: lookups },
                Series { name: "partition, deduplicate, fill", points: insertions },
            ],
        };
        plot.write(&folder.join("growth.svg"));
    }
    vec![outcome]
}

fn look_up(filter: &Filter) -> Samples {
    let mut fresh_ids = FreshIds::absent(LOOKUPS * 4);
    let mut answers = vec![false; 1024];
    let mut round = |_| {
        let (_, ids) = fresh_ids.next(LOOKUPS);
        let clock = Instant::now();
        for ids in ids.chunks(answers.len()) {
            black_box(filter.contains_batch(ids, &mut answers));
        }
        clock.elapsed().as_nanos() as f64 / LOOKUPS as f64
    };
    Samples((0..ROUNDS).map(&mut round).collect())
}

/// On a million absent IDs.
fn fpp(filter: &Filter) -> f64 {
    let lookups = 1_000_000;
    let hash = |i: u64| <Xxh3 as bloomsday_common::hash::IdHash>::of(&id(3 * ABSENT + i));
    let wrong = (0..lookups).filter(|i| filter.contains_hash(hash(*i))).count();
    wrong as f64 / lookups as f64
}
