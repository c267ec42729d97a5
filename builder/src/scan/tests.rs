//! CompletePages files through `find` and `scan`: every fixture, damage, limits, and how a scan
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow_schema::Field;
use bloomsday_common::error::Kind;
use bloomsday_common::hash::mix64;
use object_store::ObjectStoreExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

use bytes::Bytes;

use super::buffer_pool::BufferPool;
use super::chunk::FetchRange;
use super::limits::page_limits as pages;
use super::limits::page_limits::tests::PLAIN;
use super::limits::page_source::{ColumnFormat, PageSource};
use super::*;
use crate::source::find;

mod pieces;
mod sinks;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/parquet");

#[derive(Debug)]
struct Found {
    totals: ScanTotals,
    /// Each distinct ID and how many rows had it.
    ids: BTreeMap<Vec<u8>, u64>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

async fn fetch(plan: &FilePlan, pages: Range<u64>) -> Result<Bytes, Error> {
    plan.fetch(&FetchRange { dictionary: 0..0, pages }, &Arc::new(BufferPool::new(0))).await
}

async fn fetch_all(plan: &FilePlan) -> Result<Bytes, Error> {
    fetch(plan, plan.chunks[0].range.clone()).await
}

const BUDGET: ScanBudget =
    ScanBudget { in_flight: 256 << 20, unpacked: 1 << 30, footers: 256 << 20 };

async fn plan(file: &InputFile) -> Result<FilePlan, Error> {
    FilePlan::read(file.clone(), "id", &Arc::new(FooterBudget::new(BUDGET.footers))).await
}

/// So little that nearly every page is a piece of its own.
const TINY: ScanBudget = ScanBudget { in_flight: 200, ..BUDGET };

fn read(inputs: &[&str], column: &str, threads: usize) -> Result<Found, Error> {
    read_within(BUDGET, inputs, column, threads)
}

fn read_within(
    budget: ScanBudget,
    inputs: &[&str],
    column: &str,
    threads: usize,
) -> Result<Found, Error> {
    let inputs: Vec<String> = inputs.iter().map(|&input| input.to_owned()).collect();
    let all = Arc::new(StdMutex::new(BTreeMap::new()));
    let found = Arc::clone(&all);
    let sink = move |_| {
        let all = Arc::clone(&found);
        move |id: &[u8]| *all.lock().unwrap().entry(id.to_vec()).or_insert(0) += 1
    };
    let totals = block_on(async {
        let files = find(&inputs, "2026-11-19".parse().unwrap()).await?;
        let (totals, left) = scan(files, column, budget, threads, sink, &|_| ()).await?;
        assert_eq!(left.len(), if totals.rows > 0 { threads } else { 0 });
        Ok::<_, Error>(totals)
    })?;
    let ids = Arc::into_inner(all).expect("no thread is left").into_inner().unwrap();
    Ok(Found { totals, ids })
}

fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// Each entry of expected.json: the file's name and path, and what is to be found in it.
fn fixtures() -> Vec<(String, String, serde_json::Value)> {
    let text = std::fs::read_to_string(format!("{FIXTURES}/expected.json")).unwrap();
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let name = |key: &str| key.split('#').next().unwrap().to_owned();
    all.into_iter()
        .map(|(key, value)| (name(&key), format!("{FIXTURES}/{}", name(&key)), value))
        .collect()
}

#[test]
fn every_fixture_gives_exactly_its_ids() {
    let mut read_exactly = 0;
    for (name, path, expected) in fixtures() {
        let Some(ids) = expected["ids_hex"].as_array() else { continue };
        let column = expected["column"].as_str().unwrap();
        let found = read(&[&path], column, 2).unwrap_or_else(|e| panic!("{name}: {e}"));
        let wanted: BTreeSet<Vec<u8>> = ids.iter().map(|id| hex(id.as_str().unwrap())).collect();
        let number = |key: &str| expected[key].as_u64().unwrap();
        let totals = found.totals;
        assert_eq!(found.ids.keys().cloned().collect::<BTreeSet<_>>(), wanted, "{name}");
        assert_eq!(totals.rows, number("rows"), "{name}: rows");
        assert_eq!(totals.nulls, number("nulls"), "{name}: nulls");
        assert_eq!(totals.invalid, number("invalid"), "{name}: invalid");
        let taken: u64 = found.ids.values().sum();
        assert_eq!(taken, totals.rows - totals.nulls - totals.invalid, "{name}: taken");
        assert_eq!(totals.files, 1, "{name}");
        read_exactly += 1;
    }
    assert!(read_exactly >= 70, "only {read_exactly} fixtures were read");
}

#[test]
fn every_damaged_file_is_an_error_that_names_it() {
    let mut damaged = 0;
    for (name, path, expected) in fixtures() {
        if expected["corrupt"] != true {
            continue;
        }
        let good = format!("{FIXTURES}/pyarrow-string.parquet");
        for budget in [BUDGET, TINY] {
            let error =
                read_within(budget, &[&path, &good], expected["column"].as_str().unwrap(), 2)
                    .expect_err(&format!("{name} passed, though {}", expected["why"]));
            assert!(error.to_string().contains(&name), "{name}: {error}");
            assert_eq!(error.kind(), Kind::Corrupt, "{name}: {error}");
        }
        damaged += 1;
    }
    assert_eq!(damaged, 14);
}

#[test]
fn every_refused_column_is_an_error_that_names_it_and_its_type() {
    let mut refused = 0;
    for (name, path, expected) in fixtures() {
        if expected["refused"] != true {
            continue;
        }
        let column = expected["column"].as_str().unwrap();
        let error = read(&[&path], column, 1).expect_err(&name);
        let text = error.to_string();
        let why = expected["why"].as_str().unwrap();
        let why = why.split(", ").next().unwrap().trim_start_matches("type ");
        let is_named = text.to_lowercase().contains(why.trim_start_matches("codec "));
        assert!(is_named, "{column}: {why}: {text}");
        assert!(text.contains(&name) && text.contains(&format!("`{column}`")), "{text}");
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        refused += 1;
    }
    assert_eq!(refused, 9);
}

#[test]
fn many_files_in_a_folder_are_one_set_whatever_the_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = BTreeMap::new();
    for file in 0..40 {
        let ids: Vec<String> = (0..100).map(|i| format!("user-{}", file * 50 + i)).collect();
        for id in &ids {
            *wanted.entry(id.clone().into_bytes()).or_insert(0) += 1;
        }
        let path = dir.path().join(format!("{}/part-{file}.parquet", file % 3));
        write(
            &path,
            &ids,
            WriterProperties::builder().set_max_row_group_row_count(Some(30)).build(),
        );
    }
    std::fs::write(dir.path().join("_SUCCESS"), b"").unwrap();
    std::fs::write(dir.path().join(".part-0.parquet.crc"), b"crc").unwrap();
    let path = dir.path().to_str().unwrap();
    let first = format!("{path}/0/*.parquet");
    for threads in [1, 2, 7] {
        let found = read(&[path, &first], "id", threads).unwrap();
        assert_eq!(found.ids, wanted);
        assert_eq!((found.totals.files, found.totals.rows), (40, 4000));
    }
    // What is no Parquet is never passed over.
    std::fs::write(dir.path().join("1/README.txt"), b"about these files").unwrap();
    let error = read(&[path], "id", 2).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("1/README.txt") && text.contains("`*.parquet`"), "{text}");
    assert_eq!(read(&[&format!("{path}/**/*.parquet")], "id", 2).unwrap().ids, wanted);
}

#[test]
fn a_file_without_the_column_fails_before_any_id_is_taken() {
    let good = format!("{FIXTURES}/pyarrow-string.parquet");
    let without = format!("{FIXTURES}/pyarrow-special.parquet");
    let inputs = [good, without];
    let files = block_on(find(&inputs, "2026-11-19".parse().unwrap())).unwrap();
    let sink = |_| |_: &[u8]| panic!("an ID was taken");
    let error = block_on(scan(files, "id", BUDGET, 1, sink, &|_| ())).expect_err("no column");
    let text = error.to_string();
    assert!(text.contains("pyarrow-special.parquet") && text.contains("`s`, `b`"), "{text}");
}

#[test]
fn no_files_and_no_rows_give_nothing() {
    let (totals, left) = block_on(scan(vec![], "id", BUDGET, 1, |_| |_: &[u8]| (), &|_| ()))
        .map_err(|e| e.to_string())
        .unwrap();
    assert_eq!((totals, left.len()), (ScanTotals::default(), 0));
}

#[test]
fn progress_counts_up_to_the_totals_that_the_footers_gave() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..300_000).map(|i| format!("{i:09}")).collect();
    let path = dir.path().join("a.parquet");
    write(
        &path,
        &ids,
        WriterProperties::builder().set_max_row_group_row_count(Some(90_000)).build(),
    );
    let files =
        block_on(find(&[path.display().to_string()], "2026-11-19".parse().unwrap())).unwrap();
    let reports = StdMutex::new(Vec::new());
    let progress = |now: ScanProgress| reports.lock().unwrap().push(now);
    let sink = |rows| {
        assert_eq!(rows, 300_000);
        |_: &[u8]| ()
    };
    let (totals, _) = block_on(scan(files, "id", BUDGET, 2, sink, &progress)).unwrap();
    let reports = reports.into_inner().unwrap();
    assert!(reports.len() >= 4 && reports.len() <= 8, "{reports:?}");
    assert!(reports.iter().all(|now| now.rows_total == 300_000), "{reports:?}");
    assert!(reports.is_sorted_by_key(|now| (now.rows_done, now.bytes_done)), "{reports:?}");
    let (first, last) = (reports[0], reports[reports.len() - 1]);
    assert_eq!((first.rows_done, last.rows_done), (0, 300_000));
    assert_eq!(last.bytes_done, totals.bytes_read);
}

#[test]
fn only_the_column_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut noise = 1_u64;
    let wide: Vec<String> = (0..30_000)
        .map(|_| {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            format!("{noise:064x}")
        })
        .collect();
    let narrow = Int64Array::from_iter_values(0..30_000);
    let wide: ArrayRef = Arc::new(StringArray::from(wide));
    let batch = RecordBatch::try_from_iter([("wide", wide), ("id", Arc::new(narrow))]).unwrap();
    write_batch(&path, &batch, WriterProperties::builder().build());
    let size = std::fs::metadata(&path).unwrap().len();
    let found = read(&[path.to_str().unwrap()], "id", 1).unwrap();
    assert_eq!(found.ids.len(), 30_000);
    assert!(found.totals.bytes_read * 3 < size, "{} of {size}", found.totals.bytes_read);
}

#[test]
fn a_chunk_of_no_bytes_is_left_to_the_decoder_to_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    write(&path, &["user-1".to_owned()], WriterProperties::builder().build());
    let fetched = block_on(async {
        let files = find(&[path.display().to_string()], "2026-11-19".parse().unwrap()).await?;
        let mut plan = tests::plan(&files[0]).await?;
        plan.chunks[0].range = 4..4;
        fetch_all(&plan).await
    });
    let fetched = fetched.unwrap();
    assert!(fetched.is_empty());
    // Not the one that was promised.
    let pages = pages::check(&fetched, &PLAIN, BUDGET.unpacked).unwrap();
    assert_eq!(pages.values, 0);
}

#[test]
fn a_file_replaced_while_it_is_read_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids = |n: u32| (0..2000).map(|i| format!("user-{}", n + i)).collect::<Vec<_>>();
    write(&path, &ids(1_000_000), WriterProperties::builder().build());
    let files =
        block_on(find(&[path.display().to_string()], "2026-11-19".parse().unwrap())).unwrap();
    // Of another size after the listing, and of the same size after the footer.
    let replaced = block_on(async {
        let plan = tests::plan(&files[0]).await.unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        write(&path, &ids(2_000_000), WriterProperties::builder().build());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
        let same_size = fetch_all(&plan).await.unwrap_err();
        write(&path, &ids(3), WriterProperties::builder().build());
        let other_size = tests::plan(&files[0]).await.err().unwrap();
        [same_size, other_size]
    });
    for error in replaced {
        assert!(matches!(&error, Error::Replaced { .. }), "{error}");
        assert!(error.to_string().contains("a.parquet") && error.kind() == Kind::Transient);
    }
    // Gone, at any time.
    std::fs::remove_file(&path).unwrap();
    let error = block_on(scan(files, "id", BUDGET, 1, |_| |_: &[u8]| (), &|_| ())).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("a.parquet"), "{error}");
}

#[test]
fn rows_that_differ_from_those_promised_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..100).map(|i| format!("user-{i}")).collect();
    write(&path, &ids, WriterProperties::builder().build());
    let good = std::fs::read(&path).unwrap();
    // 100 is C8 01 as a zigzag number: make 99 of it (C6 01) wherever the footer alone says it.
    let footer = good.len()
        - 8
        - u32::from_le_bytes(good[good.len() - 8..][..4].try_into().unwrap()) as usize;
    let mut bad = good.clone();
    let mut changed = 0;
    for at in footer..good.len() - 8 {
        if good[at..at + 2] == [0xc8, 0x01] {
            bad[at] = 0xc6;
            changed += 1;
        }
    }
    assert!(changed >= 3, "the file, the row group and the column say it");
    std::fs::write(&path, bad).unwrap();
    let error = read(&[path.to_str().unwrap()], "id", 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("100 rows") && text.contains("99"), "{text}");
    assert!(text.contains("a.parquet") && text.contains("row group 0"), "{text}");
}

#[test]
fn no_flipped_bit_takes_down_more_than_the_scan() {
    let good = std::fs::read(format!("{FIXTURES}/duckdb-varchar-v2.parquet")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flipped.parquet");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, bad).unwrap();
        let budget = if at / 8 % 2 == 0 { BUDGET } else { TINY };
        if let Err(error) = read_within(budget, &[path.to_str().unwrap()], "id", 1) {
            assert!(error.to_string().contains("flipped.parquet"), "{at}: {error}");
        }
    }
}

#[test]
fn a_gzip_page_that_unpacks_to_more_than_it_claims_is_refused_unopened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..300_000).map(|i| format!("{:016x}", mix64(i))).collect();
    let gzip = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::GZIP(GzipLevel::try_new(1).unwrap()))
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(usize::MAX)
        .set_write_batch_size(ids.len())
        .set_max_row_group_row_count(Some(ids.len()))
        .build();
    write(&path, &ids, gzip);
    // The true file has one page of 6 MB, and is read.
    let found = read(&[path.to_str().unwrap()], "id", 1).unwrap();
    assert_eq!(found.ids.len(), ids.len());
    let bytes = std::fs::read(&path).unwrap();
    let footer = bytes.len()
        - 8
        - u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let chunk = &bytes[4..footer];
    let claims = pages::claims(chunk);
    assert!(claims.compressed > 3 << 19, "{claims:?}");
    // The same page with a smaller claim, of as many bytes.
    let mut small = chunk.to_vec();
    let claim = zigzag(claims.uncompressed);
    let at = small.windows(claim.len()).position(|w| w == claim).unwrap();
    small[at..at + claim.len()].copy_from_slice(&zigzag(claims.uncompressed - 1000));
    let body = claims.length + claims.compressed as usize;
    let format = ColumnFormat { codec: Compression::GZIP(GzipLevel::default()), ..PLAIN };
    let read = |chunk: &[u8]| {
        let page = Bytes::copy_from_slice(&chunk[..body]);
        PageSource::new(page, format).unwrap().next_data().map(|page| page.unwrap().rows)
    };
    assert_eq!(read(chunk), Ok(ids.len() as u32));
    let why = read(&small).unwrap_err();
    assert!(why.contains("unpacks to more than"), "{why}");
}

proptest! {
    /// Rows with and without an ID, in pages that are PLAIN, in a dictionary, or first the one and
    /// then the other; the struct around it may be missing, too.
    #[test]
    fn whatever_a_writer_chose_gives_the_same_ids(
        rows in proptest::collection::vec((0..9_u8, "[a-zß]{0,40}"), 1..400),
        present in 1..9_u8,
        (v2, dictionary, plain, binary) in any::<(bool, bool, bool, bool)>(),
        page_rows in 1..200_usize,
        codec in 0..5_usize,
        in_flight in prop_oneof![Just(BUDGET.in_flight), 1..6_000_u32],
    ) {
        let is_there = |rank: u8| rank < present;
        let values = rows.iter().map(|(rank, id)| is_there(*rank).then_some(id.as_str()));
        let values: ArrayRef = if binary {
            Arc::new(BinaryArray::from_iter(values.map(|id| id.map(str::as_bytes))))
        } else {
            Arc::new(StringArray::from_iter(values))
        };
        let field = Arc::new(Field::new("id", values.data_type().clone(), true));
        // Of rows without an ID every second one is without the struct.
        let structs: Vec<bool> = rows.iter().map(|(rank, _)| is_there(*rank) || rank % 2 == 0).collect();
        let device = StructArray::new(vec![field].into(), vec![values], Some(structs.into()));
        let batch = RecordBatch::try_from_iter([("device", Arc::new(device) as ArrayRef)]).unwrap();
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::ZSTD(Default::default()),
            Compression::LZ4_RAW,
            Compression::GZIP(GzipLevel::default()),
        ];
        let version = if v2 { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
        let mut properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(codecs[codec])
            .set_dictionary_enabled(dictionary)
            .set_dictionary_page_size_limit(300)
            .set_write_batch_size(page_rows)
            .set_data_page_row_count_limit(page_rows);
        if plain {
            properties = properties.set_encoding(Encoding::PLAIN);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        write_batch(&path, &batch, properties.build());

        let budget = ScanBudget { in_flight, ..BUDGET };
        let found = read_within(budget, &[path.to_str().unwrap()], "device.id", 2).unwrap();
        let mut expected = BTreeMap::new();
        for (_, id) in rows.iter().filter(|(rank, id)| is_there(*rank) && !id.is_empty()) {
            *expected.entry(id.clone().into_bytes()).or_insert(0) += 1;
        }
        prop_assert_eq!(found.ids, expected);
        let count = |wanted: &dyn Fn(&(u8, String)) -> bool| {
            rows.iter().filter(|row| wanted(row)).count() as u64
        };
        prop_assert_eq!(found.totals.rows, rows.len() as u64);
        prop_assert_eq!(found.totals.nulls, count(&|(rank, _)| !is_there(*rank)));
        prop_assert_eq!(found.totals.invalid, count(&|(rank, id)| is_there(*rank) && id.is_empty()));
    }
}

#[test]
fn text_that_is_not_utf8_is_damage_in_a_plain_page_too_and_binary_may_be_anything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    for (annotation, dictionary, refused) in [
        (" (STRING)", false, Some("plain page 3 has text that is not UTF-8")),
        // In the third page behind those of the dictionary, which others read.
        (" (STRING)", true, Some("plain page 3 has text that is not UTF-8")),
        ("", false, None),
    ] {
        let schema = format!("message m {{ required binary id{annotation}; }}");
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(dictionary)
            .set_dictionary_page_size_limit(300)
            .set_write_batch_size(50)
            .set_data_page_row_count_limit(50)
            .build();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let before = if dictionary { 50 } else { 0 };
        let mut ids: Vec<Vec<u8>> = (0..before + 150).map(|i| format!("{i:09}").into()).collect();
        ids[before + 120] = b"gr\xfc\xdfe".to_vec();
        let ids: Vec<ByteArray> = ids.into_iter().map(ByteArray::from).collect();
        column.typed::<ByteArrayType>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let read = read(&[path.to_str().unwrap()], "id", 1).map(|found| found.totals.rows);
        match refused {
            Some(why) => {
                let error = read.unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                assert!(error.to_string().contains(why), "{error}");
            }
            None => assert_eq!(read.unwrap(), 150),
        }
    }
}

fn zigzag(value: i64) -> Vec<u8> {
    let mut rest = (value << 1) as u64;
    let mut bytes = Vec::new();
    while rest > 0x7f {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn write(path: &std::path::Path, ids: &[String], properties: WriterProperties) {
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
    write_batch(path, &RecordBatch::try_from_iter([("id", ids)]).unwrap(), properties);
}

fn write_batch(path: &std::path::Path, batch: &RecordBatch, properties: WriterProperties) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}
