"""The exceptions of this package, one class for each kind of failure."""

from __future__ import annotations

import os
from errno import ENOENT
from typing import Any


class BloomsdayError(Exception):
    """Any failure that this package reports.

    `remedy` says what to do, if there is one thing to do. `is_transient` is true when the same call may
    succeed later. `report` is that of a build which moved no pointer.
    """

    def __init__(
        self,
        message: str,
        remedy: str | None = None,
        is_transient: bool = False,
        report: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.is_transient = is_transient
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.remedy, self.is_transient, self.report)


class UnsoundBlobError(BloomsdayError):
    """A file is damaged, is not a blob, or is of a newer version. It gives no answer."""


class StoreError(BloomsdayError):
    """A store or a file system failed: it is away, full, or refuses."""


class NotFoundError(BloomsdayError, LookupError):
    """There is no such file, object, filter or input."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """A blob file that was named is not there."""

    errno = ENOENT
    strerror = os.strerror(ENOENT)

    def __str__(self) -> str:
        # That of an OSError is made of `errno` and `filename`.
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"filename": self.filename})


class UsageError(BloomsdayError, ValueError):
    """A setting or an address is not valid."""


class IdTypeError(BloomsdayError, TypeError):
    """What was passed is not an ID, or not a column of IDs."""


class MissingIdError(BloomsdayError, ValueError):
    """A column has no ID at some position, and its kind of answer has no null."""


class NotReadyError(BloomsdayError, TimeoutError):
    """A server did not load every filter before its deadline."""


class ServerError(BloomsdayError):
    """A server is not started, is started already, or was started by another process."""


class BuildError(BloomsdayError):
    """The input of a build cannot be read or does not fit, or its result is not sound."""


class RefusedError(BloomsdayError):
    """A day is not like the days before; the pointer is as it was."""


class SupersededError(BloomsdayError):
    """Somebody else changed the pointer, or rolled the day back; the pointer is as it was."""
