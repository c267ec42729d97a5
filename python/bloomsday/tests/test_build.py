"""Builds and publications from Python are those of the program."""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bloomsday

TODAY = datetime.datetime.now(datetime.timezone.utc).date()
YESTERDAY = TODAY - datetime.timedelta(days=1)


def program(*words, stdin=None, code=0) -> str:
    """Runs the program, which must end with `code`; what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BLOOMSDAY_")}
    command = [os.environ["BLOOMSDAY_PROGRAM"], *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=clean, text=True)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def users(tmp_path):
    """Writes users as Parquet, and returns the file."""

    def write(first: int, last: int):
        file = tmp_path / f"in-{first}-{last}.parquet"
        pq.write_table(pa.table({"id": [f"user-{n}" for n in range(first, last)]}), file)
        return file

    return write


def test_a_build_gives_the_programs_report_and_the_programs_blob(users, tmp_path):
    ours = bloomsday.build(tmp_path / "a", "rt", TODAY, users(0, 5_000), "id", fpp=0.01)
    words = ["--day", TODAY, "--input", users(0, 5_000), "--column", "id", "--fpp", "0.01", "--json"]
    theirs = json.loads(program("build", "rt", "--store", tmp_path / "b", *words))
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"seconds"}:
        assert ours[name] == theirs[name], name
    assert (ours["outcome"], ours["ids"]) == ("published", 5_000)
    seen = bloomsday.Filter.open(tmp_path / "a" / ours["blob"])
    assert seen.header.digest == theirs["digest"] and seen.header.day == TODAY
    assert program("query", "rt", "user-7", "--store", tmp_path / "a") == "1 user-7\n"
    for day in (str(TODAY), datetime.datetime.combine(TODAY, datetime.time(23, 59))):
        again = bloomsday.build(tmp_path / "a", "rt", day, [users(0, 5_000)], "id", fpp=0.01)
        assert again["outcome"] == "unchanged"
    history = program("history", "rt", "--store", tmp_path / "a", "--json")
    assert "build" in history


def test_urls_are_normalised_as_the_program_does(tmp_path):
    pages = tmp_path / "pages.parquet"
    pq.write_table(pa.table({"id": [f"https://Example.org/{n}?b=1&a=2" for n in range(500)]}), pages)
    ours = bloomsday.build(tmp_path / "a", "rt", TODAY, pages, "id", id="url")
    words = ["--day", TODAY, "--input", pages, "--column", "id", "--id", "url", "--json"]
    theirs = json.loads(program("build", "rt", "--store", tmp_path / "b", *words))
    assert ours["blob"] == theirs["blob"]
    seen = bloomsday.Filter.open(tmp_path / "a" / ours["blob"])
    spellings = [f"http://example.org/{n}?a=2&b=1" for n in range(500)]
    assert all(page in seen for page in spellings) and all(seen.contains_batch(spellings))


def test_uuids_and_integers_that_a_build_read_are_found(tmp_path):
    uuids = [uuid.uuid5(uuid.NAMESPACE_URL, str(number)) for number in range(500)]
    numbers = np.arange(-250, 250)
    columns = {"uuid": pa.array([one.bytes for one in uuids], pa.uuid()), "number": numbers}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    for column, ids in (("uuid", uuids), ("number", list(numbers))):
        store = tmp_path / column
        built = bloomsday.build(store, "rt", TODAY, tmp_path / "in.parquet", column, fpp=1e-6)
        seen = bloomsday.Filter.open(store / built["blob"])
        assert built["ids"] == 500 and all(id in seen for id in ids), column
        assert all(seen.contains_batch(ids)) and uuid.uuid4() not in seen


def test_an_integer_of_as_many_digits_as_an_id_has_bytes_is_found(tmp_path):
    numbers = [10**digits for digits in (18, 307, 308, 1022, 1023)] + [10**1024 - 1, 1 - 10**1023]
    pq.write_table(pa.table({"id": [str(number) for number in numbers]}), tmp_path / "in.parquet")
    built = bloomsday.build(tmp_path / "s", "rt", TODAY, tmp_path / "in.parquet", "id", fpp=1e-6)
    seen = bloomsday.Filter.open(tmp_path / "s" / built["blob"])
    assert built["ids"] == len(numbers) and all(number in seen for number in numbers)
    assert all(seen.contains_batch(numbers)) and 10**1024 not in seen


def test_a_dry_run_writes_nothing(users, tmp_path):
    report = bloomsday.build(tmp_path / "s", "rt", TODAY, users(0, 100), "id", dry_run=True)
    assert report["dry_run"] and report["ids"] == 100
    assert not (tmp_path / "s").exists()


def test_a_day_unlike_those_before_is_refused_with_its_report(users, tmp_path):
    for back in range(3, 0, -1):
        day = TODAY - datetime.timedelta(days=back)
        bloomsday.build(tmp_path, "rt", day, users(0, 20_000 + back), "id")
    with pytest.raises(bloomsday.RefusedError, match="accept_change") as refused:
        bloomsday.build(tmp_path, "rt", TODAY, users(0, 100), "id")
    assert refused.value.report["outcome"] == "refused" and refused.value.report["ids"] == 100
    assert refused.value.remedy == 'build again with accept_change="why"'
    report = bloomsday.build(tmp_path, "rt", TODAY, users(0, 100), "id", accept_change="a test")
    assert report["outcome"] == "published"


def test_bad_input_is_a_named_error_and_nothing_is_published(users, tmp_path):
    def build(error, says, **changed):
        given = dict(store=tmp_path / "s", filter="rt", day=TODAY, input=users(0, 10), column="id")
        with pytest.raises(error, match=says):
            bloomsday.build(**(given | changed))

    garbage = tmp_path / "garbage.parquet"
    garbage.write_bytes(b"no parquet at all")
    real = tmp_path / "real.parquet"
    pq.write_table(pa.table({"id": [1.5]}), real)
    build(bloomsday.IdTypeError, "an ID is a string", input=real)
    build(bloomsday.UsageError, "no column", column="nope")
    build(bloomsday.NotFoundError, "no-such", input=tmp_path / "no-such.parquet")
    build(bloomsday.BuildError, "garbage", input=garbage)
    build(bloomsday.UsageError, "RT", filter="RT")
    build(bloomsday.UsageError, "2026-13-01", day="2026-13-01")
    build(bloomsday.UsageError, "fpp", fpp=7.0)
    build(bloomsday.UsageError, "cubic", layout="cubic")
    build(bloomsday.UsageError, "0 to 14", deltas=99)
    build(bloomsday.UsageError, "1 to 1024", threads=0)
    build(bloomsday.UsageError, "no input is named", input=[])
    build(bloomsday.UsageError, "uuid", id="uuid")
    build(bloomsday.UsageError, "window_missing", window_missing="maybe")
    build(bloomsday.UsageError, "(?i)window", window_days=0)
    build(bloomsday.UsageError, "day", day=TODAY + datetime.timedelta(days=40))
    for empty in ("", " \n\t"):
        says = "accept_change: it is empty: say why"
        build(bloomsday.UsageError, says, accept_change=empty)
    build(bloomsday.UsageError, "accept_change: it has 60002 bytes", accept_change="x" * 60_000)
    build(bloomsday.UsageError, "by has 70002 bytes", by="x" * 70_000)
    build(bloomsday.UsageError, "gopher", store="gopher://nowhere")
    build(bloomsday.UsageError, "two slashes", store=pathlib.Path("s3://ads-filters/prod"))
    build(TypeError, "threads", threads="many")
    build(TypeError, "fpp: must be real number", fpp="0.03")
    for name in ("window_days", "deltas", "memory", "threads", "keep_days", "max_age_days"):
        for number in (-1, 2**70):
            build(OverflowError, f"^{name}: ", **{name: number})
    for name in ("filter", "column", "layout", "by"):
        build(UnicodeEncodeError, "surrogates not allowed", **{name: "\ud800"})
    assert not list((tmp_path / "s").glob("rt/pointers/*"))


def test_a_signal_ends_a_build_and_the_pointer_stays(users, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    file = users(0, 3_000_000)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            bloomsday.build(tmp_path / "s", "rt", TODAY, file, "id", threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not list((tmp_path / "s").glob("rt/pointers/*"))


def test_a_blob_file_is_published_like_a_build(users, tmp_path):
    built = bloomsday.build(tmp_path / "a", "rt", TODAY, users(0, 5_000), "id")
    blob = tmp_path / "a" / built["blob"]
    preview = bloomsday.publish(blob, tmp_path / "b", dry_run=True)
    assert preview["dry_run"] and not (tmp_path / "b").exists()
    report = bloomsday.publish(blob, tmp_path / "b", by="somebody")
    assert (report["outcome"], report["digest"]) == ("published", built["digest"])
    assert program("query", "rt", "user-7", "--store", tmp_path / "b") == "1 user-7\n"
    assert "somebody" in program("history", "rt", "--store", tmp_path / "b", "--json")
    opened = bloomsday.Filter.open(blob)
    assert bloomsday.publish(opened, tmp_path / "b")["outcome"] == "unchanged"

    # After a rollback the same blob does not come back by itself.
    first = built["blob"]
    second = bloomsday.build(tmp_path / "b", "rt", TODAY, users(0, 5_100), "id")["blob"]
    program("repoint", "rt", TODAY, "--to", first, "--store", tmp_path / "b")
    with pytest.raises(bloomsday.SupersededError, match="rolled back") as superseded:
        bloomsday.publish(tmp_path / "b" / second, tmp_path / "b")
    assert superseded.value.report["outcome"] == "superseded"
    assert superseded.value.remedy == f"repoint {TODAY} of `rt` to {second}"
    damaged = tmp_path / "damaged"
    damaged.write_bytes(blob.read_bytes()[:-1] + b"x")
    with pytest.raises(bloomsday.UnsoundBlobError):
        bloomsday.publish(damaged, tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="no-such"):
        bloomsday.publish(tmp_path / "no-such", tmp_path / "b")
