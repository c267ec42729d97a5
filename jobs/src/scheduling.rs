//! When a filter is built: cron expressions ([`cron`]) and the decisions made from them
//! ([`rules`]). Nothing here reads a clock, a file or the network.

pub(crate) mod cron;
pub(crate) mod rules;
