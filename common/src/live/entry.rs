//! A live entry as one 64-bit word: the low 56 bits of an ID's hash, and a tag for the time when it
//! was seen. Arithmetic only: no table, no clock.
//!
//! The leading 8 bits of the hash are the number of the shard that holds the word, so shard and
//! word together are the complete hash: a shard can grow, and be copied to another process, without
//! its IDs.
//!
//! A tag is one byte: 0 for an empty slot, 1 to 253 for a step, 254 for a slot that is free
//! again, and 255 for an ID that was deleted and must stay hidden.

use std::num::NonZeroU64;

/// How many shards a table has: one for each value of a hash's leading 8 bits.
pub const SHARDS: usize = 256;
/// How many steps have a tag of their own.
pub const STEPS: u64 = 253;
/// The most steps of a window. A longer window needs a longer step. The difference to [`STEPS`] is
/// the time that a sweeper has to remove an entry before its tag is used again.
pub const MAX_WINDOW_STEPS: u64 = 250;
/// The word of an empty slot: a lookup that finds one ends there.
pub const EMPTY: u64 = 0;
/// A tombstone: the slot was in use. An add may take it; a lookup goes on past it.
pub const TOMBSTONE: u64 = TOMBSTONE_TAG as u64;

const TOMBSTONE_TAG: u8 = 254;
const HIDDEN_TAG: u8 = 255;

/// What a tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Seen in the step with this number, modulo [`STEPS`].
    Step(u8),
    /// Deleted, and hidden: a lookup in what lies below the live layer must not find it either.
    Hidden,
    /// A slot that an add may take.
    Tombstone,
    /// A slot that was never used.
    Empty,
}

impl Tag {
    /// The tag of a step.
    #[inline]
    pub fn of_step(step: u64) -> Tag {
        Tag::Step((step % STEPS) as u8)
    }

    /// The tag in the low byte of a word.
    #[inline]
    pub fn of(word: u64) -> Tag {
        match word as u8 {
            0 => Tag::Empty,
            TOMBSTONE_TAG => Tag::Tombstone,
            HIDDEN_TAG => Tag::Hidden,
            step => Tag::Step(step - 1),
        }
    }

    #[inline]
    fn byte(self) -> u8 {
        match self {
            Tag::Step(step) => step + 1,
            Tag::Hidden => HIDDEN_TAG,
            Tag::Tombstone => TOMBSTONE_TAG,
            Tag::Empty => 0,
        }
    }
}

/// The word of a hash with this tag.
#[inline]
pub fn word(hash: u64, tag: Tag) -> u64 {
    hash << 8 | u64::from(tag.byte())
}

/// Whether a word is of this hash, in the hash's own shard. A free slot is of no hash.
#[inline]
pub fn is_of(word: u64, hash: u64) -> bool {
    (word ^ (hash << 8)) < 256 && !matches!(word as u8, 0 | TOMBSTONE_TAG)
}

/// The hash of a word in a shard.
#[inline]
pub fn hash_of(shard: usize, word: u64) -> u64 {
    (shard as u64) << 56 | word >> 8
}

/// The shard of a hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

/// The line of a shard in which the search for a hash begins. Lemire 2019, "Fast random integer
/// generation in an interval", §3, on the 56 bits that follow the shard.
#[inline]
pub fn line_of(hash: u64, lines: usize) -> usize {
    ((u128::from(hash << 8) * lines as u128) >> 64) as usize
}

/// What a repeated sighting does to an entry of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The window counts from the last sighting.
    Renew,
    /// The window counts from the first sighting.
    Keep,
}

/// How long an entry is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The length of a step in milliseconds. Time is counted in steps since 1970.
    pub step_ms: NonZeroU64,
    /// How many steps after its own an entry is alive; `None` without end.
    pub steps: Option<u8>,
    /// What a repeated sighting does.
    pub repeat: Repeat,
}

impl Window {
    /// No window: an entry is alive until it is deleted.
    pub const NONE: Window = Window { step_ms: NonZeroU64::MAX, steps: None, repeat: Repeat::Keep };

    /// A window of at least `window_ms`, which moves on every `step_ms`. `None` when it has no
    /// step, or more than [`MAX_WINDOW_STEPS`].
    pub fn of(window_ms: u64, step_ms: u64, repeat: Repeat) -> Option<Window> {
        let step = NonZeroU64::new(step_ms)?;
        let steps = window_ms.div_ceil(step_ms);
        let steps = (1..=MAX_WINDOW_STEPS).contains(&steps).then_some(steps as u8)?;
        Some(Window { step_ms: step, steps: Some(steps), repeat })
    }

    /// The step of a time.
    #[inline]
    pub fn step_at(&self, unix_ms: u64) -> u64 {
        unix_ms / self.step_ms
    }

    /// Whether an ID ends one window after it was added, however often it comes again.
    pub fn keeps_first(&self) -> bool {
        self.steps.is_some() && self.repeat == Repeat::Keep
    }

    /// Whether an entry that was seen at `seen` is alive in step `now`.
    #[inline]
    pub fn is_alive(&self, seen: Tag, now: u64) -> bool {
        match (seen, self.steps) {
            (Tag::Step(_), None) => true,
            (Tag::Step(seen), Some(steps)) => age(seen, now) <= u64::from(steps),
            _ => false,
        }
    }

    /// How many steps the sweeper has for one pass over all shards.
    pub fn sweep_steps(&self) -> u64 {
        STEPS - 1 - self.steps.map_or(0, u64::from)
    }
}

/// How many steps before `now` the step with this tag was, if it was less than [`STEPS`] ago.
#[inline]
pub fn age(seen: u8, now: u64) -> u64 {
    let (now, seen) = (now % STEPS, u64::from(seen));
    if now >= seen { now - seen } else { now + STEPS - seen }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_has_1_to_250_steps() {
        let steps = |window, step| Window::of(window, step, Repeat::Renew).map(|w| w.steps);
        assert_eq!(steps(1_800_000, 300_000), Some(Some(6)));
        assert_eq!(steps(1, 300_000), Some(Some(1)));
        assert_eq!(steps(250, 1), Some(Some(250)));
        assert_eq!((steps(251, 1), steps(0, 1), steps(1, 0)), (None, None, None));
        assert!(Window::NONE.is_alive(Tag::of_step(0), u64::MAX));
    }

    proptest! {
        #[test]
        fn shard_and_word_are_the_hash(hash: u64, step: u64, lines in 1..1_000_000_usize) {
            let tag = Tag::of_step(step);
            let word = word(hash, tag);
            prop_assert_eq!(hash_of(shard_of(hash), word), hash);
            prop_assert_eq!(Tag::of(word), tag);
            prop_assert!(is_of(word, hash) && word != EMPTY && word != TOMBSTONE);
            prop_assert!(!is_of(TOMBSTONE, hash) && !is_of(EMPTY, hash) && !is_of(word, hash ^ 1));
            prop_assert!(line_of(hash, lines) < lines);
        }

        #[test]
        fn an_entry_is_alive_for_its_window(
            seen in 0..u64::MAX / 2,
            later in 0..STEPS,
            steps in 1..=MAX_WINDOW_STEPS,
        ) {
            let window = Window::of(steps * 1_000, 1_000, Repeat::Keep).unwrap();
            let alive = window.is_alive(Tag::of_step(seen), seen + later);
            prop_assert_eq!(alive, later <= steps);
        }
    }
}
