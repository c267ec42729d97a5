//! How a scan ends, and what its sinks see of it.

use super::*;

#[test]
fn a_panic_of_a_sink_is_not_blamed_on_the_file() {
    let path = format!("{FIXTURES}/pyarrow-string.parquet");
    let files = block_on(find(&[path], "2026-11-19".parse().unwrap())).unwrap();
    let sink = |_| |_: &[u8]| panic!("out of luck");
    let scan = || block_on(scan(files, "id", BUDGET, 1, sink, &|_| ())).map(|_| ());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scan)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"out of luck"));
}

#[test]
fn after_a_failure_no_sink_is_ended() {
    struct Watched(Arc<AtomicBool>);
    impl Sink for Watched {
        type Output = ();
        fn push(&mut self, _: &[u8]) {}
        fn finish(self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let scan = |names: &[&str]| {
        let ended = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&ended);
        let files = names.iter().map(|name| format!("{FIXTURES}/{name}")).collect::<Vec<_>>();
        let scanned = block_on(async {
            let files = find(&files, "2026-11-19".parse().unwrap()).await?;
            let sink = move |_| Watched(Arc::clone(&watched));
            scan(files, "id", BUDGET, 1, sink, &|_| ()).await
        });
        (scanned.is_ok(), ended.load(Ordering::Relaxed))
    };
    assert_eq!(scan(&["pyarrow-string.parquet"]), (true, true));
    assert_eq!(scan(&["pyarrow-string.parquet", "corrupt-page-body-ff.parquet"]), (false, false));
}

#[test]
fn dropping_a_scan_ends_its_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..200_000).map(|i| format!("{i}")).collect();
    write(
        &path,
        &ids,
        WriterProperties::builder().set_max_row_group_row_count(Some(10_000)).build(),
    );
    let alive = Arc::new(());
    block_on(async {
        let files =
            find(&[path.display().to_string()], "2026-11-19".parse().unwrap()).await.unwrap();
        let (begun, mut first) = mpsc::unbounded_channel();
        let there = Arc::clone(&alive);
        let sink = move |_| {
            let (alive, begun) = (Arc::clone(&there), begun.clone());
            move |_: &[u8]| {
                let _ = (&alive, begun.send(()));
                std::thread::yield_now();
            }
        };
        let running = scan(files, "id", BUDGET, 3, sink, &|_| ());
        tokio::select! {
            _ = running => panic!("the scan was not stopped"),
            _ = first.recv() => (),
        }
    });
    let begun = Instant::now();
    while Arc::strong_count(&alive) > 1 {
        assert!(begun.elapsed() < Duration::from_secs(20), "a thread is left");
        std::thread::yield_now();
    }
}
