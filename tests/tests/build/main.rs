//! How a day is built from input: what is read and refused, gates, windows, the schedule, and
//! builds that are killed.

mod bad_input;
mod bad_parquet;
mod baseline;
mod corruption;
mod crash;
mod daily;
mod delta;
mod disk_full;
mod gates;
mod input;
mod large;
mod memory;
mod objects;
mod schedule;
mod small_days;
mod store_faults;
mod url_ids;
mod window;
