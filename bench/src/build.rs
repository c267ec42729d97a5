//! Builds: zstd Parquet in the page cache → a filled filter, compared with decompression alone,
//! DuckDB and Spark.

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use bloomsday_builder::budget::Budget;
use bloomsday_builder::fill;
use bloomsday_builder::partition::{PartitionWriter, Partitions};
use bloomsday_builder::{Job, Report, Seconds, build, scan, source};
use bloomsday_common::filter::{Layout, Shape};
use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::store::Store;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::Options;
use crate::fixtures::{self, FPP, threads};
use crate::ids;
use crate::measure::{Bound, Outcome, Samples, timed};
use crate::peers::{DuckDb, Spark};

/// More rows only take longer here: little depends on their number.
const MAX_ROWS: u64 = 100_000_000;
/// Rows of a file, many enough to occupy every thread to the end, and of a row group.
const FILE_ROWS: u64 = 2_000_000;
const GROUP_ROWS: usize = 1 << 20;
const COLUMN: &str = "device_id";

const DECOMPRESS: &str = "decompression alone";
const SCAN: &str = "scan: every ID, kept nowhere";
const FILLED: &str = "scan, hash, partition, deduplicate, fill";
const WHOLE: &str = "the whole build: also publish, read back, verify";
/// The first step of a build, by its own report.
const BUILD_SCAN: &str = "of that its scan: every ID hashed, partitioned, sampled";
const SPARK: &str = "Spark: stat.bloomFilter";
const DUCKDB: &str = "DuckDB: scan and hash, kept nowhere";

pub(crate) fn run(options: &Options) -> Vec<Outcome> {
    let rows = options.ids.min(MAX_ROWS);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let input = folder.path().join("input");
    let files = write(&input, rows);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let store = Store::create(&folder.path().join("store").display().to_string());
    let store = store.expect("a store");

    // Filter, copy and all hashes, and as much as a build with memory to spare takes besides them.
    let shape = Shape::for_ids(Layout::Blocked, rows, FPP).expect("a size there is");
    let memory = budget().needs(rows, shape).memory;

    let names = [DECOMPRESS, SCAN, FILLED, WHOLE];
    let mut samples = vec![[Samples::default(), Samples::default()]; names.len()];
    let mut spark = Spark::start(&input, COLUMN, rows, FPP);
    let mut duckdb = DuckDb::start(&input, COLUMN, rows);
    let (mut spark_took, mut its_scan) = (Samples::default(), Samples::default());
    let mut duckdb_took = Samples::default();
    let steps_of_whole = Cell::new(Seconds::default());
    for _ in 0..options.rounds.min(3) {
        let steps: [&dyn Fn() -> u64; 4] = [
            &|| decompress(&files),
            &|| runtime.block_on(scan_only(&input)),
            &|| runtime.block_on(filled(&input)),
            &|| {
                let report = runtime.block_on(whole(&input, &store));
                steps_of_whole.set(report.seconds);
                report.rows
            },
        ];
        for (step, samples) in steps.iter().zip(&mut samples) {
            let (seen, took) = timed(memory, step);
            assert_eq!(seen, rows, "rows were lost on the way");
            for (samples, seconds) in samples.iter_mut().zip(took) {
                samples.0.push(seconds * 1e9 / rows as f64);
            }
        }
        its_scan.0.push(steps_of_whole.get().scan * 1e9 / rows as f64);
        if let Ok(duckdb) = &mut duckdb {
            duckdb_took.0.push(duckdb.scan());
        }
        if let Ok(spark) = &mut spark {
            spark_took.0.push(spark.build());
        }
    }
    let mut outcome = Outcome::of("builds", "ns a row");
    for (clock, suffix) in ["", ", CPU time"].iter().enumerate() {
        for (name, samples) in names.iter().zip(&samples) {
            outcome.rows.push((format!("{name}{suffix}"), samples[clock].clone()));
        }
    }
    outcome.rows.push((BUILD_SCAN.to_owned(), its_scan));
    match duckdb {
        Ok(_) => outcome.rows.push((DUCKDB.to_owned(), duckdb_took)),
        Err(missing) => outcome.note(missing),
    }
    match spark {
        Ok(mut spark) => {
            outcome.rows.push((SPARK.to_owned(), spark_took));
            outcome.note(spark.check());
        }
        Err(missing) => outcome.note(missing),
    }
    let cpu = |name: &str| format!("{name}, CPU time");
    outcome.compare(FILLED, DECOMPRESS, Bound::AtMost(1.9));
    outcome.compare(&cpu(FILLED), &cpu(DECOMPRESS), Bound::None);
    outcome.compare(WHOLE, DUCKDB, Bound::AtMost(1.6));
    outcome.compare(SPARK, WHOLE, Bound::AtLeast(10.0));
    outcome.compare(SPARK, FILLED, Bound::None);
    outcome.compare(WHOLE, BUILD_SCAN, Bound::None);
    outcome.compare(WHOLE, SCAN, Bound::None);
    outcome.compare(&cpu(WHOLE), &cpu(SCAN), Bound::None);
    let each = |seconds: f64| seconds * 1e9 / rows as f64;
    let Seconds { scan, count, fill, publish, verify, .. } = steps_of_whole.get();
    outcome.note(format!(
        "of the last whole build: scan {:.1}, count {:.1}, fill {:.1}, publish {:.1}, verify {:.1}",
        each(scan),
        each(count),
        each(fill),
        each(publish),
        each(verify)
    ));
    let bytes: u64 = files.iter().map(|file| std::fs::metadata(file).map_or(0, |m| m.len())).sum();
    outcome.note(format!(
        "{rows} rows of 32 characters, zstd 1, {} MiB in {} files, in the page cache",
        bytes >> 20,
        files.len()
    ));
    vec![outcome]
}

/// Writes the rows as zstd Parquet, a file at a time.
fn write(folder: &Path, rows: u64) -> Vec<PathBuf> {
    std::fs::create_dir_all(folder).expect("a folder");
    let starts = (0..rows).step_by(FILE_ROWS as usize).enumerate();
    let one = |(number, start): (usize, u64)| {
        let path = folder.join(format!("part-{number}.parquet"));
        let ids = ids::range(start, (rows - start).min(FILE_ROWS) as usize);
        let texts = ids.iter().map(|id| std::str::from_utf8(id).expect("hex"));
        let column: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([(COLUMN, column)]).expect("one column");
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let file = File::create(&path).expect("a file");
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
        writer.write(&batch).expect("rows are written");
        writer.close().expect("the file is closed");
        path
    };
    starts.map(one).collect()
}

/// Decompresses every page of every file on all cores, and does nothing with them.
fn decompress(files: &[PathBuf]) -> u64 {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let one_thread = || {
        let mut rows = 0;
        while let Some(path) = files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let file = File::open(path).expect("it was written");
            let reader = SerializedFileReader::new(file).expect("it is Parquet");
            for group in 0..reader.num_row_groups() {
                let group = reader.get_row_group(group).expect("it is there");
                let mut pages = group.get_column_page_reader(0).expect("it has a column");
                while let Some(page) = pages.get_next_page().expect("it is sound") {
                    rows += u64::from(page.num_values());
                }
            }
        }
        rows
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads()).map(|_| scope.spawn(one_thread)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    })
}

fn inputs(input: &Path) -> Vec<String> {
    vec![input.display().to_string()]
}

/// What a build with memory to spare makes of it.
fn budget() -> Budget {
    Budget::of(u64::MAX, Layout::Blocked, FPP, threads()).expect("a possible rate")
}

async fn scan_only(input: &Path) -> u64 {
    let files = source::find(&inputs(input), fixtures::day()).await.expect("files");
    let sink = |_| |id: &[u8]| _ = std::hint::black_box(id);
    let scanned = scan::scan(files, COLUMN, budget().scan, threads(), sink, &|_| ()).await;
    scanned.expect("it is read").0.rows
}

struct Keep(PartitionWriter<Xxh3, Arc<Partitions<Xxh3>>>);

impl scan::Sink for Keep {
    type Output = ();

    #[inline]
    fn push(&mut self, id: &[u8]) {
        self.0.push(Xxh3::of(id));
    }

    fn finish(self) {
        self.0.finish().expect("nothing is spilled");
    }
}

async fn filled(input: &Path) -> u64 {
    let files = source::find(&inputs(input), fixtures::day()).await.expect("files");
    let partitions = Arc::new(Partitions::new(u64::MAX, &std::env::temp_dir()));
    let shared = partitions.clone();
    let sink = move |_| Keep(PartitionWriter::new(shared.clone()));
    let scanned = scan::scan(files, COLUMN, budget().scan, threads(), sink, &|_| ()).await;
    let (totals, _) = scanned.expect("it is read");
    let partitions = Arc::into_inner(partitions).expect("all writers are finished");
    let distinct =
        partitions.distinct(threads(), u64::MAX).expect("memory keeps hashes as they were");
    let shape = Shape::for_ids(Layout::Blocked, distinct.n_ids(), FPP).expect("a size there is");
    std::hint::black_box(fill::fill(&distinct, shape, threads()).expect("memory for a filter"));
    assert_eq!(distinct.n_ids(), totals.rows);
    totals.rows
}

async fn whole(input: &Path, store: &Store) -> Report {
    let filter = "rt".parse().expect("a good name");
    let job = Job {
        fpp: FPP,
        memory: u64::MAX,
        threads: threads(),
        by: "bench".to_owned(),
        ..Job::new(filter, fixtures::day(), inputs(input), COLUMN.to_owned())
    };
    build(&job, store, &|_| ()).await.expect("it is built")
}
