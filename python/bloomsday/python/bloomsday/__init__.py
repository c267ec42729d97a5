"""Bloom filters of users, rebuilt every day: lookups in nanoseconds. The manual is docs/python.md."""

from bloomsday._build import build, publish
from bloomsday._header import Header
from bloomsday._native import Answers, Filter, ServedFilter, Server, version
from bloomsday.errors import (
    BloomsdayError,
    BuildError,
    IdTypeError,
    MissingFileError,
    MissingIdError,
    NotFoundError,
    NotReadyError,
    RefusedError,
    ServerError,
    StoreError,
    SupersededError,
    UnsoundBlobError,
    UsageError,
)

__version__ = version()

__all__ = [
    "Answers",
    "BloomsdayError",
    "BuildError",
    "Filter",
    "Header",
    "IdTypeError",
    "MissingFileError",
    "MissingIdError",
    "NotFoundError",
    "NotReadyError",
    "RefusedError",
    "ServedFilter",
    "Server",
    "ServerError",
    "StoreError",
    "SupersededError",
    "UnsoundBlobError",
    "UsageError",
    "__version__",
    "build",
    "publish",
]
