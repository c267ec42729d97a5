//! What holds when neither a flag, the environment nor the configuration file says otherwise.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use bloomsday_common::protocol::Retention;

/// Where a server answers lookups.
pub(crate) const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8642));
/// Where a server takes reloads.
pub(crate) const ADMIN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8643));
/// The false-positive probability to size a filter for.
pub(crate) const FPP: f64 = 0.03;
/// For how many earlier days' blobs a build makes deltas.
pub(crate) const DELTAS: u32 = 0;
/// How many days back a server follows a pointer.
pub(crate) const MAX_AGE_DAYS: u32 = Retention::DEFAULT.max_age_days;
/// For how many days an added ID is a hit by itself: until a day's filter has it, and two more.
pub(crate) const LIVE_DAYS: u32 = 3;
/// A run builds the day before its own.
pub(crate) const DAY_OFFSET: u32 = 1;
/// Missed runs of this many days are made up for: the days that a server would still follow.
pub(crate) const CATCH_UP_DAYS: u32 = MAX_AGE_DAYS;
/// How long after its run a day is late.
pub(crate) const DEADLINE: Duration = Duration::from_secs(6 * 3600);
/// How long input must stay unchanged before it is read.
pub(crate) const SETTLE: Duration = Duration::from_secs(300);
/// Whether servers write heartbeats to the store.
pub(crate) const HEARTBEATS: bool = true;
