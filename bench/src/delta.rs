//! Deltas: their size compared with the entropy of what changed, how long it takes to make one, and
//! to apply one compared with a load of the full blob.

use std::sync::Arc;
use std::time::Instant;

use bloomsday_common::blob::{self, EncodedBlob};
use bloomsday_common::delta::{self, Content};
use bloomsday_common::filter::Filter;
use bloomsday_common::key::{BlobKey, DeltaKey};
use bloomsday_common::memory::Buffer;
use bloomsday_common::store::{DeltaRequest, Store};

use crate::Options;
use crate::fixtures;
use crate::measure::{Bound, Outcome, Samples, contestant, race};

/// The shares of IDs that leave, and as many arrive, in thousandths.
const CHURNS: [u64; 5] = [5, 10, 30, 100, 300];
/// The churns whose deltas are applied.
const APPLIED: [u64; 2] = [10, 100];
/// How often each delta is made.
const MAKE_ROUNDS: usize = 5;
const FULL: &str = "load of the full blob";

/// All bytes of a filter's blob.
struct Bytes(Filter);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.memory()
    }
}

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let store = Store::create(&folder.path().display().to_string()).expect("a store");
    let (header, filter) = fixtures::filter(0, options.ids);
    let base_key = runtime.block_on(fixtures::publish(&store, &header, &filter));
    drop(filter);
    let (_, base) = runtime.block_on(store.open_blob(&base_key)).expect("it was published");
    let base = Arc::new(Bytes(base));

    let mut sizes = Outcome::of("deltas, made and checked", "% of the blob, or seconds");
    let mut applied = Vec::new();
    for churn in CHURNS {
        let (header, filter) = fixtures::filter(options.ids * churn / 1_000, options.ids);
        let encoded = blob::encode(&header, &filter);
        let (bytes, seconds) = make(&base, &base_key, &encoded);
        let stated = delta::summary(&bytes, "the delta").expect("it is sound");
        let name = format!("{} %", churn as f64 / 10.0);
        let one = |value: f64| Samples(vec![value]);
        let size = bytes.len() as f64;
        sizes
            .rows
            .push((format!("{name} churn: size, %"), one(100.0 * size / encoded.len() as f64)));
        sizes.rows.push((format!("{name} churn: seconds"), seconds));
        let ratio = one(size / stated.entropy_bytes());
        sizes.claim(&format!("{name} churn: size / entropy"), ratio, Bound::AtMost(1.02));
        let (flips, full) = (stated.flips, encoded.len());
        sizes.note(format!("{name} churn: {size} bytes of {full}, {flips} flips"));
        if APPLIED.contains(&churn) {
            let key = runtime.block_on(fixtures::publish(&store, &header, &filter));
            let delta = DeltaKey::between(&base_key, &key);
            runtime.block_on(store.put_delta(&delta, &bytes)).expect("it is written");
            applied.push((name, key, delta));
        }
    }

    let millis = |clock: Instant| clock.elapsed().as_secs_f64() * 1e3;
    let (_, full, _) = applied[0].clone();
    let mut spare: Option<Buffer> = None;
    let mut contestants = vec![contestant(FULL, |_| {
        let memory = spare.take();
        let clock = Instant::now();
        let fetched = runtime.block_on(store.fetch_into(&full, u64::MAX, memory));
        let filter = blob::open(fetched.expect("the blob is read"), &full).expect("it is sound").1;
        let took = millis(clock);
        spare = Some(filter.into_memory());
        took
    })];
    let by_delta = |name: &str| format!("by the delta of {name} churn");
    for (name, key, delta) in &applied {
        let (runtime, store, base, base_key) = (&runtime, &store, &base, &base_key);
        let mut spare: Option<Buffer> = None;
        contestants.push(contestant(&by_delta(name), move |_| {
            let memory = spare.take();
            let memory = move |bytes| Buffer::reuse(memory, bytes);
            let way = DeltaRequest { base: base.clone(), from: base_key.digest, to: key.digest };
            let clock = Instant::now();
            let fetched = runtime.block_on(async {
                store.open_delta(delta, u64::MAX).await?.apply(way, memory).await
            });
            let fetched = fetched.expect("the delta is applied").0;
            let filter = blob::open(fetched, key).expect("it is sound").1;
            let took = millis(clock);
            spare = Some(filter.into_memory());
            took
        }));
    }
    let mut loads =
        race("loads from a local store, memory used again", "ms", options.rounds, contestants);
    for (name, ..) in &applied {
        loads.compare(&by_delta(name), FULL, Bound::AtMost(2.0));
    }
    vec![sizes, loads]
}

/// Makes a delta some times. Returns its bytes, and the seconds of each.
fn make(base: &Bytes, key: &BlobKey, new: &EncodedBlob<'_>) -> (Vec<u8>, Samples) {
    let mut bytes = Vec::new();
    let mut seconds = Vec::new();
    for _ in 0..MAKE_ROUNDS {
        let clock = Instant::now();
        let made =
            delta::make(Content::of(base.as_ref(), key.digest), Content::from(new), u64::MAX);
        seconds.push(clock.elapsed().as_secs_f64());
        bytes = made.expect("both have one shape").expect("no limit").bytes;
    }
    (bytes, Samples(seconds))
}
