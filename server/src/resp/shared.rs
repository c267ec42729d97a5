//! [`Shared`]: what all connections of an address share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use crate::live::Live;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) live: Live,
    pub(crate) address: SocketAddr,
    pub(crate) allow_flush: bool,
    pub(crate) started: Instant,
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) commands: AtomicU64,
}
