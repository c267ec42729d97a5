"""Lookups from Python: `bloomsday` next to rbloom and pybloom-live, and next to the native library, in one run.

    cd python/bloomsday
    python -m maturin build --release --no-default-features --out wheels && python -m pip install wheels/*.whl
    cargo build --release --example native
    python -m pip install rbloom==1.5.4 pybloom-live==4.0.0 pyarrow numpy
    python ../../bench/python/filter.py --ids 3_000_000 --native target/release/examples/native
    python ../../bench/python/filter.py --ids 100_000_000 --native target/release/examples/native --no-peers --folder /var/tmp/b

With --folder the filter is built once and found again there, so that building does not disturb a measurement. Half of the IDs that are looked up are present. Every number is the median of ROUNDS turns, taken in turn, in time
on a processor, so that other programs disturb it less; for threads it is the time on the clock, which says something
on an idle machine only. rbloom has the hash that its README demands for a filter that can be saved.
"""

import argparse
import datetime
import hashlib
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bloomsday

ROUNDS = 11
ONE_AT_A_TIME = 100_000
SEED = 1
PIECE = 1_000_000


def user(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 & (1 << 64) - 1:016x}{number:016x}"


def write(ids: int, file: Path):
    """The IDs of `user`, as a column of Parquet."""
    pairs = np.array([f"{byte:02x}" for byte in range(256)], dtype="S2")
    schema = pa.schema([("id", pa.string())])
    with pq.ParquetWriter(file, schema, use_dictionary=False, compression="zstd") as out:
        for start in range(0, ids, PIECE):
            numbers = np.arange(start, min(start + PIECE, ids), dtype=np.uint64)
            both = np.stack([numbers * np.uint64(0x9E3779B97F4A7C15), numbers], axis=1).astype(">u8")
            text = pa.py_buffer(pairs[both.view(np.uint8)].tobytes())
            ends = pa.py_buffer(np.arange(0, 32 * len(numbers) + 1, 32, dtype=np.int32))
            column = pa.Array.from_buffers(pa.string(), len(numbers), [None, ends, text])
            out.write_table(pa.table([column], schema=schema))


def blob_of(ids: int, folder: Path) -> Path:
    """The blob of so many IDs in this folder, built if it is not there."""
    store = folder / f"store-{ids}"
    found = list(store.glob("rt/blobs/*.bloom"))
    if found:
        return found[0]
    input = folder / "in.parquet"
    write(ids, input)
    day = datetime.datetime.now(datetime.timezone.utc).date()
    report = bloomsday.build(store, "rt", day, input, "id")
    input.unlink()
    return store / report["blob"]


def savable(value: object) -> int:
    """The hash of rbloom's README."""
    digest = hashlib.sha256(pickle.dumps(value)).digest()
    return int.from_bytes(digest[:16], "big", signed=True)


def one_at_a_time(seen, ids) -> float:
    start = time.thread_time_ns()
    for id in ids:
        id in seen
    return (time.thread_time_ns() - start) / len(ids)


def loop(ids) -> float:
    """The loop alone, which every number of one at a time contains."""
    start = time.thread_time_ns()
    for id in ids:
        pass
    return (time.thread_time_ns() - start) / len(ids)


def batch(seen, ids) -> float:
    start = time.thread_time_ns()
    seen.contains_batch(ids)
    return (time.thread_time_ns() - start) / len(ids)


def threads(seen, ids, n: int) -> float:
    """Nanoseconds a lookup when `n` threads look all IDs up at once."""
    ready = threading.Barrier(n + 1)

    def look():
        ready.wait()
        seen.contains_batch(ids)

    started = [threading.Thread(target=look) for _ in range(n)]
    for thread in started:
        thread.start()
    # Before the barrier opens: after it, this thread may have to wait for a core.
    start = time.perf_counter_ns()
    ready.wait()
    for thread in started:
        thread.join()
    return (time.perf_counter_ns() - start) / (n * len(ids))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--ids", type=int, default=3_000_000)
    arguments.add_argument("--lookups", type=int, default=2_000_000)
    arguments.add_argument("--native", help="the program target/release/examples/native")
    arguments.add_argument("--no-peers", action="store_true")
    arguments.add_argument("--folder", type=Path, help="where the filter is kept for the next run")
    given = arguments.parse_args()

    folder = Path(tempfile.mkdtemp())
    blob = blob_of(given.ids, given.folder or folder)

    draw = random.Random(SEED)
    many = [user(draw.randrange(2 * given.ids)) for _ in range(given.lookups)]
    few = many[:ONE_AT_A_TIME]
    start = time.perf_counter()
    seen = bloomsday.Filter.open(blob)
    opened = time.perf_counter() - start
    columns = {"Arrow": pa.array(many), "numpy S32": np.array(many, dtype="S"), "list of str": many}

    rows = {"the loop alone": lambda: loop(few), "`id in filter`": lambda: one_at_a_time(seen, few)}
    if not given.no_peers:
        import pybloom_live
        import rbloom

        theirs = rbloom.Bloom(given.ids, 0.03, savable)
        salted = rbloom.Bloom(given.ids, 0.03)
        classic = pybloom_live.BloomFilter(given.ids, 0.03)
        for id in map(user, range(given.ids)):
            theirs.add(id)
            salted.add(id)
            classic.add(id)
        rows["rbloom, savable hash"] = lambda: one_at_a_time(theirs, few)
        rows["rbloom, Python's salted hash"] = lambda: one_at_a_time(salted, few)
        rows["pybloom-live"] = lambda: one_at_a_time(classic, few)
    for name, column in columns.items():
        rows[f"batch, {name}"] = lambda column=column: batch(seen, column)
    arrow = columns["Arrow"]
    rows["batch, Arrow, one thread"] = lambda: threads(seen, arrow, 1)
    rows["batch, Arrow, two threads"] = lambda: threads(seen, arrow, 2)
    if given.native:
        lookups = folder / "ids"
        lookups.write_text("".join(id + "\n" for id in many))
        program = subprocess.Popen(
            [given.native, blob, lookups], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        def native() -> float:
            def on_processor() -> int:
                return int(Path(f"/proc/{program.pid}/schedstat").read_text().split()[0])

            start = on_processor()
            program.stdin.write("again\n")
            program.stdin.flush()
            program.stdout.readline()
            return (on_processor() - start) / len(many)

        rows["batch, native"] = native

    times = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, measure in rows.items():
            times[name].append(measure())
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{given.ids:,} IDs, {seen.header.bytes:,} bytes, opened in {opened * 1e3:.1f} ms; Python {sys.version.split()[0]}")
    for name, nanos in medians.items():
        print(f"{name:32} {nanos:8.1f} ns   (least {min(times[name]):.1f})")

    def ratio(what: str, above: str, below: str):
        # Of each round by itself: both were measured within the same second or two.
        pairs = [a / b for a, b in zip(times[above], times[below], strict=True)]
        print(f"{what:32} {statistics.median(pairs):8.2f} x    (least {min(pairs):.2f}, most {max(pairs):.2f})")

    ratio("two threads", "batch, Arrow, one thread", "batch, Arrow, two threads")
    if given.native:
        for name in columns:
            ratio(f"{name} / native", f"batch, {name}", "batch, native")
    if not given.no_peers:
        ratio("rbloom, savable / ours", "rbloom, savable hash", "`id in filter`")
        ratio("rbloom, salted / ours", "rbloom, Python's salted hash", "`id in filter`")
        ratio("pybloom-live / ours", "pybloom-live", "`id in filter`")


main()
