//! "Which generation?": a pure state machine over what was read. No I/O, no clock.

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::protocol::Followed;

/// What one filter's poller remembers between rounds.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    current: Option<BlobKey>,
    /// The day of the newest pointer that was followed: "today" is never earlier.
    last_followed: Option<Day>,
    /// A blob that did not verify, and why: not fetched again until the pointer changes.
    rejected: Option<(Digest, String)>,
}

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
        match &self.rejected {
            Some((digest, why)) if *digest == followed.blob.digest && !asked => {
                let why = why.clone();
                if self.current.is_some() { Next::Refuse(why) } else { Next::LookBack(why) }
            }
            _ => Next::Load,
        }
    }

    /// The blob was loaded and swapped in.
    pub(crate) fn loaded(&mut self, followed: &Followed) {
        self.current = Some(followed.blob.clone());
        self.remember(followed);
    }

    /// The blob did not verify.
    pub(crate) fn rejected(&mut self, followed: &Followed, why: &str) {
        self.rejected = Some((followed.blob.digest, why.to_owned()));
    }

    /// Another answers for lack of the right one: the rejected blob stays remembered.
    pub(crate) fn loaded_instead(&mut self, followed: &Followed) {
        self.current = Some(followed.blob.clone());
    }

    fn remember(&mut self, followed: &Followed) {
        self.last_followed = self.last_followed.max(followed.pointer_day());
        self.rejected = None;
    }
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
    fn with_nothing_to_answer_a_poison_blob_sends_the_search_back() {
        let mut generations = Generations::default();
        generations.rejected(&followed(2), "digest");
        assert_eq!(generations.next(&followed(2), false), Next::LookBack("digest".into()));
        generations.loaded_instead(&followed(1));
        assert_eq!(generations.next(&followed(2), false), Next::Refuse("digest".into()));
        assert_eq!(generations.last_followed(), None, "the day before is only a stopgap");
    }
}
