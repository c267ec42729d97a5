//! [`Head`]: how much of a log is in the store. The record `{filter}/live/heads/{node}`, which the
//! log's writer replaces after each segment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How much of a log is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The server that writes the log, for people.
    pub server: String,
    /// The number of the last frame in the store; 0 for none.
    pub seq: u64,
    /// What was changed before this time, by the writer's clock, is in the store.
    pub through: Timestamp,
    /// `created_ms` of the header of the segment in which frame `seq` is: if the log has that frame
    /// in another segment, it was restored from an older copy. Without it nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ms: Option<u64>,
}

impl Head {
    /// The bytes of the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a head holds only strings and numbers")
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Head, String> {
        let head: Head = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        match head.seq {
            // No frame could follow it, and nobody would ever know that it is there.
            u64::MAX => Err("`seq` is the largest number there is".into()),
            _ => Ok(head),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_one_without_a_next_frame_is_refused() {
        let head = |seq| Head {
            server: "vm".into(),
            seq,
            through: Timestamp::UNIX_EPOCH,
            created_ms: Some(7),
        };
        for seq in [0, 7, u64::MAX - 1] {
            assert_eq!(Head::parse(&head(seq).to_bytes()).unwrap(), head(seq));
        }
        let why = Head::parse(&head(u64::MAX).to_bytes()).unwrap_err();
        assert!(why.contains("`seq`"), "{why}");
    }
}
