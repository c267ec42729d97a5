//! Memory: reuse of buffers, too little memory, and readers without lookups.

use std::sync::mpsc;

use tokio::time::sleep;

use super::blobs::{Kind, made, user};
use super::outages::{MAX_POLL_PAUSE, answers, error, play, reload};
use super::process::Process;
use crate::handle::tests::ActsWhenRead;
use crate::status::ReloadOutcome;

#[test]
fn a_load_uses_the_memory_of_a_filter_that_nobody_holds_any_more() {
    play(|scene| async move {
        let process = scene.settled().await;
        let place = |process: &Process| {
            process.generation().map(|generation| generation.filter.memory().as_ptr())
        };
        let swap_to = async |kind| {
            scene.publish(0, made(0, kind)).await;
            assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
            place(&process)
        };
        let first = place(&process);
        let second = swap_to(Kind::Good).await;
        assert_ne!(second, first, "the first answered while the second was loaded");
        assert_eq!(swap_to(Kind::Mended).await, first);
        let reader = process.handle().reader();
        assert_eq!(swap_to(Kind::Good).await, second);
        let third = swap_to(Kind::Mended).await;
        assert!(third != first && third != second, "a reader still holds what lies in the first");
        drop(reader);
    });
}

#[test]
fn a_batch_that_outlasts_a_swap_keeps_no_memory_from_the_load_after_it() {
    play(|scene| async move {
        let process = scene.settled().await;
        let place = || process.generation().map(|generation| generation.filter.memory().as_ptr());
        let first = place();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let handle = process.handle();
        let bidder = std::thread::spawn(move || {
            // The ID is read in the middle of the batch, once or more.
            let wait = || {
                begun.send(()).unwrap();
                let _ = wait.recv();
            };
            handle.contains_batch(&[ActsWhenRead(b"user", wait)], &mut [false]);
        });
        has_begun.recv().unwrap();
        scene.publish(0, made(0, Kind::Good)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_ne!(place(), first);
        drop(go_on);
        bidder.join().unwrap();
        scene.publish(0, made(0, Kind::Mended)).await;
        assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
        assert_eq!(
            place(),
            first,
            "the slot of a bidder without further lookups still references it"
        );
    });
}

#[test]
fn too_little_memory_is_a_refusal_before_the_download() {
    play(|scene| async move {
        let process = scene.settled().await;
        let new = made(0, Kind::Good);
        scene.publish(0, new).await;
        process.memory.store(new.bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let reads = scene.store.blob_reads();
        assert_eq!(reload(&process).await, ReloadOutcome::Failed);
        assert_eq!(scene.store.blob_reads(), reads, "it was fetched all the same");
        let status = process.status();
        let (needed, left) = (2 * new.bytes.len(), new.bytes.len());
        let says = [format!("{needed} bytes"), format!("{left} are available")];
        assert!(says.iter().all(|says| error(&status).contains(says)), "{}", error(&status));
        assert!(process.handle().contains(&user(made(-1, Kind::Good).first_user)));
        process.memory.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
        sleep(MAX_POLL_PAUSE).await;
        assert_eq!(answers(&process), Some(new.key.digest));
    });
}

#[test]
fn past_max_generations_a_load_is_refused_naming_the_idle_and_lookups_go_on() {
    play(|scene| async move {
        let mut process = scene.settled().await;
        let handle = process.handle();
        let mut idle = Vec::new();
        assert_eq!(process.alive(), 1);
        for n in 0..2 {
            let handle = handle.clone();
            let named = std::thread::Builder::new().name(format!("bidder-{n}"));
            idle.push(named.spawn(move || handle.reader()).unwrap().join().unwrap());
            scene.publish(0, made(0, [Kind::Good, Kind::Mended][n])).await;
            assert_eq!(reload(&process).await, ReloadOutcome::Swapped);
            assert_eq!(process.alive(), n + 2);
        }
        scene.publish(0, made(0, Kind::Strangers)).await;
        let reads = scene.store.blob_reads();
        assert_eq!(reload(&process).await, ReloadOutcome::Failed);
        assert_eq!(scene.store.blob_reads(), reads);
        let status = process.status();
        let names = ["bidder-0", "bidder-1"].iter().all(|name| error(&status).contains(name));
        assert!(names, "{}", error(&status));
        assert_eq!(process.alive(), 3);
        let first = made(0, Kind::Mended).first_user;
        assert!((first..first + 1_000).all(|n| handle.contains(&user(n))));
        // One looks up an ID, and releases the oldest.
        idle[0].contains(b"x");
        sleep(MAX_POLL_PAUSE).await;
        assert_eq!(answers(&process), Some(made(0, Kind::Strangers).key.digest));
        drop(idle);
        assert_eq!(reload(&process).await, ReloadOutcome::Unchanged);
        assert_eq!(process.alive(), 1);
    });
}
