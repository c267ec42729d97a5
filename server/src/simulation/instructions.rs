//! Counts the instructions of a lookup. On a shared machine the count is stable, and time is not.
//!
//! The test runs this program again under callgrind, which counts what the functions `look_up_…`
//! below execute. Valgrind does not support AVX-512, so the kernel is AVX2's.

use std::process::Command;

use bloomsday_common::filter::Kernel;

use super::process::on_a_paused_clock;
use super::steady_state::{id, serve};
use crate::{FilterHandle, Guard, Reader};

const LOOKUPS: u64 = 1 << 13;

/// Function, and the most instructions a lookup may take in it: a tenth more than were counted on
/// 2026-11-22, or 23 for the handle, compiled as tests are, with the features that gave most of
/// them (77 to 100, one at a time). If the count falls, write the smaller number here.
const MAX_INSTRUCTIONS: [(&str, u64); 3] =
    [("look_up_one_at_a_time", 106), ("look_up_by_handle", 148), ("look_up_in_batches", 147)];

#[test]
#[ignore = "needs valgrind: tests/run.sh"]
fn a_lookup_takes_no_more_instructions_than_it_did() {
    if Kernel::all().iter().all(|kernel| kernel.name() != "avx2") {
        println!("not counted: the scalar kernel, which is all that this machine runs, takes more");
        return;
    }
    let itself = std::env::current_exe().expect("a program has a path");
    for (function, most) in MAX_INSTRUCTIONS {
        let counted = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
            .arg(format!("--toggle-collect=*instructions::{function}*"))
            .arg(&itself)
            .args(["--exact", "simulation::instructions::lookups", "--ignored"])
            .output()
            .expect("valgrind runs: tests/run.sh installs it");
        let said = String::from_utf8_lossy(&counted.stderr);
        assert!(counted.status.success(), "{said}");
        let total = said.lines().find_map(|line| line.split_once("Collected : "));
        let (_, total) = total.unwrap_or_else(|| panic!("callgrind counted nothing: {said}"));
        let each = total.trim().parse::<u64>().expect("a count") / LOOKUPS;
        println!("{function}: {each} instructions a lookup");
        assert!(each > most / 2, "{function}: {each}: was it called at all?");
        assert!(each <= most, "{function}: {each} instructions a lookup, at most {most} before");
    }
}

/// The program that callgrind runs.
#[test]
#[ignore = "runs under valgrind, started by the test above"]
fn lookups() {
    on_a_paused_clock(async {
        let process = serve(1_000, Guard::Warn).await;
        let ids: Vec<[u8; 32]> = (0..LOOKUPS).map(|n| id(n % 2_000)).collect();
        let handle = process.handle();
        let mut reader = handle.reader();
        let hits = look_up_one_at_a_time(&mut reader, &ids);
        assert_eq!(look_up_by_handle(&handle, &ids), hits);
        assert_eq!(look_up_in_batches(&mut reader, &ids), hits);
    });
}

#[inline(never)]
fn look_up_one_at_a_time(reader: &mut Reader, ids: &[[u8; 32]]) -> usize {
    ids.iter().filter(|id| reader.contains(&id[..])).count()
}

#[inline(never)]
fn look_up_by_handle(handle: &FilterHandle, ids: &[[u8; 32]]) -> usize {
    ids.iter().filter(|id| handle.contains(&id[..])).count()
}

#[inline(never)]
fn look_up_in_batches(reader: &mut Reader, ids: &[[u8; 32]]) -> usize {
    let mut answers = [false; 1024];
    let mut hits = 0;
    for ids in ids.chunks_exact(answers.len()) {
        reader.contains_batch(ids, &mut answers);
        hits += answers.iter().filter(|hits| **hits).count();
    }
    hits
}
