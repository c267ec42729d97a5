//! Our own filters, made and published the way a builder does it.

use std::path::Path;
use std::sync::Arc;

use bloomsday_builder::fill;
use bloomsday_builder::partition::{Distinct, PartitionWriter, Partitions};
use bloomsday_builder::verify;
use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::Pointer;
use bloomsday_common::store::Store;
use bloomsday_server::{Bloomsday, Config, FilterConfig};

use crate::ids;

pub(crate) const FPP: f64 = 0.03;
/// How long live IDs are alive.
#[cfg(feature = "live")]
const LIVE_DAYS: u8 = 3;

pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The distinct hashes of the IDs of `first .. first + n`.
pub(crate) fn distinct(first: u64, n: u64) -> Distinct<Xxh3> {
    let partitions = partition(n, |number| Xxh3::of(&ids::id(first + number)));
    partitions.distinct(threads(), u64::MAX).expect("memory keeps hashes as they were")
}

/// Partitions the hashes of the numbers `0 .. n` on all threads.
pub(crate) fn partition(n: u64, hash: impl Fn(u64) -> Xxh3 + Sync) -> Partitions<Xxh3> {
    let partitions = Arc::new(Partitions::new(u64::MAX, &std::env::temp_dir()));
    let each = n.div_ceil(threads() as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads() as u64 {
            let (partitions, hash) = (partitions.clone(), &hash);
            scope.spawn(move || {
                let mut writer = PartitionWriter::new(partitions);
                for number in thread * each..n.min((thread + 1) * each) {
                    writer.push(hash(number));
                }
                writer.finish().expect("nothing is spilled");
            });
        }
    });
    Arc::into_inner(partitions).expect("all writers are finished")
}

/// A filter with the IDs of `first .. first + n`.
pub(crate) fn filter(first: u64, n: u64) -> (Header, Filter) {
    let distinct = distinct(first, n);
    assert_eq!(distinct.n_ids(), n, "IDs of different numbers differ");
    let shape = Shape::for_ids(Layout::Blocked, n, FPP).expect("a size there is");
    let filter = fill::fill(&distinct, shape, threads()).expect("memory for a filter");
    let header = Header {
        filter: "rt".parse().expect("a good name"),
        day: day(),
        shape,
        id_form: Default::default(),
        origin: Origin::Built,
        ids: n,
        fpp_target: FPP,
        fpp_hits: verify::count_false_positives::<Xxh3>(&filter, threads()),
        fpp_lookups: verify::ABSENT_LOOKUPS,
        ones: filter.count_ones(),
    };
    (header, filter)
}

/// Today, so that a server follows its pointer.
pub(crate) fn day() -> Day {
    Day::of(jiff::Timestamp::now())
}

/// Puts a filter into a store and points the day at it.
pub(crate) async fn publish(store: &Store, header: &Header, filter: &Filter) -> BlobKey {
    let encoded = blob::encode(header, filter);
    store.put_blob(&encoded, &|_| ()).await.expect("the blob is written");
    let key = encoded.key().clone();
    point(store, &key).await;
    key
}

/// Points the day at a blob.
pub(crate) async fn point(store: &Store, key: &BlobKey) {
    let read = store.pointer(&key.filter, day()).await.expect("the pointer is read");
    let pointer = Pointer::to(key.clone());
    store
        .put_pointer(&key.filter, day(), &pointer, &read.version)
        .await
        .expect("the pointer moves");
}

/// Serves `rt` from a folder, which reads the pointer only at a reload.
pub(crate) async fn serve(folder: &Path) -> Bloomsday {
    bloomsday_server::start(config(folder)).await.expect("the filter is served")
}

/// The same with live IDs over it.
#[cfg(feature = "live")]
pub(crate) async fn serve_live(folder: &Path, live: bloomsday_server::live::Live) -> Bloomsday {
    let mut config = config(folder);
    config.live = Some(live);
    config.filters[0].live_days = Some(LIVE_DAYS);
    bloomsday_server::start(config).await.expect("the filter is served")
}

fn config(folder: &Path) -> Config {
    let filters = vec![FilterConfig::new("rt".parse().expect("a good name"))];
    let mut config = Config::new(&folder.display().to_string(), filters);
    config.poll_interval = std::time::Duration::from_secs(3600);
    config
}
