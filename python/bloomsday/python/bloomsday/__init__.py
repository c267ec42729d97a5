"""Bloom filters of users, rebuilt every day: lookups in nanoseconds. The manual is docs/python.md."""

from bloomsday._header import Header
from bloomsday._native import Answers, Filter
from bloomsday.errors import (
    BloomsdayError,
    IdTypeError,
    MissingIdError,
    NotFoundError,
    StoreError,
    SupersededError,
    UnsoundBlob,
    UsageError,
)

__all__ = [
    "Answers",
    "BloomsdayError",
    "Filter",
    "Header",
    "IdTypeError",
    "MissingIdError",
    "NotFoundError",
    "StoreError",
    "SupersededError",
    "UnsoundBlob",
    "UsageError",
]
