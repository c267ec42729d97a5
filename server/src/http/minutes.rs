//! [`Minutes`]: how many questions each of the last sixty minutes had, for the page's charts.
//!
//! Counters are read once a minute by a task of its own, so that lookups pay nothing for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bloomsday_common::key::FilterName;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const NOTE_EVERY: Duration = Duration::from_secs(60);
/// How many points a chart has.
const POINTS: usize = 60;
/// What has begun is shown from then on; its first moments would show wild rates.
const SHOWN_FROM: Duration = Duration::from_secs(1);

/// The counters of a filter since the start.
pub(super) struct Counters {
    pub(super) filter: FilterName,
    pub(super) seen: u64,
    pub(super) absent: u64,
}

/// Notes of the counters; dropped, it takes no more.
pub(super) struct Minutes {
    notes: Arc<Mutex<HashMap<FilterName, VecDeque<Note>>>>,
    noting: JoinHandle<()>,
}

/// The counters at one moment.
#[derive(Clone, Copy)]
struct Note {
    at: Instant,
    seen: u64,
    absent: u64,
}

impl Note {
    fn now(counters: &Counters) -> Note {
        Note { at: Instant::now(), seen: counters.seen, absent: counters.absent }
    }
}

impl Minutes {
    /// Notes what `counters` says, now and every minute.
    pub(super) fn of(counters: impl Fn() -> Vec<Counters> + Send + 'static) -> Minutes {
        let notes = Arc::<Mutex<HashMap<FilterName, VecDeque<Note>>>>::default();
        let noted = notes.clone();
        let noting = tokio::spawn(async move {
            loop {
                for counters in counters() {
                    let mut notes = noted.lock().expect("noting does not panic");
                    let of_filter = notes.entry(counters.filter.clone()).or_default();
                    // As many intervals as points, and one note more than those.
                    if of_filter.len() > POINTS {
                        of_filter.pop_front();
                    }
                    of_filter.push_back(Note::now(&counters));
                }
                tokio::time::sleep(NOTE_EVERY).await;
            }
        });
        Minutes { notes, noting }
    }

    /// Seen, absent and seconds of each minute, oldest first; the last one may have just begun.
    pub(super) fn last_hour(&self, now: &Counters) -> Vec<(u64, u64, f64)> {
        let notes = self.notes.lock().expect("noting does not panic");
        let mut notes: Vec<Note> = notes.get(&now.filter).into_iter().flatten().copied().collect();
        notes.push(Note::now(now));
        let pairs = notes.windows(2).map(|pair| (pair[0], pair[1], pair[1].at - pair[0].at));
        let mut points: Vec<(u64, u64, f64)> = pairs
            .filter(|(.., time)| *time > SHOWN_FROM)
            .map(|(from, to, time)| {
                let seen = to.seen.saturating_sub(from.seen);
                (seen, to.absent.saturating_sub(from.absent), time.as_secs_f64())
            })
            .collect();
        points.drain(..points.len().saturating_sub(POINTS));
        points
    }
}

impl Drop for Minutes {
    fn drop(&mut self) {
        self.noting.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The questions of a minute: many, then none for a while, then others.
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
            let (seen, absent) = *counted.lock().unwrap();
            Counters { filter: "rt".parse().unwrap(), seen, absent }
        };
        let add = |(seen, absent)| {
            let mut counted = counted.lock().unwrap();
            *counted = (counted.0 + seen, counted.1 + absent);
        };
        let shared = counted.clone();
        let minutes = Minutes::of(move || vec![counters(&shared)]);
        // Counted in the middle of each minute, far from any note.
        tokio::time::sleep(NOTE_EVERY / 2).await;
        for minute in 0..90 {
            add(traffic(minute));
            let points = minutes.last_hour(&counters(&Mutex::default()));
            assert!(points.len() <= POINTS, "{} points", points.len());
            tokio::time::sleep(NOTE_EVERY).await;
        }
        // Half a minute into the ninety-first, which has no question yet.
        let points = minutes.last_hour(&counters(&counted));
        let expected = (31..90).map(|minute| (traffic(minute).0, traffic(minute).1, 60.0));
        let expected: Vec<(u64, u64, f64)> = expected.chain([(0, 0, 30.0)]).collect();
        assert_eq!(points.len(), 60);
        assert_eq!(points, expected);
        let rates = |(seen, absent, seconds): (u64, u64, f64)| {
            let all = seen + absent;
            (all as f64 / seconds, (all > 0).then(|| seen as f64 / all as f64))
        };
        // Minute 50; one in which the counters stood still; minute 85.
        assert_eq!(rates(points[19]), (17.5, Some(650.0 / 1050.0)));
        assert_eq!(rates(points[44]), (0.0, None));
        assert_eq!(rates(points[54]), (685.0 / 60.0, Some(60.0 / 685.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_moments_show_nothing_and_counters_that_fall_nothing_below_zero() {
        let filter = || "rt".parse::<FilterName>().unwrap();
        let minutes = Minutes::of(move || vec![Counters { filter: filter(), seen: 9, absent: 9 }]);
        let now = |seen| Counters { filter: filter(), seen, absent: 9 };
        tokio::task::yield_now().await;
        assert_eq!(minutes.last_hour(&now(10)), []);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(minutes.last_hour(&now(11)), [(2, 0, 2.0)]);
        assert_eq!(minutes.last_hour(&now(3)), [(0, 0, 2.0)]);
        let unknown = Counters { filter: "other".parse().unwrap(), seen: 5, absent: 5 };
        assert_eq!(minutes.last_hour(&unknown), []);
    }
}
