//! A disk that is full while clients add: no acknowledged ID is lost, and when there is space again
//! adds go on.

use bloomsday_tests::campaign::{Campaign, size};
use bloomsday_tests::live::{LiveDaemon, Wire};
use bloomsday_tests::wait::until;
use tempfile::TempDir;

/// So many IDs are added at once: frames of a length that ends anywhere in the last block.
const AT_ONCE: usize = 17;
/// How long the log's file may be while the disk is full.
const FULL: &str = "65536";

/// Adds new IDs, and keeps those that are acknowledged. Returns an error's text.
fn add(wire: &mut Wire, next: &mut u32, acknowledged: &mut Vec<String>) -> Option<String> {
    let ids: Vec<String> = (0..AT_ONCE as u32).map(|n| format!("id-{}", *next + n)).collect();
    *next += AT_ONCE as u32;
    let reply = wire.call(&format!("BF.MADD f {}", ids.join(" ")));
    if reply == format!("*{AT_ONCE}|{}", ":1|".repeat(AT_ONCE)) {
        acknowledged.extend(ids);
        return None;
    }
    Some(reply)
}

#[test]
fn a_full_disk_refuses_adds_loses_none_and_is_forgotten_when_there_is_space() {
    for ack in ["synced", "written"] {
        let (clock, times) = (Campaign::new(&format!("full disk, {ack}")), size(2, 50));
        let (folder, mut acknowledged, mut next) = (TempDir::new().unwrap(), Vec::new(), 0);
        let mut refused = 0;
        for time in 0..times {
            let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
            let mut wire = daemon.connect();
            // The torn frame is at another place each time.
            for _ in 0..=time % 7 {
                assert_eq!(add(&mut wire, &mut next, &mut acknowledged), None);
            }
            daemon.limit_files(FULL);
            let error = (0..10_000).find_map(|_| add(&mut wire, &mut next, &mut acknowledged));
            let error = error.expect("the disk is full at last");
            assert!(error.contains("-MISCONF "), "{ack}: {error}");
            for _ in 0..20 {
                refused += u32::from(add(&mut wire, &mut next, &mut acknowledged).is_some());
            }
            assert_eq!(wire.call(&format!("BF.EXISTS f {}", acknowledged[0])), ":1|");
            wire.call("MULTI");
            assert!(wire.call("DEL f").starts_with("-MISCONF "), "{ack}");
            let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
            assert_eq!(wire.call("EXEC"), aborted);
            daemon.limit_files("unlimited");
            until("adds are taken again", || {
                let error = add(&mut wire, &mut next, &mut acknowledged);
                error.is_none().then_some(())
            });
            daemon.kill();
        }
        assert!(refused > 0, "no add was refused");
        let daemon = LiveDaemon::on(folder.path(), &["--ack", ack]);
        let mut wire = daemon.connect();
        for id in &acknowledged {
            assert_eq!(wire.call(&format!("BF.EXISTS f {id}")), ":1|", "{ack}: {id} is lost");
            assert_eq!(wire.call(&format!("BF.ADD f {id}")), ":0|", "{ack}: {id} is new again");
        }
        clock.passed(&format!("{times} times"), "no acknowledged ID lost, no second \"new\"");
    }
}
