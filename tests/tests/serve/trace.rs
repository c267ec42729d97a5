//! `bloomsday trace`: which of the last days hold an ID, on every kind of store.

use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::{self, today, user};
use bloomsday_tests::publisher::Publisher;
use serde_json::Value;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_day_answers_for_itself_with_its_measured_rate() {
    for backend in Backend::all() {
        Publisher::days_ago(&backend, 1).users(0..2_000).with(&["--fpp", "0.001"]).publish();
        Publisher::days_ago(&backend, 2).users(1_000..3_000).with(&["--fpp", "0.001"]).publish();
        Publisher::days_ago(&backend, 3).users(0..1_000).with(&["--fpp", "0.001"]).publish();
        Publisher::days_ago(&backend, 20).users(0..3_000).with(&["--fpp", "0.001"]).publish();
        let said = lines(&backend.bloomsday(&["trace", "rt", &user(1_500)]).run().expect(0).stdout);
        let contains: Vec<bool> =
            said.iter().filter_map(|line| line["contains"].as_bool()).collect();
        assert_eq!(contains, [true, true, false], "the newest day comes first: {said:?}");
        let summary = &said[3];
        assert_eq!((&summary["days_searched"], &summary["days_found"]), (&3.into(), &2.into()));
        // Three chances of about 0.001, and two hits.
        let chance = summary["max_chance_if_absent"].as_f64().unwrap();
        assert!((0.0008..0.002).contains(&chance), "{chance}");
        let fpp = said[0]["false_positive"].as_f64().unwrap();
        assert!((0.0005..0.0013).contains(&fpp), "{fpp}");
        let many = ["trace", "rt", &user(1_500), "--days", "30"];
        assert_eq!(lines(&backend.bloomsday(&many).run().expect(0).stdout).len(), 5);
        backend.bloomsday(&["trace", "rt", "nobody at all", "--days", "3"]).run().expect(3);
        // An older name of the command.
        backend.bloomsday(&["why", "other", "x"]).run().expect(4);
        backend.bloomsday(&["trace", "rt", "x", "--days", "0"]).run().expect(2);
    }
}

#[test]
fn days_with_most_ids_in_common_have_false_positives_in_common_and_the_chance_allows_for_it() {
    const ABSENT: usize = 1_000;
    let backend = Backend::local();
    for days in 1..=3 {
        // 1 % of the IDs are others than on the day before.
        let users = u64::from(20 * days)..u64::from(20 * days) + 2_000;
        Publisher::days_ago(&backend, days).users(users).with(&["--fpp", "0.05"]).publish();
    }
    let absent: Vec<String> = (0..ABSENT).map(|n| format!("absent {n}")).collect();
    let answers = backend.answers(&input::lines(absent.iter().cloned()));
    let hits = absent.iter().zip(answers).filter(|(_, hit)| *hit);
    let trace = |id: &str| backend.bloomsday(&["trace", "rt", id]).run().expect(0).stdout;
    let traces = hits.map(|(id, _)| lines(&trace(id)).remove(3));
    let on_all_days: Vec<Value> = traces.filter(|summary| summary["days_found"] == 3).collect();
    let share = on_all_days.len() as f64 / ABSENT as f64;
    let chance = on_all_days[0]["max_chance_if_absent"].as_f64().unwrap();
    // 0.04 at most, and at the most 0.07 with the luck of a thousand.
    assert!((0.01..0.07).contains(&share) && (0.03..0.06).contains(&chance), "{share}, {chance}");
}

#[test]
fn a_chance_that_no_sample_can_show_is_not_zero() {
    let backend = Backend::local();
    let rare = ["--layout", "guava", "--fpp", "1e-9"];
    Publisher::days_ago(&backend, 1).users(0..2_000).with(&rare).publish();
    let trace = backend.bloomsday(&["trace", "rt", &user(1)]);
    let days = lines(&trace.run().expect(0).stdout);
    for (day, field) in [(0, "false_positive"), (1, "max_chance_if_absent")] {
        let chance = days[day][field].as_f64().unwrap();
        assert!((1e-10..1e-5).contains(&chance), "{chance}");
    }
}

#[test]
fn a_rolled_back_day_is_searched_in_its_own_blob_and_a_damaged_one_hides_no_other() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..2_000).with(&["--fpp", "0.001"]).publish();
    Publisher::days_ago(&backend, 2).users(5_000..6_000).with(&["--fpp", "0.001"]).publish();
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    let said = lines(&backend.bloomsday(&["trace", "rt", &user(10)]).run().expect(0).stdout);
    assert_eq!((&said[0]["contains"], &said[0]["rolled_back"]), (&true.into(), &true.into()));

    let blobs = std::path::Path::new(&backend.store).join("rt/blobs");
    let mut newest = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.find(|path| path.display().to_string().contains(&day)).unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let said = lines(&backend.bloomsday(&["trace", "rt", &user(5_010)]).run().expect(0).stdout);
    assert!(said[0]["error"].as_str().unwrap().contains("damaged"), "{said:?}");
    assert_eq!(said[1]["contains"], true);
    let counts = ["days_searched", "days_found", "days_unreadable"].map(|name| &said[2][name]);
    assert_eq!(counts, [&Value::from(1), &1.into(), &1.into()], "{said:?}");
    let words = ["trace", "rt", &user(5_010), "--store", &backend.store];
    let page = bloomsday_tests::program::bloomsday(&words).run().expect(0).stdout;
    assert!(page.contains("1 of 1 days contain it"), "{page}");
    assert!(page.contains("1 of 2 days could not be read."), "{page}");
}
