//! URLs as IDs of a filter of the configuration: every way to build it and to look up takes two
//! spellings of one page for one ID, and who does not is told so.

use std::path::Path;

use bloomsday_server::live::{Live, LiveConfig};
use bloomsday_server::{Config, FilterConfig, start};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, write_rows};
use bloomsday_tests::live::Wire;

/// A page in two spellings.
fn spellings(page: u64) -> [String; 2] {
    [
        format!("https://Shop.example:443/a/../page/{page}?size=1&colour=%72ed#top"),
        format!("http://shop.example/page/{page}?colour=red&size=1"),
    ]
}

fn path(backend: &Backend, name: &str) -> String {
    backend.folder.path().join(name).display().to_string()
}

/// Writes pages in one spelling, and builds a day of them; the report.
fn build(backend: &Backend, spelling: usize, more: &[&str]) -> serde_json::Value {
    let file = path(backend, &format!("in-{spelling}.parquet"));
    write_rows(Path::new(&file), (0..2_000).map(|page| Some(spellings(page)[spelling].clone())));
    let day = today().to_string();
    let words = ["build", "rt", "--day", &day, "--input", &file, "--column", "device_id"];
    backend.bloomsday(&[&words[..], more].concat()).run().expect(0).json()
}

fn configured(backend: &Backend, id: &str) -> String {
    let config = path(backend, &format!("{id}.toml"));
    let text = format!("[filters.rt]\nlive = \"decide\"\nid = \"{id}\"\n");
    std::fs::write(&config, text).unwrap();
    config
}

fn digest(report: &serde_json::Value) -> String {
    report["digest"].as_str().unwrap().to_owned()
}

#[test]
fn two_spellings_of_a_page_are_one_id_however_it_is_built_added_and_looked_up() {
    let backend = Backend::local();
    let built = build(&backend, 0, &["--id", "url"]);
    assert_eq!(built["ids"], 2_000);
    let config = configured(&backend, "url");
    let again = build(&backend, 1, &["--config", &config]);
    assert_eq!((digest(&again), &again["outcome"]), (digest(&built), &"unchanged".into()));
    let as_bytes = build(&backend, 0, &["--dry-run"]);
    assert_ne!(digest(&as_bytes), digest(&built));
    let blob = built["blob"].as_str().unwrap();
    let inspected = backend.bloomsday(&["inspect", blob]).run().expect(0).json();
    assert_eq!(inspected["id"], "url");
    // Commands follow the header.
    for spelling in spellings(7) {
        backend.bloomsday(&["query", "rt", &spelling]).run().expect(0);
        backend.bloomsday(&["trace", "rt", &spelling]).run().expect(0);
    }
    let flags = ["--config", &config, "--resp", "127.0.0.1:0"];
    let data = path(&backend, "data");
    let daemon = Daemon::ready(&backend, &[&flags[..], &["--data-dir", &data]].concat());
    let mut wire = Wire::connect(daemon.resp.as_ref().unwrap());
    let many = |spelling: usize| {
        let ids: Vec<String> = (0..2_000).map(|page| spellings(page)[spelling].clone()).collect();
        daemon.post("/v1/filters/rt/query", ids.join("\n").as_bytes()).body.matches('1').count()
    };
    assert_eq!((many(0), many(1)), (2_000, 2_000));
    let absent = (100_000..).map(spellings);
    let mut absent = absent.filter(|page| wire.call(&format!("BF.EXISTS rt {}", page[0])) == ":0|");
    let mut next = || absent.next().unwrap();
    let ([a, b], [c, d], [e, f]) = (next(), next(), next());
    drop(absent);
    // HTTP, Redis clients: who adds one spelling has added the other.
    assert_eq!(daemon.post("/v1/filters/rt/add", a.as_bytes()).body, "1\n");
    assert_eq!(wire.call(&format!("BF.ADD rt {b}")), ":0|");
    assert_eq!(daemon.post("/v1/filters/rt/query", b.as_bytes()).body, "1\n");
    assert_eq!(wire.call(&format!("SADD rt {c}")), ":1|");
    assert_eq!(daemon.post("/v1/filters/rt/add", d.as_bytes()).body, "0\n");
    assert_eq!(daemon.post("/v1/filters/rt/forget", c.as_bytes()).body, "1\n");
    assert_eq!(wire.call(&format!("SISMEMBER rt {d}")), ":0|");
    // The day's filter knows a page in any spelling.
    let [known, other] = spellings(3);
    assert_eq!(wire.call(&format!("BF.MADD rt {known} {other}")), "*2|:0|:0|");
    let live = &daemon.status()["live"];
    assert_eq!((&live["added_new"], &live["added_seen"]), (&2.into(), &4.into()), "{live}");
    assert_eq!(
        (&live["seen_by_day"], &live["domains"][0]["domain"]),
        (&1.into(), &"shop.example".into())
    );
    let metrics = daemon.get("/metrics").body;
    for line in [
        "bloomsday_live_tier_total{filter=\"rt\",tier=\"day\"} 1",
        "bloomsday_live_tier_total{filter=\"rt\",tier=\"live\"} 3",
        "bloomsday_live_tier_total{filter=\"rt\",tier=\"none\"} 2",
        "bloomsday_live_domain_share{domain=\"shop.example\",filter=\"rt\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    assert!(!metrics.contains("/page/"), "an ID is in the metrics");
    // It gives its lease back.
    daemon.signal("TERM");
    assert_eq!(daemon.wait(), 0);

    // The library.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut filter = FilterConfig::new("rt".parse().unwrap());
        filter.id_form = "url".parse().unwrap();
        filter.live_days = Some(3);
        let mut config = Config::new(&backend.store, vec![filter]);
        config.live = Some(Live::open(LiveConfig::new(None)).unwrap());
        let bloomsday = start(config).await.unwrap();
        let rt = bloomsday.filter("rt").unwrap();
        let mut reader = rt.reader();
        let [known, other] = spellings(4);
        assert!(rt.contains(other.as_bytes()) && reader.contains(known.as_bytes()));
        assert!(!rt.contains(e.as_bytes()));
        assert!(rt.add(e.as_bytes()).await.unwrap());
        assert!(rt.contains(f.as_bytes()) && reader.contains(f.as_bytes()));
        let mut answers = [false; 2];
        reader.contains_batch(&[f.as_bytes(), other.as_bytes()], &mut answers);
        assert_eq!(answers, [true, true]);
    });
}

#[test]
fn a_server_says_that_a_blob_has_other_ids() {
    let backend = Backend::local();
    let data = path(&backend, "data");
    for (built, configured_as) in [("url", "bytes"), ("bytes", "url")] {
        build(&backend, 0, &["--id", built]);
        let config = configured(&backend, configured_as);
        let daemon = Daemon::start(&backend, &["--config", &config, "--data-dir", &data]);
        daemon.until("the load has failed", |daemon| daemon.status()["last_error"].is_string());
        let why = daemon.status()["last_error"].as_str().unwrap().to_owned();
        let says = [format!("form `{built}`"), format!("form `{configured_as}`"), "id = ".into()];
        assert!(says.iter().all(|part| why.contains(part)), "{why}");
        assert_eq!(daemon.get("/readyz").status, 503);
        // It gives its lease back.
        daemon.signal("TERM");
        assert_eq!(daemon.wait(), 0);
        std::fs::remove_dir_all(&data).unwrap();
    }
    backend.bloomsday(&["build", "rt", "--day", "2026-01-01", "--id", "uri"]).run().expect(2);
}
