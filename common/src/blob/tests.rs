//! A blob is read back exactly, and nothing that is not one passes.

use super::test_vector::TEST_IDS;
use super::*;
use crate::day::Day;
use crate::filter::{FilterMut, KeptFilter, Kernel, Layout, Shape};
use crate::hash::{IdHash, Murmur3, Spark, Xxh3};
use crate::id_form::IdForm;
use crate::key::FilterName;

fn rt() -> FilterName {
    "rt".parse().unwrap()
}

fn day() -> Day {
    "2026-11-19".parse().unwrap()
}

fn sample(layout: Layout) -> (Header, Filter) {
    let shape = Shape::for_ids(layout, 200, 0.03).unwrap();
    let mut filter = FilterMut::new(shape).unwrap();
    for id in (0..200).map(|i| format!("user-{i}")) {
        match layout {
            Layout::Blocked => filter.insert(Xxh3::of(id.as_bytes())),
            Layout::Guava => filter.insert(Murmur3::of(id.as_bytes())),
            Layout::Spark1 => filter.insert(Spark::<1>::of(id.as_bytes())),
            Layout::Spark2 => filter.insert(Spark::<2>::of(id.as_bytes())),
        }
    }
    let filter = filter.freeze();
    let header = Header {
        filter: rt(),
        day: day(),
        shape,
        id_form: Default::default(),
        origin: Origin::Built,
        ids: 200,
        fpp_target: 0.03,
        fpp_hits: 25_000,
        fpp_lookups: 1_000_000,
        ones: filter.count_ones(),
    };
    (header, filter)
}

fn bytes_of(header: &Header, filter: &Filter) -> Vec<u8> {
    encode(header, filter).parts().concat()
}

/// Opens bytes under the name their own last 32 bytes give.
fn open_bytes(bytes: &[u8]) -> Result<(Header, Filter), Error> {
    let digest = bytes.last_chunk().map_or(Digest::new([0; 32]), |chunk| Digest::new(*chunk));
    let mut memory = Buffer::zeroed(bytes.len()).unwrap();
    memory.copy_from_slice(bytes);
    open(RawBlob::of(memory), &BlobKey { filter: rt(), day: day(), digest })
}

/// Makes the digest fit again, so that the checks behind it are reached.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = digest_of(&bytes);
    let end = bytes.len() - Digest::BYTES;
    bytes[end..].copy_from_slice(digest.as_bytes());
    bytes
}

#[test]
fn a_blob_of_urls_says_so_and_is_looked_up_by_any_spelling() {
    // Its normalised form is longer than an ID may be.
    let long = format!("https://a.example/{}", "\u{e9}".repeat(450));
    let urls = ["https://A.example:443/x/../b?y=1&x=2#top", &long, "no URL"];
    let spellings = ["http://a.example/b?x=2&y=1", &long.replace("https", "http"), "no URL"];
    for layout in Layout::ALL {
        let shape = Shape::for_ids(layout, 200, 1e-5).unwrap();
        let mut filter = FilterMut::new(shape).unwrap();
        for id in urls.map(str::as_bytes) {
            match layout {
                Layout::Blocked => filter.insert(IdForm::Url.hash::<Xxh3>(id)),
                Layout::Guava => filter.insert(IdForm::Url.hash::<Murmur3>(id)),
                Layout::Spark1 => filter.insert(IdForm::Url.hash::<Spark<1>>(id)),
                Layout::Spark2 => filter.insert(IdForm::Url.hash::<Spark<2>>(id)),
            }
        }
        let (filter, sample) = (filter.freeze(), sample(layout).0);
        let ones = filter.count_ones();
        let header = Header { shape, id_form: IdForm::Url, ids: 3, ones, ..sample };
        let bytes = bytes_of(&header, &filter);
        let (read, opened) = open_bytes(&bytes).unwrap();
        assert_eq!((read, opened.id_form()), (header.clone(), IdForm::Url));
        let mut hits = [false; 3];
        assert_eq!(opened.contains_batch(&spellings, &mut hits), 3, "{layout}");
        assert!(!opened.contains(b"http://a.example/b") && !opened.contains(b""));
        for kernel in Kernel::all() {
            let (_, opened) = open_bytes(&bytes).unwrap();
            let kept = KeptFilter::of(std::sync::Arc::new(opened.with_kernel(kernel)), |f| f);
            let both = urls.iter().chain(&spellings);
            assert!(both.into_iter().all(|id| kept.contains(id.as_bytes())), "{layout} {kernel:?}");
        }
        // 1 is the encoding of nothing.
        let as_bytes = bytes_of(&Header { id_form: IdForm::Bytes, ..header.clone() }, &filter);
        let differs = |i: &usize| bytes[*i] != as_bytes[*i];
        let at = (0..bytes.len()).find(differs).unwrap();
        let mut unknown = bytes.clone();
        unknown[at] = 1;
        let why = open_bytes(&resealed(unknown)).unwrap_err().to_string();
        assert!(why.contains("ID encoding is unknown"), "{why}");
    }
}

#[test]
fn a_blob_is_read_back_as_it_was_written() {
    for layout in Layout::ALL {
        let (header, filter) = sample(layout);
        let (read, answers) = open_bytes(&bytes_of(&header, &filter)).unwrap();
        assert_eq!(read, header);
        assert!(answers.body() == filter.body());
        assert!((0..200).all(|i| answers.contains(format!("user-{i}").as_bytes())));
    }
}

#[test]
fn the_header_of_the_default_ends_at_4096() {
    let (header, filter) = sample(Layout::Blocked);
    assert_eq!(encode(&header, &filter).parts()[0].len(), 4096);
}

#[test]
fn every_prefix_is_rejected_even_with_a_fitting_digest() {
    let bytes = {
        let (header, filter) = sample(Layout::Blocked);
        bytes_of(&header, &filter)
    };
    for length in 0..bytes.len() {
        assert!(open_bytes(&bytes[..length]).is_err(), "a prefix of {length} bytes passed");
        if length >= Digest::BYTES {
            let fitting = resealed(bytes[..length].to_vec());
            assert!(open_bytes(&fitting).is_err(), "a resealed prefix of {length} bytes passed");
        }
    }
}

#[test]
fn every_flip_of_a_header_bit_is_rejected_or_changes_no_answer() {
    for layout in Layout::ALL {
        let (header, filter) = sample(layout);
        let bytes = bytes_of(&header, &filter);
        let head = encode(&header, &filter).parts()[0].len();
        for bit in 0..head * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(digest_of(&flipped) != digest_of(&bytes), "bit {bit} is not in the digest");
            // EncodedBlob again, only counts and rates can differ: never what is answered.
            if let Ok((read, answers)) = open_bytes(&resealed(flipped)) {
                assert_eq!((read.shape, read.ones), (header.shape, header.ones), "bit {bit}");
                assert!(answers.body() == filter.body());
            }
        }
    }
}

#[test]
fn trailing_bytes_are_rejected() {
    let (header, filter) = sample(Layout::Blocked);
    let mut bytes = bytes_of(&header, &filter);
    bytes.extend_from_slice(&[0; 64]);
    assert!(matches!(open_bytes(&resealed(bytes)), Err(Error::Length { .. })));
}

#[test]
fn filters_of_all_ones_zeros_or_half_are_rejected_with_a_valid_digest() {
    let (header, filter) = sample(Layout::Blocked);
    let bytes = bytes_of(&header, &filter);
    let body = 4096..bytes.len() - Digest::BYTES;
    type Damage = fn(&mut [u8]);
    let damages: [Damage; 3] = [
        |b| b.fill(0xff),
        |b| b.fill(0),
        |b| {
            let half = b.len() / 2;
            b[half..].fill(0)
        },
    ];
    for damage in damages {
        let mut wrong = bytes.clone();
        damage(&mut wrong[body.clone()]);
        assert!(matches!(open_bytes(&resealed(wrong)), Err(Error::Malformed { .. })));
        // And again with a header that owns up to the wrong number of bits.
        let mut memory = FilterMut::new(header.shape).unwrap().freeze().body().to_vec();
        memory.copy_from_slice(&bytes[body.clone()]);
        damage(&mut memory);
        let ones = memory.iter().map(|b| u64::from(b.count_ones())).sum();
        let lying = Header { ones, ..header.clone() };
        let mut wrong = bytes_of(&lying, &filter);
        wrong[body.clone()].copy_from_slice(&memory);
        let error = open_bytes(&resealed(wrong)).unwrap_err().to_string();
        assert!(error.contains("of its bits are set"), "{error}");
    }
}

#[test]
fn a_newer_version_is_named() {
    let (header, filter) = sample(Layout::Blocked);
    let mut bytes = bytes_of(&header, &filter);
    bytes[8] = 2;
    let error = open_bytes(&resealed(bytes)).unwrap_err();
    assert!(matches!(error, Error::Version { version: 2, .. }), "{error}");
}

#[test]
fn another_filters_blob_is_rejected() {
    let (header, filter) = sample(Layout::Blocked);
    let other = Header { filter: "optout".parse().unwrap(), ..header };
    let error = open_bytes(&bytes_of(&other, &filter)).unwrap_err().to_string();
    assert!(error.contains("`optout`"), "{error}");
}

#[test]
fn test_ids_cover_every_length_class() {
    let lengths: Vec<usize> = (0..TEST_IDS).map(|i| test_vector_id(i).len()).collect();
    assert_eq!(&lengths[..17], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 37]);
    assert_eq!(lengths.last(), Some(&1024));
    assert_eq!(test_vector_id(3), b"defg");
}

#[test]
fn guavas_own_file_is_a_filter() {
    // Written by guava-33.6.0-jre: BloomFilter.create(stringFunnel(UTF_8), 10, 0.03), seven puts.
    let file = [
        0x01, 0x05, 0, 0, 0, 0x02, 0x40, 0x20, 0x80, 0x80, 0x45, 0x8a, 0x84, 0x0b, 0x90, 0xd2,
        0x58, 0x08, 0x08, 0x00, 0x09, 0x20,
    ];
    let mut memory = Buffer::zeroed(file.len()).unwrap();
    memory.copy_from_slice(&file);
    let filter = import_guava(memory).unwrap();
    for id in ["user-0", "user-1", "u", "0123456789abcdef", "0123456789abcdefX", "żółć-😀"] {
        assert!(filter.contains(id.as_bytes()), "{id}");
    }
    let shape = Shape::for_ids(Layout::Guava, 10, 0.03).unwrap();
    let mut ours = FilterMut::new(shape).unwrap();
    for id in ["user-0", "user-1", "u", "", "0123456789abcdef", "0123456789abcdefX", "żółć-😀"]
    {
        ours.insert(Murmur3::of(id.as_bytes()));
    }
    assert_eq!(ours.freeze().body(), file);
}
