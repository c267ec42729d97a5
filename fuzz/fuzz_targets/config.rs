//! The configuration file: read, or refused in one line without the password of an address in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../jobs/src/config/file.rs"]
#[allow(dead_code)]
mod file;

fuzz_target!(|text: &str| {
    match file::parse(text) {
        Ok(file) => file.filters.keys().for_each(|name| assert!(name.as_str().len() <= 64)),
        Err(why) => {
            assert!(why.starts_with("line "), "{why}");
            assert!(!why.contains(char::is_control), "{why:?}");
            assert!(why.len() < 2_000, "{} bytes", why.len());
        }
    }
});
