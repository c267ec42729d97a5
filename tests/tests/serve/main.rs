//! The daemon: lookups, swaps, rollbacks, the page, fleets, and stores that fail.

mod cache;
mod daemon;
mod fairness;
mod fleet;
mod follow;
mod guard;
mod hostile;
mod http_requests;
mod operator;
mod outage;
mod page;
mod poll_isolation;
mod relay;
mod rollback;
mod store_faults;
mod swaps;
mod tls;
mod trace;
