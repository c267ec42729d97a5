//! "Which generation?": a pure state machine over what was read. No I/O, no clock.

use std::collections::VecDeque;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::protocol::Followed;

use crate::limits::MAX_AGE_DAYS;

/// How many blobs are remembered as served; a rollback goes to one of the last few.
const MAX_SERVED: usize = 64;
/// How many damaged blobs are remembered: one for each day that may be followed, and a pin's.
const MAX_REJECTED: usize = MAX_AGE_DAYS as usize + 2;

/// What one filter's poller remembers between rounds.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    current: Option<BlobKey>,
    /// The day of the newest pointer that was followed: "today" is never earlier.
    last_followed: Option<Day>,
    /// Blobs that did not verify, as their records named them, and why, the latest last: not fetched again
    /// until the record changes.
    rejected: VecDeque<(Rejected, String)>,
    /// The blobs that answered in this process, the latest last.
    served: VecDeque<Digest>,
}

/// A blob with the size that its record says: a mended record is another one.
type Rejected = (Digest, Option<u64>);

/// What to do about a blob that should answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// It already does.
    Stay,
    /// Load it.
    Load,
    /// It was rejected before and something else answers: keep that.
    Refuse(String),
    /// It was rejected before and nothing answers: look at the pointers of the days before.
    LookBack(String),
}

impl Generations {
    /// The day of the newest pointer that was followed.
    pub(crate) fn last_followed(&self) -> Option<Day> {
        self.last_followed
    }

    /// Decides about the blob that pin or pointer names. `asked` is an operator's reload, which gives
    /// a rejected blob another chance.
    pub(crate) fn next(&mut self, followed: &Followed, asked: bool) -> Next {
        if self.current.as_ref() == Some(&followed.blob) {
            self.remember(followed);
            return Next::Stay;
        }
        let identity = identity(followed);
        match self.rejected.iter().find(|(rejected, _)| *rejected == identity) {
            Some((_, why)) if !asked => {
                let why = why.clone();
                if self.current.is_some() { Next::Refuse(why) } else { Next::LookBack(why) }
            }
            _ => Next::Load,
        }
    }

    /// The blob was loaded and swapped in.
    pub(crate) fn loaded(&mut self, followed: &Followed) {
        self.loaded_instead(followed);
        self.remember(followed);
    }

    /// The blob did not verify.
    pub(crate) fn rejected(&mut self, followed: &Followed, why: &str) {
        let identity = identity(followed);
        self.rejected.retain(|(rejected, _)| *rejected != identity);
        self.rejected.push_back((identity, why.to_owned()));
        if self.rejected.len() > MAX_REJECTED {
            self.rejected.pop_front();
        }
    }

    /// Another answers for lack of the right one: the rejected blob stays remembered.
    pub(crate) fn loaded_instead(&mut self, followed: &Followed) {
        self.current = Some(followed.blob.clone());
        // Also a stopgap's day: a clock stepped back must not take it away for an older one.
        self.last_followed = self.last_followed.max(followed.pointer_day());
        self.served.retain(|digest| *digest != followed.blob.digest);
        self.served.push_back(followed.blob.digest);
        if self.served.len() > MAX_SERVED {
            self.served.pop_front();
        }
    }

    /// A run before this one followed a blob of this day: a clock stepped back does not make it unknown.
    pub(crate) fn known(&mut self, day: Day) {
        self.last_followed = self.last_followed.max(Some(day));
    }

    /// Whether the guard judges this blob: only a newer day's than `answering`, by its own pointer,
    /// and not one that answered in this process before.
    pub(crate) fn is_judged(&self, followed: &Followed, answering: Day) -> bool {
        let newer = followed.blob.day > answering;
        let own_pointer = followed.pointer_day() == Some(followed.blob.day);
        newer && own_pointer && !self.served.contains(&followed.blob.digest)
    }

    fn remember(&mut self, followed: &Followed) {
        self.last_followed = self.last_followed.max(followed.pointer_day());
        self.rejected.clear();
    }
}

fn identity(followed: &Followed) -> Rejected {
    (followed.blob.digest, followed.bytes)
}

#[cfg(test)]
mod tests {
    use bloomsday_common::protocol::FollowedBy;

    use super::*;

    fn followed(digit: u8) -> Followed {
        let day: Day = "2026-11-19".parse().unwrap();
        let blob = BlobKey { filter: "rt".parse().unwrap(), day, digest: Digest::new([digit; 32]) };
        Followed { blob, bytes: None, by: FollowedBy::Pointer { day } }
    }

    #[test]
    fn a_new_blob_is_loaded_and_the_current_one_is_not() {
        let mut generations = Generations::default();
        assert_eq!(generations.next(&followed(1), false), Next::Load);
        generations.loaded(&followed(1));
        assert_eq!(generations.next(&followed(1), true), Next::Stay);
        assert_eq!(generations.next(&followed(2), false), Next::Load);
    }

    #[test]
    fn a_poison_blob_is_not_fetched_again_until_the_pointer_changes_or_an_operator_asks() {
        let mut generations = Generations::default();
        generations.loaded(&followed(1));
        generations.rejected(&followed(2), "digest");
        assert_eq!(generations.next(&followed(2), false), Next::Refuse("digest".into()));
        assert_eq!(generations.next(&followed(2), true), Next::Load);
        assert_eq!(generations.next(&followed(3), false), Next::Load);
        generations.loaded(&followed(3));
        assert_eq!(generations.next(&followed(2), false), Next::Load, "the pointer changed");
    }

    #[test]
    fn every_damaged_blob_is_remembered_up_to_a_bound() {
        let mut generations = Generations::default();
        for digit in [1, 2, 3, 2] {
            generations.rejected(&followed(digit), "digest");
        }
        for digit in [1, 2, 3] {
            assert_eq!(generations.next(&followed(digit), false), Next::LookBack("digest".into()));
            assert_eq!(generations.next(&followed(digit), true), Next::Load);
        }
        for size in 0..1_000 {
            generations.rejected(&Followed { bytes: Some(size), ..followed(9) }, "digest");
        }
        assert_eq!(generations.rejected.len(), MAX_REJECTED);
    }

    #[test]
    fn a_mended_size_in_the_record_is_another_chance() {
        let mut generations = Generations::default();
        generations.loaded(&followed(1));
        let short = Followed { bytes: Some(5), ..followed(2) };
        generations.rejected(&short, "too many bytes");
        assert_eq!(generations.next(&short, false), Next::Refuse("too many bytes".into()));
        assert_eq!(generations.next(&followed(2), false), Next::Load);
    }

    #[test]
    fn only_a_newer_day_by_its_own_pointer_that_never_answered_is_judged() {
        let mut generations = Generations::default();
        let (today, before) = (followed(1).blob.day, followed(1).blob.day.minus(1));
        assert!(generations.is_judged(&followed(1), before));
        assert!(!generations.is_judged(&followed(1), today), "the same day, mended");
        assert!(!generations.is_judged(&followed(1), today.plus(1)), "an older day");
        let pin = FollowedBy::Pin { until: None, reason: None };
        assert!(!generations.is_judged(&Followed { by: pin, ..followed(1) }, before));
        let rollback = FollowedBy::Pointer { day: today.plus(1) };
        assert!(!generations.is_judged(&Followed { by: rollback, ..followed(1) }, before));
        generations.loaded(&followed(1));
        assert!(!generations.is_judged(&followed(1), before), "it answered before");
        for digit in 2..=u8::MAX {
            generations.loaded(&followed(digit));
        }
        assert_eq!(generations.served.len(), MAX_SERVED);
    }

    #[test]
    fn with_nothing_to_answer_a_poison_blob_sends_the_search_back() {
        let mut generations = Generations::default();
        generations.rejected(&followed(2), "digest");
        assert_eq!(generations.next(&followed(2), false), Next::LookBack("digest".into()));
        generations.loaded_instead(&followed(1));
        assert_eq!(generations.next(&followed(2), false), Next::Refuse("digest".into()));
        // With the clock stepped back, not even a stopgap gives way to an older day.
        assert_eq!(generations.last_followed(), followed(1).pointer_day());
    }
}
