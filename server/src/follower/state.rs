//! [`FollowState`]: decides what to do with the blob that pin or pointer names. A pure state
//! machine: no I/O, no clock.

use std::collections::VecDeque;

use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::key::BlobKey;
use bloomsday_common::protocol::Followed;

use crate::limits::MAX_AGE_DAYS;

/// The most blobs that are remembered as served; a rollback goes to one of the last few.
const MAX_SERVED: usize = 64;
/// The most damaged blobs that are remembered: one for each day that may be followed, and a pin's.
const MAX_REJECTED: usize = MAX_AGE_DAYS as usize + 2;

/// What one filter's follower remembers between rounds.
#[derive(Debug, Default)]
pub(crate) struct FollowState {
    current: Option<BlobKey>,
    /// The day of the newest pointer that was followed: "today" is never before it.
    last_followed: Option<Day>,
    /// Blobs with a permanent error, the latest last. They are not fetched again until their record
    /// changes or they are uploaded again.
    rejected: VecDeque<Rejected>,
    /// The blobs that were current in this process, the latest last.
    served: VecDeque<Digest>,
}

/// A blob with a permanent error.
#[derive(Debug)]
struct Rejected {
    /// The blob with the size in its record: a corrected record is another one.
    identity: (Digest, Option<u64>),
    why: String,
    /// Which upload it was, if the store said so.
    upload: Option<String>,
    /// How often it was loaded.
    loads: u32,
    /// How often it was looked for since.
    looks: u32,
}

impl Rejected {
    /// After how many looks another upload is loaded: the first ones after one, then ever later.
    /// Servers behind one address may call the same bytes different uploads.
    fn due(&self) -> u32 {
        1 << self.loads.saturating_sub(MAX_LOADS_AT_ONCE).min(MAX_DOUBLINGS)
    }
}

/// How many uploads of a rejected blob are loaded without waiting.
const MAX_LOADS_AT_ONCE: u32 = 3;
/// The longest wait is 256 polls.
const MAX_DOUBLINGS: u32 = 8;

/// What to do with the blob that is named.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// It is the current one already.
    Stay,
    /// Load it.
    Load,
    /// It was rejected before, and there is another current filter: keep that.
    KeepCurrent(String),
    /// It was rejected before, and there is no current filter: try the pointers of the days before.
    TryOlder(String),
}

impl FollowState {
    /// The day of the newest pointer that was followed.
    pub(crate) fn last_followed(&self) -> Option<Day> {
        self.last_followed
    }

    /// Decides about the blob that pin or pointer names. With `retry` a rejected blob is loaded
    /// again.
    pub(crate) fn next(&mut self, followed: &Followed, retry: bool) -> Next {
        if self.current.as_ref() == Some(&followed.blob) {
            self.last_followed = self.last_followed.max(followed.pointer_day());
            self.rejected.clear();
            return Next::Stay;
        }
        match self.find_rejected(followed) {
            Some(rejected) if !retry => {
                let why = rejected.why.clone();
                if self.current.is_some() { Next::KeepCurrent(why) } else { Next::TryOlder(why) }
            }
            _ => Next::Load,
        }
    }

    /// The blob that is followed was loaded and swapped in.
    pub(crate) fn note_loaded(&mut self, followed: &Followed) {
        self.note_current(followed);
        self.rejected.clear();
    }

    fn find_rejected(&self, followed: &Followed) -> Option<&Rejected> {
        self.rejected.iter().find(|rejected| rejected.identity == identity(followed))
    }

    /// Counts a look at a rejected blob. Returns whether to load it again, since it is in the store
    /// by another upload now.
    pub(crate) fn look_for_new_upload(
        &mut self,
        followed: &Followed,
        upload: Option<&str>,
    ) -> bool {
        let identity = identity(followed);
        let Some(rejected) = self.rejected.iter_mut().find(|of| of.identity == identity) else {
            return false;
        };
        rejected.looks = rejected.looks.saturating_add(1);
        let is_another = upload.is_some() && rejected.upload.as_deref() != upload;
        is_another && rejected.looks >= rejected.due()
    }

    pub(crate) fn is_rejected(&self, followed: &Followed) -> bool {
        self.find_rejected(followed).is_some()
    }

    /// The blob, which is of this upload, has a permanent error.
    pub(crate) fn note_rejected(&mut self, followed: &Followed, why: &str, upload: Option<String>) {
        let identity = identity(followed);
        // An operator's reload may have loaded the same upload again.
        let (loads, looks) = match self.find_rejected(followed) {
            Some(before) if before.upload == upload => (before.loads, before.looks),
            Some(before) => (before.loads.saturating_add(1), 0),
            None => (1, 0),
        };
        self.rejected.retain(|rejected| rejected.identity != identity);
        self.rejected.push_back(Rejected { identity, why: why.to_owned(), upload, loads, looks });
        if self.rejected.len() > MAX_REJECTED {
            self.rejected.pop_front();
        }
    }

    /// The blob is current, perhaps in place of a rejected newer one, which stays remembered.
    pub(crate) fn note_current(&mut self, followed: &Followed) {
        self.current = Some(followed.blob.clone());
        // Also the day of a fallback: after a clock steps back, no older day may replace it.
        self.last_followed = self.last_followed.max(followed.pointer_day());
        self.served.retain(|digest| *digest != followed.blob.digest);
        self.served.push_back(followed.blob.digest);
        if self.served.len() > MAX_SERVED {
            self.served.pop_front();
        }
    }

    /// An earlier run followed the pointer of this day: it stays known after a clock steps back.
    pub(crate) fn restore_last_followed(&mut self, day: Option<Day>) {
        self.last_followed = self.last_followed.max(day);
    }

    /// Whether the guard judges this blob: only if its day is newer than `current`, its own pointer
    /// names it, and it was not current in this process before.
    pub(crate) fn is_judged(&self, followed: &Followed, current: Day) -> bool {
        let newer = followed.blob.day > current;
        let own_pointer = followed.pointer_day() == Some(followed.blob.day);
        newer && own_pointer && !self.served.contains(&followed.blob.digest)
    }
}

fn identity(followed: &Followed) -> (Digest, Option<u64>) {
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
        let mut state = FollowState::default();
        assert_eq!(state.next(&followed(1), false), Next::Load);
        state.note_loaded(&followed(1));
        assert_eq!(state.next(&followed(1), true), Next::Stay);
        assert_eq!(state.next(&followed(2), false), Next::Load);
    }

    #[test]
    fn a_damaged_blob_is_not_fetched_again_until_the_pointer_changes_or_an_operator_reloads() {
        let mut state = FollowState::default();
        state.note_loaded(&followed(1));
        state.note_rejected(&followed(2), "digest", None);
        assert_eq!(state.next(&followed(2), false), Next::KeepCurrent("digest".into()));
        assert_eq!(state.next(&followed(2), true), Next::Load);
        assert_eq!(state.next(&followed(3), false), Next::Load);
        state.note_loaded(&followed(3));
        assert_eq!(state.next(&followed(2), false), Next::Load, "the pointer changed");
    }

    #[test]
    fn a_damaged_blob_that_was_uploaded_again_is_known_by_the_store() {
        let mut state = FollowState::default();
        assert!(!state.look_for_new_upload(&followed(2), Some("b")), "it was not rejected");
        for (at, now, again) in [
            (Some("a"), Some("a"), false),
            (Some("a"), Some("b"), true),
            // The store failed once.
            (Some("a"), None, false),
            (None, Some("a"), true),
        ] {
            let mut state = FollowState::default();
            state.note_rejected(&followed(2), "digest", at.map(str::to_owned));
            assert_eq!(state.look_for_new_upload(&followed(2), now), again, "{at:?} {now:?}");
        }
        // A store that always says another: loaded less and less often.
        let mut loads = 0;
        for look in 0..1_000 {
            if loads == 0 || state.look_for_new_upload(&followed(2), Some(&look.to_string())) {
                state.note_rejected(&followed(2), "digest", Some(format!("before {look}")));
                loads += 1;
            }
        }
        assert!((8..16).contains(&loads), "{loads} loads");
        // Reloads by an operator make nothing later.
        let mut state = FollowState::default();
        (0..50).for_each(|_| state.note_rejected(&followed(2), "digest", Some("a".into())));
        assert!(state.look_for_new_upload(&followed(2), Some("b")));
    }

    #[test]
    fn every_damaged_blob_is_remembered_up_to_a_bound() {
        let mut state = FollowState::default();
        for digit in [1, 2, 3, 2] {
            state.note_rejected(&followed(digit), "digest", None);
        }
        for digit in [1, 2, 3] {
            assert_eq!(state.next(&followed(digit), false), Next::TryOlder("digest".into()));
            assert_eq!(state.next(&followed(digit), true), Next::Load);
        }
        for size in 0..1_000 {
            state.note_rejected(&Followed { bytes: Some(size), ..followed(9) }, "digest", None);
        }
        assert_eq!(state.rejected.len(), MAX_REJECTED);
    }

    #[test]
    fn a_corrected_size_in_the_record_is_loaded_again() {
        let mut state = FollowState::default();
        state.note_loaded(&followed(1));
        let short = Followed { bytes: Some(5), ..followed(2) };
        state.note_rejected(&short, "too many bytes", None);
        assert_eq!(state.next(&short, false), Next::KeepCurrent("too many bytes".into()));
        assert_eq!(state.next(&followed(2), false), Next::Load);
    }

    #[test]
    fn only_a_newer_day_by_its_own_pointer_that_was_never_live_is_judged() {
        let mut state = FollowState::default();
        let (today, before) = (followed(1).blob.day, followed(1).blob.day.minus(1));
        assert!(state.is_judged(&followed(1), before));
        assert!(!state.is_judged(&followed(1), today), "the same day, built again");
        assert!(!state.is_judged(&followed(1), today.plus(1)), "an older day");
        let pin = FollowedBy::Pin { until: None, reason: None };
        assert!(!state.is_judged(&Followed { by: pin, ..followed(1) }, before));
        let rollback = FollowedBy::Pointer { day: today.plus(1) };
        assert!(!state.is_judged(&Followed { by: rollback, ..followed(1) }, before));
        state.note_loaded(&followed(1));
        assert!(!state.is_judged(&followed(1), before), "it was current before");
        for digit in 2..=u8::MAX {
            state.note_loaded(&followed(digit));
        }
        assert_eq!(state.served.len(), MAX_SERVED);
    }

    #[test]
    fn without_a_live_filter_a_damaged_blob_sends_the_search_to_older_days() {
        let mut state = FollowState::default();
        state.note_rejected(&followed(2), "digest", None);
        assert_eq!(state.next(&followed(2), false), Next::TryOlder("digest".into()));
        state.note_current(&followed(1));
        assert_eq!(state.next(&followed(2), false), Next::KeepCurrent("digest".into()));
        // After a clock steps back, not even a fallback is replaced by an older day.
        assert_eq!(state.last_followed(), followed(1).pointer_day());
    }
}
