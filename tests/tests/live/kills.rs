//! `kill -9` at every named step of live IDs and at random times, for every promise of an answer:
//! what was acknowledged is there after the restart, and is not "new" again. What `shipped`
//! promises is in the store.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use bloomsday_common::crash_point::{LIVE, LIVE_START, LIVE_SWAP, SHIP};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::live::segment::{FRAME_HEADER_BYTES, Frames, HEADER_BYTES};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::campaign::{Campaign, Random, on_threads, size};
use bloomsday_tests::input::{today, user, write_rows};
use bloomsday_tests::kill_point::KillableRun;
use bloomsday_tests::live::{Wire, encode};
use bloomsday_tests::publisher::Publisher;
use bloomsday_tests::wait::until;

/// How many IDs clients add at most while they wait for a step: more than the table has when every
/// shard has grown.
const MAX_IDS: u64 = 40_000;
/// The most IDs of a request.
const MAX_BATCH: u64 = 200;
const CLIENTS: u64 = 3;
/// More than the hashes of one segment, which is closed at 8 MiB.
const IDS_PAST_A_SEGMENT: u64 = 1_200_000;
/// How many of these a request has.
const IDS_AT_ONCE: u64 = 5_000;
/// Until when a server is killed at a random time, after its start.
const MAX_LIFE_MICROS: u64 = 1_000_000;
/// The promises that outlive a process.
const ACKS: [&str; 3] = ["synced", "written", "shipped"];
/// How many cases run at the same time.
const THREADS: u64 = 2;

/// An address for a server that starts again on it. Its port is below those that the system chooses
/// for others, which may get a free one of theirs at any moment.
fn free_address() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = u64::from(std::process::id());
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    let mut addresses = ports.map(|n| format!("127.0.0.1:{}", 20_000 + n % 12_000));
    addresses.find(|address| std::net::TcpListener::bind(address).is_ok()).expect("it goes on")
}

/// One data folder and store through several kills.
struct Case {
    backend: Backend,
    ack: &'static str,
    resp: String,
    /// The IDs whose add was acknowledged.
    added: Mutex<BTreeSet<u64>>,
    /// Each round has IDs of its own.
    next_round: AtomicU64,
}

impl Case {
    /// A server with some acknowledged IDs, killed, so that the next start finds an open segment.
    fn new(ack: &'static str) -> Case {
        let backend = Backend::local();
        std::fs::create_dir(&backend.store).unwrap();
        let config = "poll_interval = \"100ms\"\n[filters.rt]\nlive = \"decide\"\n";
        std::fs::write(path(&backend, "live.toml"), config).unwrap();
        let resp = free_address();
        let case =
            Case { backend, ack, resp, added: Mutex::default(), next_round: AtomicU64::new(0) };
        case.check("nothing");
        case
    }

    /// Starts the server, to stop at a place.
    fn serve(&self, place: Option<&str>) -> KillableRun {
        let file = |name| path(&self.backend, name).display().to_string();
        let (config, data) = (file("live.toml"), file("data"));
        let words =
            ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let more = ["--config", &config, "--data-dir", &data, "--resp", &self.resp];
        let words = [&words[..], &more, &["--ack", self.ack]].concat();
        KillableRun::start(self.backend.bloomsday(&words).into_command(), place)
    }

    fn connect(&self) -> Wire {
        // A server that decides takes IDs only after it has the lease.
        until("it takes IDs", || {
            let mut wire = Wire::try_connect(&self.resp).ok()?;
            wire.send(&encode(&[b"SREM", b"rt", b"nobody"])).ok()?;
            wire.reply().is_ok_and(|reply| reply == ":0|").then_some(wire)
        })
    }

    /// The first of [`MAX_IDS`] IDs that nobody has added.
    fn first_id(&self) -> u64 {
        self.first_id_of(MAX_IDS)
    }

    /// The first of so many IDs that nobody has added.
    fn first_id_of(&self, ids: u64) -> u64 {
        self.next_round.fetch_add(ids.div_ceil(MAX_IDS), Ordering::Relaxed) * MAX_IDS
    }

    /// Adds IDs, and remembers those that are acknowledged. Returns whether the server answered.
    fn add(&self, wire: &mut Wire, ids: std::ops::Range<u64>) -> bool {
        let names: Vec<String> = ids.clone().map(|id| format!("id-{id}")).collect();
        let words: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        if wire.send(&encode(&[&[&b"BF.MADD"[..], b"rt"], &words[..]].concat())).is_err() {
            return false;
        }
        let Ok(reply) = wire.reply() else { return false };
        let answers: Vec<&str> = reply.split('|').skip(1).filter(|part| !part.is_empty()).collect();
        // An error acknowledges nothing: the lease is not there yet, or the store is slow.
        if !reply.starts_with('-') && !answers.iter().any(|answer| answer.starts_with('-')) {
            assert_eq!(answers.len(), names.len(), "{reply}");
            assert!(answers.iter().all(|answer| *answer == ":1"), "it was not there: {reply}");
            self.added.lock().unwrap().extend(ids);
        }
        true
    }

    /// Adds IDs until `stop` is set, or the server is away.
    fn add_until(&self, stop: &AtomicBool, mut random: Random, ids: std::ops::Range<u64>) {
        let mut next = ids.start;
        // Before the store is read nothing is taken, and the IDs would be used up.
        let loaded = until("it is loaded, or is stopped", || {
            if stop.load(Ordering::Relaxed) {
                return Some(None);
            }
            let mut wire = Wire::try_connect(&self.resp).ok()?;
            wire.send(&encode(&[b"BF.EXISTS", b"rt", b"nobody"])).ok()?;
            let reply = wire.reply().ok()?;
            (!reply.starts_with("-LOADING ")).then_some(Some(wire))
        });
        let Some(mut wire) = loaded else { return };
        while next < ids.end && !stop.load(Ordering::Relaxed) {
            let end = ids.end.min(next + 1 + random.below(MAX_BATCH));
            if !self.add(&mut wire, next..end) {
                return;
            }
            next = end;
        }
    }

    /// Kills a server after `wait`, while clients add. Returns what `wait` does.
    fn kill(
        &self,
        place: Option<&str>,
        random: &Random,
        wait: impl FnOnce(&mut KillableRun) -> bool,
    ) -> bool {
        let mut run = self.serve(place);
        let first = self.first_id();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (stop, random) = (&stop, random.branch(client));
                let first = first + client * (MAX_IDS / CLIENTS);
                scope.spawn(move || self.add_until(stop, random, first..first + MAX_IDS / CLIENTS));
            }
            let waited = wait(&mut run);
            stop.store(true, Ordering::Relaxed);
            drop(run);
            waited
        })
    }

    /// Leaves a part of a frame behind, as a kill in the middle of a write does.
    fn tear(&self, mut random: Random) {
        for path in files(&path(&self.backend, "data/live")) {
            if path.extension().is_some_and(|extension| extension == "open") {
                let bytes = std::fs::read(&path).unwrap();
                let frame = bytes.get(HEADER_BYTES..).unwrap_or_default();
                let part =
                    frame.len().min(1 + random.below(FRAME_HEADER_BYTES as u64 - 1) as usize);
                let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(&frame[..part]).unwrap();
            }
        }
    }

    /// Whether all that was acknowledged is there, and is not new again. Adds some more, and kills
    /// the server.
    fn check(&self, killed: &str) {
        let acknowledged: Vec<u64> = self.added.lock().unwrap().iter().copied().collect();
        // Before the start: as if the disk had gone with the process.
        if self.ack == "shipped" {
            let shipped = self.shipped();
            let lost = acknowledged.iter().find(|id| !shipped.contains(&hash(**id)));
            assert_eq!(lost, None, "after a kill at {killed} it is not in the store");
        }
        let run = self.serve(None);
        let mut wire = self.connect();
        for ids in acknowledged.chunks(500) {
            let names: Vec<String> = ids.iter().map(|id| format!("id-{id}")).collect();
            let exists = wire.call(&format!("BF.MEXISTS rt {}", names.join(" ")));
            assert!(!exists.contains(":0"), "after a kill at {killed} an ID is lost: {exists}");
            let again = wire.call(&format!("BF.MADD rt {}", names.join(" ")));
            assert!(!again.contains(":1"), "after a kill at {killed} an ID is new again: {again}");
        }
        until("IDs are acknowledged", || {
            // After an error others: those may be there.
            let first = self.first_id();
            assert!(self.add(&mut wire, first..first + 10), "the server is away");
            self.added.lock().unwrap().contains(&first).then_some(())
        });
        drop(run);
    }

    /// Every hash in the store.
    fn shipped(&self) -> BTreeSet<u64> {
        let segments = files(&Path::new(&self.backend.store).join("rt/live"));
        let segments = segments.iter().filter(|path| path.extension().is_some_and(|e| e == "seg"));
        let mut all = BTreeSet::new();
        for path in segments {
            let bytes = std::fs::read(path).unwrap();
            let (_, frames) = Frames::of_closed(&bytes).unwrap();
            frames.map(Result::unwrap).for_each(|frame| all.extend(frame.hashes()));
        }
        all
    }
}

/// Whether a server that stops at this place for the first time has acknowledged nothing: a process
/// that is killed does not lose what it wrote before a sync, so that this alone shows an answer
/// that came too soon.
fn is_before_acknowledgements(place: &str, ack: &str) -> bool {
    match place {
        "live-created" | "live-written" => true,
        "live-syncing" => ack != "written",
        "shipping" => ack == "shipped",
        _ => LIVE_START.contains(&place),
    }
}

fn path(backend: &Backend, name: &str) -> PathBuf {
    backend.folder.path().join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn hash(id: u64) -> u64 {
    Xxh3::of(format!("id-{id}").as_bytes()).0
}

#[test]
fn kill_9_at_every_step_loses_no_acknowledged_id() {
    let random = Random::new();
    for ack in ACKS {
        let clock = Campaign::new(&format!("`kill -9` of live IDs at every named step, `{ack}`"));
        let places: Vec<&str> = LIVE.iter().chain(LIVE_START).chain(SHIP).copied().collect();
        let rounds = size(1, 20);
        on_threads(THREADS, places.len() as u64, |number| {
            let (place, case) = (places[number as usize], Case::new(ack));
            for round in 0..rounds {
                let mut random = random.branch(number << 32 | round);
                // A step at a start comes once, and a sync that no answer waits for once a second.
                let is_rare =
                    place == "live-created" || ack == "written" && place.starts_with("live-sync");
                let is_often = LIVE.contains(&place) && !is_rare;
                let time = if is_often { 1 + random.below(1 + round.min(5)) } else { 1 };
                let at = format!("{place}:{time}");
                let before = case.added.lock().unwrap().len();
                let reached = case.kill(Some(&at), &random, |run| {
                    let reached = run.paused();
                    // Others go on for a moment.
                    sleep(Duration::from_micros(random.branch(CLIENTS).below(5_000)));
                    reached
                });
                assert!(reached, "{at} is never reached");
                let after = case.added.lock().unwrap().len();
                let is_early = time == 1 && is_before_acknowledgements(place, ack);
                assert!(
                    !is_early || before == after,
                    "{at}: an ID was acknowledged before it is safe"
                );
                if random.below(2) == 0 {
                    case.tear(random);
                }
                case.check(&at);
            }
            // What the last start made of an open segment is read, too.
            case.check(place);
        });
        let size =
            format!("{} kills: {} steps × {rounds}", places.len() as u64 * rounds, places.len());
        clock.passed(&size, "no acknowledged ID lost, none new twice");
    }
}

/// The first segment that is closed is that of the start before.
#[test]
fn kill_9_while_a_running_server_closes_a_segment_loses_no_acknowledged_id() {
    for place in ["live-closing", "live-closed"] {
        let case = Case::new("synced");
        let mut run = case.serve(Some(&format!("{place}:2")));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut wire = case.connect();
                let first = case.first_id_of(IDS_PAST_A_SEGMENT);
                let mut ids = (first..first + IDS_PAST_A_SEGMENT).step_by(IDS_AT_ONCE as usize);
                ids.all(|id| case.add(&mut wire, id..id + IDS_AT_ONCE))
            });
            assert!(run.paused(), "{place} is never reached: {}", run.said());
            drop(run);
        });
        for _ in 0..2 {
            case.check(place);
        }
    }
}

/// A day that has the half of the live IDs is published while the server runs, and rolled back.
#[test]
fn kill_9_while_a_day_takes_over_or_gives_back_live_ids_loses_no_acknowledged_id() {
    let random = Random::new();
    // No new ID is a false positive.
    let fpp = ["--fpp", "1e-6"];
    for place in LIVE_SWAP {
        let case = Case::new("synced");
        Publisher::days_ago(&case.backend, 1).users(0..5_000).with(&fpp).publish();
        let mut wire = None;
        let reached = case.kill(Some(place), &random, |run| {
            let wire = wire.insert(case.connect());
            let first = case.first_id();
            assert!(case.add(wire, first..first + 2_000), "the server is away");
            let input = path(&case.backend, "today/a.parquet");
            let half = (first..first + 1_000).map(|id| format!("id-{id}"));
            write_rows(&input, (0..5_000).map(user).chain(half).map(Some));
            Publisher::day(&case.backend, today()).input(&input).with(&fpp).publish();
            if *place == "live-returning" {
                let (day, before) = (today(), today().minus(1).to_string());
                assert!(
                    run.says(&format!("live IDs were compared with the day filter=rt day={day}"))
                );
                let back =
                    ["repoint", "rt", &day.to_string(), "--to", &before, "--reason", "a test"];
                case.backend.bloomsday(&back).run().expect(0);
            }
            run.paused()
        });
        assert!(reached, "{place} is never reached");
        for _ in 0..2 {
            case.check(place);
        }
    }
}

#[test]
fn kill_9_at_random_times_loses_no_acknowledged_id() {
    let random = Random::new();
    for ack in ACKS {
        let clock = Campaign::new(&format!("`kill -9` of live IDs at random times, `{ack}`"));
        let rounds = size(2, 60);
        on_threads(THREADS, THREADS, |number| {
            let case = Case::new(ack);
            for round in 0..rounds {
                let random = random.branch(number << 32 | round);
                case.kill(None, &random, |_| {
                    // Also before it listens.
                    sleep(Duration::from_micros(random.branch(CLIENTS).below(MAX_LIFE_MICROS)));
                    true
                });
                if random.branch(CLIENTS + 1).below(2) == 0 {
                    case.tear(random);
                }
                case.check("a random time");
            }
            case.check("a random time");
        });
        let size = format!("{} kills, {CLIENTS} clients", THREADS * rounds);
        clock.passed(&size, "no acknowledged ID lost, none new twice");
    }
}
