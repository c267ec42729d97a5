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
        serde_json::from_slice(bytes).map_err(|e| e.to_string())
    }
}
