"""`build` and `publish`: a day's Parquet, or a blob file, to a published blob."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import socket
from collections.abc import Iterable
from typing import Any

from bloomsday import _native
from bloomsday.errors import RefusedError, SupersededError, UsageError

# As `bloomsday prune` and a server have them.
KEEP_DAYS = 14
MAX_AGE_DAYS = 3


def build(
    store: str | os.PathLike[str],
    filter: str,
    day: datetime.date | str,
    input: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    column: str,
    *,
    id: str = "bytes",
    fpp: float = 0.03,
    layout: str = "blocked",
    window_days: int = 1,
    window_missing: str = "error",
    deltas: int = 0,
    memory: int | None = None,
    threads: int | None = None,
    spill_folder: str | os.PathLike[str] | None = None,
    accept_change: str | None = None,
    by: str | None = None,
    dry_run: bool = False,
    keep_days: int = KEEP_DAYS,
    max_age_days: int = MAX_AGE_DAYS,
) -> dict[str, Any]:
    """Builds one day from Parquet: read, count, fill, verify, publish the blob, write the pointer.

    `day` is a date, a `datetime`, of which the date counts, or a text such as `2026-11-19`.
    `id` is what is hashed of an ID: its `"bytes"`, or the normalised form of a `"url"`.
    `accept_change` says why a day may pass that is not like those before.
    `deltas` is for how many of the last days deltas are published, so that servers fetch only what changed.
    Returns the report that `bloomsday build --json` prints. Ctrl-C ends it; the pointer is then as it was, unless
    it was just being written: the history says.

    Raises `RefusedError` for a day that is not like those before, `SupersededError` when somebody changed the
    pointer during the build (both have the `report`), `BuildError` for input that cannot be read.
    """
    description = _description(
        filter=filter,
        day=day,
        input=input,
        column=column,
        id=id,
        fpp=fpp,
        layout=layout,
        window_days=window_days,
        window_missing=window_missing,
        deltas=deltas,
        memory=memory,
        threads=threads,
        spill_folder=spill_folder,
        accept_change=accept_change,
    )
    publication = _publication(store, by, dry_run, keep_days, max_age_days)
    return _judged(*_native.build(description, publication))


def publish(
    blob: _native.Filter | str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    by: str | None = None,
    dry_run: bool = False,
    keep_days: int = KEEP_DAYS,
    max_age_days: int = MAX_AGE_DAYS,
) -> dict[str, Any]:
    """Publishes a blob file: checks all of it, uploads it, reads it back, and writes the pointer of its day.

    The gates that judge a build do not apply: the blob's IDs are unknown. Returns and raises as `build`.
    """
    opened = blob if isinstance(blob, _native.Filter) else _native.Filter.open(blob)
    publication = _publication(store, by, dry_run, keep_days, max_age_days)
    return _judged(*_native.publish(opened, publication))


class _Fields:
    """What the native part reads by attribute."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def _description(
    *,
    day: datetime.date | str,
    input: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
    window_missing: str,
    id: str = "bytes",
    deltas: int = 0,
    memory: int | None = None,
    threads: int | None = None,
    spill_folder: str | os.PathLike[str] | None = None,
    **given: Any,
) -> _Fields:
    """What to build: one path or several; everything that is not listed here goes on as it is."""
    if window_missing not in ("error", "allow"):
        raise UsageError(f"window_missing is 'error' or 'allow', not {window_missing!r}")
    inputs = [input] if isinstance(input, (str, os.PathLike)) else list(input or [])
    return _Fields(
        day=_day(day),
        inputs=[os.fspath(path) for path in inputs],
        id=id,
        window_may_lack_input=window_missing == "allow",
        deltas=deltas,
        memory=memory,
        threads=threads,
        spill_folder=spill_folder,
        **given,
    )


def _day(day: datetime.date | str) -> str:
    """A day as text. A moment is of the day that it shows."""
    return str(day.date() if isinstance(day, datetime.datetime) else day)


def _publication(
    store: str | os.PathLike[str], by: str | None, dry_run: bool, keep_days: int, max_age_days: int
) -> _Fields:
    return _Fields(
        store=os.fspath(store),
        by=by or f"{_user()}@{socket.gethostname()}",
        dry_run=dry_run,
        keep_days=keep_days,
        max_age_days=max_age_days,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container without an entry for its user.
        return "unknown"


def _judged(text: str, remedy: str | None) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    for outcome, error in (("refused", RefusedError), ("superseded", SupersededError)):
        if report["outcome"] == outcome:
            raise error(report.get("reason") or outcome, remedy, report=report)
    return report
