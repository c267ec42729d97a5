//! The guard on a paused clock: what it compares, what it holds back and for how long.

use std::time::Duration;

use bloomsday_common::pointer::Pin;
use tokio::time::sleep;

use super::blobs::{Kind, made, user};
use super::outages::{MAX_POLL_PAUSE, Scene, fresh, play, reload};
use super::process::Process;
use crate::status::{ReloadOutcome, State};
use crate::{Guard, Verdict};

/// Half of these are users of the month's first days.
fn lookups() -> Vec<[u8; 16]> {
    (0..2_000).map(user).collect()
}

#[test]
fn a_newer_day_whose_hit_rate_differs_too_much_is_swapped_in_with_a_warning() {
    play(|scene| async move {
        let process = scene.settled().await;
        process.sample_lookups(&lookups());
        scene.publish(0, made(0, Kind::Strangers)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        let status = process.status();
        let judged = status.judged.unwrap();
        assert_eq!((judged.verdict, judged.lookups, status.held), (Verdict::Warned, 2_000, false));
        let (old, new) = (judged.hit_ratio_old.unwrap(), judged.hit_ratio_new.unwrap());
        assert!((0.49..0.55).contains(&old) && (0.01..0.06).contains(&new), "{old} {new}");
    });
}

#[test]
fn a_newer_day_like_the_old_one_passes_and_with_few_lookups_there_is_no_verdict() {
    play(|mut scene| async move {
        scene.config.filters[0].guard = Guard::Hold;
        let process = scene.settled().await;
        process.sample_lookups(&lookups()[..999]);
        scene.publish(0, made(0, Kind::Strangers)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        let verdict = |process: &Process| process.status().judged.map(|judged| judged.verdict);
        assert_eq!(verdict(&process), Some(Verdict::TooFewLookups));
        let process = scene.start();
        sleep(Duration::from_secs(1)).await;
        process.sample_lookups(&lookups());
        scene.publish(1, made(1, Kind::Good)).await;
        scene.clock.step(86_400);
        // The same difference in the other direction: from no hit to half of the lookups.
        assert_eq!(reload(&process).await, ReloadOutcome::Held);
        assert_eq!(process.request_reload(true).await.unwrap()[0].outcome, ReloadOutcome::Swapped);
        scene.publish(2, made(2, Kind::Good)).await;
        scene.clock.step(2 * 86_400);
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_eq!(verdict(&process), Some(Verdict::Passed));
    });
}

/// A server with `guard = "hold"` that holds a day of unknown users back.
async fn holding(scene: &mut Scene) -> Process {
    scene.config.filters[0].guard = Guard::Hold;
    let process = scene.settled().await;
    process.sample_lookups(&lookups());
    scene.publish(0, made(0, Kind::Strangers)).await;
    let reloaded = process.request_reload(false).await.unwrap();
    assert_eq!(reloaded[0].outcome, ReloadOutcome::Held);
    let reason = reloaded[0].reason.clone().unwrap();
    assert!(reason.contains("force=true") && reason.contains("2000 recent"), "{reason}");
    let status = process.status();
    assert_eq!((status.state, status.held), (State::Held, true));
    assert_eq!(status.digest, Some(made(-1, Kind::Good).key.digest));
    assert_eq!(status.last_error, None);
    process
}

#[test]
fn a_held_day_is_fetched_once_judged_at_each_poll_and_swapped_in_with_an_alarm_at_the_end() {
    play(|mut scene| async move {
        let process = holding(&mut scene).await;
        let reads = scene.store.blob_reads();
        sleep(Duration::from_secs(5 * 3600)).await;
        let status = process.status();
        assert_eq!(status.state, State::Held);
        assert!(status.counts.verdicts[Verdict::Held as usize] > 20, "{:?}", status.counts);
        let judged = status.judged.unwrap();
        assert_eq!(judged.held_until, judged.held_since.map(|at| at + Duration::from_secs(21_600)));
        sleep(Duration::from_secs(3600) + MAX_POLL_PAUSE).await;
        let status = process.status();
        assert_eq!(status.digest, Some(made(0, Kind::Strangers).key.digest));
        assert_eq!((status.state, status.held), (State::Ok, false));
        assert_eq!(status.judged.unwrap().verdict, Verdict::Overdue);
        assert_eq!(scene.store.blob_reads(), reads, "the held blob was fetched again");
    });
}

#[test]
fn a_blob_an_hour_cannot_freeze_a_server_that_holds() {
    play(|mut scene| async move {
        let process = holding(&mut scene).await;
        for hour in 0..6 {
            sleep(Duration::from_secs(3600)).await;
            let kind = [Kind::OtherStrangers, Kind::Strangers][hour % 2];
            scene.publish(0, made(0, kind)).await;
            sleep(MAX_POLL_PAUSE).await;
            let (held, day) = (process.status().held, process.status().judged.map(|j| j.digest));
            assert!(!held || day == Some(made(0, kind).key.digest), "{:?}", process.status());
        }
        assert!(!process.status().held, "{:?}", process.status());
    });
}

#[test]
fn force_rollbacks_pins_and_blobs_served_before_pass_the_guard() {
    play(|mut scene| async move {
        let (good, strangers) = (made(-1, Kind::Good), made(0, Kind::Strangers));
        let process = holding(&mut scene).await;
        // A rollback of the held day: the current filter is the right one again.
        scene.point(0, &good.key).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Unchanged);
        let status = process.status();
        assert_eq!((status.state, status.held), (State::RolledBack, false));
        assert!(status.judged.is_none(), "a hold that is over is still reported");
        // Forward again: held again; then a pin to it.
        scene.point(0, &strangers.key).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Held);
        let (until, pinned_at, pinned_by) = (None, None, None);
        let reason = Some("we know better".to_owned());
        let pin = Pin { blob: strangers.key.clone(), until, pinned_at, pinned_by, reason };
        scene.store.write("rt/pin", pin.to_bytes()).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        let status = process.status();
        assert_eq!((status.state, status.held), (State::Pinned, false));
        assert_eq!(status.pin_reason.as_deref(), Some("we know better"));
        // Back by a rollback, and forward to a blob that was current before.
        scene.store.remove("rt/pin").await;
        scene.point(0, &good.key).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        scene.point(0, &strangers.key).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);

        let process = holding(&mut Scene { clock: scene.clock.clone(), ..fresh() }).await;
        let forced = process.request_reload(true).await.unwrap();
        assert_eq!(forced[0].outcome, ReloadOutcome::Swapped);
        assert_eq!(process.status().judged.unwrap().verdict, Verdict::Forced);
    });
}
