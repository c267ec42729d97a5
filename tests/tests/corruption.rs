//! Damaged and hostile blobs: all rejected, or, where the digest was corrected, at worst harmless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bloomsday_common::blob::{self, Header, RawBlob};
use bloomsday_common::day::Day;
use bloomsday_common::digest::Digest;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::key::BlobKey;
use bloomsday_common::pointer::Pointer;
use bloomsday_server::{Config, FilterConfig, ReloadOutcome, start_on};
use bloomsday_tests::blobs::{TestBlob, buffer, id};
use bloomsday_tests::campaign::{Campaign, Random, on_threads, size};
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

/// Damages bytes in one of the ways disks, networks and attackers do. Says how.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let len = bytes.len() as u64;
    // Half of the time where the header is: the rest is bits, and one is like the other.
    let place = |random: &mut Random| {
        let head = random.below(2) == 0;
        random.below(if head { len.min(1_400) } else { len }) as usize
    };
    let range = |random: &mut Random| {
        let start = place(random);
        let most = (len - start as u64).min(if random.below(4) == 0 { len } else { 64 });
        start..start + 1 + random.below(most) as usize
    };
    match random.below(8) {
        0 => {
            let flips = 1 + random.below(16);
            for _ in 0..flips {
                let at = place(random);
                bytes[at] ^= 1 << random.below(8);
            }
            format!("{flips} flips")
        }
        1 => {
            let to = random.below(len) as usize;
            bytes.truncate(to);
            format!("cut to {to}")
        }
        2 => {
            let (from, to) = (range(random), place(random));
            let part = bytes[from.clone()].to_vec();
            let end = bytes.len().min(to + part.len());
            bytes[to..end].copy_from_slice(&part[..end - to]);
            format!("{from:?} copied to {to}")
        }
        3 => {
            let zeroed = range(random);
            bytes[zeroed.clone()].fill(0);
            format!("{zeroed:?} zeroed")
        }
        4 => {
            let filled = range(random);
            bytes[filled.clone()].fill(0xff);
            format!("{filled:?} filled")
        }
        5 => {
            let removed = range(random);
            bytes.drain(removed.clone());
            format!("{removed:?} removed")
        }
        6 => {
            let at = place(random);
            let n = 1 + random.below(100);
            let more: Vec<u8> = (0..n).map(|_| random.draw() as u8).collect();
            bytes.splice(at..at, more);
            format!("{n} bytes inserted at {at}")
        }
        // A number of the header becomes one that breaks arithmetic.
        _ => {
            let at = random.below(200.min(len.saturating_sub(8)).max(1)) as usize;
            let extremes =
                [0, 1, 255, u64::from(u32::MAX), 1 << 32, 1 << 38, u64::MAX >> 1, u64::MAX];
            let value = extremes[random.below(extremes.len() as u64) as usize];
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            format!("{value} at {at}")
        }
    }
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
        let liar = FaultyStore::default();
        before.publish(&liar.store()).await;
        let mut config =
            Config::new("liar://store", vec![FilterConfig::new("rt".parse().unwrap())]);
        config.poll_interval = Duration::from_secs(3_600);
        let bloomsday = start_on(liar.store(), config, true).unwrap();
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
            liar.place(&named.to_string(), bytes.into()).await;
            let pointer = Pointer::to(named.clone()).to_bytes();
            liar.place(&format!("rt/pointers/{now}"), pointer.into()).await;
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
        liar.place(&key.to_string(), good_bytes.into()).await;
        let pointer = Pointer::to(key.clone()).to_bytes();
        liar.place(&format!("rt/pointers/{now}"), pointer.into()).await;
        bloomsday.reload().await.unwrap();
        assert_eq!(bloomsday.status()[0].digest, Some(key.digest));
        assert!((0..3_100).all(|n| rt.contains(&id(n))));
        opened
    });
    let result = format!("last good kept; {opened} with a fitting digest opened");
    campaign.passed(&format!("{count}"), &result);
}
