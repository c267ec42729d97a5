//! The guard and the pin from outside: over HTTP, in the metrics, in the configuration. What
//! the guard decides, case by case, is in the server's own tests.

use std::fs;
use std::path::PathBuf;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::publisher::Publisher;

/// A store with yesterday's users 0..100,000, and the pointer of a day of strangers, not yet there.
fn before_a_bad_day(backend: &Backend) -> (String, PathBuf, Vec<u8>) {
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    // The bad day first: with yesterday there, the build would see what is wrong with it.
    Publisher::day(backend, &day).users(5_000_000..5_100_000).publish();
    let pointer = PathBuf::from(&backend.store).join("rt/pointers").join(&day);
    let bytes = fs::read(&pointer).unwrap();
    fs::remove_file(&pointer).unwrap();
    Publisher::day(backend, &before).users(0..100_000).publish();
    (before, pointer, bytes)
}

fn configured(backend: &Backend, settings: &str) -> String {
    let file = backend.folder.path().join("bloomsday.toml");
    fs::write(&file, format!("[filters.rt]\n{settings}\n")).unwrap();
    file.display().to_string()
}

/// Makes enough lookups for the guard: half of them hits yesterday, and half of any thousand in a
/// row, too.
fn look_up(daemon: &Daemon) {
    let mixed = (0..100_000).map(|n| 50_000 + n * 7_919 % 100_000);
    let ids: String = mixed.map(|n| user(n) + "\n").collect();
    for _ in 0..3 {
        assert_eq!(daemon.post("/v1/filters/rt/query", ids.as_bytes()).status, 200);
    }
}

#[test]
fn a_bad_day_is_held_with_409_reported_everywhere_and_forced_by_an_operator() {
    let backend = Backend::local();
    let (before, pointer, bytes) = before_a_bad_day(&backend);
    let config = configured(&backend, "guard = \"hold\"\nguard_max_hold = \"2h\"");
    let daemon = Daemon::ready(&backend, &["--config", &config]);
    assert_eq!(daemon.status()["guard"], "hold");
    assert!(daemon.status()["judged"].is_null());
    look_up(&daemon);
    fs::write(&pointer, &bytes).unwrap();

    let (code, body) = daemon.reload("?filter=rt");
    let rt = &body["filters"]["rt"];
    assert_eq!((code, &rt["outcome"]), (409, &"held".into()), "{body}");
    assert_eq!(rt["old"], rt["new"]);
    let reason = rt["reason"].as_str().unwrap();
    let status = daemon.status();
    assert_eq!((&status["state"], &status["day"]), (&"held".into(), &before.into()));
    assert_eq!((&status["held"], &status["judged"]["verdict"]), (&true.into(), &"held".into()));
    let ratio = |side: &str| status["judged"][side].as_f64().unwrap();
    // Half were known, and of the others the filter knows 3 %; four standard deviations of a
    // thousand.
    let old = ratio("hit_ratio_old");
    assert!((0.45..0.58).contains(&old), "{status}");
    assert!(reason.contains(&format!("{:.2} %", 100.0 * old)), "no old rate: {reason}");
    assert!(ratio("hit_ratio_new") < 0.06, "{status}");
    assert!(!status["judged"]["held_until"].is_null());
    assert!(daemon.contains(&user(1)));
    let metrics = daemon.get("/metrics").body;
    for line in [
        "bloomsday_guard_held{filter=\"rt\"} 1",
        "bloomsday_guard_hit_ratio{filter=\"rt\",side=\"old\"} 0.",
        "bloomsday_guard_hit_ratio{filter=\"rt\",side=\"new\"} 0.0",
        "bloomsday_guard_verdicts_total{filter=\"rt\",verdict=\"held\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    for page in [&metrics, &daemon.get("/status").body, &daemon.get("/").body] {
        assert!(
            !(50_000..150_000).any(|n| page.contains(&user(n))),
            "an ID of a lookup is reported"
        );
    }

    assert_eq!(daemon.reload("").0, 409, "it is held still");
    let (code, body) = daemon.reload("?filter=rt&force=true");
    assert_eq!((code, &body["filters"]["rt"]["outcome"]), (200, &"swapped".into()), "{body}");
    let status = daemon.status();
    assert_eq!((&status["state"], &status["judged"]["verdict"]), (&"ok".into(), &"forced".into()));
    assert!(daemon.contains(&user(5_000_001)));
    assert_eq!(daemon.reload("?force=perhaps").0, 400);
}

#[test]
fn a_bad_day_is_served_with_a_warning_by_default_and_in_silence_without_a_guard() {
    for (settings, verdict) in [("", "warned".into()), ("guard = \"off\"", serde_json::Value::Null)]
    {
        let backend = Backend::local();
        let (_, pointer, bytes) = before_a_bad_day(&backend);
        let config = configured(&backend, settings);
        let daemon = Daemon::ready(&backend, &["--config", &config]);
        look_up(&daemon);
        fs::write(&pointer, &bytes).unwrap();
        assert_eq!(daemon.reload("").0, 200);
        let status = daemon.status();
        assert_eq!((&status["state"], &status["judged"]["verdict"]), (&"ok".into(), &verdict));
    }
}

#[test]
fn a_pin_shows_its_end_and_reason_and_builds_go_on_under_it() {
    let backend = Backend::local();
    let (before, day) = (today().minus(1).to_string(), today().to_string());
    Publisher::day(&backend, &before).users(0..1_000).publish();
    let daemon = Daemon::ready(&backend, &[]);
    let pin = ["pin", "rt", "--to", &before, "--until", "20h", "--reason", "campaign weekend"];
    backend.bloomsday(&pin).run().expect(0);
    Publisher::day(&backend, &day).users(0..1_100).publish();
    assert_eq!(daemon.reload("").0, 200);
    let status = daemon.status();
    assert_eq!((&status["state"], &status["day"]), (&"pinned".into(), &before.into()));
    assert_eq!(status["pin_reason"], "campaign weekend");
    assert!(status["pin_until"].as_str().unwrap().contains('T'));
    let metrics = daemon.get("/metrics").body;
    let line = "bloomsday_pin_expires_timestamp_seconds{filter=\"rt\"} 1";
    assert!(metrics.contains(line), "no {line} in\n{metrics}");
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    let status = daemon.status();
    assert_eq!((&status["state"], &status["day"]), (&"ok".into(), &day.into()));
    assert!(status["pin_until"].is_null() && status["pin_reason"].is_null());
    assert!(!daemon.get("/metrics").body.contains("bloomsday_pin_expires"));
}
