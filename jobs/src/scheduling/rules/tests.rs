//! The decisions, put to weeks of made-up time.

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn day(text: &str) -> Day {
    text.parse().unwrap()
}

/// Every night at two, the day before.
fn nightly() -> Rules {
    Rules {
        expression: "0 2 * * *".parse().unwrap(),
        day_offset: 1,
        catch_up_days: 3,
        deadline: Duration::from_secs(4 * 3600),
        settle: Duration::from_secs(300),
        marker_only: false,
    }
}

/// A world in which the scheduler acts: what is found when, and how builds end.
struct World<F, B> {
    now: Timestamp,
    observed: Observed,
    found: F,
    build: B,
    built: Vec<(Timestamp, Day, Outcome)>,
    checks: u32,
    /// How long a check takes.
    check_takes: Duration,
}

impl<F: Fn(Timestamp, Day) -> Found, B: Fn(Day, usize) -> Outcome> World<F, B> {
    fn new(now: &str, found: F, build: B) -> World<F, B> {
        let observed = Observed::default();
        let (built, check_takes) = (Vec::new(), Duration::ZERO);
        World { now: at(now), observed, found, build, built, checks: 0, check_takes }
    }

    /// Lets the scheduler act until `end`; every build takes a minute.
    fn run(&mut self, rules: &Rules, end: &str) {
        let end = at(end);
        for _ in 0..100_000 {
            match rules.next(self.now, &self.observed) {
                Action::CheckInput(day) => {
                    self.checks += 1;
                    let (began, found) = (self.now, (self.found)(self.now, day));
                    self.now = later(began, self.check_takes);
                    self.observed.checked(day, began, self.now, found);
                }
                Action::Build(day) => {
                    let before = self.built.iter().filter(|(_, d, _)| *d == day).count();
                    let outcome = (self.build)(day, before);
                    self.built.push((self.now, day, outcome));
                    self.observed.events.push(HistoryEvent {
                        day: Some(day),
                        seconds: Some(60.0),
                        ..HistoryEvent::new(EventKind::Build, outcome, self.now, "test")
                    });
                    self.now = later(self.now, Duration::from_secs(60));
                }
                Action::Wait(until) => {
                    assert!(until > self.now, "a wait that does not end: {until} at {}", self.now);
                    if until > end {
                        self.now = end;
                        return;
                    }
                    self.now = until;
                }
            }
        }
        panic!("the scheduler never rests: it is {}", self.now);
    }

    fn days(&self) -> Vec<String> {
        self.built.iter().map(|(_, day, _)| day.to_string()).collect()
    }
}

#[test]
fn a_month_of_nights_builds_each_day_once_as_soon_as_its_input_is_ready() {
    let complete = |_, _| Found::Complete;
    let mut world = World::new("2026-11-01T01:00:00Z", complete, |_, _| Outcome::Published);
    // The first start catches up what was missed.
    world.run(&nightly(), "2026-11-01T01:30:00Z");
    assert_eq!(world.days(), ["2026-10-30", "2026-10-29", "2026-10-28"]);
    world.built.clear();
    world.run(&nightly(), "2026-12-01T01:00:00Z");
    let nights: Vec<Day> = world.built.iter().map(|(_, day, _)| *day).collect();
    let expected: Vec<Day> = (0..30).map(|n| day("2026-10-31").plus(n)).collect();
    assert_eq!(nights, expected);
    for (when, day, _) in &world.built {
        assert_eq!(*when, later(day.end(), Duration::from_secs(2 * 3600)), "{day}");
    }
}

#[test]
fn a_stopped_scheduler_catches_up_the_newest_day_first_and_not_for_ever() {
    let complete = |_, _| Found::Complete;
    let mut world = World::new("2026-11-20T12:00:00Z", complete, |_, _| Outcome::Published);
    // Down since the first; the third was built by hand since then.
    world.observed.pointers.insert(day("2026-11-17"), Some(at("2026-11-19T08:00:00Z")));
    world.run(&nightly(), "2026-11-20T13:00:00Z");
    assert_eq!(world.days(), ["2026-11-19", "2026-11-18", "2026-11-16"]);
    let none = Rules { catch_up_days: 0, ..nightly() };
    let mut world = World::new("2026-11-20T12:00:00Z", complete, |_, _| Outcome::Published);
    world.run(&none, "2026-11-20T13:00:00Z");
    assert_eq!(world.days(), ["2026-11-19"]);
}

#[test]
fn files_are_complete_when_two_checks_find_the_same() {
    // Written from 02:00 to 02:31, another file each minute.
    let growing = |now: Timestamp, _| {
        let minute = (now.as_second() - at("2026-11-20T02:00:00Z").as_second()) / 60;
        Found::Incomplete(u64::try_from(minute.clamp(0, 31)).unwrap())
    };
    let rules = Rules { catch_up_days: 0, ..nightly() };
    let mut world = World::new("2026-11-20T02:00:00Z", growing, |_, _| Outcome::Published);
    world.run(&rules, "2026-11-20T06:00:00Z");
    assert_eq!(world.built, [(at("2026-11-20T02:40:00Z"), day("2026-11-19"), Outcome::Published)]);
    // With a marker demanded, files alone are never enough.
    let strict = Rules { marker_only: true, ..rules };
    let mut world = World::new("2026-11-20T02:00:00Z", growing, |_, _| Outcome::Published);
    world.run(&strict, "2026-11-20T23:00:00Z");
    assert_eq!(world.built, []);
    assert!((200..300).contains(&world.checks), "{} checks in 21 hours", world.checks);
}

#[test]
fn input_that_never_comes_holds_no_other_day_up_and_is_late() {
    let missing = day("2026-11-19");
    let found = |_, d| if d == missing { Found::Nothing } else { Found::Complete };
    let mut world = World::new("2026-11-20T02:00:00Z", found, |_, _| Outcome::Published);
    world.run(&nightly(), "2026-11-20T05:59:00Z");
    let late = |world: &World<_, _>| {
        let open = nightly().open(world.now, &world.observed);
        open.iter().filter(|open| open.is_late).map(|open| open.day).collect::<Vec<Day>>()
    };
    assert_eq!(late(&world), []);
    world.run(&nightly(), "2026-11-20T06:01:00Z");
    assert_eq!(late(&world), [missing]);
    world.run(&nightly(), "2026-11-21T03:00:00Z");
    assert_eq!(world.days().last().unwrap(), "2026-11-20");
}

#[test]
fn failures_are_tried_again_ever_more_rarely_and_then_given_up() {
    let complete = |_, _| Found::Complete;
    let rules = Rules { catch_up_days: 0, ..nightly() };
    let third = |_, before| if before < 2 { Outcome::Failed } else { Outcome::Published };
    let mut world = World::new("2026-11-20T02:00:00Z", complete, third);
    world.run(&rules, "2026-11-20T23:00:00Z");
    let when: Vec<String> = world.built.iter().map(|(at, ..)| at.to_string()).collect();
    // A minute's build and a minute's pause; a minute's build and two minutes' pause.
    assert_eq!(when, ["2026-11-20T02:00:00Z", "2026-11-20T02:02:00Z", "2026-11-20T02:05:00Z"]);

    let mut world = World::new("2026-11-20T02:00:00Z", complete, |_, _| Outcome::Failed);
    world.run(&rules, "2026-11-20T23:59:00Z");
    assert_eq!(world.built.len(), MAX_TRIES);
    let open = rules.open(world.now, &world.observed);
    let (day, standing) = (day("2026-11-19"), Standing::GaveUp);
    assert_eq!(open, [OpenDay { day, standing, is_late: true }]);
    // A restart remembers the failures from the history, and the next night is a new run.
    let mut restarted = World::new("2026-11-20T23:59:00Z", complete, |_, _| Outcome::Published);
    restarted.observed.events = world.observed.events;
    restarted.run(&rules, "2026-11-21T03:00:00Z");
    assert_eq!(restarted.days(), ["2026-11-20"]);
}

#[test]
fn what_a_gate_refused_or_an_operator_decided_is_not_run_again() {
    let complete = |_, _| Found::Complete;
    let rules = Rules { catch_up_days: 0, ..nightly() };
    for outcome in [Outcome::Refused, Outcome::Superseded, Outcome::Unchanged] {
        let mut world = World::new("2026-11-20T02:00:00Z", complete, |_, _| outcome);
        world.run(&rules, "2026-11-20T23:00:00Z");
        assert_eq!(world.days(), ["2026-11-19"], "{outcome:?}");
        let open = rules.open(world.now, &world.observed);
        assert_eq!(open.len(), usize::from(outcome == Outcome::Refused), "{outcome:?}");
    }
    let mut world = World::new("2026-11-20T02:00:00Z", complete, |_, _| Outcome::Published);
    world.observed.pointers.insert(day("2026-11-19"), None);
    world.run(&rules, "2026-11-20T23:00:00Z");
    assert_eq!(world.built, []);
}

#[test]
fn a_clock_stepped_back_runs_nothing_twice() {
    let complete = |_, _| Found::Complete;
    let rules = nightly();
    let mut world = World::new("2026-11-20T02:00:00Z", complete, |_, _| Outcome::Published);
    world.run(&rules, "2026-11-20T03:00:00Z");
    let built = world.built.len();
    world.now = at("2026-11-20T01:00:00Z");
    world.run(&rules, "2026-11-20T03:00:00Z");
    assert_eq!(world.built.len(), built, "{:?}", world.built);
}

#[test]
fn several_runs_a_day_build_the_day_again_with_each() {
    let complete = |_, _| Found::Complete;
    let rules = Rules {
        expression: "0 */6 * * *".parse().unwrap(),
        day_offset: 0,
        catch_up_days: 0,
        ..nightly()
    };
    let mut world = World::new("2026-11-20T00:00:00Z", complete, |_, _| Outcome::Published);
    world.run(&rules, "2026-11-20T23:00:00Z");
    let hours: Vec<i64> = world.built.iter().map(|(at, ..)| at.as_second() / 3600 % 24).collect();
    assert_eq!(hours, [0, 6, 12, 18]);
}

#[test]
fn a_check_that_takes_longer_than_settle_is_followed_by_a_build() {
    for (settle, found) in [(0, Found::Complete), (1, Found::Complete), (1, Found::Incomplete(7))] {
        let rules = Rules { settle: Duration::from_millis(settle), ..nightly() };
        let mut world = World::new("2026-11-20T02:00:00Z", |_, _| found, |_, _| Outcome::Published);
        world.check_takes = Duration::from_secs(10);
        world.run(&rules, "2026-11-20T02:10:00Z");
        let days = ["2026-11-19", "2026-11-18", "2026-11-17", "2026-11-16"];
        assert_eq!(world.days(), days, "{settle} {found:?}");
        assert!(world.checks <= 8, "{} checks", world.checks);
    }
}

#[test]
fn an_input_that_does_not_come_is_not_looked_for_without_a_pause() {
    let rules = Rules { settle: Duration::from_millis(1), catch_up_days: 0, ..nightly() };
    let mut world =
        World::new("2026-11-20T02:00:00Z", |_, _| Found::Nothing, |_, _| Outcome::Published);
    world.run(&rules, "2026-11-20T02:01:00Z");
    assert!(world.checks <= 61, "{} checks in a minute", world.checks);
}

#[test]
fn a_run_is_seen_to_be_late_also_without_days_to_catch_up() {
    let expression = "50 23 * * *".parse().unwrap();
    let rules = Rules { expression, catch_up_days: 0, ..nightly() };
    let late = |now: &str| -> Vec<bool> {
        let open = rules.open(at(now), &Observed::default());
        open.into_iter().map(|open| open.is_late).collect()
    };
    assert!(late("2026-11-20T23:49:00Z").is_empty());
    assert_eq!(late("2026-11-21T00:10:00Z"), [false], "midnight does not end it");
    assert_eq!(late("2026-11-21T03:51:00Z"), [true]);
    assert!(late("2026-11-21T04:51:00Z").is_empty(), "an hour after its deadline");
}
