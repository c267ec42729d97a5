"""Columns of every library give the answers of a list."""

import uuid

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bloomsday


@pytest.fixture
def column(published):
    """IDs that are text, without a zero at the end (which numpy takes off), and their answers."""
    pairs = [(i, a) for i, a in zip(*published.text(), strict=True) if 0 < len(i) <= 64]
    return [i for i, _ in pairs], [a for _, a in pairs]


ARROW_TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("type", ARROW_TYPES, ids=str)
def test_arrow_columns_of_every_type_of_text(seen, column, type):
    ids, answers = column
    if pa.types.is_dictionary(type):
        ids, answers = ids[:100], answers[:100]
    ids = [ids[0], None, *ids]
    answers = [answers[0], None, *answers]
    array = pa.array(ids, pa.string()).cast(pa.binary() if "binary" in str(type) else pa.string())
    array = array.cast(type) if not pa.types.is_dictionary(type) else pa.array(ids, type)
    found = seen.contains_batch(array)
    assert isinstance(found, pa.BooleanArray) and found.to_pylist() == answers
    # A part of a column, and a column of several parts.
    assert seen.contains_batch(array[1:50]).to_pylist() == answers[1:50]
    parts = pa.chunked_array([array, array[:0], array[7:20]])
    assert seen.contains_batch(parts).to_pylist() == answers + answers[7:20]
    assert seen.contains_batch(array[:0]).to_pylist() == []


def test_a_dictionary_without_values_has_nulls_only(seen):
    type = pa.dictionary(pa.int32(), pa.string())
    nulls = pa.array([None, None], type)
    assert seen.contains_batch(nulls).to_pylist() == [None, None]
    assert seen.contains_batch(pa.array([], type)).to_pylist() == []
    assert seen.contains_batch(pa.chunked_array([nulls, pa.array(["a", None], type)])).to_pylist() == [None, None, False, None]
    assert seen.contains_batch(pl.Series([None, None], dtype=pl.Categorical)).to_list() == [None, None]
    assert seen.contains_batch(pl.Series([], dtype=pl.Enum([]))).to_list() == []
    assert seen.contains_batch(pl.Series("id", [None, None])).to_list() == [None, None]


def test_capsules_that_were_used_are_an_error(seen):
    class Twice:
        pair = pa.array(["a"]).__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.pair

    assert seen.contains_batch(Twice()).to_list() == [False]
    with pytest.raises(bloomsday.IdTypeError, match="used before"):
        seen.contains_batch(Twice())

    class SchemaUsed:
        def __arrow_c_array__(self, requested_schema=None):
            schema, array = pa.array(["a"]).__arrow_c_array__()
            pa.DataType._import_from_c_capsule(schema)
            return schema, array

    with pytest.raises(bloomsday.IdTypeError, match="used before"):
        seen.contains_batch(SchemaUsed())


def test_arrow_bytes_of_a_fixed_length(seen, column):
    ids = [id for id in column[0] if len(id.encode()) == 32][:2_000]
    array = pa.array([id.encode() for id in ids], pa.binary(32))
    found = seen.contains_batch(array).to_pylist()
    assert found == [id in seen for id in ids] and True in found


def test_arrow_integers_and_uuids_are_the_text_that_a_build_hashes(seen):
    for type in [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]:
        numbers = list(range(100))
        found = seen.contains_batch(pa.array([*numbers, None], type)).to_pylist()
        assert found == [*(str(number) in seen for number in numbers), None]
    # More than are written at a time.
    numbers = list(range(-3_000, 3_000))
    answers = [str(number) in seen for number in numbers]
    assert seen.contains_batch(pa.array(numbers)).to_pylist() == answers and True in answers
    assert seen.contains_batch(np.array(numbers)).tolist() == answers
    uuids = [uuid.uuid5(uuid.NAMESPACE_URL, str(number)) for number in range(5_000)]
    array = pa.array([u.bytes for u in uuids], pa.uuid())
    found = seen.contains_batch(array).to_pylist()
    assert found == [str(u) in seen for u in uuids] and {True, False} == set(found)
    # A dictionary of them, whose type is that of its values, in one piece and in a stream.
    dictionary = pa.DictionaryArray.from_arrays(pa.array(range(len(array)), pa.int32()), array)
    assert seen.contains_batch(dictionary).to_pylist() == found
    assert seen.contains_batch(pa.chunked_array([dictionary])).to_pylist() == found
    booleans = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([1], pa.bool8()))
    for column in booleans, pa.chunked_array([booleans]):
        with pytest.raises(bloomsday.IdTypeError, match="bool8"):
            seen.contains_batch(column)


def test_any_producer_of_arrow_gets_a_column_of_arrow(seen, column):
    class Producer:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.array(column[0]).__arrow_c_array__()

    found = seen.contains_batch(Producer())
    assert isinstance(found, bloomsday.Answers) and len(found) == len(column[1])
    assert found.to_list() == column[1] == pa.array(found).to_pylist()
    assert pl.Series(found).to_list() == column[1]


def test_a_polars_series_is_answered_as_its_values_are(seen, column):
    ids, answers = column
    frame = pl.DataFrame({"id": ids})
    mask = seen.contains_batch(frame["id"])
    assert isinstance(mask, pl.Series) and mask.name == "id" and mask.to_list() == answers
    kept = frame.filter(mask)["id"].to_list()
    assert kept == [id for id, yes in zip(ids, answers, strict=True) if yes]
    lazy = frame.lazy().filter(
        pl.col("id").map_batches(seen.contains_batch, return_dtype=pl.Boolean)
    )
    assert lazy.collect()["id"].to_list() == kept
    assert seen.contains_batch(frame["id"].cast(pl.Categorical)).to_list() == answers
    with pytest.raises(bloomsday.IdTypeError, match="one column"):
        seen.contains_batch(frame)


@pytest.mark.parametrize("dtype", ["str", object, "category", "string[python]", "string[pyarrow]"])
def test_a_pandas_series_is_answered_as_its_values_are(seen, column, dtype):
    ids, answers = column
    frame = pd.DataFrame({"id": pd.Series(ids, dtype=dtype)})
    mask = seen.contains_batch(frame["id"])
    assert isinstance(mask, np.ndarray) and mask.dtype == bool and mask.tolist() == answers
    assert len(frame[mask]) == sum(answers)
    assert seen.contains_batch(frame["id"][10:20]).tolist() == answers[10:20]
    with pytest.raises(bloomsday.MissingIdError, match="position 1 "):
        seen.contains_batch(pd.Series([ids[0], None, ids[2]], dtype=dtype))
    with pytest.raises(bloomsday.IdTypeError, match="one column"):
        seen.contains_batch(frame)


def test_a_class_made_of_a_column_is_such_a_column(seen, column):
    ids, answers = column
    for library, made in [(pd.Series, np.ndarray), (pl.Series, pl.Series)]:
        mask = seen.contains_batch(type("Ids", (library,), {})(ids))
        assert isinstance(mask, made) and list(mask) == answers


def test_a_duckdb_column_is_answered_as_its_values_are(seen, column):
    ids, answers = column
    connection = duckdb.connect()
    connection.register("seen_ids", pa.table({"id": ids, "n": range(len(ids))}))
    found = connection.sql("select id from seen_ids order by n").to_arrow_table()["id"]
    assert seen.contains_batch(found).to_pylist() == answers
    rows = [id for (id,) in connection.sql("select id from seen_ids order by n").fetchall()]
    assert seen.contains_batch(rows) == answers


def test_a_numpy_array_is_answered_as_its_values_are(seen, column):
    ids, answers = column
    for array in [
        np.array(ids),
        np.array([id.encode() for id in ids]),
        np.array(ids, dtype=object),
        np.array(ids).astype(np.array(ids).dtype.newbyteorder()),
        np.array(ids, dtype=np.dtypes.StringDType()),
    ]:
        found = seen.contains_batch(array)
        assert found.dtype == bool and found.tolist() == answers, array.dtype
        assert seen.contains_batch(array[::-1]).tolist() == answers[::-1], array.dtype
        found[0] = not found[0]  # it may be written to
    of_32 = [id.encode() for id in ids if len(id.encode()) == 32]
    rows = np.frombuffer(b"".join(of_32), dtype="u1").reshape(-1, 32)
    assert seen.contains_batch(rows).tolist() == [id in seen for id in of_32]
    for dtype in ["i1", "i8", ">i4", "u2", "u8"]:
        numbers = np.arange(100).astype(dtype)
        assert seen.contains_batch(numbers).tolist() == [str(n) in seen for n in range(100)]
    masked = np.ma.array(ids, mask=False)
    assert seen.contains_batch(masked).tolist() == answers
    masked = np.ma.array(rows, mask=False)
    assert seen.contains_batch(masked).tolist() == [id in seen for id in of_32]
    assert type(seen.contains_batch(masked)) is np.ndarray
    assert seen.contains_batch(np.array([], dtype="S3")).tolist() == []
    assert seen.contains_batch(np.array(["", ""])).tolist() == [False, False]


def test_any_iterable_is_answered_as_its_values_are(seen, column):
    ids, answers = column
    assert seen.contains_batch(tuple(ids)) == answers
    assert seen.contains_batch(id for id in ids) == answers
    assert seen.contains_batch(dict.fromkeys(ids)) == [id in seen for id in dict.fromkeys(ids)]
    assert seen.contains_batch([]) == []


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        (["a", None], bloomsday.MissingIdError, "position 1 "),
        (["a", float("nan")], bloomsday.MissingIdError, "position 1 "),
        (["a", pd.NA], bloomsday.MissingIdError, "position 1 "),
        (["a", np.ma.masked], bloomsday.MissingIdError, "position 1 "),
        (np.array(["a", pd.NA], dtype=object), bloomsday.MissingIdError, "position 1 "),
        (pd.Series(["a", 7, pd.NA], dtype=object), bloomsday.MissingIdError, "position 2 "),
        (np.ma.array([7, 8, 9], mask=[0, 0, 1]), bloomsday.MissingIdError, "position 2 "),
        (np.ma.array(["a", "b"], mask=[0, 1]), bloomsday.MissingIdError, "position 1 "),
        (np.ma.array(["a", "b"], dtype=object, mask=[0, 1]), bloomsday.MissingIdError, "position 1 "),
        (np.ma.array(np.zeros((3, 4), "u1"), mask=[[0] * 4, [0, 1, 0, 0], [0] * 4]), bloomsday.MissingIdError, "position 1 "),
        (["a", 1.5], bloomsday.IdTypeError, "float .at position 1"),
        ([True], bloomsday.IdTypeError, "bool .at position 0"),
        (["a", ["b"]], bloomsday.IdTypeError, "list .at position 1"),
        ("abc", bloomsday.IdTypeError, "`id in filter`"),
        (b"abc", bloomsday.IdTypeError, "`id in filter`"),
        (None, bloomsday.IdTypeError, "NoneType"),
        (7, bloomsday.IdTypeError, "int"),
        (np.zeros(3), bloomsday.IdTypeError, "float64"),
        (np.zeros((2, 2), dtype="S1"), bloomsday.IdTypeError, "one dimension"),
        (np.array("a"), bloomsday.IdTypeError, "one dimension"),
        (np.array(["a", None], dtype=object), bloomsday.MissingIdError, "position 1 "),
        (pa.array([1.5]), bloomsday.IdTypeError, "Float64"),
        (pa.array([["a"]]), bloomsday.IdTypeError, "List"),
        (pa.table({"id": ["a"]}), bloomsday.IdTypeError, "one column"),
        (pd.Series([1.5]), bloomsday.IdTypeError, "(?i)float64"),
        (pl.Series([1.5]), bloomsday.IdTypeError, "Float64"),
        (bytearray(b"id-1"), bloomsday.IdTypeError, "this is one ID.*bytes"),
        (memoryview(b"id-1"), bloomsday.IdTypeError, "this is one ID.*bytes"),
        (pl.Series([uuid.uuid4()], dtype=pl.Object), bloomsday.IdTypeError, "polars.Object.*to_list"),
        (pa.array([1], pa.bool8()), bloomsday.IdTypeError, "arrow.bool8"),
        (pd.Series(pd.period_range("2026-01", periods=2, freq="M")), bloomsday.IdTypeError, "period"),
    ],
)  # fmt: skip
def test_what_is_no_column_of_ids_is_a_named_error_and_no_answer(seen, ids, error, says):
    with pytest.raises(error, match=says):
        seen.contains_batch(ids)


def test_a_stream_whose_type_has_no_ids_is_not_read(seen):
    read = []

    def batches():
        read.append(1)
        yield pa.record_batch({"id": ["a"]})

    schema = pa.schema({"id": pa.string()})
    with pytest.raises(bloomsday.IdTypeError, match="one column"):
        seen.contains_batch(pa.RecordBatchReader.from_batches(schema, batches()))
    assert read == []


def test_a_column_that_breaks_the_rules_of_arrow_is_an_error_and_no_answer(seen):
    def text(*offsets):
        buffers = [None, pa.py_buffer(np.array(offsets, "i4")), pa.py_buffer(b"56789")]
        return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)

    def keyed(*keys):
        return pa.DictionaryArray.from_arrays(pa.array(keys, "i4"), pa.array(["5", "6"]), safe=False)

    class Mixed:
        def __arrow_c_array__(self, requested_schema=None):
            schema = pa.array([1]).__arrow_c_array__()[0]
            return schema, pa.nulls(3).__arrow_c_array__()[1]

    assert seen.contains_batch(text(0, 1, 5)).to_pylist() == ["5" in seen, "6789" in seen]
    for column in (text(0, 5, 2), text(0, -5, 2), keyed(0, 9), keyed(-1), Mixed()):
        with pytest.raises(bloomsday.IdTypeError, match="the Arrow column cannot be read"):
            seen.contains_batch(column)


def test_an_exception_of_the_callers_own_iter_is_passed_on(seen):
    class Away:
        def __iter__(self):
            raise ConnectionError("the database is away")

    with pytest.raises(ConnectionError, match="the database is away"):
        seen.contains_batch(Away())


def test_an_error_of_an_iterator_is_passed_on(seen):
    def broken():
        yield "a"
        raise RuntimeError("the producer broke")

    with pytest.raises(RuntimeError, match="the producer broke"):
        seen.contains_batch(broken())
