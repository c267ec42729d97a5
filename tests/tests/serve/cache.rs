//! The cache is only a cache: bound to its store, apart from every store, and harmless whatever
//! lies in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bloomsday_tests::backend::Backend;
use bloomsday_tests::daemon::Daemon;
use bloomsday_tests::input::{today, user};
use bloomsday_tests::other_programs::copy_folder;
use bloomsday_tests::program::Run;
use bloomsday_tests::publisher::Publisher;

/// Every file below a folder, with what is in it; a link is not followed.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // A server may rename its temporary file at this moment: then it is no file of the folder.
        let about = match fs::symlink_metadata(&path) {
            Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
            about => about.unwrap(),
        };
        if about.is_dir() {
            found.extend(files(&path));
            continue;
        }
        let bytes = if about.is_file() { fs::read(&path) } else { Ok(Vec::new()) };
        match bytes {
            Err(gone) if gone.kind() == ErrorKind::NotFound => {}
            bytes => _ = found.insert(path, bytes.unwrap()),
        }
    }
    found
}

fn is_cached(cache: &Path) -> bool {
    cache.join("rt/followed").exists()
}

/// Starts with this cache, waits until a copy is there, and stops.
fn fill(backend: &Backend, cache: &Path) {
    let daemon = Daemon::ready(backend, &["--cache-dir", &cache.display().to_string()]);
    daemon.until("the blob is cached", |_| is_cached(cache));
}

#[test]
fn all_filters_of_a_server_are_cached_at_its_start_and_again_after_the_folder_is_deleted() {
    let backend = Backend::local();
    let filters = ["a", "b", "c", "d", "e"];
    for filter in filters {
        Publisher::days_ago(&backend, 1).filter(filter).users(0..5_000).publish();
    }
    let cache = backend.folder.path().join("cache");
    let folder = cache.display().to_string();
    let flags: Vec<&str> = filters.iter().flat_map(|filter| ["--filter", *filter]).collect();
    let daemon = Daemon::ready(&backend, &[&flags[..], &["--cache-dir", &folder]].concat());
    let are_cached = |_: &Daemon| filters.iter().all(|f| cache.join(f).join("followed").exists());
    daemon.until("all are cached, though the next poll is tomorrow", are_cached);
    fs::remove_dir_all(&cache).unwrap();
    for filter in filters {
        Publisher::days_ago(&backend, 0).filter(filter).users(0..6_000).publish();
    }
    assert_eq!(daemon.reload("").0, 200);
    daemon.until("all are cached again", are_cached);
}

/// Runs a server with this cache until it ends: one that is refused.
fn serve(backend: &Backend, cache: &str) -> Run {
    let words = ["serve", "--filter", "rt", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    backend.bloomsday(&[&words[..], &["--cache-dir", cache]].concat()).run()
}

#[test]
fn a_folder_that_is_a_store_or_lies_in_one_is_refused_and_stays_as_it_is() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    Publisher::days_ago(&backend, 0).users(100..1_100).publish();
    let other = Backend {
        store: backend.folder.path().join("other").display().to_string(),
        ..Backend::local()
    };
    Publisher::days_ago(&other, 0).users(0..1_000).publish();
    let root = PathBuf::from(&backend.store);
    let link = backend.folder.path().join("link");
    symlink(&root, &link).unwrap();
    let before = [files(&root), files(other.store.as_ref())];
    let mirror = PathBuf::from(&other.store);
    for folder in [
        root.clone(),
        root.join("."),
        link.clone(),
        link.join("cache"),
        root.join("cache"),
        root.join("cache/of/this/host"),
        root.join("rt"),
        root.join("rt/blobs"),
        root.join("rt/pointers/x"),
        mirror.clone(),
        mirror.join("cache"),
        mirror.join("rt"),
    ] {
        let folder = folder.display().to_string();
        serve(&backend, &folder).expect(2).complains(&["cache", "a folder of its own"]);
        assert_eq!([files(&root), files(other.store.as_ref())], before, "{folder} was changed");
    }
    // Next to it is allowed.
    fill(&backend, &backend.folder.path().join("cache"));
}

#[test]
fn a_cache_of_another_store_is_refused() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let cache = backend.folder.path().join("cache");
    fill(&backend, &cache);
    let empty = backend.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let staging = Backend { store: empty.display().to_string(), ..Backend::local() };
    let before = files(&cache);
    let folder = cache.display().to_string();
    let run = serve(&staging, &folder);
    run.expect(2).complains(&[&folder, &backend.store, "a folder of its own"]);
    assert_eq!(files(&cache), before);
    // The same store by another name of it is the same.
    let link = backend.folder.path().join("link");
    symlink(&backend.store, &link).unwrap();
    let linked = Backend { store: link.display().to_string(), ..Backend::local() };
    drop(Daemon::ready(&linked, &["--cache-dir", &folder]));
}

#[test]
fn a_record_that_was_brought_from_the_cache_of_another_store_is_not_believed() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let cache = backend.folder.path().join("cache");
    fill(&backend, &cache);
    let other = backend.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let staging = Backend { store: other.display().to_string(), ..Backend::local() };
    let own = backend.folder.path().join("own");
    fs::create_dir(&own).unwrap();
    copy_folder(&cache.join("rt"), &own);
    let daemon = Daemon::start(&staging, &["--cache-dir", &own.display().to_string()]);
    daemon.until("it has looked", |daemon| !daemon.status()["last_poll"].is_null());
    assert_eq!(daemon.get("/readyz").status, 503, "another store's filter answers");
}

/// What a hostile hand may put in a file's place.
fn put(what: &str, place: &Path, outside: &Path) {
    let _ = fs::remove_file(place);
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    match what {
        "a pipe" => {
            assert!(Command::new("mkfifo").arg(place).status().unwrap().success());
        }
        "a link to a file" => symlink(outside.join("file"), place).unwrap(),
        "a link to a folder" => symlink(outside, place).unwrap(),
        "a link to nothing" => symlink(outside.join("nothing"), place).unwrap(),
        "a link to itself" => symlink(place, place).unwrap(),
        "a folder" => fs::create_dir_all(place.join("sub")).unwrap(),
        "a device" => symlink("/dev/zero", place).unwrap(),
        "a huge file" => File::create(place).unwrap().set_len(1 << 40).unwrap(),
        "garbage" => fs::write(place, "half a ro").unwrap(),
        other => panic!("{other}?"),
    }
}

/// The file that is renamed to `place` when it is complete.
fn temporary_of(place: &Path, end: &str) -> PathBuf {
    place.with_file_name(format!(".{}.{end}", place.file_name().unwrap().to_str().unwrap()))
}

#[test]
fn whatever_stands_in_a_cache_no_look_stops_and_nothing_foreign_is_touched() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let pattern = backend.folder.path().join("pattern");
    fill(&backend, &pattern);
    let mut places: Vec<PathBuf> = files(&pattern)
        .into_keys()
        .map(|path| path.strip_prefix(&pattern).unwrap().to_owned())
        .collect();
    assert!(places.len() >= 3, "{places:?}");
    let temporary: Vec<PathBuf> = places
        .iter()
        .flat_map(|place| ["tmp", "tmp1"].map(|end| temporary_of(place, end)))
        .collect();
    places.extend(temporary);
    places.extend(["rt", "rt/blobs", "rt/blobs/sub", "rt/unknown"].map(PathBuf::from));
    let marker = files(&pattern).into_keys().find(|p| p.parent() == Some(&pattern));
    let marker = marker.map(|path| path.file_name().unwrap().to_owned());
    let outside = backend.folder.path().join("outside");
    let kinds = [
        "a pipe",
        "a link to a file",
        "a link to a folder",
        "a link to nothing",
        "a link to itself",
        "a folder",
        "a device",
        "a huge file",
        "garbage",
    ];
    for (n, place) in places.iter().enumerate() {
        for (m, kind) in kinds.iter().enumerate() {
            // Every place meets every third kind: a daemon each takes its time.
            if (n + m) % 3 != 0 && *kind != "a pipe" {
                continue;
            }
            fs::create_dir_all(&outside).unwrap();
            fs::write(outside.join("file"), "precious").unwrap();
            fs::write(outside.join("2026-11-19.bloom"), "precious").unwrap();
            let before = files(&outside);
            let cache = backend.folder.path().join(format!("cache-{n}-{m}"));
            copy_folder(&pattern, &cache);
            put(kind, &cache.join(place), &outside);
            let case = format!("{kind} at {}", place.display());
            let folder = cache.display().to_string();
            let words = ["--cache-dir", &folder, "--poll-interval", "100ms"];
            if place.file_name() == marker.as_deref() {
                // The file that names the cache's owner cannot be read: an error at once is right,
                // too.
                serve(&backend, &folder).expect(2).complains(&[&folder]);
                continue;
            }
            let daemon = Daemon::ready(&backend, &words);
            let polls = "bloomsday_polls_total{filter=\"rt\",result=\"ok\"}";
            daemon.until(&format!("it looks on, with {case}"), |d| d.metric(polls) >= 3);
            assert_eq!(daemon.reload("").0, 200, "{case}");
            assert!(daemon.contains(&user(1)), "{case}");
            drop(daemon);
            assert_eq!(files(&outside), before, "{case}");
            fs::remove_dir_all(&outside).unwrap();
            fs::remove_dir_all(&cache).unwrap();
        }
    }
}

#[test]
fn what_the_cache_did_not_write_stays_and_what_it_wrote_goes_with_its_day() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let cache = backend.folder.path().join("cache");
    let foreign =
        ["notes", "rt/notes", "rt/blobs/notes", "rt/x.bloom", "rt/blobs/x.bloom", "rt/a.tmp"];
    for name in foreign {
        fs::create_dir_all(cache.join(name).parent().unwrap()).unwrap();
        fs::write(cache.join(name), "mine").unwrap();
    }
    // A blob that somebody copied there.
    let blob = fs::read_dir(PathBuf::from(&backend.store).join("rt/blobs")).unwrap();
    let blob = blob.map(|entry| entry.unwrap().path()).next().unwrap();
    let copies =
        [cache.join("rt/blobs"), cache.join("rt")].map(|f| f.join(blob.file_name().unwrap()));
    copies.iter().for_each(|copy| _ = fs::copy(&blob, copy).unwrap());
    let daemon = Daemon::ready(&backend, &["--cache-dir", &cache.display().to_string()]);
    daemon.until("the blob is cached", |_| is_cached(&cache));
    let large = |files: BTreeMap<PathBuf, Vec<u8>>| {
        let own = files.into_iter().filter(|(path, _)| !copies.contains(path));
        own.filter(|(_, bytes)| bytes.len() > 600).count()
    };
    assert_eq!(large(files(&cache)), 1);
    for (step, back) in [0, 1, 0].into_iter().enumerate() {
        let (day, to) = (today().to_string(), today().minus(back).to_string());
        let record = fs::read(cache.join("rt/followed")).unwrap();
        if step == 0 {
            Publisher::days_ago(&backend, 0).users(100..1_100).publish();
        } else {
            backend.bloomsday(&["repoint", "rt", &day, "--to", &to]).run().expect(0);
        }
        assert_eq!(daemon.reload("").0, 200);
        daemon.until("the next is cached", |daemon| {
            // What is written while a round runs is noticed with the next.
            daemon.reload("");
            fs::read(cache.join("rt/followed")).is_ok_and(|now| now != record)
        });
        daemon.until("only the next is kept", |_| large(files(&cache)) == 1);
    }
    for name in foreign {
        assert_eq!(fs::read(cache.join(name)).unwrap(), b"mine", "{name}");
    }
    assert!(copies.iter().all(|copy| copy.exists()));
}

#[test]
fn a_server_whose_store_is_not_mounted_yet_answers_from_its_cache() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let cache = backend.folder.path().join("cache");
    fill(&backend, &cache);
    let unmounted = backend.folder.path().join("unmounted");
    fs::rename(&backend.store, &unmounted).unwrap();

    let daemon = Daemon::ready(&backend, &["--cache-dir", &cache.display().to_string()]);
    assert!(daemon.contains(&user(7)));
    daemon.until("the status says why", |daemon| {
        daemon.status()["last_error"].as_str().is_some_and(|why| why.contains("is not there"))
    });
    assert!(!Path::new(&backend.store).exists(), "the server made a folder where a disk belongs");

    fs::rename(&unmounted, &backend.store).unwrap();
    Publisher::days_ago(&backend, 0).users(1_000..2_000).publish();
    daemon.until("it follows the store", |daemon| {
        daemon.reload("");
        daemon.contains(&user(1_007))
    });
}

/// A link whose target is on a disk of its own.
#[test]
fn a_server_whose_store_is_a_link_to_what_is_not_mounted_yet_answers_from_its_cache() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let link = backend.folder.path().join("link");
    symlink(&backend.store, &link).unwrap();
    let linked = Backend { store: link.display().to_string(), ..Backend::local() };
    let cache = backend.folder.path().join("cache");
    fill(&linked, &cache);
    let unmounted = backend.folder.path().join("unmounted");
    fs::rename(&backend.store, &unmounted).unwrap();

    let daemon = Daemon::ready(&linked, &["--cache-dir", &cache.display().to_string()]);
    assert!(daemon.contains(&user(7)));
    drop(daemon);

    let empty = backend.folder.path().join("empty");
    for store in [linked.store, format!("{}/../store", backend.store)] {
        let store = Backend { store, ..Backend::local() };
        let run = serve(&store, &empty.display().to_string());
        run.expect(4).complains(&["there is no store at", &store.store]);
    }
}

#[test]
fn a_missing_store_of_which_a_cache_knows_nothing_is_refused() {
    let backend = Backend::local();
    Publisher::days_ago(&backend, 1).users(0..1_000).publish();
    let cache = backend.folder.path().join("cache");
    fill(&backend, &cache);
    let typo = Backend { store: format!("{}-typo", backend.store), ..Backend::local() };
    let run = serve(&typo, &cache.display().to_string());
    run.expect(4).complains(&["there is no store at", &typo.store]);
}
