//! Pointer, pin, history record, and a live log's lease and head. The first byte chooses which.

#![no_main]

use std::time::Duration;

use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::live::head::Head;
use bloomsday_common::live::lease::{Candidate, Claim, Lease, claim};
use bloomsday_common::pointer::{HistoryEvent, Pin, Pointer};
use bloomsday_common::protocol::RecordState;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let rt: FilterName = "rt".parse().expect("a filter");
    let roots =
        ["s3://ads/prod".to_owned(), "/srv/store".to_owned(), "file:///srv/store/".to_owned()];
    match kind % 5 {
        0 => match Pointer::parse(bytes, &rt, &roots) {
            Ok(pointer) => {
                stays_inside(&pointer.blob);
                pointer.previous.iter().for_each(stays_inside);
                assert_eq!((pointer.day, pointer.digest), (pointer.blob.day, pointer.blob.digest));
                assert_eq!(Pointer::parse(&pointer.to_bytes(), &rt, &roots), Ok(pointer));
            }
            Err(why) => fits_a_message(&why),
        },
        1 => match Pin::parse(bytes, &rt, &roots) {
            Ok(pin) => {
                stays_inside(&pin.blob);
                assert_eq!(Pin::parse(&pin.to_bytes(), &rt, &roots), Ok(pin));
            }
            Err(why) => fits_a_message(&why),
        },
        3 => match Lease::parse(bytes) {
            Ok(lease) => {
                assert_eq!(Lease::parse(&lease.to_bytes()), Ok(lease.clone()));
                // A server that is not its holder waits, or has a later epoch; at the last there is
                // no later one.
                let by =
                    Candidate { node: "of nobody", own_epoch: None, unchanged: Duration::ZERO };
                let (until, epoch) = (lease.until, lease.epoch);
                match claim(&RecordState::Found(lease), by, until) {
                    Claim::Write { epoch: next } => assert!(next > epoch || next == u64::MAX),
                    Claim::Wait(_) => {}
                }
            }
            Err(why) => fits_a_message(&why),
        },
        4 => match Head::parse(bytes) {
            Ok(head) => assert_eq!(Head::parse(&head.to_bytes()), Ok(head)),
            Err(why) => fits_a_message(&why),
        },
        _ => match HistoryEvent::parse(bytes) {
            // A rate that is no number does not equal itself; its bytes do.
            Ok(event) => {
                let again = HistoryEvent::parse(&event.to_bytes());
                assert_eq!(again.expect("our own record").to_bytes(), event.to_bytes());
            }
            Err(error) => fits_a_message(&error.to_string()),
        },
    }
});

/// Whatever a record says, it names something in its own filter's folder.
fn stays_inside(blob: &BlobKey) {
    let key = blob.to_string();
    let name = key.strip_prefix("rt/blobs/").expect("outside the filter's folder");
    assert!(!name.contains(['/', '\\', '%']) && !name.contains(".."), "{key}");
}

fn fits_a_message(why: &str) {
    assert!(why.len() < 4_000, "{} bytes", why.len());
    assert!(!why.contains(char::is_control), "{why:?}");
}
