"""Bloom filters of users, rebuilt every day: lookups in nanoseconds. The manual is docs/python.md."""

from bloomsday._build import build, publish
from bloomsday._header import Header
from bloomsday._native import Answers, Filter, ServedFilter, Server
from bloomsday.errors import (
    BloomsdayError,
    BuildError,
    IdTypeError,
    MissingIdError,
    NotFoundError,
    NotReadyError,
    RefusedError,
    ServerError,
    StoreError,
    SupersededError,
    UnsoundBlob,
    UsageError,
)

__all__ = [
    "Answers",
    "BloomsdayError",
    "BuildError",
    "Filter",
    "Header",
    "IdTypeError",
    "MissingIdError",
    "NotFoundError",
    "NotReadyError",
    "RefusedError",
    "ServedFilter",
    "Server",
    "ServerError",
    "StoreError",
    "SupersededError",
    "UnsoundBlob",
    "UsageError",
    "build",
    "publish",
]
