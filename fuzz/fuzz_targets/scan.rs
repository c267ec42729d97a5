//! Parquet files. The first bytes write a file with a footer that parses and pages that hold what
//! it says; the others forge a few of its fields and bytes. So executions reach every decoder,
//! where bytes by chance would end at the first header.

#![no_main]

#[path = "scan/parquet.rs"]
mod parquet;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use bloomsday_builder::fuzzing::read;
use bloomsday_builder::scan::ScanBudget;
use libfuzzer_sys::fuzz_target;

/// Single allocations are bounded by run.sh at a multiple of it.
const BUDGET: ScanBudget = ScanBudget { in_flight: 1 << 20, unpacked: 16 << 20, footers: 16 << 20 };

fuzz_target!(|input: &[u8]| {
    static HOOK: Once = Once::new();
    // A panic in the decoders of others is an error of the file, and caught. Our own parsers have
    // none.
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map_or("", |at| at.file()).to_owned();
            if !["/parquet-", "/arrow-"].iter().any(|theirs| place.contains(theirs)) {
                eprintln!("{panic}");
                std::process::abort();
            }
        }));
    });
    let file = parquet::write(input);
    let mut ids = Vec::new();
    let most = if input.first().is_some_and(|byte| byte % 2 == 0) { 1 << 20 } else { 1 };
    let scan = || read(&file.bytes, file.column, BUDGET, most, |id| ids.push(id.to_vec()));
    let Ok(scanned) = catch_unwind(AssertUnwindSafe(scan)) else { return };
    match scanned {
        Ok(counts) => {
            assert_eq!(counts.rows, counts.nulls + counts.invalid + ids.len() as u64);
            if !file.is_forged {
                assert_eq!(ids, file.ids, "an ID was lost");
                assert_eq!(counts.rows, file.rows);
            }
        }
        Err(error) => {
            let why = error.to_string();
            assert!(why.contains("fuzzed") && why.len() < 8_000, "{why}");
            assert!(file.is_forged, "refused what is sound: {why}");
        }
    }
});
