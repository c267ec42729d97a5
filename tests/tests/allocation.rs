//! A lookup allocates nothing, sampled or not.

use bloomsday_server::{Config, FilterConfig, start};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::user;
use bloomsday_tests::publisher::Publisher;

#[test]
fn a_lookup_allocates_nothing() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 0).users(0..5_000).publish();

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let filters = vec![FilterConfig::new("rt".parse().unwrap())];
    let bloomsday = runtime.block_on(start(Config::new(&backend.store, filters))).unwrap();
    let rt = bloomsday.filter("rt").unwrap();
    let mut reader = rt.reader();
    let ids: Vec<String> = (0..10_000).map(user).collect();
    let mut answers = vec![false; ids.len()];
    // A thread's first lookup registers the thread, once.
    rt.contains(b"x");

    // Enough that the sample fills up and begins to replace: one in 128, 4,096 of them.
    let mut hits = 0u64;
    let counted = allocation_counter::measure(|| {
        for _ in 0..60 {
            hits += ids.iter().filter(|id| reader.contains(id.as_bytes())).count() as u64;
            hits += ids.iter().filter(|id| rt.contains(id.as_bytes())).count() as u64;
            rt.contains_batch(&ids, &mut answers);
        }
    });
    assert!(hits >= 60 * 2 * 5_000);
    assert_eq!(counted.count_total, 0, "{counted:?}");
    // The counter counts.
    assert!(allocation_counter::measure(|| drop(user(1))).count_total > 0);
}
