"""Builds on Spark against Spark's own means, in one session: docs/spark.md has the command.

    python3 spark_build.py [MILLIONS_OF_ROWS [FILES [ROUNDS [THREADS [CONTESTANT...]]]]]
    python3 spark_build.py stages

The second form runs the three functions alone, on one full range of 16 million IDs, as an executor's worker does: time
of each. The first compares builds:

  handed    Spark scans the column and hands its rows to Python, which counts batches: the least that a build of a
            DataFrame must do
  distinct  Spark's own distinct().count()
  sketch    Spark's own stat.bloomFilter, which nobody verifies or uploads
  frame     bloomsday.spark.build of the DataFrame: counted, filled, verified, uploaded, read back, pointed at
  files     bloomsday.spark.build of the files

One row in ten has an ID of another row. Ratios compare the fastest rounds. Without names all contestants take part.
"""

import datetime
import itertools
import os
import pathlib
import resource
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bloomsday.parts
import bloomsday.spark
from spark import session

DAY = datetime.datetime.now(datetime.timezone.utc).date()


def write(folder, rows, files):
    """IDs of 32 hexadecimal characters, as device IDs are."""
    each = rows // files
    for file in range(files):
        numbers = np.arange(file * each, (file + 1) * each, dtype=np.uint64)
        numbers[::10] = numbers[0]
        pq.write_table(pa.table({"id": ids_of(numbers)}), folder / f"{file}.parquet", compression="zstd", use_dictionary=False)


def rows_of(batches):
    for batch in batches:
        yield pa.record_batch({"n": [batch.num_rows]})


def ids_of(numbers):
    numbers = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.char.add(np.char.mod("%016x", numbers), np.char.mod("%016x", ~numbers))


def stages():
    """Each function over a range that is as full as the default makes it."""
    rows, batch = 1 << 24, 10_000
    some = [pa.record_batch({"id": pa.array(ids_of(np.arange(n, n + batch)))}) for n in range(0, 100 * batch, batch)]
    begun = time.perf_counter()
    gathered = sum(got.num_rows for got in bloomsday.parts.gather(some, ranges=640, rows=10**10))
    gather = (time.perf_counter() - begun) / (100 * batch)
    assert gathered

    hashes = np.random.default_rng(1).integers(0, 2**64, rows, dtype=np.uint64)

    def packages():
        schema = pa.schema([(name, kind) for name, kind in (
            ("range", pa.int32()), *((name, pa.int64()) for name in ("rows", "nulls", "invalid", "sent", "sent_sum")),
            ("hashes", pa.binary()), ("samples", pa.binary()))])
        for first in range(0, rows, 1 << 17):
            lot = hashes[first : first + (1 << 17)].tobytes()
            row = dict(range=0, rows=1 << 17, nulls=0, invalid=0, sent=1 << 17, sent_sum=0, hashes=lot, samples=None)
            yield pa.RecordBatch.from_pylist([row], schema)

    def seconds(batches):
        begun = time.perf_counter()
        kept = list(batches)
        return time.perf_counter() - begun, kept

    plan = dict(units=247_000, probes=5, ranges=1, head=4096, body=247_000 * 64)
    count, counted = seconds(bloomsday.parts.count(packages(), ranges=1))
    fill, filled = seconds(bloomsday.parts.fill(counted, plan=plan))
    megabytes = sum(batch.nbytes for batch in filled) >> 20
    print(f"gather {gather * 1e9:.0f} ns a row, count {count / rows * 1e9:.0f} ns and fill {fill / rows * 1e9:.0f} ns a hash; ")
    print(f"{megabytes} MiB of the blob from {rows} hashes; load {os.getloadavg()[0]:.1f}")


def main():
    if sys.argv[1:] == ["stages"]:
        return stages()
    given = [int(word) for word in sys.argv[1:5]]
    millions, files, rounds, threads = given + [20, 8, 3, 2][len(given):]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bloomsday-spark-"))
    write(folder, millions * 1_000_000, files)
    spark = session(threads)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(*(str(folder / f"{file}.parquet") for file in range(files)))
    numbers = itertools.count()

    def build(**given):
        store = folder / f"store-{next(numbers)}"
        return bloomsday.spark.build(filter="rt", day=DAY, store=store, column="id", rows=millions * 10**6, **given)

    contestants = {
        "handed": lambda: frame.select("id").mapInArrow(rows_of, "n bigint").groupBy().sum("n").collect(),
        "distinct": lambda: frame.select("id").distinct().count(),
        # Python has no name for it; the work is the virtual machine's either way.
        "sketch": lambda: frame._jdf.stat().bloomFilter("id", millions * 1_000_000, 0.03),
        "frame": lambda: build(df=frame),
        "files": lambda: build(input=f"{folder}/*.parquet", spark=spark),
    }
    named = sys.argv[5:] or list(contestants)
    contestants = {name: contestants[name] for name in named}
    best, digests = dict.fromkeys(contestants, float("inf")), set()
    print(f"{millions} million rows in {files} files, local[{threads}], load {os.getloadavg()[0]:.1f}")
    # The first round warms up the virtual machine.
    for round in range(rounds + 1):
        for name, work in contestants.items():
            begun = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - begun
            if isinstance(result, dict):
                digests.add(result["digest"])
            if round:
                best[name] = min(best[name], seconds)
            print(f"  round {round} {name:8} {seconds:7.2f} s", flush=True)
    assert len(digests) <= 1, digests
    for name, seconds in best.items():
        print(f"{name:8} {seconds:7.2f} s  {seconds * 1e3 / millions:6.0f} ns a row")
    for one, other, target in [
        ("frame", "handed", "at most 1.5, and 0.1 s a task"),
        ("frame", "distinct", "below 1"),
        ("sketch", "files", "at least 5"),
    ]:
        if one in best and other in best:
            print(f"{one} : {other:8}  {best[one] / best[other]:.2f} x (target: {target})")
    print(f"load {os.getloadavg()[0]:.1f}, this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
