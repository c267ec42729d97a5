//! A server with one filter of any size that never changes, for measurements.

use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::pointer::Pointer;

use super::blobs::{FIRST_DAY, day, rt, user};
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
    let (day, origin, ones) = (day(0), Origin::Built, filter.count_ones());
    let (fpp_target, fpp_hits, fpp_lookups) = (0.03, 29, 1_000);
    let header = Header {
        filter: rt(),
        day,
        shape,
        id_form: Default::default(),
        origin,
        ids,
        fpp_target,
        fpp_hits,
        fpp_lookups,
        ones,
    };
    let encoded = blob::encode(&header, &filter);
    let store = Arc::new(FlakyStore::new());
    store.write(&encoded.key().to_string(), encoded.parts().concat()).await;
    let pointer = Pointer::to(encoded.key().clone()).to_bytes();
    store.write(&format!("rt/pointers/{day}"), pointer).await;
    let clock = FakeClock::new(format!("{FIRST_DAY}T12:00:00Z").parse().unwrap());
    let filter = FilterConfig { guard, ..FilterConfig::new(rt()) };
    let process = Process::start(&store, &clock, &Config::new("", vec![filter]));
    while process.generation().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    process
}
