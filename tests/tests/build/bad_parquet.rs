//! Parquet that is out to hurt: bombs in every codec, forged footers and lists, and thousands of
//! flipped bytes. A build of it ends with an error that names the file, or with the right filter;
//! it never panics, is never killed, and stays within a stated memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloomsday_common::hash::SplitMix64;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use bloomsday_tests::backend::Backend;
use bloomsday_tests::input::user;
use bloomsday_tests::measured::{self, Measured};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// What a build may take of memory here.
const MEMORY: &str = "512MiB";
/// The same, in KiB: the most memory really touched, as the system counted it.
const MAX_TOUCHED_KIB: u64 = 512 << 10;

fn build(backend: &Backend, file: &Path) -> Measured {
    measured::build(backend, file, MEMORY)
}

/// The file is refused as damaged, by name, within the memory.
#[track_caller]
fn refused(backend: &Backend, file: &Path) -> String {
    let ran = build(backend, file);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(ran.code, Some(7), "{name}: {}", ran.stderr);
    assert!(ran.stderr.contains(name) && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert!(ran.touched_kib < MAX_TOUCHED_KIB, "{name} took {} MiB", ran.touched_kib >> 10);
    ran.stderr
}

fn write(file: &Path, ids: &[String], properties: WriterProperties) {
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(fs::File::create(file).unwrap(), batch.schema(), Some(properties))
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn folder(backend: &Backend) -> PathBuf {
    backend.folder.path().to_owned()
}

/// Parts of a footer, in Thrift's compact protocol.
fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n > 127 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// A file that is nothing but this footer.
fn with_footer(footer: &[u8]) -> Vec<u8> {
    [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

#[test]
fn a_bomb_in_any_codec_is_read_or_refused_within_the_memory() {
    let backend = Backend::local();
    let codecs = [
        ("none", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("gzip", Compression::GZIP(GzipLevel::default())),
        ("zstd", Compression::ZSTD(ZstdLevel::try_new(3).unwrap())),
        ("lz4", Compression::LZ4_RAW),
    ];
    // 100,000 rows of one ID of 1,000 bytes: 100 MB out of a few kilobytes, a page at a time.
    for (name, codec) in codecs {
        for encoding in [Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY] {
            let file = folder(&backend).join(format!("{name}-{encoding}.parquet"));
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_encoding(encoding)
                .set_compression(codec)
                .build();
            let rows = if name == "none" && encoding == Encoding::PLAIN { 10_000 } else { 100_000 };
            write(&file, &vec!["b".repeat(1_000); rows], properties);
            let ran = build(&backend, &file);
            // Read to its end, and then refused for what it holds.
            assert_eq!(ran.code, Some(6), "{name} {encoding}: {}", ran.stderr);
            assert!(ran.stderr.contains("duplicates: rows per distinct ID"), "{}", ran.stderr);
            assert!(ran.touched_kib < MAX_TOUCHED_KIB, "{name}: {} MiB", ran.touched_kib >> 10);
        }
    }
}

#[test]
fn wide_footers_of_many_files_stay_within_the_memory() {
    const MEMORY_MIB: u64 = 256;
    const COLUMNS: usize = 1_500;
    const GROUPS: usize = 60;
    const FILES: usize = 32;
    let backend = Backend::local();
    let input = folder(&backend).join("wide");
    fs::create_dir(&input).unwrap();
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..GROUPS as u64).map(user)));
    let zeros: ArrayRef = Arc::new(Int32Array::from(vec![0; GROUPS]));
    let others = (0..COLUMNS).map(|n| (format!("column_with_a_long_name_{n}"), zeros.clone()));
    let columns = [("id".to_owned(), ids)].into_iter().chain(others);
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let first = input.join("0.parquet");
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(1))
        .build();
    let file = fs::File::create(&first).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let bytes = fs::read(&first).unwrap();
    let footer = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
    // Decoded, each takes several times as much; all of them at once would exceed the memory.
    assert!(u64::from(footer) * FILES as u64 > MEMORY_MIB << 20, "{footer} bytes of footer");
    for n in 1..FILES {
        fs::hard_link(&first, input.join(format!("{n}.parquet"))).unwrap();
    }
    let ran = measured::build(&backend, &input, &format!("{MEMORY_MIB}MiB"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let rows = format!("\"rows\":{},", FILES * GROUPS);
    assert!(ran.stdout.contains(&rows), "{}", ran.stdout);
    let mib = ran.touched_kib >> 10;
    assert!(mib < MEMORY_MIB + 64, "{mib} MiB were touched");
    println!("{FILES} footers of {} MB: {mib} MiB", footer / 1_000_000);
}

#[test]
fn pages_that_unpack_to_more_than_the_budget_has_room_for_are_refused_unopened() {
    let backend = Backend::local();
    for encoding in [Encoding::PLAIN, Encoding::DELTA_BYTE_ARRAY] {
        // One page of 200 MB, or one that each of its rows may need, out of a few kilobytes.
        let file = folder(&backend).join(format!("page-{encoding}.parquet"));
        let rows = 200_000;
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(encoding)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap()))
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(rows)
            .build();
        write(&file, &vec!["b".repeat(1_000); rows], properties);
        let ran = build(&backend, &file);
        assert!(ran.touched_kib < MAX_TOUCHED_KIB, "{encoding}: {} MiB", ran.touched_kib >> 10);
        if encoding == Encoding::PLAIN {
            assert_eq!(ran.code, Some(1), "{}", ran.stderr);
            let name = file.display().to_string();
            for part in [&name, "row group 0", "unpacked", "give the build more --memory"] {
                assert!(ran.stderr.contains(part), "no `{part}` in {}", ran.stderr);
            }
        }
    }
}

#[test]
fn a_footer_that_nests_millions_deep_or_lists_billions_is_refused() {
    let backend = Backend::local();
    // version 1; schema: a list of this many groups, each in the one before.
    // The list's type and the one of a count of children: 0x19 and 0x15 are a list and an i32.
    let nested_as = |depth: usize, list: u8, count: u8| {
        let mut footer = vec![0x15, 2, list, 0xfc];
        footer.extend(varint(depth as u64 + 1));
        // repetition 0 (field 3), name `a` (4), one child (5).
        (0..depth).for_each(|_| footer.extend([0x35, 0, 0x18, 1, b'a', count, 2, 0]));
        // The leaf: type 6 (field 1), repetition 0, name `id`.
        footer.extend([0x15, 12, 0x25, 0, 0x18, 2, b'i', b'd', 0]);
        // no rows (field 3), no row groups (4).
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        with_footer(&footer)
    };
    for depth in [200, 10_000, 1_000_000, 5_000_000] {
        let file = folder(&backend).join(format!("nested-{depth}.parquet"));
        fs::write(&file, nested_as(depth, 0x19, 0x15)).unwrap();
        refused(&backend, &file);
    }
    // The same as a set, and with counts of 64 and 16 bits, which a careless reader takes as they
    // come.
    for (list, count) in [(0x1a, 0x15), (0x19, 0x16), (0x19, 0x14)] {
        let file = folder(&backend).join(format!("nested-{list}-{count}.parquet"));
        fs::write(&file, nested_as(250_000, list, count)).unwrap();
        refused(&backend, &file);
    }
    for (name, footer) in [
        ("schema-list", &[0x15, 2, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07][..]),
        ("group-list", &[0x15, 2, 0x19, 0x0c, 0x16, 0, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]),
    ] {
        // As many bytes behind it as the list says, and it is still no list of that.
        for filler in [0, 40 << 20] {
            let file = folder(&backend).join(format!("{name}-{filler}.parquet"));
            fs::write(&file, with_footer(&[footer, &vec![0; filler]].concat())).unwrap();
            refused(&backend, &file);
        }
    }
    // Unknown fields, one in the other.
    let file = folder(&backend).join("unknown.parquet");
    fs::write(&file, with_footer(&vec![0x1c; 10 << 20])).unwrap();
    refused(&backend, &file);
}

#[test]
fn a_list_of_lengths_that_claims_billions_is_refused() {
    let backend = Backend::local();
    for encoding in [Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
        let file = folder(&backend).join(format!("{encoding}.parquet"));
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(encoding)
            .set_compression(Compression::UNCOMPRESSED)
            .build();
        let ids: Vec<String> = (0..20_000).map(user).collect();
        write(&file, &ids, properties);
        let sound = fs::read(&file).unwrap();
        assert_eq!(build(&backend, &file).code, Some(0), "the file itself is sound");
        // Block of 128 in 4 parts, 20,000 values; the count becomes two billion in as many bytes.
        let head = [&[0x80, 1, 4][..], &varint(20_000)].concat();
        let places: Vec<usize> =
            (0..sound.len()).filter(|at| sound[*at..].starts_with(&head)).collect();
        assert!(!places.is_empty(), "{encoding}: the writer wrote its list otherwise");
        for (i, at) in places.iter().enumerate() {
            for claims in [&[0xff, 0xff, 0x7f][..], &[0xff, 0xff, 0xff, 0xff, 0x7f]] {
                let mut forged = sound.clone();
                forged[at + 3..at + 3 + claims.len()].copy_from_slice(claims);
                let file =
                    folder(&backend).join(format!("{encoding}-{i}-{}.parquet", claims.len()));
                fs::write(&file, forged).unwrap();
                refused(&backend, &file);
            }
        }
    }
}

/// Files that contradict themselves, each in one place, and sound ones next to them:
/// `forged/make.py`.
#[test]
fn what_contradicts_itself_is_damage_and_no_id_is_lost_silently() {
    let backend = Backend::local();
    let forged = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet/forged");
    let expected = fs::read(forged.join("expected.json")).unwrap();
    let expected: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&expected).unwrap();
    for (name, expected) in &expected {
        let name = format!("{name}.parquet");
        for (memory, mib) in [("512MiB", 512), ("256MiB", 256)] {
            let ran = measured::build(&backend, &forged.join(&name), memory);
            let code = match expected.as_str() {
                Some("damaged") => 7,
                Some("refused") => 1,
                Some("unread") => 2,
                _ => 0,
            };
            assert_eq!(ran.code, Some(code), "{name}: {} {}", ran.stdout, ran.stderr);
            assert!(ran.touched_kib >> 10 < mib + 64, "{name}: {} MiB", ran.touched_kib >> 10);
            match expected.as_u64() {
                Some(ids) => {
                    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
                    assert_eq!(report["ids"], ids, "{name}");
                }
                None => assert!(ran.stderr.contains(&name), "{name}: {}", ran.stderr),
            }
        }
    }
    assert!(expected.len() > 90, "{}", expected.len());
}

#[test]
fn a_forged_count_of_rows_is_refused() {
    let backend = Backend::local();
    let file = folder(&backend).join("rows.parquet");
    write(&file, &(0..1_000).map(user).collect::<Vec<_>>(), WriterProperties::builder().build());
    let sound = fs::read(&file).unwrap();
    // 1,000 as a zigzag number, wherever it stands in pages and footer.
    let count = varint(2_000);
    let places: Vec<usize> =
        (0..sound.len()).filter(|at| sound[*at..].starts_with(&count)).collect();
    let mut refusals = 0;
    for at in places {
        for forged_count in [[0xfe, 0x7f], [0x80, 0x00], [0xff, 0x7f], [0xd2, 0x0f]] {
            let mut forged = sound.clone();
            forged[at..at + 2].copy_from_slice(&forged_count);
            fs::write(&file, forged).unwrap();
            let ran = build(&backend, &file);
            assert!(matches!(ran.code, Some(0 | 7)), "{at}: {:?} {}", ran.code, ran.stderr);
            refusals += u32::from(ran.code == Some(7));
        }
    }
    assert!(refusals >= 12, "only {refusals} were refused");
}

/// Flips bytes all over small files. `BLOOMSDAY_FLIPS` sets how many; CI does a few hundred.
#[test]
fn no_flipped_byte_kills_a_build_or_takes_its_memory() {
    let backend = Backend::local();
    let flips = std::env::var("BLOOMSDAY_FLIPS").map_or(200, |n| n.parse::<u64>().unwrap());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parquet");
    let names = [
        "pyarrow-delta-byte-array",
        "pyarrow-delta-length-byte-array",
        "pyarrow-dictionary",
        "pyarrow-page-v2-zstd",
        "duckdb-varchar-lz4-raw",
        "spark-string-gzip",
        "pyarrow-nested-rg7",
        "polars-string-snappy",
    ];
    let seed = std::env::var("BLOOMSDAY_SEED").map_or(1, |n| n.parse::<u64>().unwrap());
    println!("BLOOMSDAY_SEED={seed}");
    let mut random = SplitMix64::new(seed);
    let mut next = |below: usize| random.draw() as usize % below;
    let mut codes = std::collections::BTreeMap::<i32, u64>::new();
    let mut most = 0;
    for flip in 0..flips {
        let name = names[flip as usize % names.len()];
        let mut bytes = fs::read(fixtures.join(format!("{name}.parquet"))).unwrap();
        let at = next(bytes.len());
        bytes[at] = next(256) as u8;
        let file = folder(&backend).join("flipped.parquet");
        fs::write(&file, &bytes).unwrap();
        let ran = build(&backend, &file);
        let what = format!("{name}, byte {at} = {}: {:?} {}", bytes[at], ran.code, ran.stderr);
        // Killed or panicked is none of these: refused data, no such column, damage, or a right
        // build.
        assert!(matches!(ran.code, Some(0 | 2 | 6 | 7)), "{what}");
        assert!(ran.code == Some(0) || ran.stderr.contains("flipped.parquet"), "{what}");
        assert!(ran.touched_kib < MAX_TOUCHED_KIB, "{what}: {} MiB", ran.touched_kib >> 10);
        most = most.max(ran.touched_kib);
        *codes.entry(ran.code.unwrap_or(-1)).or_default() += 1;
    }
    println!("{flips} flips, exit statuses {codes:?}, at most {} MiB", most >> 10);
}
