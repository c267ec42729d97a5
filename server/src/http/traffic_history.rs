//! [`TrafficHistory`]: the lookups in each of the last sixty minutes, for the charts of the page.
//!
//! A task of its own reads the counters once a minute, so that lookups cost nothing more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const READ_INTERVAL: Duration = Duration::from_secs(60);
/// The most points of a chart.
const MAX_POINTS: usize = 60;
/// A shorter interval is left out: its rate would mean nothing.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The counters of a filter since the start.
pub(super) struct LookupTotals {
    pub(super) filter: FilterName,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// Readings of the counters. A drop ends them.
pub(super) struct TrafficHistory {
    readings: Arc<Mutex<HashMap<FilterName, VecDeque<CounterSample>>>>,
    reader: JoinHandle<()>,
}

/// The counters at one moment.
#[derive(Clone, Copy)]
struct CounterSample {
    at: Instant,
    hits: u64,
    misses: u64,
}

impl CounterSample {
    fn now(counters: &LookupTotals) -> CounterSample {
        CounterSample { at: Instant::now(), hits: counters.hits, misses: counters.misses }
    }
}

impl TrafficHistory {
    /// Reads `counters` now and every minute.
    pub(super) fn of(counters: impl Fn() -> Vec<LookupTotals> + Send + 'static) -> TrafficHistory {
        let readings = Arc::<Mutex<HashMap<FilterName, VecDeque<CounterSample>>>>::default();
        let shared = readings.clone();
        let reader = tokio::spawn(async move {
            loop {
                for counters in counters() {
                    let mut readings = shared.lock().expect("a reading does not panic");
                    let of_filter = readings.entry(counters.filter.clone()).or_default();
                    // One reading more than there are points, which are the intervals between them.
                    if of_filter.len() > MAX_POINTS {
                        of_filter.pop_front();
                    }
                    of_filter.push_back(CounterSample::now(&counters));
                }
                tokio::time::sleep(READ_INTERVAL).await;
            }
        });
        TrafficHistory { readings, reader }
    }

    /// Hits, misses and seconds of each minute, oldest first. The last minute may have just begun.
    pub(super) fn last_hour(&self, now: &LookupTotals) -> Vec<(u64, u64, f64)> {
        let readings = self.readings.lock().expect("a reading does not panic");
        let mut readings: Vec<CounterSample> =
            readings.get(&now.filter).into_iter().flatten().copied().collect();
        readings.push(CounterSample::now(now));
        let intervals = readings.windows(2).map(|pair| (pair[0], pair[1], pair[1].at - pair[0].at));
        let mut points: Vec<(u64, u64, f64)> = intervals
            .filter(|(.., time)| *time > MIN_INTERVAL)
            .map(|(from, to, time)| {
                let hits = to.hits.saturating_sub(from.hits);
                (hits, to.misses.saturating_sub(from.misses), time.as_secs_f64())
            })
            .collect();
        points.drain(..points.len().saturating_sub(MAX_POINTS));
        points
    }
}

impl Drop for TrafficHistory {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lookups of a minute: many, then none for a while, then others.
    fn traffic(minute: u64) -> (u64, u64) {
        match minute {
            0..70 => (600 + minute, 400),
            70..80 => (0, 0),
            _ => (60, 540 + minute),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_ninety_minutes_there_are_sixty_points_with_the_right_rates() {
        let counted = Arc::new(Mutex::new((0, 0)));
        let counters = move |counted: &Mutex<(u64, u64)>| {
            let (hits, misses) = *counted.lock().unwrap();
            LookupTotals { filter: "rt".parse().unwrap(), hits, misses }
        };
        let add = |(hits, misses)| {
            let mut counted = counted.lock().unwrap();
            *counted = (counted.0 + hits, counted.1 + misses);
        };
        let shared = counted.clone();
        let traffic_history = TrafficHistory::of(move || vec![counters(&shared)]);
        // Counted in the middle of each minute, far from any reading.
        tokio::time::sleep(READ_INTERVAL / 2).await;
        for minute in 0..90 {
            add(traffic(minute));
            let points = traffic_history.last_hour(&counters(&Mutex::default()));
            assert!(points.len() <= MAX_POINTS, "{} points", points.len());
            tokio::time::sleep(READ_INTERVAL).await;
        }
        // Half a minute into the ninety-first, which has no lookup yet.
        let points = traffic_history.last_hour(&counters(&counted));
        let expected = (31..90).map(|minute| (traffic(minute).0, traffic(minute).1, 60.0));
        let expected: Vec<(u64, u64, f64)> = expected.chain([(0, 0, 30.0)]).collect();
        assert_eq!(points.len(), 60);
        assert_eq!(points, expected);
        let rates = |(hits, misses, seconds): (u64, u64, f64)| {
            let all = hits + misses;
            (all as f64 / seconds, (all > 0).then(|| hits as f64 / all as f64))
        };
        // Minute 50; one in which the counters stood still; minute 85.
        assert_eq!(rates(points[19]), (17.5, Some(650.0 / 1050.0)));
        assert_eq!(rates(points[44]), (0.0, None));
        assert_eq!(rates(points[54]), (685.0 / 60.0, Some(60.0 / 685.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_moments_show_nothing_and_counters_that_fall_nothing_below_zero() {
        let filter = || "rt".parse::<FilterName>().unwrap();
        let traffic_history =
            TrafficHistory::of(move || vec![LookupTotals { filter: filter(), hits: 9, misses: 9 }]);
        let now = |hits| LookupTotals { filter: filter(), hits, misses: 9 };
        tokio::task::yield_now().await;
        assert_eq!(traffic_history.last_hour(&now(10)), []);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(traffic_history.last_hour(&now(11)), [(2, 0, 2.0)]);
        assert_eq!(traffic_history.last_hour(&now(3)), [(0, 0, 2.0)]);
        let unknown = LookupTotals { filter: "other".parse().unwrap(), hits: 5, misses: 5 };
        assert_eq!(traffic_history.last_hour(&unknown), []);
    }
}
