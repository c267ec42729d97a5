//! The configuration file: read, or refused in one line without the password of an address in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../jobs/src/scheduling/cron.rs"]
#[allow(dead_code)]
mod cron;

#[path = "../../jobs/src/size.rs"]
#[allow(dead_code)]
mod size;

mod scheduling {
    pub(crate) use crate::cron;
}

#[rustfmt::skip] // it is formatted where it belongs
#[path = "../../jobs/src/config/file.rs"]
#[allow(dead_code)]
mod file;

fuzz_target!(|text: &str| {
    match file::parse(text) {
        Ok(file) => file.filters.iter().for_each(|(name, filter)| {
            assert!(name.as_str().len() <= 64);
            // Says yes or no to whatever numbers came.
            let _ = filter.gates.check();
        }),
        Err(why) => {
            assert!(why.starts_with("line ") || why.starts_with("filters."), "{why}");
            assert!(!why.contains(char::is_control), "{why:?}");
            assert!(why.len() < 2_000, "{} bytes", why.len());
        }
    }
});
