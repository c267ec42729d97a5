//! The daily loop on Google Cloud Storage, as fake-gcs-server implements it; also killed in the
//! middle of it.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::daily::{publish_two_days, serve_and_roll_back};
use bloomsday_tests::gcs::Gcs;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::kill_point::with_fault_at;
use bloomsday_tests::program::Run;
use bloomsday_tests::publisher::Publisher;

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn days_are_built_served_rolled_back_explained_and_pruned() {
    let gcs = Gcs::start();
    let backend = gcs.backend("ads");
    for back in [30, 4, 3] {
        Publisher::days_ago(&backend, back).users(0..2_500).publish();
    }
    publish_two_days(&backend);
    serve_and_roll_back(&backend);

    let pruned = backend.bloomsday(&["prune", "rt"]).run().expect(0).json();
    assert_eq!(pruned["pointers"][0], today().minus(30).to_string(), "{pruned}");
    let again = backend.bloomsday(&["prune", "rt"]).run().expect(0).json();
    assert_eq!(again["pointers"].as_array().map(Vec::len), Some(0), "{again}");
}

/// Looks an ID up in what the store points at.
fn query(backend: &Backend, n: u64) -> Run {
    backend.bloomsday(&["query", "rt", &user(n)]).run()
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_outlives_a_server_that_is_killed_and_started_again() {
    let mut gcs = Gcs::start();
    let backend = gcs.backend("ads");
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    for (place, users) in [("scanned", 1_100), ("uploaded", 1_200), ("verified", 1_300)] {
        let build = Publisher::days_ago(&backend, 0).users(0..users);
        let (code, said) = with_fault_at(place, build.prepare(), |go_on| {
            gcs.kill();
            // It meets nobody, and tries again.
            go_on();
            gcs.again();
        });
        assert_eq!(code, Some(0), "{place}: {said}");
        query(&backend, users - 1).expect(0);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_is_patient_with_a_server_that_has_too_many_requests() {
    let mut gcs = Gcs::start();
    let backend = gcs.backend("ads");
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let build = Publisher::days_ago(&backend, 0).users(0..1_100);
    let (code, said) = with_fault_at("uploaded", build.prepare(), |go_on| gcs.throttle(6, go_on));
    assert_eq!(code, Some(0), "{said}");
    query(&backend, 1_099).expect(0);
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_build_whose_server_stays_away_moves_no_pointer_and_the_next_one_does() {
    let mut gcs = Gcs::start();
    // So large that its blob is uploaded in parts.
    let large = ["--layout", "guava", "--fpp", "1e-9", "--accept-change", "a test"];
    for (place, users) in [("part-uploaded", 1_700_000), ("recorded", 1_200)] {
        let backend = gcs.backend(place);
        Publisher::days_ago(&backend, 1).users(0..1_000).publish();
        let build = Publisher::days_ago(&backend, 0).users(0..users);
        let build = if place == "part-uploaded" { build.with(&large) } else { build };
        let (code, said) = with_fault_at(place, build.prepare(), |go_on| {
            gcs.kill();
            go_on();
        });
        assert_eq!(code, Some(75), "{place}: {said}");
        gcs.again();
        query(&backend, users - 1).expect(3);
        build.publish();
        query(&backend, users - 1).expect(0);
    }
}

#[test]
#[cfg_attr(not(feature = "integration"), ignore = "needs servers or tools: tests/run.sh")]
fn a_server_of_lookups_answers_while_the_store_is_away() {
    let mut gcs = Gcs::start();
    let backend = gcs.backend("ads");
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let daemon = Daemon::ready(&backend, &["--poll-interval", "20ms"]);
    gcs.kill();
    daemon.until("it noticed", |daemon| daemon.status()["state"] == "failing");
    assert!((0..1_000).all(|n| daemon.contains(&user(n))));
    gcs.again();
    Publisher::days_ago(&backend, 0).users(0..1_100).publish();
    daemon.until("it follows", |daemon| daemon.status()["state"] == "ok");
    daemon.until("it swapped", |daemon| daemon.contains(&user(1_099)));
}
