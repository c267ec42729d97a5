//! Pointer, pin and history record. The first byte chooses which.

#![no_main]

use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::pointer::{HistoryEvent, Pin, Pointer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let rt: FilterName = "rt".parse().expect("a filter");
    let roots =
        ["s3://ads/prod".to_owned(), "/srv/store".to_owned(), "file:///srv/store/".to_owned()];
    match kind % 3 {
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
