"""A filter answers what the program answers, and refuses what it must refuse."""

import copy as copying
import errno
import pathlib
import pickle
import random
import uuid

import numpy as np
import pytest

import bloomsday
from bloomsday import Filter


def test_a_filter_answers_what_the_program_answers(every):
    seen = Filter.open(every.path)
    assert [id in seen for id in every.ids] == every.answers
    assert seen.contains_batch(every.ids) == every.answers
    text, answers = every.text()
    assert [id in seen for id in text] == answers


def test_the_header_is_what_the_program_says(every):
    header = Filter.open(str(every.path)).header
    ours = header._asdict() | {"day": header.day.isoformat()}
    # The program leaves it out where it is as usual.
    theirs = {"id": "bytes"} | every.header
    assert ours == {name: theirs[name] for name in ours}


def test_an_integer_is_looked_up_as_decimal_text(seen):
    for number in [0, -1, 7, 2**63, -(2**70)]:
        assert (number in seen) == (str(number) in seen)
    assert 10**100_000 not in seen


def test_what_is_an_integer_and_no_int_is_looked_up_as_one(seen):
    class Index:
        def __init__(self, number):
            self.number = number

        def __index__(self):
            return self.number

    numbers = range(1_000)
    expected = [str(number) in seen for number in numbers]
    assert {True, False} == set(expected)
    for kind in (np.int64, np.uint16, Index):
        ids = [kind(number) for number in numbers]
        assert [id in seen for id in ids] == expected == seen.contains_batch(ids)
    assert seen.contains_batch(np.array(ids, dtype=object)).tolist() == expected
    assert (Index(2**70) in seen) == (str(2**70) in seen)


def test_what_a_subclass_writes_of_itself_is_no_id(seen, published):
    class Large(int):
        def __str__(self):
            return published.ids[0].decode()

    class Named(uuid.UUID):
        __str__ = Large.__str__

    assert published.ids[0] in seen
    assert Large(2**64) not in seen and Large(1) not in seen
    assert Named(int=1) not in seen


def test_a_uuid_is_looked_up_as_36_lower_case_characters(seen):
    uuids = [uuid.uuid5(uuid.NAMESPACE_URL, str(number)) for number in range(1_000)]
    expected = [str(one) in seen for one in uuids]
    assert {True, False} == set(expected)
    assert [one in seen for one in uuids] == expected == seen.contains_batch(uuids)


def test_an_exception_of_the_callers_own_index_is_passed_on(seen):
    class Away:
        def __index__(self):
            raise ConnectionError("the database is away")

    for look_up in (seen.__contains__, lambda id: seen.contains_batch([id])):
        with pytest.raises(ConnectionError, match="the database is away"):
            look_up(Away())


class BadIndex:
    def __index__(self):
        raise TypeError("it is none")


NO_IDS = [
    (None, ""),
    (True, ""),
    (np.True_, ": an ID is looked up by the bytes that the build read"),
    (1.5, ": an ID is looked up by the bytes that the build read"),
    ([1], ": an ID is looked up by the bytes that the build read"),
    (np.array([1, 2]), ": an ID is looked up by the bytes that the build read"),
    (BadIndex(), ": an ID is looked up by the bytes that the build read"),
    (object(), ": an ID is looked up by the bytes that the build read"),
    (bytearray(b"x"), ": write bytes.id."),
    (memoryview(b"x"), ": write bytes.id."),
]


@pytest.mark.parametrize(("id", "remedy"), NO_IDS, ids=lambda value: type(value).__name__)
def test_what_is_no_id_is_a_named_error(seen, id, remedy):
    end = "$" if remedy == "" else remedy
    with pytest.raises(bloomsday.IdTypeError, match=f"not {type(id).__name__}{end}"):
        id in seen
    assert issubclass(bloomsday.IdTypeError, TypeError)


def test_text_that_has_no_utf8_is_an_error(seen):
    with pytest.raises(UnicodeEncodeError):
        "\ud800" in seen


@pytest.mark.parametrize("id", ["", b"", "x" * 1025, b"x" * 5000, "é" * 513])
def test_an_id_of_another_length_is_a_miss(seen, id):
    assert id not in seen
    assert seen.contains_batch([id]) == [False]


def test_every_damaged_copy_is_refused(published, tmp_path):
    blob = published.path.read_bytes()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    places = random.Random(seed)
    copy = tmp_path / "copy"

    def refused(damaged: bytes):
        copy.write_bytes(damaged)
        with pytest.raises(bloomsday.UnsoundBlobError) as error:
            Filter.open(copy)
        # The flipped bit may be in the filter's name.
        assert "copy" in str(error.value) or "/blobs/" in str(error.value)

    for _ in range(200):
        at = places.randrange(len(blob))
        refused(blob[:at] + bytes([blob[at] ^ 1 << places.randrange(8)]) + blob[at + 1 :])
        refused(blob[:at])
    refused(b"")
    refused(blob + b"\0")
    refused(b"BLOOMSDY\xff\xff" + blob[10:])


def test_a_file_that_is_not_there_or_cannot_be_read_is_a_named_error(tmp_path):
    with pytest.raises(bloomsday.NotFoundError, match="no-such") as error:
        Filter.open(tmp_path / "no-such")
    for raised in (error.value, pickle.loads(pickle.dumps(error.value))):
        assert isinstance(raised, FileNotFoundError) and raised.errno == errno.ENOENT
        assert "no-such" in str(raised) and type(raised) is bloomsday.MissingFileError
        assert raised.filename == str(tmp_path / "no-such")
    assert issubclass(bloomsday.NotFoundError, LookupError)
    with pytest.raises(bloomsday.StoreError, match="not a regular file"):
        Filter.open(tmp_path)
    with pytest.raises(TypeError):
        Filter.open(7)


def test_another_digest_than_the_expected_one_is_refused(published):
    digest = published.header["digest"]
    assert Filter.open(published.path, digest).header.digest == digest
    with pytest.raises(bloomsday.UnsoundBlobError, match="0000"):
        Filter.open(published.path, digest="0" * 64)
    with pytest.raises(bloomsday.UsageError, match="64"):
        Filter.open(published.path, digest="12")


def test_a_pickle_has_path_and_digest_and_no_bits(published, tmp_path, monkeypatch):
    copy = tmp_path / "rt.bloom"
    copy.write_bytes(published.path.read_bytes())
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(Filter.open(pathlib.Path("rt.bloom")))
    assert len(pickled) < 500 + len(str(copy))
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert again.path == copy and again.contains_batch(published.ids) == published.answers

    # The file of the next day is not what was pickled.
    from conftest import FOLDERS

    other = next(folder for folder in FOLDERS if folder.name == "blocked-0.5")
    copy.write_bytes((other / "rt.bloom").read_bytes())
    with pytest.raises(bloomsday.UnsoundBlobError, match="another blob than"):
        pickle.loads(pickled)
    # A copy in the same process is the filter itself.
    assert again.contains_batch(published.ids) == published.answers
    assert copying.copy(again) is again and copying.deepcopy({"seen": again})["seen"] is again


def test_the_version_is_that_of_the_crates():
    manifest = pathlib.Path(__file__).parent.parent / "Cargo.toml"
    assert f'\nversion = "{bloomsday.__version__}"\n' in manifest.read_text()


def test_an_error_survives_a_process_boundary():
    error = bloomsday.StoreError("away", "try again", True)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.remedy, again.is_transient) == ("away", "try again", True)


def test_a_blob_is_opened_by_its_url(published, tmp_path):
    header = Filter.open(published.path).header
    key = f"rt/blobs/{header.day}-{header.digest}.bloom"
    (tmp_path / key).parent.mkdir(parents=True)
    (tmp_path / key).write_bytes(published.path.read_bytes())
    # As from s3://, gs:// or az://, for which this wheel is not compiled.
    url = f"file://{tmp_path}/{key}"
    seen = Filter.open(url, header.digest)
    assert (seen.path, seen.header) == (None, header)
    assert pickle.loads(pickle.dumps(seen)).contains_batch(published.ids) == published.answers
    with pytest.raises(bloomsday.errors.UnsoundBlobError, match="another blob than"):
        Filter.open(url, "0" * 64)


def test_a_url_that_names_no_blob_is_refused_with_what_it_must_be(tmp_path):
    for url in ["s3://ads", "s3://rt/blobs/x.bloom", f"file://{tmp_path}/rt/blobs/2026-11-19.bloom"]:
        with pytest.raises(bloomsday.errors.UsageError, match="STORE/FILTER/blobs/DAY-DIGEST.bloom"):
            Filter.open(url)
    with pytest.raises(bloomsday.errors.NotFoundError):
        Filter.open(f"file://{tmp_path}/rt/blobs/2026-11-19-{'0' * 64}.bloom")


def test_the_first_program_of_the_page_runs():
    root = pathlib.Path(__file__).parents[3]
    page = (root / "docs/python.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    lines = program.splitlines()
    opens = [at for at, line in enumerate(lines) if line.startswith("seen = Filter.open(")]
    lines[opens[0]] = f"seen = Filter.open({str(root / 'tests/golden/v1-blocked.bloom')!r})"
    names = {}
    exec("\n".join(lines), names)
    assert names["seen"].header.ids == 400
