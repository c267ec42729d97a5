//! Loads: a published blob → memory that answers, checked, compared with a plain read of the same
//! file.

use std::fs::File;
use std::io::Read;
use std::time::Instant;

use bloomsday_common::blob;
use bloomsday_common::memory::Buffer;
use bloomsday_common::store::Store;

use crate::Options;
use crate::fixtures;
use crate::measure::{Bound, Outcome, contestant, race};

const PLAIN: &str = "plain read, one thread, memory touched before";
const REUSED: &str = "load, digest and checks, memory used again";

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (store, key) = runtime.block_on(async {
        let store = Store::create(&folder.path().display().to_string()).expect("a store");
        let (header, filter) = fixtures::filter(0, options.ids);
        let key = fixtures::publish(&store, &header, &filter).await;
        (store, key)
    });
    let path = folder.path().join(key.to_string());
    let bytes = std::fs::metadata(&path).expect("it was published").len();

    let fetch = |spare| {
        let fetched = runtime.block_on(store.fetch_into(&key, u64::MAX, spare));
        fetched.expect("the blob is read")
    };
    let checked = |fetched| blob::open(fetched, &key).expect("it is sound").1;
    let millis = |clock: Instant| clock.elapsed().as_secs_f64() * 1e3;
    let mut huge = None;
    let mut plain = vec![0; bytes as usize];
    let mut spare: Option<Buffer> = Some(fetch(None).memory);
    let contestants = vec![
        contestant(PLAIN, |_| {
            let clock = Instant::now();
            let mut file = File::open(&path).expect("it is there");
            file.read_exact(&mut plain).expect("it is read");
            millis(clock)
        }),
        contestant("fetch and digest, new memory", |_| {
            let clock = Instant::now();
            let fetched = fetch(None);
            let took = millis(clock);
            drop(fetched);
            took
        }),
        contestant("load, digest and checks, new memory", |_| {
            let clock = Instant::now();
            let filter = checked(fetch(None));
            let took = millis(clock);
            huge = filter.memory().huge_bytes();
            took
        }),
        contestant(REUSED, |_| {
            let memory = spare.take();
            let clock = Instant::now();
            let filter = checked(fetch(memory));
            let took = millis(clock);
            spare = Some(filter.into_memory());
            took
        }),
    ];
    let mut outcome = race("loads", "ms", options.rounds, contestants);
    outcome.compare(REUSED, PLAIN, Bound::AtMost(1.3));
    outcome.compare("load, digest and checks, new memory", PLAIN, Bound::None);
    let mib = |bytes: u64| bytes >> 20;
    outcome.note(format!("the blob has {} MiB, in the page cache", mib(bytes)));
    if let Some(huge) = huge {
        outcome.note(format!("{} MiB of it lay in huge pages", mib(huge)));
    }
    vec![outcome]
}
