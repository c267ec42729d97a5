"""What `tests/tests/clients/python.rs` of the repository prepared: blobs that the real program published.

Each folder of $BLOOMSDAY_TEST_BLOBS is of one shape and has `rt.bloom`, `inspect.json` (what `bloomsday inspect`
says), `ids` (one a line; the first PRESENT of them are in the filter) and `answers` (what `bloomsday query` says).
"""

import json
import os
import pathlib
from typing import NamedTuple

import pytest

import bloomsday

FOLDERS = sorted(pathlib.Path(os.environ["BLOOMSDAY_TEST_BLOBS"]).iterdir())


class Published(NamedTuple):
    """A blob, and what the program says about it."""

    path: pathlib.Path
    header: dict
    ids: list[bytes]
    answers: list[bool]

    def text(self) -> tuple[list[str], list[bool]]:
        """The IDs that are text."""
        pairs = []
        for id, answer in zip(self.ids, self.answers, strict=True):
            try:
                pairs.append((id.decode(), answer))
            except UnicodeDecodeError:
                pass
        return [id for id, _ in pairs], [answer for _, answer in pairs]


def read(folder: pathlib.Path) -> Published:
    ids = (folder / "ids").read_bytes().split(b"\n")[:-1]
    answers = [line == b"1" for line in (folder / "answers").read_bytes().split()]
    assert len(ids) == len(answers) > 5_000 and {True, False} == set(answers)
    header = json.loads((folder / "inspect.json").read_text())
    return Published(folder / "rt.bloom", header, ids, answers)


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def every(request) -> Published:
    """One blob of each shape."""
    return read(request.param)


@pytest.fixture(scope="session")
def published() -> Published:
    """The blob of the default shape."""
    return read(next(folder for folder in FOLDERS if folder.name == "blocked-0.03"))


@pytest.fixture
def seen(published) -> bloomsday.Filter:
    return bloomsday.Filter.open(published.path)
