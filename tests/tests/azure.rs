//! The daily loop on Azure Blob Storage, as azurite implements it.

use std::process::Stdio;

use bloomsday_tests::azure::Azure;
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user, write_users};

fn words(backend: &Backend, back: u32, users: std::ops::Range<u64>) -> Vec<String> {
    let folder = backend.folder.path().join(format!("in-{back}-{}", users.end));
    write_users(&folder.join("a.parquet"), users);
    let (day, input) = (today().minus(back).to_string(), folder.display().to_string());
    let words = ["build", "rt", "--day", &day, "--input", &input, "--column", "device_id"];
    words.map(str::to_owned).into()
}

#[test]
fn days_are_built_served_rolled_back_and_explained() {
    let azure = Azure::start();
    let backend = azure.backend("ads");
    backend.bloomsday(&words(&backend, 2, 0..2_000)).run().expect(0);
    let report = backend.bloomsday(&words(&backend, 1, 0..3_000)).run().expect(0).json();
    assert_eq!(report["outcome"], "published");
    let again = backend.bloomsday(&words(&backend, 1, 0..3_000)).run().expect(0).json();
    assert_eq!(again["outcome"], "unchanged");
    let check = backend.bloomsday(&["config", "check"]).run().expect(0);
    assert!(check.stdout.contains("honoured"), "{}", check.stdout);

    let daemon = Daemon::ready(&backend, &[]);
    assert!(daemon.seen(&user(2_500)));
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "rolled_back");
    assert!(!daemon.seen(&user(2_500)));
    let why = backend.bloomsday(&["why", "rt", &user(2_500)]).run().expect(0).stdout;
    assert_eq!(why.matches("\"seen\":true").count(), 1, "{why}");
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.seen(&user(2_500)));
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
}

#[test]
fn of_builds_that_race_for_a_day_none_overwrites_another() {
    let azure = Azure::start();
    let backend = azure.backend("race");
    let racing: Vec<_> = (0..3)
        .map(|n| backend.bloomsday(&words(&backend, 1, 0..20_000 + n)).into_command())
        .map(|mut command| {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let ended: Vec<_> = racing.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let codes: Vec<Option<i32>> = ended.iter().map(|ended| ended.status.code()).collect();
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 5))), "{codes:?}");
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(5)), "they never met: {codes:?}");
}
