//! [`Lease`]: which server decides what is new in a live filter. The record `{filter}/live/lease`,
//! written only over what was read; and [`claim`], the decision of a server that wants it. No I/O
//! here, and no clock.
//!
//! A holder renews its lease three times in its length. It stops when its own clock says that the
//! lease is over, counted from before the write that the store took. So two servers may decide at
//! the same time for at most the length of one lease, whatever other clocks say: this begins when
//! another server takes the lease, and ends when the holder's next renewal fails or its time is
//! over.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::protocol::RecordState;
use crate::redact::sanitize;

/// Which server decides, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The server, for people.
    pub decider: String,
    /// The number of its log, as 16 hex digits: a restart on the same data folder goes on with it.
    pub node: String,
    /// Increased by each process that takes the lease.
    pub epoch: u64,
    /// When it ends unless it is renewed, by the holder's clock.
    pub until: Timestamp,
    /// The length of the lease in seconds.
    pub seconds: u64,
}

impl Lease {
    /// The bytes of the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a lease holds only strings and numbers")
    }

    /// Reads a record. What it says for people is made fit for a message.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Lease, String> {
        let lease: Lease = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        Ok(Lease { decider: sanitize(&lease.decider), ..lease })
    }
}

/// A server that wants the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The number of its log.
    pub node: &'a str,
    /// The epoch in which it has the lease, as far as it knows.
    pub own_epoch: Option<u64>,
    /// For how long it has seen the same record, by its own clock.
    pub unchanged: Duration,
}

/// What a server does about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// It writes the record with this epoch over what it read, and has the lease if that succeeds.
    Write {
        /// The epoch: that of before for a renewal, else a higher one.
        epoch: u64,
    },
    /// It waits: another one has the lease. `None` when the record cannot be read.
    Wait(Option<&'a Lease>),
}

/// Whether a server may take the lease, or renew it.
///
/// One that ended is free; so is one that did not change for its whole length while this server
/// read it, whatever the clock of its holder says.
///
/// ```
/// use std::time::Duration;
/// use bloomsday_common::live::lease::{Candidate, Claim, Lease, claim};
/// use bloomsday_common::protocol::RecordState;
///
/// let until = "2026-11-23T12:00:10Z".parse()?;
/// let lease = Lease { decider: "a".into(), node: "0a".into(), epoch: 3, until, seconds: 10 };
/// let there = RecordState::Found(lease.clone());
/// let successor = Candidate { node: "0b", own_epoch: None, unchanged: Duration::ZERO };
/// assert_eq!(claim(&there, successor, "2026-11-23T12:00:05Z".parse()?), Claim::Wait(Some(&lease)));
/// assert_eq!(claim(&there, successor, until), Claim::Write { epoch: 4 });
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn claim<'a>(there: &'a RecordState<Lease>, by: Candidate<'_>, now: Timestamp) -> Claim<'a> {
    let lease = match there {
        RecordState::Absent => return Claim::Write { epoch: by.own_epoch.unwrap_or(1) },
        // Nobody can renew what cannot be read.
        RecordState::Unreadable(_) if by.unchanged >= UNREADABLE => {
            return Claim::Write { epoch: by.own_epoch.map_or(1, |epoch| epoch.saturating_add(1)) };
        }
        RecordState::Unreadable(_) => return Claim::Wait(None),
        RecordState::Found(lease) => lease,
    };
    let next = Claim::Write { epoch: lease.epoch.saturating_add(1) };
    if lease.node == by.node {
        return match by.own_epoch {
            Some(epoch) if epoch == lease.epoch => Claim::Write { epoch },
            // Another process has the same log: a copy of the data folder.
            Some(_) => Claim::Wait(Some(lease)),
            None => next,
        };
    }
    let is_over = lease.until <= now || by.unchanged >= Duration::from_secs(lease.seconds);
    if is_over { next } else { Claim::Wait(Some(lease)) }
}

/// For how long a record that cannot be read counts as a lease.
pub const UNREADABLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(node: &str, epoch: u64, until: i64) -> RecordState<Lease> {
        let until = Timestamp::from_second(until).unwrap();
        let (decider, node) = (format!("host-{node}"), node.to_owned());
        RecordState::Found(Lease { decider, node, epoch, until, seconds: 10 })
    }

    fn by(node: &str, own_epoch: Option<u64>, unchanged: u64) -> Candidate<'_> {
        Candidate { node, own_epoch, unchanged: Duration::from_secs(unchanged) }
    }

    fn claimed(there: &RecordState<Lease>, by: Candidate<'_>, now: i64) -> Option<u64> {
        match claim(there, by, Timestamp::from_second(now).unwrap()) {
            Claim::Write { epoch } => Some(epoch),
            Claim::Wait(_) => None,
        }
    }

    #[test]
    fn a_lease_is_free_when_nobody_has_it_or_it_ended_or_its_holder_is_silent() {
        assert_eq!(claimed(&RecordState::Absent, by("a", None, 0), 100), Some(1));
        let there = lease("b", 4, 110);
        assert_eq!(claimed(&there, by("a", None, 0), 109), None);
        assert_eq!(claimed(&there, by("a", None, 0), 110), Some(5));
        // The holder's clock is an hour ahead.
        let there = lease("b", 4, 3_710);
        assert_eq!(claimed(&there, by("a", None, 9), 109), None);
        assert_eq!(claimed(&there, by("a", None, 10), 110), Some(5));
        let unreadable = RecordState::Unreadable("no JSON".into());
        assert_eq!(claimed(&unreadable, by("a", None, 59), 100), None);
        assert_eq!(claimed(&unreadable, by("a", None, 60), 100), Some(1));
    }

    #[test]
    fn a_holder_renews_its_epoch_and_a_restart_takes_the_next_one() {
        let there = lease("a", 4, 110);
        assert_eq!(claimed(&there, by("a", Some(4), 3), 103), Some(4));
        assert_eq!(claimed(&there, by("a", None, 0), 103), Some(5));
        assert_eq!(claimed(&there, by("a", Some(3), 0), 103), None, "a copy of the data folder");
        assert_eq!(claimed(&lease("b", 5, 110), by("a", Some(4), 0), 103), None, "it was lost");
        assert_eq!(claimed(&RecordState::Absent, by("a", Some(4), 0), 103), Some(4));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let RecordState::Found(lease) = lease("a", 4, 110) else { unreachable!() };
        assert_eq!(Lease::parse(&lease.to_bytes()), Ok(lease));
        assert!(Lease::parse(b"{}").is_err());
    }
}
