//! Two builds of this program next to each other: does a bidder pay for features that it does not
//! use?
//!
//! Each build answers in a process of its own, from the same published filter; a third process is
//! this build once more, and shows what two processes differ by.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use bloomsday_common::store::Store;

use crate::Options;
use crate::fixtures;
use crate::ids::FreshIds;
use crate::measure::{Bound, Outcome, contestant, race};

const LOOKUPS: usize = 1 << 20;
const POOL: usize = 1 << 23;
/// What an answering process prints, in this order.
const WAYS: [&str; 4] = [
    "reader, one at a time",
    "handle, one at a time",
    "reader, 1024 a batch",
    "handle, 256 a batch",
];
const ROUNDS: usize = 61;

/// Races this program with another build of it.
pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let Some(other) = &options.other else {
        let mut outcome = Outcome::of("two builds", "ns an ID");
        outcome.note("left out: name the other build with --other (bench/README.md)");
        return vec![outcome];
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, options.ids);
        fixtures::publish(&store, &header, &filter).await;
    });
    let this = std::env::current_exe().expect("this program");
    let programs = [("this build", &this), ("the other build", other), ("this once more", &this)];
    let programs = programs.map(|(name, path)| (name, Program::start(path, folder.path())));
    let mut outcomes = Vec::new();
    for (way, what) in WAYS.into_iter().enumerate() {
        let contestants = programs
            .iter()
            .map(|(name, program)| contestant(name, move |_| program.borrow_mut().ask(way)));
        let name = format!("two builds of a bidder: {what}");
        let rounds = options.rounds.max(ROUNDS);
        let mut outcome = race(&name, "ns an ID", rounds, contestants.collect());
        outcome.compare("this build", "the other build", Bound::AtMost(1.01));
        outcome.compare("this once more", "this build", Bound::None);
        outcomes.push(outcome);
    }
    outcomes
}

/// A process that answers.
struct Program {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &Path, folder: &Path) -> std::cell::RefCell<Program> {
        let mut process = Command::new(path)
            .arg("answer")
            .arg("--store")
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the other build runs");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        std::cell::RefCell::new(Program { process, input, output })
    }

    fn ask(&mut self, way: usize) -> f64 {
        writeln!(self.input, "{way}").expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Times a way of lookups for each line of the standard input that has its number.
pub(crate) fn answer(options: &Options) -> Vec<Outcome> {
    let Some(folder) = &options.store else { return Vec::new() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = runtime.block_on(fixtures::serve(folder));
    let handle = server.filter("rt").expect("rt is served");
    let (mut reader, mut fresh_ids) = (handle.reader(), FreshIds::absent(POOL));
    for line in std::io::stdin().lines() {
        let way: usize = line.expect("lines").trim().parse().expect("the number of a way");
        let (_, ids) = fresh_ids.next(LOOKUPS);
        let mut answers = [false; 1024];
        let clock = Instant::now();
        let hits = match way {
            0 => ids.iter().filter(|id| reader.contains(id)).count(),
            1 => ids.iter().filter(|id| handle.contains(id)).count(),
            2 => {
                for ids in ids.chunks(1024) {
                    reader.contains_batch(ids, &mut answers[..ids.len()]);
                }
                0
            }
            _ => {
                for ids in ids.chunks(256) {
                    handle.contains_batch(ids, &mut answers[..ids.len()]);
                }
                0
            }
        };
        black_box((hits, answers));
        println!("{}", clock.elapsed().as_nanos() as f64 / LOOKUPS as f64);
    }
    Vec::new()
}
