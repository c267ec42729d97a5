//! A server with one filter of any size that never changes, for measurements.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::pointer::Pointer;

use super::blobs::{FIRST_DAY, day, encoded, rt, user};
use super::flaky_store::FlakyStore;
use super::process::{FakeClock, Process};
use crate::{Config, FilterConfig, Guard};

/// An ID as long as a device's.
pub(super) fn id(n: u64) -> [u8; 32] {
    let mut id = [b'x'; 32];
    id[..16].copy_from_slice(&user(n));
    id
}

/// A server whose filter contains the first `ids` of them.
pub(super) async fn serve(ids: u64, guard: Guard) -> Process {
    let shape = Shape::for_ids(Layout::Blocked, ids, 0.03).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    (0..ids).for_each(|n| filter.insert(Xxh3::of(&id(n))));
    let filter = filter.freeze();
    let (day, store) = (day(0), Arc::new(FlakyStore::new()));
    let (key, bytes) = encoded(day, ids, &filter);
    store.write(&key.to_string(), bytes).await;
    store.write(&format!("rt/pointers/{day}"), Pointer::to(key).to_bytes()).await;
    let clock = FakeClock::new(format!("{FIRST_DAY}T12:00:00Z").parse().unwrap());
    let filter = FilterConfig { guard, ..FilterConfig::new(rt()) };
    let process = Process::start(&store, &clock, &Config::new("", vec![filter]));
    while process.generation().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    process
}
