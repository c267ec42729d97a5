"""The three pure functions of a build in parts, Arrow to Arrow, for any engine that maps over batches.

    IDs -- gather --> rows of packed hashes -- (group by range) -- count --> distinct hashes
        -- (group by range) -- fill --> parts of the blob

Each takes an iterable of `pyarrow.RecordBatch` and yields such. They do no I/O (`gather_files` excepted), and an
engine may run each task as often as it likes. All rows of a `range` must reach one call of `count`, and one of
`fill`; one call may get several ranges, in any order. `bloomsday.spark` is these functions in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bloomsday import _native

if TYPE_CHECKING:
    import pyarrow as _pa  # type: ignore[import-untyped]

#: The columns of each function's rows, as a schema of Spark. `sum`s are 64 bits, of which the sign means nothing.
GATHERED = (
    "range int, rows bigint, nulls bigint, invalid bigint, sent bigint, sent_sum bigint, "
    "hashes binary, samples binary"
)
COUNTED = (
    "range int, seq bigint, ids bigint, sum bigint, received bigint, received_sum bigint, "
    "rows bigint, nulls bigint, invalid bigint, sent bigint, sent_sum bigint, hashes binary, samples binary"
)
FILLED = (
    "range int, part bigint, offset bigint, ids bigint, sum bigint, lost bigint, sampled bigint, "
    "lost_samples bigint, hits bigint, blocks binary, value binary, edge binary, bytes binary"
)


def gather(batches: Iterable[_pa.RecordBatch], *, ranges: int, rows: int) -> Iterator[_pa.RecordBatch]:
    """Hashes the IDs in the first column. `rows` is about how many rows all tasks have together.

    A row that comes out has up to 64 KiB of distinct hashes of one range, and some of the IDs themselves.
    Memory: some 100 MiB.
    """
    made = _native.PartsGather(ranges, rows)
    for batch in batches:
        made.push(batch)
        yield from _batches(made.next)
    made.finish()
    yield from _batches(made.next)


def gather_files(
    batches: Iterable[_pa.RecordBatch], *, column: str, ranges: int, rows: int
) -> Iterator[_pa.RecordBatch]:
    """As `gather`, from Parquet files: a row that comes in is the name (`file`) and the size (`bytes`) of one.

    This process must be able to read them. Memory: some 250 MiB.
    """
    made = _native.PartsGather(ranges, rows)
    for batch in batches:
        for file in batch.to_pylist():
            made.scan(file["file"], file["bytes"], column)
            yield from _batches(made.next)
    made.finish()
    yield from _batches(made.next)


def count(batches: Iterable[_pa.RecordBatch], *, ranges: int) -> Iterator[_pa.RecordBatch]:
    """Removes the duplicates of each range. The first row of a range has its numbers.

    Memory: eight bytes for each hash that arrives.
    """
    made = _native.PartsCount(ranges)
    for batch in batches:
        made.push(batch)
    yield from _batches(made.next)


def fill(batches: Iterable[_pa.RecordBatch], *, plan: dict[str, int]) -> Iterator[_pa.RecordBatch]:
    """Sets the bits of each range, and looks every ID up in them. The first row of a range has its numbers.

    A row is a piece of at most 2 MiB of the blob: `bytes` where it is a whole part, whose digest is `value`; else
    `edge`. Memory: eight bytes for each hash of a range, and its bits.
    """
    made = _native.PartsFill(**plan)
    for batch in batches:
        made.push(batch)
    yield from _batches(made.next)


def _batches(next_batch: Callable[[], Any]) -> Iterator[_pa.RecordBatch]:
    import pyarrow as pa  # type: ignore[import-untyped]

    while (batch := next_batch()) is not None:
        yield pa.record_batch(batch)
