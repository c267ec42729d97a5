//! A build in parts gives the blob of a build in one piece, and notices what was lost on the way.

use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::error::Kind;
use bloomsday_common::filter::{FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, SplitMix64, Xxh3};
use bloomsday_common::id_form::IdForm;
use bloomsday_common::pointer::Outcome;
use bloomsday_common::store::Store;

use super::*;
use crate::error::Error;
use crate::job::Job;
use crate::segments::HASH_COLUMN;
use crate::source::LIVE;
use crate::verify::{ABSENT_LOOKUPS, count_false_positives};
use crate::{Report, ids};

fn job(fpp: f64) -> Job {
    let (filter, day) = ("rt".parse().unwrap(), "2026-11-19".parse().unwrap());
    Job {
        fpp,
        memory: 1 << 30,
        threads: 1,
        by: "test".into(),
        ..Job::new(filter, day, Vec::new(), "id".into())
    }
}

fn id(n: u64) -> Vec<u8> {
    format!("user-{n}").into_bytes()
}

/// The digest of a filter of the IDs 0..n that is filled in one piece.
fn digest_of_one_piece(job: &Job, n: u64) -> String {
    let shape = Shape::for_ids(Layout::Blocked, n, job.fpp).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    (0..n).for_each(|n| filter.insert(Xxh3::of(&id(n))));
    let filter = filter.freeze();
    let header = Header {
        id_form: IdForm::Bytes,
        filter: job.filter.clone(),
        day: job.day,
        shape,
        origin: Origin::Built,
        ids: n,
        fpp_target: job.fpp,
        fpp_hits: count_false_positives::<Xxh3>(&filter, 2),
        fpp_lookups: ABSENT_LOOKUPS,
        ones: filter.count_ones(),
    };
    blob::encode(&header, &filter).key().digest.to_string()
}

/// What goes wrong between the steps.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    PackageLost,
    PackageTwice,
    HashChanged,
    RangeLost,
    FilledOther,
    PieceLost,
    StoreDamages,
    StoreAlwaysDamages,
}

/// A build of the IDs 0..n, which `tasks` tasks gather in any order, some of them twice.
async fn in_parts(
    job: &Job,
    store: &Store,
    n: u64,
    ranges: u32,
    seed: u64,
    fault: Fault,
) -> Result<Report, Error> {
    let (mut random, ranges) = (SplitMix64::new(seed), Ranges::new(ranges));
    let mut coordinator = Coordinator::begin(job.clone(), store.clone()).await?;
    coordinator.set_ranges(ranges);
    let mut packages = Vec::new();
    let tasks = 1 + random.draw() % 5;
    for task in 0..tasks {
        let mut gather = Gather::new(ranges, n);
        let mut rows = 0;
        for n in (0..n).filter(|n| n % tasks == task || n % 7 == 0) {
            rows += 1;
            gather.push(&id(n));
            if random.draw().is_multiple_of(100_000) {
                gather.count(ids::RowCounts { rows, nulls: 0, invalid: 0 });
                rows = 0;
                packages.append(&mut gather.packages());
            }
        }
        gather.count(ids::RowCounts { rows: rows + 2, nulls: 1, invalid: 1 });
        packages.append(&mut gather.packages());
    }
    for i in (1..packages.len()).rev() {
        packages.swap(i, (random.draw() % (i as u64 + 1)) as usize);
    }
    match fault {
        Fault::PackageLost => drop(packages.pop()),
        Fault::PackageTwice => packages.push(packages[0].clone()),
        Fault::HashChanged => packages[0].hashes[0].0 ^= 1,
        _ => {}
    }
    let mut count = Count::new(ranges);
    for Package { range, gathered, hashes, samples } in &packages {
        count.push(*range, *gathered, bytemuck::cast_slice(hashes), samples)?;
    }
    let mut counted = Vec::new();
    while let Some(range) = count.next_range() {
        coordinator.counted(range.0, &range.1)?;
        counted.push(range);
    }
    let Some(plan) = coordinator.shape()? else { return coordinator.finish().await };
    let (last, _) = coordinator.sample();
    let sample = counted.iter().filter(|(range, ..)| *range <= last);
    let sample: Vec<Xxh3> = sample.flat_map(|(_, _, hashes, _)| hashes).copied().collect();
    coordinator.compare(&sample).await?;
    match fault {
        Fault::RangeLost => drop(counted.pop()),
        Fault::FilledOther => drop(counted[0].2.pop()),
        _ => {}
    }
    let mut filled = Vec::new();
    for (range, _, hashes, samples) in &counted {
        filled.push((*range, Fill::range(plan, *range, hashes, samples)?));
    }
    for (i, (range, fill)) in filled.iter().enumerate() {
        coordinator.filled(*range, fill.numbers())?;
        for piece in fill.pieces() {
            let bytes = if piece.value.is_some() { &[] } else { piece.bytes };
            coordinator.piece(piece.part, piece.offset, piece.value, bytes)?;
        }
        if fault == Fault::PieceLost && i == 0 {
            break;
        }
    }
    let plan = coordinator.seal()?;
    let mut damages = match fault {
        Fault::StoreDamages => 1,
        Fault::StoreAlwaysDamages => u32::MAX,
        _ => 0,
    };
    while !coordinator.is_uploaded().await? {
        let mut upload = coordinator.upload(plan).await?;
        for piece in filled.iter().flat_map(|(_, fill)| fill.pieces()) {
            upload.piece(piece.part, piece.offset, piece.bytes).await?;
        }
        upload.finish().await?;
        if damages > 0 {
            damage(store);
            damages -= 1;
        }
    }
    coordinator.finish().await
}

/// Changes a bit of the only blob.
fn damage(store: &Store) {
    let blobs = store.folder().unwrap().join("rt/blobs");
    let blob = std::fs::read_dir(blobs).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(blob, bytes).unwrap();
}

fn folder() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    (folder, store)
}

#[tokio::test]
async fn any_ranges_tasks_and_orders_give_the_blob_of_one_piece() {
    let cases = [
        (1, 1, 0.03),
        (1, 64, 0.03),
        (500, 1, 0.03),
        (500, 300, 0.001),
        (400_000, 1, 0.03),
        (400_000, 3, 1e-6),
        // Each range has several whole parts.
        (5_000_000, 2, 1e-4),
        (400_000, 1_000, 0.03),
    ];
    for (seed, (n, ranges, fpp)) in cases.into_iter().enumerate() {
        // So few rows without an ID are many of one.
        let job = Job { accept_change: Some("a test".into()), ..job(fpp) };
        let (_folder, store) = folder();
        let report = in_parts(&job, &store, n, ranges, seed as u64, Fault::None).await;
        let report = report.unwrap_or_else(|e| panic!("{n} IDs in {ranges} ranges: {e}"));
        let digest = report.digest.unwrap().to_string();
        assert_eq!(digest, digest_of_one_piece(&job, n), "{n} IDs in {ranges} ranges");
        assert_eq!((report.ids, report.outcome), (n, Outcome::Published));
        assert!(report.sampled_ids > n.min(200_000) / 4 && report.sampled_ids <= n * 5);
        assert!(report.rows > n && report.nulls > 0 && report.nulls == report.invalid);
        let (_, filter) = store.open_blob(&report.blob.unwrap()).await.unwrap();
        assert!((0..n).step_by(1 + n as usize / 1000).all(|n| filter.contains(&id(n))));
        // Again, with other ranges and in another order.
        if n < 1_000_000 {
            let again = in_parts(&job, &store, n, ranges + 1, seed as u64 + 90, Fault::None).await;
            assert_eq!(again.unwrap().outcome, Outcome::Unchanged);
        }
    }
}

#[tokio::test]
async fn whatever_is_lost_or_changed_between_the_steps_moves_no_pointer() {
    let faults = [
        Fault::PackageLost,
        Fault::PackageTwice,
        Fault::HashChanged,
        Fault::RangeLost,
        Fault::FilledOther,
        Fault::PieceLost,
    ];
    for fault in faults {
        let (job, (_folder, store)) = (job(0.03), folder());
        let error = in_parts(&job, &store, 20_000, 5, 7, fault).await.unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert!(store.pointer_days(&job.filter).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_reads_back_damaged_is_uploaded_once_more() {
    let (job, (_folder, store)) = (job(0.03), folder());
    let damaged = in_parts(&job, &store, 20_000, 5, 7, Fault::StoreAlwaysDamages).await;
    assert!(matches!(damaged, Err(Error::Common(error)) if error.kind() == Kind::Corrupt));
    assert!(store.pointer_days(&job.filter).await.unwrap().is_empty());
    let report = in_parts(&job, &store, 20_000, 5, 7, Fault::StoreDamages).await.unwrap();
    assert_eq!(report.outcome, Outcome::Published);
    assert_eq!(report.digest.unwrap().to_string(), digest_of_one_piece(&job, 20_000));
}

#[tokio::test]
async fn gates_overlap_and_empty_days_are_as_in_one_piece() {
    let (_folder, store) = folder();
    let today = job(0.03);
    for back in (1..=3).rev() {
        let before = Job { day: today.day.minus(back), ..today.clone() };
        let report = in_parts(&before, &store, 20_000, 4, 1, Fault::None).await.unwrap();
        assert_eq!(report.overlap.is_some(), back < 3, "{report:?}");
    }
    let report = in_parts(&today, &store, 19_000, 3, 2, Fault::None).await.unwrap();
    assert_eq!(report.overlap, Some(1.0));
    let few = in_parts(&today, &store, 100, 3, 2, Fault::None).await.unwrap();
    assert_eq!(few.outcome, Outcome::Refused);
    let none = in_parts(&today, &store, 0, 3, 2, Fault::None).await.unwrap();
    assert!(none.reason.unwrap().contains("has no ID"));
    let guava = Job { layout: Layout::Guava, ..today };
    let refused = Coordinator::begin(guava, store).await.unwrap_err().to_string();
    assert!(refused.contains("use the layout `blocked`"), "{refused}");
}

#[tokio::test]
async fn hashes_in_place_of_ids_are_refused_and_not_hashed_again() {
    let hashes = Job { column: HASH_COLUMN.to_owned(), ..job(0.03) };
    let live = Job { inputs: vec![LIVE.to_owned()], ..job(0.03) };
    for (job, says) in [(hashes, "`bloomsday_hash` has hashes"), (live, "live IDs are hashes")] {
        let (_folder, store) = folder();
        let refused = Coordinator::begin(job, store).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Usage);
        let refused = refused.to_string();
        assert!(refused.contains(says) && refused.contains("build it on one machine"), "{refused}");
    }
}

#[test]
fn every_hash_is_of_the_range_that_has_it() {
    for count in [1, 2, 3, 7, 640, MAX_RANGES] {
        let ranges = Ranges::new(count);
        let mut next = 0;
        for range in (0..count).take(1_000) {
            let (first, last) = ranges.hashes(range);
            assert_eq!(first, next);
            assert!(ranges.of(Xxh3(first)) == range && ranges.of(Xxh3(last)) == range);
            next = last.wrapping_add(1);
        }
        assert_eq!(ranges.hashes(count - 1).1, u64::MAX);
    }
}

#[test]
fn rows_without_an_id_are_counted() {
    let mut gather = Gather::new(Ranges::new(8), 0);
    assert_eq!(gather.packages(), []);
    gather.count(ids::RowCounts { rows: 3, nulls: 2, invalid: 1 });
    let packages = gather.packages();
    let gathered = Gathered { rows: 3, nulls: 2, invalid: 1, ..Gathered::default() };
    assert_eq!((packages.len(), packages[0].gathered), (1, Some(gathered)));
}
