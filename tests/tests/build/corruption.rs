//! Damaged and hostile blobs: all rejected, or, where the digest was corrected, at worst harmless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bloomsday_common::blob::{self, Header, RawBlob};
use bloomsday_common::day::Day;
use bloomsday_common::delta::{self, Applier};
use bloomsday_common::digest::Digest;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::filter::{Filter, Layout, Shape};
use bloomsday_common::key::{BlobKey, DeltaKey};
use bloomsday_common::memory::Buffer;
use bloomsday_common::pointer::Pointer;
use bloomsday_server::{Config, FilterConfig, ReloadOutcome, start_on};
use bloomsday_tests::blobs::{TestBlob, buffer, id};
use bloomsday_tests::campaign::{Campaign, Random, on_threads, size};
use bloomsday_tests::damage::damage;
use bloomsday_tests::faulty_store::FaultyStore;
use bloomsday_tests::input::today;

fn day() -> Day {
    "2026-11-19".parse().unwrap()
}

/// Small ones of each layout, and one whose body is many times its header.
fn good() -> Vec<(BlobKey, Vec<u8>)> {
    let made = [
        TestBlob::of(day(), Layout::Blocked, 0..100),
        TestBlob::of(day(), Layout::Guava, 0..100),
        TestBlob::of(day(), Layout::Blocked, 0..20_000),
    ];
    made.iter().map(|made| (made.encoded().key().clone(), made.bytes())).collect()
}

fn open(key: &BlobKey, bytes: &[u8]) -> Result<(Header, Filter), Error> {
    blob::open(RawBlob::of(buffer(bytes)), key)
}

/// Makes the last 32 bytes, and the name, what the damaged bytes digest to.
fn correct(key: &BlobKey, bytes: &mut [u8]) -> BlobKey {
    let digest = blob::digest_of(bytes);
    let Some(end) = bytes.len().checked_sub(Digest::BYTES) else { return key.clone() };
    bytes[end..].copy_from_slice(digest.as_bytes());
    BlobKey { digest, ..key.clone() }
}

/// Opens a blob whose digest fits, whatever else is wrong with it; if it opens, looks IDs up in it.
fn is_harmless(key: &BlobKey, bytes: &mut [u8]) -> bool {
    let key = correct(key, bytes);
    let Ok((header, filter)) = open(&key, bytes) else { return false };
    let ids: Vec<[u8; 8]> = (0..300).map(id).collect();
    let mut answers = vec![false; ids.len()];
    filter.contains_batch(&ids, &mut answers);
    for (id, answer) in ids.iter().zip(answers) {
        assert_eq!(filter.contains(id), answer, "one at a time and many at once");
    }
    assert!(header.fpp_measured() <= 1.0 && header.fill() <= 1.0);
    true
}

/// Many damaged blobs; `check` says whether one was accepted. Returns how many were.
fn many(count: u64, check: impl Fn(&BlobKey, &mut Vec<u8>, &[u8]) -> bool + Sync) -> u64 {
    let (good, random, accepted) = (good(), Random::new(), AtomicU64::new(0));
    on_threads(2, count, |n| {
        let mut random = random.branch(n);
        let (key, good_bytes) = &good[random.below(if n % 16 == 0 { 3 } else { 2 }) as usize];
        let mut bytes = good_bytes.clone();
        let how = damage(&mut bytes, &mut random);
        let checked = catch_unwind(AssertUnwindSafe(|| check(key, &mut bytes, good_bytes)));
        match checked {
            Ok(yes) => accepted.fetch_add(u64::from(yes), Ordering::Relaxed),
            Err(_) => panic!("blob {n} with {how}: see above"),
        };
    });
    accepted.into_inner()
}

#[test]
fn every_damaged_blob_is_rejected() {
    let campaign = Campaign::new("damaged blobs");
    let count = size(4_000, 100_000);
    many(count, |key, bytes, good_bytes| {
        let opened = open(key, bytes).map(|_| ());
        let same = bytes == good_bytes;
        assert_eq!(opened.is_ok(), same, "{:?}", opened.err());
        assert!(opened.is_ok() || opened.is_err_and(|e| e.kind() == Kind::Corrupt));
        false
    });
    campaign.passed(&format!("{count}"), "all rejected");
}

#[test]
fn every_damaged_blob_with_a_fitting_digest_is_rejected_or_harmless() {
    let campaign = Campaign::new("damaged blobs with a fitting digest");
    let count = size(4_000, 100_000);
    let accepted = many(count, |key, bytes, _| is_harmless(key, bytes));
    let result = format!("no panic; {accepted} opened (changed bits or counts), all answered");
    campaign.passed(&format!("{count}"), &result);
}

#[test]
fn every_bit_of_a_header_is_checked() {
    let campaign = Campaign::new("every bit of a header flipped");
    let (mut flipped, mut accepted) = (0u64, Vec::new());
    for (key, good_bytes) in &good()[..2] {
        for bit in 0..4096 * 8 {
            let mut bytes = good_bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(open(key, &bytes).is_err(), "bit {bit}");
            flipped += 1;
            if is_harmless(key, &mut bytes) {
                accepted.push(bit);
            }
        }
    }
    // Only what cannot be checked: counts and rates that are reported, not used.
    assert!(accepted.len() < 600, "{} bits are not checked", accepted.len());
    let result = format!("all rejected; with a fitting digest all but {} counts", accepted.len());
    campaign.passed(&format!("{flipped} bits, with and without a fitting digest"), &result);
}

#[test]
fn every_prefix_of_a_blob_is_rejected() {
    let campaign = Campaign::new("every prefix of a blob");
    let mut prefixes = 0;
    for (key, good_bytes) in &good()[..2] {
        for to in 0..good_bytes.len() {
            assert!(open(key, &good_bytes[..to]).is_err(), "the first {to} bytes");
            let mut bytes = good_bytes[..to].to_vec();
            assert!(!is_harmless(key, &mut bytes), "the first {to} bytes, with a fitting digest");
            prefixes += 1;
        }
        let mut longer = good_bytes.clone();
        longer.push(0);
        assert!(open(key, &longer).is_err() && !is_harmless(key, &mut longer));
    }
    campaign
        .passed(&format!("{prefixes} prefixes, each also with a fitting digest"), "all rejected");
}

#[test]
fn a_filter_that_is_empty_full_or_half_filled_is_rejected_whatever_its_digest() {
    for layout in [Layout::Blocked, Layout::Guava] {
        let n_ids = 20_000;
        let good_bytes = TestBlob::of(day(), layout, 0..n_ids);
        // As many IDs in a filter of the same shape as would make it so.
        for inserted in [1, n_ids / 2, n_ids * 2, n_ids * 100] {
            let mut made = TestBlob::shaped(day(), good_bytes.header.shape, 0..inserted);
            made.header.ids = n_ids;
            let opened = open(made.encoded().key(), &made.bytes()).map(|_| ());
            let kind = opened.map_err(|e| e.kind());
            assert_eq!(kind, Err(Kind::Corrupt), "{layout}: {inserted} for {n_ids} IDs");
        }
    }
}

/// Two blobs of one shape of each layout, and their delta.
fn good_deltas() -> Vec<[Vec<u8>; 3]> {
    let pair = |layout, n_ids| {
        let shape = Shape::for_ids(layout, n_ids, 0.03).unwrap();
        let a = TestBlob::shaped(day(), shape, 0..n_ids);
        let b = TestBlob::shaped(day().plus(1), shape, n_ids / 100..n_ids + n_ids / 100);
        let delta =
            delta::make((&a.encoded()).into(), (&b.encoded()).into(), u64::MAX).unwrap().unwrap();
        [a.bytes(), b.bytes(), delta.bytes]
    };
    // The last has sections of its own for three parts.
    vec![pair(Layout::Blocked, 5_000), pair(Layout::Guava, 5_000), pair(Layout::Blocked, 5_000_000)]
}

/// Damages a delta. Half of the damaged ones have a fitting digest.
fn damage_delta(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let how = damage(bytes, random);
    match bytes.len().checked_sub(Digest::BYTES) {
        Some(content) if random.below(2) == 0 => {
            // Of a delta the digest covers all bytes before it, as in a blob.
            let digest = blob::digest_of(bytes);
            bytes[content..].copy_from_slice(digest.as_bytes());
            how + ", with a fitting digest"
        }
        _ => how,
    }
}

#[test]
fn every_damaged_delta_gives_the_right_blob_or_an_error() {
    let campaign = Campaign::new("damaged deltas");
    let (count, random) = (size(3_000, 100_000), Random::new());
    let deltas = good_deltas();
    let right = AtomicU64::new(0);
    on_threads(2, count, |n| {
        let mut random = random.branch(n);
        let [a, b, delta] = &deltas[if n % 512 == 0 { 2 } else { n as usize % 2 }];
        let (mut damaged, step) = (delta.clone(), 1 + random.below(100_000) as usize);
        let how = damage_delta(&mut damaged, &mut random);
        let forward = random.below(2) == 0;
        let (base, result) = if forward { (a, b) } else { (b, a) };
        let (from, to) = (blob::digest_of(base), blob::digest_of(result));
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let mut applier = Applier::new(Arc::new(base), from, to, Buffer::zeroed)?;
            damaged.chunks(step).try_for_each(|piece| applier.push(piece))?;
            applier.finish()
        }));
        let applied = applied.unwrap_or_else(|_| panic!("delta {n} with {how}: see above"));
        if let Ok(raw) = applied {
            assert!(*raw.memory == **result, "delta {n} with {how} gives another blob");
            right.fetch_add(1, Ordering::Relaxed);
        }
        // What a person is shown of it is no panic, either.
        let _ = delta::summary(&damaged, "a delta");
    });
    let right = right.into_inner();
    campaign.passed(&format!("{count}"), &format!("{right} gave the right blob, others an error"));
}

/// The same through a server: in each round it has the right filter, by the delta or in full.
#[test]
fn a_server_given_damaged_deltas_always_has_the_right_filter() {
    let campaign = Campaign::new("damaged deltas, given to a server");
    let random = Random::new();
    let count = size(300, 10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let by_delta = runtime.block_on(async {
        let shape = Shape::for_ids(Layout::Blocked, 3_000, 0.03).unwrap();
        let blobs = [0, 1].map(|i| {
            let ids = 30 * i..3_000 + 30 * i;
            TestBlob::shaped(today().minus(1 - i as u32), shape, ids)
        });
        let [a, b] = [blobs[0].encoded(), blobs[1].encoded()];
        let faulty = FaultyStore::default();
        blobs[1].publish(&faulty.store()).await;
        blobs[0].publish(&faulty.store()).await;
        let good = delta::make((&a).into(), (&b).into(), u64::MAX).unwrap().unwrap().bytes;
        let key = DeltaKey::between(a.key(), b.key()).to_string();
        let mut config =
            Config::new("faulty://store", vec![FilterConfig::new("rt".parse().unwrap())]);
        config.poll_interval = Duration::from_secs(3_600);
        config.answer_until_loaded = true;
        let bloomsday = start_on(faulty.store(), config).unwrap();
        bloomsday.reload().await.unwrap();
        let rt = bloomsday.filter("rt").unwrap();
        let mut by_delta = 0;
        for n in 0..count {
            let mut random = random.branch(n);
            let mut bytes = good.clone();
            // Now and then a good one, so that it is seen to be used again.
            let how = match random.below(8) {
                0 => "nothing".to_owned(),
                _ => damage_delta(&mut bytes, &mut random),
            };
            let is_good = bytes == good;
            faulty.place(&key, bytes.into()).await;
            let (named, first) = if n % 2 == 0 { (a.key(), 0) } else { (b.key(), 30) };
            let pointer = Pointer::to(named.clone()).to_bytes();
            faulty.place(&format!("rt/pointers/{}", today()), pointer.into()).await;
            let reloaded = bloomsday.reload().await.unwrap().remove(0);
            assert_eq!(reloaded.outcome, ReloadOutcome::Swapped, "{n} with {how}: {reloaded:?}");
            let status = bloomsday.status().remove(0);
            assert_eq!(status.digest, Some(named.digest), "delta {n} with {how}");
            assert!(!is_good || status.via == Some("delta"), "a good delta is not used");
            assert!((first..first + 3_000).all(|n| rt.contains(&id(n))), "delta {n} with {how}");
            by_delta += u64::from(status.via == Some("delta"));
        }
        by_delta
    });
    let result = format!("right filter in each round; {by_delta} by a delta, others in full");
    campaign.passed(&format!("{count}"), &result);
}

/// The same through a server: it answers from what it had, and goes on.
#[test]
fn a_server_given_damaged_blobs_keeps_the_last_good_one() {
    let campaign = Campaign::new("damaged blobs, given to a server");
    let random = Random::new();
    let count = size(150, 5_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let opened = runtime.block_on(async {
        let (yesterday, now) = (today().minus(1), today());
        let before = TestBlob::of(yesterday, Layout::Blocked, 0..3_000);
        let next = TestBlob::of(now, Layout::Blocked, 0..3_100);
        let (key, good_bytes) = (next.encoded().key().clone(), next.bytes());
        let faulty = FaultyStore::default();
        before.publish(&faulty.store()).await;
        let mut config =
            Config::new("faulty://store", vec![FilterConfig::new("rt".parse().unwrap())]);
        config.poll_interval = Duration::from_secs(3_600);
        config.answer_until_loaded = true;
        let bloomsday = start_on(faulty.store(), config).unwrap();
        bloomsday.reload().await.unwrap();
        let rt = bloomsday.filter("rt").unwrap();
        let mut opened = 0;
        for n in 0..count {
            let mut random = random.branch(n);
            let mut bytes = good_bytes.clone();
            let how = damage(&mut bytes, &mut random);
            let fitting = n % 2 == 0;
            let named = if fitting { correct(&key, &mut bytes) } else { key.clone() };
            let before = bloomsday.status()[0].digest;
            if bytes == good_bytes {
                continue;
            }
            faulty.place(&named.to_string(), bytes.into()).await;
            let pointer = Pointer::to(named.clone()).to_bytes();
            faulty.place(&format!("rt/pointers/{now}"), pointer.into()).await;
            let reloaded = bloomsday.reload().await.unwrap().remove(0);
            let swapped = reloaded.outcome == ReloadOutcome::Swapped;
            assert!(!swapped || fitting, "blob {n} with {how} answers");
            let digest = bloomsday.status()[0].digest;
            assert_eq!(digest, if swapped { Some(named.digest) } else { before }, "{how}");
            opened += u64::from(swapped);
            if !swapped && opened == 0 {
                assert!((0..3_000).all(|n| rt.contains(&id(n))), "blob {n} with {how}");
            }
        }
        // And it is none the worse for it.
        faulty.place(&key.to_string(), good_bytes.into()).await;
        let pointer = Pointer::to(key.clone()).to_bytes();
        faulty.place(&format!("rt/pointers/{now}"), pointer.into()).await;
        bloomsday.reload().await.unwrap();
        assert_eq!(bloomsday.status()[0].digest, Some(key.digest));
        assert!((0..3_100).all(|n| rt.contains(&id(n))));
        opened
    });
    let result = format!("last good kept; {opened} with a fitting digest opened");
    campaign.passed(&format!("{count}"), &result);
}
