//! BLOOM.*: what only these filters have: windows, where an answer comes from, and unions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloomsday_common::id_form::IdForm;
use bloomsday_common::live::entry::{MAX_WINDOW_STEPS, Repeat, Window};

use super::super::command::{Command, is, number};
use super::super::reply::{Fault, Reply};
use super::super::session::{SYNTAX, Session, WRONGTYPE, refused};
use super::items::{hash, make};
use crate::live::{Kind, LiveSet, Options};

pub(super) const COMMANDS: &[Command] = &[
    Command::write("bloom.reserve", -2, reserve),
    Command::read("bloom.why", 3, why),
    Command::write("bloom.union", -3, union).keys(1, -1, 1),
];

/// The longest window, in seconds: ten years.
const MAX_WINDOW_SECONDS: u64 = 3_660 * 24 * 3_600;
/// The largest capacity: BF.INFO shows it as an integer of Redis.
const MAX_CAPACITY: u64 = i64::MAX as u64;
/// How many steps a window has if nothing else is said.
const DEFAULT_STEPS: u64 = 10;
/// The most IDs of a union: 512 MiB of one segment, which has at most 1 GiB.
const MAX_UNION_IDS: u64 = 1 << 26;

fn reserve(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = Options { error: 1e-9, ..Options::of(Kind::Any) };
    let (mut size, mut repeat) = (WindowWords::new(MAX_CAPACITY), Repeat::Renew);
    let (words, rest) = request[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    for [word, value] in words {
        if is(word, "ID") && is(value, "url") {
            options.id_form = IdForm::Url;
        } else if is(word, "REPEAT") && is(value, "renew") {
            repeat = Repeat::Renew;
        } else if is(word, "REPEAT") && is(value, "keep") {
            repeat = Repeat::Keep;
        } else if !size.take(word, value)? {
            return Err(SYNTAX);
        }
    }
    options.capacity = size.capacity.unwrap_or(options.capacity);
    options.window = size.window(repeat)?;
    make(session, request[1], options)?;
    reply.ok();
    Ok(())
}

/// The words WINDOW, STEP and CAPACITY of a RESERVE.
pub(super) struct WindowWords {
    window: Option<u64>,
    step: Option<u64>,
    pub(super) capacity: Option<u64>,
    max_capacity: u64,
}

impl WindowWords {
    pub(super) fn new(max_capacity: u64) -> WindowWords {
        WindowWords { window: None, step: None, capacity: None, max_capacity }
    }

    /// Takes a word with its value; `false` for a word that is none of these.
    pub(super) fn take(&mut self, word: &[u8], value: &[u8]) -> Result<bool, Fault> {
        if is(word, "WINDOW") {
            self.window = Some(seconds(value)?);
        } else if is(word, "STEP") {
            self.step = Some(seconds(value)?);
        } else if is(word, "CAPACITY") {
            let capacity = number::<u64>(value).filter(|n| *n <= self.max_capacity);
            self.capacity = Some(capacity.ok_or("ERR bad capacity")?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The window; without these words, none.
    pub(super) fn window(&self, repeat: Repeat) -> Result<Window, Fault> {
        of_seconds(self.window, self.step, repeat)
    }
}

/// The seconds of a window, or of one of its steps.
fn seconds(word: &[u8]) -> Result<u64, Fault> {
    let seconds = number::<u64>(word).filter(|n| (1..=MAX_WINDOW_SECONDS).contains(n));
    seconds.ok_or_else(|| format!("ERR a window has 1 to {MAX_WINDOW_SECONDS} seconds").into())
}

/// A window of a number of seconds.
fn of_seconds(window: Option<u64>, step: Option<u64>, repeat: Repeat) -> Result<Window, Fault> {
    let Some(window) = window else {
        return if step.is_some() { Err("ERR STEP needs WINDOW".into()) } else { Ok(Window::NONE) };
    };
    let step = step.unwrap_or_else(|| window.div_ceil(DEFAULT_STEPS));
    if step > window {
        return Err("ERR STEP is longer than WINDOW".into());
    }
    Window::of(window * 1_000, step * 1_000, repeat).ok_or_else(|| {
        let most = MAX_WINDOW_STEPS;
        let found = format!("a window of {window} s with steps of {step} s");
        format!("ERR {found} has more than {most} steps: take longer steps").into()
    })
}

fn why(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    let set = session.find_set_of(request[1], Kind::Any)?.ok_or("ERR not found")?;
    let hash = hash(session, request[1], request[2])?;
    let count = set.count(now, hash);
    let window = set.options().window;
    let mut hit = false;
    set.each(now, &[hash], |_, is_hit| hit = is_hit).map_err(refused)?;
    reply.map(6);
    reply.text("contains");
    reply.boolean(hit);
    reply.text("by");
    reply.text(match (count > 0, hit) {
        (true, _) => "live",
        (false, true) => "day",
        (false, false) => "nothing",
    });
    reply.text("count");
    reply.integer(count as i64);
    reply.text("hash");
    reply.text(&format!("{hash:016x}"));
    reply.text("seen_seconds_ago");
    match set.seen_at(now, hash).filter(|_| window.steps.is_some()) {
        Some(at) => reply.integer((now.saturating_sub(at) / 1_000) as i64),
        None => reply.null(),
    }
    reply.text("window_seconds");
    match window.steps {
        Some(steps) => {
            reply.integer((window.step_ms.get() / 1_000 * u64::from(steps)) as i64);
        }
        None => reply.null(),
    }
    Ok(())
}

/// The hashes of one would never be looked up in the other.
const OTHER_IDS: Fault =
    Fault(std::borrow::Cow::Borrowed("ERR a filter of URLs is united with others of URLs only"));

/// Other servers and builds take the newest change of each ID, and what is united was seen before.
const UNION_OVER_DAY: Fault = Fault(std::borrow::Cow::Borrowed(
    "ERR a filter of the configuration takes no unions: add its IDs with BF.MADD",
));

fn union(session: &mut Session, request: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now = session.now;
    // Each once, whatever its names in the request are.
    let mut sources: Vec<Arc<LiveSet>> = Vec::new();
    for name in &request[2..] {
        let Some(set) = session.find_set_of(name, Kind::Any)? else { continue };
        if set.options().kind == Kind::Cuckoo {
            return Err(WRONGTYPE);
        }
        if sources.first().is_some_and(|first| first.options().id_form != set.options().id_form) {
            return Err(OTHER_IDS);
        }
        if !sources.iter().any(|other| Arc::ptr_eq(other, &set)) {
            sources.push(set);
        }
    }
    let total: u64 = sources.iter().map(|set| set.size(now).entries).sum();
    if total > MAX_UNION_IDS {
        return Err(format!(
            "ERR BLOOM.UNION adds at most {MAX_UNION_IDS} IDs, and the sources have {total}"
        )
        .into());
    }
    let mut options =
        sources.first().map_or_else(|| Options::of(Kind::Any), |set| set.options().clone());
    options.is_over_day = false;
    if options.expansion == 0 {
        // What is made here takes them all.
        options.expansion = Options::of(options.kind).expansion;
    }
    let has_sources = !sources.is_empty();
    let mut add = |entries: &BTreeMap<u64, Vec<u64>>| {
        let made = |session: &mut Session| {
            let set = session.find_or_make(request[1], Kind::Any, || options.clone())?;
            match set.options() {
                found if found.kind == Kind::Cuckoo => Err(WRONGTYPE),
                _ if set.is_declared() => Err(UNION_OVER_DAY),
                found if has_sources && found.id_form != options.id_form => Err(OTHER_IDS),
                _ => Ok(set),
            }
        };
        session.change(made, |set, now| set.union(now, entries))?.map_err(refused)
    };
    let mut new = add(&BTreeMap::new())?;
    // One after the other: the memory that this takes is that of one source.
    for source in sources {
        let mut entries = source.by_time(now);
        if source.options().window.steps.is_none() {
            // Without a window there is no time: as seen now.
            entries = BTreeMap::from([(now, entries.into_values().flatten().collect())]);
        }
        new += add(&entries)?;
    }
    reply.integer(new as i64);
    Ok(())
}
