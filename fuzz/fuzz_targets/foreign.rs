//! Files of Guava and Spark: whatever is imported answers, and is the same file again. The first
//! byte chooses the system.

#![no_main]

use bloomsday_common::blob;
use bloomsday_common::memory::Buffer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((system, bytes)) = input.split_first() else { return };
    let mut file = Buffer::zeroed(bytes.len()).expect("a small buffer");
    file.copy_from_slice(bytes);
    let imported = match system % 2 {
        0 => blob::import_guava(file),
        _ => blob::import_spark(file),
    };
    match imported {
        Ok(filter) => {
            assert_eq!(filter.body(), bytes);
            assert!(filter.count_ones() <= filter.shape().bits());
            let mut answers = [false; 3];
            let ids = ["", "a", "user-1"];
            filter.contains_batch(&ids, &mut answers);
            assert!(ids.iter().zip(answers).all(|(id, one)| filter.contains(id.as_bytes()) == one));
        }
        Err(why) => assert!(why.len() < 1_000 && !why.contains(char::is_control), "{why:?}"),
    }
});
