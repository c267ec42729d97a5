//! The daily loop on one store: two days are published, served, rolled back and pinned.

use crate::backend::Backend;
use crate::daemon::Daemon;
use crate::input::{today, user};
use crate::publisher::Publisher;

/// Publishes yesterday and the day before, and yesterday again, which changes nothing. User 2,500
/// is in yesterday's filter only.
pub fn publish_two_days(backend: &Backend) {
    Publisher::days_ago(backend, 2).users(0..2_000).publish();
    let report = Publisher::days_ago(backend, 1).users(0..3_000).run().expect(0).json();
    assert_eq!(report["outcome"], "published");
    let again = Publisher::days_ago(backend, 1).users(0..3_000).run().expect(0).json();
    assert_eq!(again["outcome"], "unchanged");
    let check = backend.bloomsday(&["config", "check"]).run().expect(0);
    assert!(check.stdout.contains("honoured"), "{}", check.stdout);
}

/// Serves what [`publish_two_days`] published, rolls it back, and pins it for a while.
pub fn serve_and_roll_back(backend: &Backend) {
    let daemon = Daemon::ready(backend, &[]);
    assert!(daemon.contains(&user(2_500)));
    let (day, before) = (today().minus(1).to_string(), today().minus(2).to_string());
    backend.bloomsday(&["repoint", "rt", &day, "--to", &before]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert_eq!(daemon.status()["state"], "rolled_back");
    assert!(!daemon.contains(&user(2_500)));
    let trace = backend.bloomsday(&["trace", "rt", &user(2_500)]).run().expect(0).stdout;
    assert_eq!(trace.matches("\"contains\":true").count(), 1, "{trace}");
    backend.bloomsday(&["pin", "rt", "--to", &day]).run().expect(0);
    assert_eq!(daemon.reload("").0, 200);
    assert!(daemon.contains(&user(2_500)));
    backend.bloomsday(&["unpin", "rt"]).run().expect(0);
}
