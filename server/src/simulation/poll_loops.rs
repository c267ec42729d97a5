//! Each filter has its own loop: no reload of one filter, and no fault of it, delays another.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::blobs::{Kind, made, user};
use super::flaky_store::Fault;
use super::outages::{MAX_POLL_PAUSE, Scene, answers, play, reload};
use super::process::Process;
use crate::status::{ReloadOutcome, State};
use crate::{FilterConfig, Guard, Verdict};

const HOUR: Duration = Duration::from_secs(3600);

/// The scene with a second filter next to `rt`, with this fault.
fn with_other_filter(mut scene: Scene, fault: Fault) -> Scene {
    scene.config.filters.push(FilterConfig::new("other".parse().unwrap()));
    scene.store.set_fault_of("other", fault);
    scene
}

#[test]
fn no_filter_waits_for_another_whatever_ails_that() {
    for fault in [
        Fault::Hangs,
        Fault::Fails,
        Fault::Forbids,
        Fault::Slow(Duration::from_secs(290)),
        Fault::None,
    ] {
        play(|scene| async move {
            let scene = with_other_filter(scene, fault);
            let process = scene.settled().await;
            // By a poll, and at once by a reload, also during a reload of the other filter and of
            // all.
            scene.publish(0, made(0, Kind::Good)).await;
            sleep(MAX_POLL_PAUSE).await;
            assert_eq!(answers(&process), Some(made(0, Kind::Good).key.digest), "{fault:?}");
            let other = Some("other".parse().unwrap());
            let (one, all) =
                (process.request_reload_of(other, false), process.request_reload(false));
            scene.publish(0, made(0, Kind::Mended)).await;
            let began = Instant::now();
            let own = process.request_reload_of(Some("rt".parse().unwrap()), false).await.unwrap();
            assert_eq!(own.len(), 1);
            assert_eq!(answers(&process), Some(made(0, Kind::Mended).key.digest), "{fault:?}");
            assert!(began.elapsed() < Duration::from_secs(1), "{fault:?}: {:?}", began.elapsed());
            assert_eq!((one.await.unwrap().len(), all.await.unwrap().len()), (1, 2));
            // For a month it is polled as if it were alone.
            let (polls, began) = (scene.store.polls_of("rt"), Instant::now());
            sleep(30 * 24 * HOUR).await;
            let polls = (scene.store.polls_of("rt") - polls) as f64;
            let due = began.elapsed().as_secs_f64() / 600.0;
            assert!((polls / due - 1.0).abs() < 0.01, "{fault:?}: {polls} polls of {due}");
        });
    }
}

#[test]
fn reloads_of_one_filter_put_off_no_other_and_no_hold() {
    play(|scene| async move {
        let scene = with_other_filter(scene, Fault::None);
        let process = scene.settled().await;
        let polls = scene.store.polls_of("rt");
        for _ in 0..24 * 60 {
            drop(process.request_reload_of(Some("other".parse().unwrap()), false));
            sleep(Duration::from_secs(60)).await;
        }
        let polls = scene.store.polls_of("rt") - polls;
        assert!((140..150).contains(&polls), "{polls}");
    });
}

#[test]
fn a_thousand_servers_that_start_at_once_are_spread_over_the_interval_from_the_second_poll_on() {
    const SERVERS: u64 = 1_000;
    play(|scene| async move {
        let first = scene.settled().await;
        drop(first);
        let before = scene.store.polls_of("rt");
        let fleet: Vec<Process> = (0..SERVERS).map(|_| scene.start()).collect();
        sleep(Duration::from_secs(1)).await;
        assert!(fleet.iter().all(|process| answers(process).is_some()));
        let mut polls = scene.store.polls_of("rt");
        // Perhaps some polled again within that second.
        assert!((SERVERS..SERVERS + 10).contains(&(polls - before)), "{}", polls - before);
        for minute in 0..20 {
            sleep(Duration::from_secs(60)).await;
            let new = scene.store.polls_of("rt") - polls;
            polls += new;
            // A tenth each minute, with five standard deviations.
            assert!((52..148).contains(&new), "{new} polls in minute {minute}");
        }
    });
}

#[test]
fn a_missing_filter_is_polled_for_less_and_less_often_and_found_within_a_part_of_the_time() {
    play(|scene| async move {
        let process = scene.start();
        let (began, mut before) = (Instant::now(), 0);
        for (after, most) in [(60, 13), (600, 40), (3_600, 60), (86_400, 210), (7 * 86_400, 1_080)]
        {
            sleep(Duration::from_secs(after) - began.elapsed()).await;
            let polls = scene.store.polls_of("rt");
            assert!(polls > before && polls <= most, "{polls} polls in {after} s");
            before = polls;
        }
        drop(process);
        let process = scene.start();
        sleep(HOUR).await;
        scene.publish(7, made(7, Kind::Good)).await;
        sleep(Duration::from_secs(480)).await;
        assert_eq!(process.status().state, State::Ok);
    });
}

#[test]
fn each_of_several_damaged_blobs_is_fetched_once_also_as_a_stopgap() {
    play(|scene| async move {
        for n in -2..=0 {
            scene.damage(made(n, Kind::Good)).await;
            scene.point(n, &made(n, Kind::Good).key).await;
        }
        let process = scene.start();
        sleep(HOUR).await;
        let (rejected, reads) = (process.status().counts.loads_rejected, scene.store.blob_reads());
        assert_eq!(rejected, 3, "{:?}", process.status());
        sleep(24 * HOUR).await;
        assert_eq!(scene.store.blob_reads(), reads);
        // A reload by an operator tries it again, and the older days that may replace it.
        scene.upload(made(-1, Kind::Good)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_eq!(answers(&process), Some(made(-1, Kind::Good).key.digest));
        // A build that uploads the newest again is enough.
        let reads = scene.store.blob_reads();
        sleep(24 * HOUR).await;
        assert_eq!(scene.store.blob_reads(), reads);
        scene.upload(made(0, Kind::Good)).await;
        sleep(HOUR).await;
        assert_eq!(answers(&process), Some(made(0, Kind::Good).key.digest));
    });
}

/// A server that holds a day of unknown users back for an hour.
async fn holding(scene: &mut Scene) -> Process {
    scene.config.filters[0].guard = Guard::Hold;
    scene.config.filters[0].guard_max_hold = HOUR;
    let process = scene.settled().await;
    let ids: Vec<_> = (0..2_000).map(user).collect();
    process.sample_lookups(&ids);
    scene.publish(0, made(0, Kind::Strangers)).await;
    assert_eq!(reload(&process).await, ReloadOutcome::Held);
    process
}

#[test]
fn a_hold_ends_on_time_whatever_ails_the_store() {
    let skies = [
        Fault::None,
        Fault::Fails,
        Fault::Forbids,
        Fault::Hangs,
        Fault::Slow(Duration::from_secs(299)),
    ];
    for fault in skies {
        play(|mut scene| async move {
            let process = holding(&mut scene).await;
            scene.store.set_fault(fault);
            sleep(HOUR - Duration::from_secs(5)).await;
            assert!(process.status().held, "{fault:?}: it ended early");
            sleep(Duration::from_secs(10)).await;
            let status = process.status();
            assert!(!status.held, "{fault:?}: {status:?}");
            assert_eq!(status.digest, Some(made(0, Kind::Strangers).key.digest));
            assert_eq!(status.judged.unwrap().verdict, Verdict::Overdue);
            let well = fault == Fault::None;
            sleep(Duration::from_secs(300)).await;
            let state = if well { State::Ok } else { State::Failing };
            assert_eq!(process.status().state, state, "{fault:?}");
            // It stays, and is not judged again.
            scene.store.set_fault(Fault::None);
            sleep(MAX_POLL_PAUSE * 2).await;
            let status = process.status();
            assert_eq!(status.digest, Some(made(0, Kind::Strangers).key.digest));
            assert_eq!(status.counts.verdicts[Verdict::Overdue as usize], 1);
        });
    }
}

#[test]
fn a_rollback_of_a_held_day_just_before_its_hold_ends_is_followed() {
    play(|mut scene| async move {
        let process = holding(&mut scene).await;
        sleep(HOUR - Duration::from_secs(2)).await;
        scene.point(0, &made(-1, Kind::Good).key).await;
        sleep(Duration::from_secs(60)).await;
        let status = process.status();
        assert_eq!(status.digest, Some(made(-1, Kind::Good).key.digest));
        assert!(!status.held && status.judged.is_none(), "{status:?}");
    });
}

#[test]
fn a_hold_that_ends_for_want_of_the_blob_is_reported_no_more() {
    play(|mut scene| async move {
        let process = holding(&mut scene).await;
        let missing = made(0, Kind::OtherStrangers);
        scene.point(0, &missing.key).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Failed);
        let status = process.status();
        assert!(!status.held && status.judged.is_none(), "{status:?}");
    });
}
