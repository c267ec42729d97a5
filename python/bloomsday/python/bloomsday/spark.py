"""Builds a day's filter on Spark: the same blob as `bloomsday.build`, for any number of IDs. docs/spark.md."""

from __future__ import annotations

import datetime
import functools
import json
import operator
import os
import re
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bloomsday import _native, errors, parts
from bloomsday._build import KEEP_DAYS, MAX_AGE_DAYS, _day, _description, _judged, _publication
from bloomsday.errors import BloomsdayError, BuildError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The oldest version of Spark that has what this module needs.
OLDEST_SPARK = (4, 1)
#: How many bytes of the filter the driver takes at a time.
GROUP_BYTES = 128 << 20
#: The most bytes of a batch for a Python worker.
BATCH_BYTES = 64 << 20
#: The most tasks that read files.
MAX_FILE_TASKS = 10_000
#: How long an interrupted build waits until Spark has cancelled its job.
CANCEL_SECONDS = 60
#: Comes before what an executor's exception has besides its text.
FIELDS = "bloomsday.errors.fields: "
#: A small build has a range for each of this many rows, up to 8 ranges.
ROWS_PER_SMALL_RANGE = 1 << 20


def build(
    df: DataFrame | None = None,
    column: str | None = None,
    *,
    filter: str,
    day: datetime.date | str,
    store: str | os.PathLike[str],
    input: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    spark: SparkSession | None = None,
    fpp: float = 0.03,
    layout: str = "blocked",
    staging: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    ranges: int | None = None,
    window_days: int = 1,
    window_missing: str = "error",
    accept_change: str | None = None,
    by: str | None = None,
    dry_run: bool = False,
    keep_days: int = KEEP_DAYS,
    max_age_days: int = MAX_AGE_DAYS,
) -> dict[str, Any]:
    """Builds one day from a column of a DataFrame, or from Parquet files that the executors read (`input`).

    The blob depends only on the set of IDs: it is byte for byte that of `bloomsday build`. Executors need this
    package and nothing else: no store, no network. With `input` they read the files themselves. This process
    uploads the blob, evaluates the gates and moves the pointer; it needs about 1 GiB besides Spark.

    `staging` is a path or URL that Spark can write to; what it wrote there is removed at the end. Without it the
    steps in between are persisted on the executors' disks. `rows` is about how many rows there are: without it
    that of the last build counts, or they are counted first.

    Returns the report that `bloomsday build --json` prints; raises as `bloomsday.build`.
    """
    column = _check_arguments(df, column, input, window_days)
    _check_numbers(rows, ranges)
    staging = None if staging is None else os.fspath(staging)
    session = df.sparkSession if df is not None else _session(spark)
    _check_version(session)
    description = _description(
        filter=filter,
        day=day,
        input=input,
        column=column,
        fpp=fpp,
        layout=layout,
        window_days=window_days,
        window_missing=window_missing,
        accept_change=accept_change,
    )
    publication = _publication(store, by, dry_run, keep_days, max_age_days)
    coordinator = _native.Coordinator(description, publication)
    if df is not None:
        gathered, n_ranges = _gather_frame(coordinator, df, column, rows, ranges)
    else:
        gathered, n_ranges = _gather_files(coordinator, session, column, rows, ranges)
    with _batches_of(session, BATCH_BYTES), _Stages(session, staging, filter, _day(day)) as stages:
        try:
            report = _run(coordinator, stages, gathered, n_ranges)
        except BloomsdayError:
            raise
        except Exception as error:
            raise _explained(error) from error
    return _judged(*report)


def _check_arguments(df: DataFrame | None, column: str | None, input: Any, window_days: int) -> str:
    """The name of the column, if the arguments fit together."""
    if (df is None) == (input is None):
        raise UsageError("a build reads a DataFrame or an input: pass `df` and `column`, or `input` and `column`")
    if column is None:
        raise UsageError("a build needs the name of the column with the IDs: pass `column`")
    if input is None and window_days != 1:
        raise UsageError("the window of a DataFrame is what it selects: leave `window_days` out")
    return column


def _check_numbers(rows: int | None, ranges: int | None) -> None:
    for name, number, bits in (("rows", rows, 63), ("ranges", ranges, 31)):
        try:
            fits = number is None or 0 <= operator.index(number) < 1 << bits
        except TypeError:
            raise TypeError(f"{name}: an integer or None, not {type(number).__name__}") from None
        if not fits:
            raise UsageError(f"{name}: {number} is negative, or 2^{bits} or more")


def _gather_frame(
    coordinator: _native.Coordinator, df: DataFrame, column: str, rows: int | None, ranges: int | None
) -> tuple[DataFrame, int]:
    """The hashes of a column, and in how many ranges they are."""
    # In backticks a dot is a part of a column's own name; otherwise it leads into a struct.
    name = f"`{column.replace('`', '``')}`"
    # The name is for messages: one with a dot would lead into a struct again.
    ids = df.select(df[name].alias(re.sub("[.`]", "_", column)) if column in df.columns else column)
    if len(ids.columns) != 1:
        raise UsageError(f"`{column}` is {len(ids.columns)} columns: name the one with the IDs")
    rows = rows or coordinator.expected_rows() or max(_interruptible(ids.sparkSession, ids.count), 1)
    n_ranges = coordinator.set_ranges(rows, ranges or _least_ranges(rows))
    gather = functools.partial(_in_executor, parts.gather, ranges=n_ranges, rows=rows)
    return ids.mapInArrow(gather, parts.GATHERED), n_ranges


def _gather_files(
    coordinator: _native.Coordinator, session: SparkSession, column: str, rows: int | None, ranges: int | None
) -> tuple[DataFrame, int]:
    """The same from the input's files, which the executors read."""
    files = coordinator.files()
    # Some 16 bytes a row, of one column among a few.
    rows = rows or coordinator.expected_rows() or max(sum(bytes for _, bytes in files) // 16, 1)
    n_ranges = coordinator.set_ranges(rows, ranges or _least_ranges(rows))
    gather = functools.partial(_in_executor, parts.gather_files, column=column, ranges=n_ranges, rows=rows)
    numbered = [(n, file, bytes) for n, (file, bytes) in enumerate(files)]
    listed = session.createDataFrame(numbered, "range int, file string, bytes bigint")
    # A task for each file, up to a limit.
    spread = _by_range(listed, min(len(files), MAX_FILE_TASKS)).select("file", "bytes")
    return spread.mapInArrow(gather, parts.GATHERED), n_ranges


def _run(
    coordinator: _native.Coordinator, stages: _Stages, gathered: DataFrame, ranges: int
) -> tuple[str, str | None]:
    from pyspark.sql import functions as F

    count = functools.partial(_in_executor, parts.count, ranges=ranges)
    counted = _by_range(gathered, ranges).mapInArrow(count, parts.COUNTED)
    counted = stages.keep(counted, "counted")
    numbers = counted.where(F.col("ids").isNotNull()).drop("hashes", "samples")
    for batch in _collected(numbers):
        coordinator.counted(batch)
    plan = coordinator.shape()
    if plan is None:
        return coordinator.finish()
    last, packages = coordinator.sample()
    sample = counted.where((F.col("range") <= last) & (F.col("seq") < packages)).select("hashes")
    coordinator.compare(_collected(sample))

    fill = functools.partial(_in_executor, parts.fill, plan=plan)
    # Where a stage is persisted, each range is in one partition already.
    grouped = _by_range(counted, ranges) if stages.splits else counted
    filled = stages.keep(grouped.mapInArrow(fill, parts.FILLED), "filled")
    per_group = max(1, GROUP_BYTES * ranges // max(plan["body"], 1))
    groups = [(first, first + per_group - 1) for first in range(0, ranges, per_group)]
    for first, last in groups:
        for batch in _in_order(filled.where(F.col("range").between(first, last)).drop("bytes")):
            coordinator.filled(batch)
    coordinator.seal()
    # At most twice: what reads back damaged a second time is an error.
    while not coordinator.is_uploaded():
        coordinator.begin_upload()
        try:
            for first, last in groups:
                pieces = filled.where(F.col("range").between(first, last))
                for batch in _in_order(pieces.select("range", "part", "offset", "edge", "bytes")):
                    coordinator.upload(batch)
        except BaseException:
            coordinator.abort_upload()
            raise
        coordinator.end_upload()
    return coordinator.finish()


class _Stages:
    """Keeps what the executors made: in a folder that Spark writes to, or persisted on their disks."""

    def __init__(self, session: SparkSession, staging: str | None, filter: str, day: str) -> None:
        self.session = session
        # The same folder for the same day, so that the next run removes what a killed one left.
        self.folder = None if staging is None else f"{staging.rstrip('/')}/bloomsday-{filter}-{day}"
        self.persisted: list[DataFrame] = []
        self.written: list[tuple[str, DataFrame]] = []
        self.splits = staging is not None

    def __enter__(self) -> _Stages:
        return self

    def keep(self, df: DataFrame, name: str) -> DataFrame:
        if self.folder is not None:
            path = f"{self.folder}/{name}"
            empty = self.session.createDataFrame([], df.schema)
            self.written.append((path, empty))
            # Hashes and bits do not compress.
            writer = df.write.mode("overwrite").option("compression", "none")
            _interruptible(self.session, functools.partial(writer.parquet, path))
            return self.session.read.schema(df.schema).parquet(path)
        from pyspark import StorageLevel

        try:
            df = df.persist(StorageLevel.DISK_ONLY)
        except Exception as error:
            raise UsageError(
                f"this Spark cannot persist ({type(error).__name__}), as serverless ones cannot: pass "
                "staging=, a folder or URL that Spark can write to"
            ) from error
        self.persisted.append(df)
        return df

    def __exit__(self, *_: object) -> None:
        for df in self.persisted:
            _warned("releasing what the executors persisted", df.unpersist)
        for path, empty in self.written:
            # Works wherever Spark could write, also over Spark Connect: an empty table in place of the full one.
            _warned(f"emptying {path}", functools.partial(empty.write.mode("overwrite").parquet, path))


T = TypeVar("T")


def _interruptible(session: SparkSession, job: Callable[[], T]) -> T:
    """Runs a job of Spark. Interrupted, it cancels the job and waits for its end: a job that goes on would write
    hashes that nobody removes."""
    from pyspark import inheritable_thread_target
    from pyspark.sql import is_remote

    tag = f"bloomsday-{uuid.uuid4().hex}"
    done: Future[T] = Future()
    # A tag of a session is of one thread, except over Spark Connect.
    tagged: Any = session if is_remote() else session.sparkContext
    add_tag = tagged.addTag if is_remote() else tagged.addJobTag
    cancel = tagged.interruptTag if is_remote() else tagged.cancelJobsWithTag

    @inheritable_thread_target(session)
    def tagged_job() -> T:
        add_tag(tag)
        return job()

    def run() -> None:
        try:
            done.set_result(tagged_job())
        except BaseException as error:  # noqa: BLE001 - raised where the result is wanted
            done.set_exception(error)

    try:
        # Not in this thread: an interrupted call would leave the connection to Spark as it is.
        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError as error:
            done.set_exception(error)
        return done.result()
    except BaseException:
        # Again and again: what is cancelled before Spark has begun it begins all the same.
        for _ in range(CANCEL_SECONDS):
            if done.done():
                break
            _warned("cancelling Spark's job", functools.partial(cancel, tag))
            wait([done], timeout=1)
        else:
            warnings.warn("Spark's job goes on, and may write hashes", RuntimeWarning, stacklevel=2)
        raise


def _in_executor(function: Callable[..., Iterator[Any]], batches: Iterable[Any], **given: Any) -> Iterator[Any]:
    """Runs one of `parts`. Of an exception Spark passes only the text on, so the rest goes into it."""
    try:
        yield from function(batches, **given)
    except BloomsdayError as error:
        fields = json.dumps([type(error).__name__, str(error), error.remedy, error.is_transient])
        raise type(error)(f"{error}\n{FIELDS}{fields}", error.remedy, error.is_transient) from None


def _explained(error: Exception) -> Exception:
    """What the executors' trouble means. Other errors of Spark stay as they are."""
    text = str(error)
    # Spark itself imports pyarrow first, so that another Python fails there.
    if missing := re.search(r"No module named '(bloomsday|pyarrow)'", text):
        return BuildError(
            f"the Python of the executors has no package {missing[1]}: name the Python that has it (PYSPARK_PYTHON), "
            "install the wheel of bloomsday on the cluster, or send an environment with it (spark.archives)",
            remedy="set PYSPARK_PYTHON, or install the wheel of bloomsday on the cluster",
        )
    try:
        fields, _ = json.JSONDecoder().raw_decode(text.split(FIELDS, 1)[1])
        name, message, remedy, is_transient = fields
        explained: BloomsdayError = getattr(errors, name)(message, remedy, is_transient)
        return explained
    except (AttributeError, IndexError, ValueError):
        # None of ours, or Spark has cut the text off: its first line is there.
        found = re.search(r"bloomsday\.errors\.(\w+): (.*)", text)
        kind = getattr(errors, found[1], None) if found else None
        return kind(found[2]) if found and kind else error


def _warned(what: str, clean: Any) -> None:
    """Cleans up. A failure must not hide what happened before, so it is a warning."""
    try:
        clean()
    except Exception as error:  # noqa: BLE001
        warnings.warn(f"{what} failed ({type(error).__name__}: {error})", RuntimeWarning, stacklevel=2)


def _by_range(df: DataFrame, n: int) -> DataFrame:
    """One partition for each range: a task with several would need more memory than docs/spark.md says."""
    from pyspark.sql import functions as F

    return df.repartitionById(n, F.col("range"))


def _collected(df: DataFrame) -> list[Any]:
    table = _interruptible(df.sparkSession, df.toArrow)
    return [batch for batch in table.to_batches() if batch.num_rows]


def _in_order(df: DataFrame) -> list[Any]:
    """Pieces in the order of the blob, a few of them in a batch."""
    table = _interruptible(df.sparkSession, df.toArrow).sort_by([("range", "ascending"), ("offset", "ascending")])
    return [batch for batch in table.to_batches(max_chunksize=8) if batch.num_rows]


def _least_ranges(rows: int) -> int:
    """The fewest ranges, so that a small build keeps several tasks busy, too."""
    return max(1, min(8, rows // ROWS_PER_SMALL_RANGE))


@contextmanager
def _batches_of(session: SparkSession, most: int) -> Iterator[None]:
    """Limits the bytes of a batch that a Python worker gets, while the build runs."""
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    try:
        before = session.conf.get(name, None)
        # In bytes. What has a unit, or means no limit, is set anew.
        change = before is None or not before.isdecimal() or not 0 < int(before) <= most
        if change:
            session.conf.set(name, str(most))
    except Exception:  # noqa: BLE001 - a cluster may forbid settings; its own limit then holds
        change = False
    try:
        yield
    finally:
        if change:
            _warned(
                f"setting {name} back",
                lambda: session.conf.unset(name) if before is None else session.conf.set(name, before),
            )


def _session(spark: SparkSession | None) -> SparkSession:
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        raise UsageError("there is no active session of Spark: pass spark=")
    return active


def _check_version(session: SparkSession) -> None:
    version = session.version
    parsed = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parsed < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise UsageError(
            f"this is Spark {version}, and bloomsday.spark needs {oldest} or newer: write the IDs as Parquet, and "
            "build with `bloomsday build`"
        )


__all__ = ["build"]
