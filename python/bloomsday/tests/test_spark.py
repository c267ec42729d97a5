"""Builds on a real Spark give the blob of the program, whatever happens to the executors.

$BLOOMSDAY_SPARK is the master, such as `local-cluster[2,1,1024]` with two executors, or `connect` for Spark Connect.
With $BLOOMSDAY_CAMPAIGN=full there are more seeds, every step has its fault, and memory is measured.
"""

import datetime
import functools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_faults
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import bloomsday
import bloomsday.parts
import bloomsday.spark

TODAY = datetime.datetime.now(datetime.timezone.utc).date()
YESTERDAY = TODAY - datetime.timedelta(days=1)
MASTER = os.environ.get("BLOOMSDAY_SPARK", "local[2,4]")
CAMPAIGN = os.environ.get("BLOOMSDAY_CAMPAIGN") == "full"
CONNECT = MASTER == "connect"
USERS = 60_000


@pytest.fixture(scope="session")
def spark():
    builder = (
        SparkSession.builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        # A killed executor is no reason to end an application of two.
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.task.maxFailures", "4")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.minTaskRuntime", "50ms")
    )
    builder = builder.remote("local[2]") if CONNECT else builder.master(MASTER)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def day(tmp_path_factory):
    """A day's files, with duplicates, nulls and invalid IDs, and what the program's build says of them."""
    folder = tmp_path_factory.mktemp("day")
    for file in range(4):
        ids = [f"user-{n:027}" for n in range(USERS) if n % 4 == file or n % 10 == 0]
        pq.write_table(pa.table({"id": [*ids, None, "", "x" * 1025], "n": range(len(ids) + 3)}), folder / f"{file}.parquet")
    report = bloomsday.build(folder / "store", "rt", TODAY, folder / "*.parquet", "id")
    return types.SimpleNamespace(folder=folder, files=str(folder / "?.parquet"), report=report)


@pytest.fixture
def frame(spark, day):
    return spark.read.parquet(*(str(day.folder / f"{file}.parquet") for file in range(4)))


def agree(report, day):
    """All that does not depend on how a build is done."""
    for name in ("digest", "ids", "rows", "nulls", "invalid", "bytes", "fpp_measured", "bits_per_id", "outcome"):
        assert report[name] == day.report[name], name


def pointers(store):
    return sorted(path.name for path in store.glob("rt/pointers/2*"))


def test_a_frame_and_its_files_give_the_programs_blob(spark, frame, day, tmp_path):
    build = functools.partial(bloomsday.spark.build, filter="rt", day=TODAY, column="id")
    agree(build(frame, store=tmp_path / "a"), day)
    files = build(input=day.files, spark=spark, store=tmp_path / "b")
    agree(files, day)
    assert (files["files"], files["input_bytes"]) == (4, day.report["input_bytes"])
    assert build(frame, store=tmp_path / "b")["outcome"] == "unchanged"
    assert build(frame, store=tmp_path / "c", dry_run=True)["dry_run"] and not (tmp_path / "c").exists()
    seen = bloomsday.Filter.open(tmp_path / "a" / files["blob"])
    ids = [f"user-{n:027}" for n in range(USERS)]
    assert all(seen.contains_batch(ids))


def test_what_executors_run_has_neither_the_store_nor_its_credentials(spark, frame, day, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key")
    stages, map_in_arrow = [], type(frame).mapInArrow

    def mapped(frame, function, *more, **named):
        stages.append(cloudpickle.dumps(function))
        return map_in_arrow(frame, function, *more, **named)

    monkeypatch.setattr(type(frame), "mapInArrow", mapped)
    build = functools.partial(bloomsday.spark.build, filter="rt", day=TODAY, column="id")
    agree(build(frame, store=tmp_path / "the-secret-a"), day)
    agree(build(input=day.files, spark=spark, store=tmp_path / "the-secret-b"), day)
    assert len(stages) == 6 and not any(b"the-secret" in stage for stage in stages)


def test_the_notebook_of_the_page_runs(spark, tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[3].joinpath("docs/spark.md").read_text()
    frame, files = (block.split("```")[0] for block in page.split("```python\n")[1:3])
    day = TODAY.isoformat()
    for before, after in [
        ("2026-11-19", day),
        ("s3://ads-filters/prod", str(tmp_path / "store")),
        ("s3://ads-tmp/bloomsday", (tmp_path / "staging").as_uri()),
        ("s3://ads/ids", str(tmp_path / "ids")),
    ]:
        assert before in frame + files, before
        frame, files = frame.replace(before, after), files.replace(before, after)
    users = [f"user-{n:027}" for n in range(10_000)]
    visits = spark.createDataFrame(pa.table({"user_id": users, "dt": [day] * len(users)}))
    visits.write.partitionBy("dt").parquet(str(tmp_path / "ids"))
    monkeypatch.setattr(type(spark), "table", lambda spark, name: {"ads.visits": visits}[name])
    names = {}
    exec(frame, names)
    assert (names["report"]["outcome"], names["report"]["ids"]) == ("published", len(users))
    exec(files.replace("bloomsday.spark.build(", "report = bloomsday.spark.build("), names)
    assert names["report"]["outcome"] == "unchanged"


def test_a_staged_build_leaves_no_hash(frame, day, tmp_path):
    staging = tmp_path / "staging"
    # What a killed run left.
    left = staging / f"bloomsday-rt-{TODAY}" / "counted"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"hashes of the run before")
    report = bloomsday.spark.build(
        frame, "id", filter="rt", day=TODAY, store=tmp_path / "s", staging=staging.as_uri(), ranges=3
    )
    agree(report, day)
    assert rows_in(staging) == 0


def rows_in(staging):
    left = [path for path in staging.rglob("*.parquet") if path.is_file()]
    return sum(pq.read_metadata(path).num_rows for path in left)


@pytest.mark.parametrize("handler", ["spark", "python"])
def test_an_interrupted_build_leaves_no_hash(spark, tmp_path, handler):
    staging = tmp_path / "staging"
    ended = threading.Event()
    # That of Spark cancels all jobs; a notebook may have another one.
    before = signal.getsignal(signal.SIGINT)
    if handler == "python":
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        # As soon as a task writes.
        while not ended.is_set() and not list(staging.rglob("_temporary/**/*.parquet")):
            time.sleep(0.01)
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    many = spark.range(20_000_000).selectExpr("cast(id as string) as id")
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            bloomsday.spark.build(
                many, "id", filter="rt", day=TODAY, store=tmp_path / "s", staging=staging, rows=20_000_000, ranges=8
            )
        finally:
            ended.set()
            interrupting.join()
            signal.signal(signal.SIGINT, before)
    assert list(staging.rglob("_temporary")) == [] and rows_in(staging) == 0
    # No job of it is under way that would write later.
    assert CONNECT or spark.sparkContext.statusTracker().getActiveJobsIds() == []
    assert pointers(tmp_path / "s") == []


@pytest.mark.parametrize("seed", range(20 if CAMPAIGN else 1))
def test_ranges_files_and_order_change_nothing(spark, frame, day, tmp_path, seed, monkeypatch):
    choose = random.Random(seed)
    print(f"seed {seed}")
    parts = choose.choice([1, 2, 5, 16])
    shuffled = frame.orderBy(F.xxhash64("id", F.lit(seed))).repartition(parts)
    if seed % 2:
        # Another engine: a partition has several ranges, in any order.
        monkeypatch.setattr(bloomsday.spark, "_by_range", lambda df, n: df.repartition(max(1, n // 2), "range"))
    ranges = choose.choice([1, 2, 7, 30] if CAMPAIGN else [7])
    report = bloomsday.spark.build(
        shuffled, "id", filter="rt", day=TODAY, store=tmp_path, ranges=ranges, rows=choose.choice([1, 10**9])
    )
    agree(report, day)


@pytest.mark.parametrize("step", ["gather", "count", "fill"] if CAMPAIGN else ["count"])
@pytest.mark.skipif(not MASTER.startswith("local-cluster"), reason="its executor is its driver")
def test_an_executor_killed_in_a_step_changes_nothing(frame, day, tmp_path, step, monkeypatch):
    faulty = with_fault(spark_faults.kill_executor, step, marker=str(tmp_path / "killed"))
    monkeypatch.setattr(bloomsday.spark, "parts", faulty)
    report = bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path / "s", ranges=4)
    assert (tmp_path / "killed").exists()
    agree(report, day)


# Where a driver is killed, and whether the pointer has moved by then.
PLACES = {"uploaded": False, "pointed": True}
if CAMPAIGN:
    PLACES |= dict.fromkeys(["read-back", "recorded", "pointer-locked", "pointer-staged"], False)
    PLACES["pointer-renamed"] = True


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.skipif(not MASTER.startswith("local["), reason="the driver is the same everywhere")
def test_a_driver_killed_at_a_step_leaves_the_pointer_or_the_whole_day(frame, day, tmp_path, place):
    words = [sys.executable, "spark_driver.py", day.files, str(tmp_path), str(TODAY)]
    # With all that it started.
    stopping = os.environ | {"BLOOMSDAY_PAUSE_AT": place}
    driver = subprocess.Popen(words, env=stopping, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert any(f"paused at {place}" in line for line in driver.stderr), f"it ended before {place}"
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    moved = PLACES[place]
    assert pointers(tmp_path) == ([str(TODAY)] if moved else [])
    again = bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path)
    assert (again["digest"], again["outcome"]) == (day.report["digest"], "unchanged" if moved else "published")
    assert bloomsday.Filter.open(tmp_path / again["blob"]).header.ids == USERS


@pytest.mark.parametrize("step", ["gather", "count", "fill"] if CAMPAIGN else ["fill"])
@pytest.mark.skipif(CONNECT, reason="local[2] runs a task once")
def test_a_task_that_is_run_again_changes_nothing(frame, day, tmp_path, step, monkeypatch):
    faulty = with_fault(spark_faults.fail_once, step, marker=str(tmp_path / "failed"))
    monkeypatch.setattr(bloomsday.spark, "parts", faulty)
    report = bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path / "s", ranges=4)
    assert (tmp_path / "failed").exists()
    agree(report, day)


def test_input_that_changes_between_the_steps_moves_no_pointer(frame, tmp_path, monkeypatch):
    # What a stage that is computed again from other input would be.
    keep = bloomsday.spark._Stages.keep

    def changed(stages, df, name):
        kept = keep(stages, df, name)
        return kept if name == "counted" else kept.where(F.col("range") != 1)

    monkeypatch.setattr(bloomsday.spark._Stages, "keep", changed)
    with pytest.raises(bloomsday.BuildError, match="nothing was pointed at"):
        bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path, ranges=3)
    assert pointers(tmp_path) == []


def test_types_of_ids_are_those_of_the_program(spark, tmp_path):
    selected = spark.range(1_000).selectExpr(
        "id - 500 as long",
        "cast(id - 500 as decimal(38, 0)) as whole",
        "cast(id as smallint) as short",
        "cast(concat('user-', id) as binary) as raw",
        "concat('user-', id) as text",
        "named_struct('device', concat('user-', id)) as user",
        "cast(id as double) as real",
        "concat('user-', id) as `dotted.and``quoted`",
    )
    selected.coalesce(1).write.parquet(str(tmp_path / "in"))
    # The others' bytes are tested in builder/src/ids/arrays.rs.
    for column in ("long", "whole", "short", "raw", "text", "user.device", "dotted.and`quoted") if CAMPAIGN else ("whole", "user.device", "dotted.and`quoted"):
        ours = bloomsday.spark.build(selected, column, filter="rt", day=TODAY, store=tmp_path / f"a-{column}")
        theirs = bloomsday.build(tmp_path / f"b-{column}", "rt", TODAY, tmp_path / "in", column)
        assert (ours["digest"], ours["ids"]) == (theirs["digest"], 1_000), column
    with pytest.raises(bloomsday.IdTypeError, match="Float64"):
        bloomsday.spark.build(selected, "real", filter="rt", day=TODAY, store=tmp_path / "s")
    # Text that is not UTF-8, which a cast makes: its bytes, as a column of binary has them.
    odd = spark.range(10).selectExpr("concat(X'FFFE', cast(cast(id as string) as binary)) as raw")
    digests = {
        bloomsday.spark.build(df, "raw", filter="rt", day=TODAY, store=tmp_path / f"odd-{n}")["digest"]
        for n, df in enumerate([odd, odd.selectExpr("cast(raw as string) as raw")])
    }
    assert len(digests) == 1


def test_gates_and_the_overlap_are_those_of_a_build(frame, day, tmp_path):
    build = functools.partial(bloomsday.spark.build, column="id", filter="rt", store=tmp_path)
    first = bloomsday.build(tmp_path, "rt", YESTERDAY, day.files, "id")
    assert build(frame, day=TODAY)["overlap"] == 1.0
    few = frame.where("n < 100")
    with pytest.raises(bloomsday.RefusedError, match="accept_change") as refused:
        build(few, day=TODAY)
    assert refused.value.report["outcome"] == "refused"
    with pytest.raises(bloomsday.RefusedError, match="has no ID"):
        build(frame.where("n < 0"), day=TODAY)
    report = build(few, day=TODAY, accept_change="a test")
    assert report["outcome"] == "published" and report["blob"] != first["blob"]


def test_what_cannot_be_is_named_with_a_remedy(spark, frame, tmp_path):
    def refused(error, says, *words, **changed):
        given = dict(column="id", filter="rt", day=TODAY, store=tmp_path / "s") | changed
        with pytest.raises(error, match=says):
            bloomsday.spark.build(*words, **given)

    refused(bloomsday.UsageError, "layout `blocked`", frame, layout="guava")
    refused(bloomsday.UsageError, "build it on one machine", frame, column="bloomsday_hash")
    refused(bloomsday.UsageError, "live IDs are hashes", input="live:", spark=spark)
    hashes = pa.record_batch({"bloomsday_hash": pa.array([1], pa.uint64())})
    with pytest.raises(bloomsday.UsageError, match="parts hash IDs"):
        list(bloomsday.parts.gather([hashes], ranges=1, rows=1))
    table = pa.concat_tables([pa.table({"id": ["a"]}), pa.table({"id": ["b"]})])
    with pytest.raises(bloomsday.BuildError, match="to_batches"):
        list(bloomsday.parts.gather([table], ranges=1, rows=2))
    assert len(list(bloomsday.parts.gather(table.to_batches(), ranges=1, rows=2))) > 0
    with pytest.raises(bloomsday.IdTypeError, match="arrow.bool8"):
        list(bloomsday.parts.gather([pa.record_batch({"id": pa.array([1], pa.bool8())})], ranges=1, rows=1))
    # What the values of a dictionary mean, counts.
    uuids = pa.array([bytes(range(n, n + 16)) for n in range(9)], pa.uuid())
    plain, dictionary = [
        [pa.record_batch(batch) for batch in bloomsday.parts.gather([pa.record_batch({"id": ids})], ranges=1, rows=9)]
        for ids in (uuids, pa.DictionaryArray.from_arrays(pa.array(range(9), pa.int32()), uuids))
    ]
    assert plain == dictionary and plain[0].num_rows > 0
    refused(bloomsday.UsageError, "2 columns", frame, column="*")
    refused(bloomsday.UsageError, "rows: -1", frame, rows=-1)
    refused(bloomsday.UsageError, "ranges: 10000000000", frame, ranges=10**10)
    refused(TypeError, "rows: an integer or None, not str", frame, rows="5")
    flags = frame.selectExpr("id is null as flag", "id")
    refused(bloomsday.IdTypeError, "column `flag`", flags, column="flag")
    files = pa.record_batch({"file": ["a.parquet"], "bytes": [1]})
    with pytest.raises(bloomsday.UsageError, match="parts hash IDs"):
        list(bloomsday.parts.gather_files([files], column="bloomsday_hash", ranges=1, rows=1))
    refused(bloomsday.UsageError, "`df` and `column`")
    refused(bloomsday.UsageError, "pass `column`", frame, column=None)
    refused(bloomsday.NotFoundError, "no-such", input=tmp_path / "no-such.parquet", spark=spark)
    refused(bloomsday.UsageError, "window", frame, window_days=7)
    refused(bloomsday.UsageError, "fpp", frame, fpp=7.0)
    refused(bloomsday.UsageError, "accept_change: it is empty", frame, accept_change=" ")
    (tmp_path / "garbage.parquet").write_bytes(b"no parquet")
    refused(bloomsday.BuildError, "not a Parquet file", input=tmp_path / "garbage.parquet", spark=spark)
    assert pointers(tmp_path / "s") == []


def test_an_error_of_an_executor_keeps_what_it_says(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(bloomsday.spark, "parts", with_fault(spark_faults.refuse, "count"))
    with pytest.raises(bloomsday.StoreError) as failed:
        bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path)
    assert str(failed.value) == 'the first line\nthe "second" one'
    assert (failed.value.remedy, failed.value.is_transient) == ("wait an hour", True)


def test_a_file_that_an_executor_cannot_see_is_named_with_a_remedy(tmp_path):
    files = pa.record_batch({"file": [str(tmp_path / "of-the-driver.parquet")], "bytes": [1]})
    with pytest.raises(bloomsday.BuildError, match="of-the-driver.* all executors share") as failed:
        list(bloomsday.parts.gather_files([files], column="id", ranges=1, rows=1))
    assert "2000-01-01" not in str(failed.value)


def test_an_older_spark_is_refused_with_its_version():
    bloomsday.spark._check_version(types.SimpleNamespace(version="4.1.0"))
    with pytest.raises(bloomsday.UsageError, match=r"Spark 4\.0\.1, and .* needs 4\.1 or newer"):
        bloomsday.spark._check_version(types.SimpleNamespace(version="4.0.1"))


def test_a_spark_that_cannot_persist_asks_for_staging(frame, tmp_path, monkeypatch):
    def unsupported(*_):
        raise RuntimeError("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported")

    monkeypatch.setattr(type(frame), "persist", unsupported)
    with pytest.raises(bloomsday.UsageError, match="staging="):
        bloomsday.spark.build(frame, "id", filter="rt", day=TODAY, store=tmp_path)


@pytest.mark.skipif(not CAMPAIGN, reason="takes minutes")
def test_a_worker_never_has_more_than_400_mib(spark, tmp_path, monkeypatch):
    folder = tmp_path / "most"
    folder.mkdir()
    faulty = {step: functools.partial(spark_faults.measured, step=step, folder=str(folder)) for step in STEPS}
    monkeypatch.setattr(bloomsday.spark, "parts", replaced(**faulty))
    # Each range is as full as the default makes them.
    users = spark.range(30_000_000).selectExpr("concat('user-', lpad(id, 27, '0')) as id")
    bloomsday.spark.build(users, "id", filter="rt", day=TODAY, store=tmp_path / "s", rows=30_000_000, ranges=2)
    most = {step: max(int(file.name.split("-")[2]) >> 10 for file in folder.glob(f"{step}-*")) for step in STEPS}
    print(f"MiB: {most}")
    assert max(most.values()) <= 400, most


STEPS = ("gather", "count", "fill")


def replaced(**functions):
    """`bloomsday.parts` with other functions."""
    return types.SimpleNamespace(**(vars(bloomsday.parts) | functions))


def with_fault(fault, step, **given):
    return replaced(**{step: functools.partial(fault, step=step, **given)})
