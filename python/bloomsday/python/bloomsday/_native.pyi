"""The types of the native part."""

import os
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Literal, Protocol, SupportsIndex, TypedDict, final, overload

from bloomsday._header import Header

__all__ = [
    "Answers",
    "Batch",
    "Coordinator",
    "Filter",
    "PartsCount",
    "PartsFill",
    "PartsGather",
    "ServedFilter",
    "Server",
    "build",
    "publish",
    "version",
]

_Id = str | bytes | SupportsIndex | uuid.UUID
_Ids = list[_Id] | list[str] | list[bytes] | list[int] | list[uuid.UUID] | tuple[_Id, ...]

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _FilterSettings(TypedDict, total=False):
    max_age_days: int
    guard: Literal["off", "warn", "hold"]
    guard_max_hold: float
    id: Literal["bytes", "url"]

@final
class Answers:
    """Answers as a column of Arrow, for any library that reads `__arrow_c_array__`."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...
    def to_list(self) -> list[bool | None]:
        """`True`, `False` and, for a null, `None`."""

@final
class Filter:
    """An immutable set of IDs, read from a blob. Every byte is checked before the first answer."""

    @classmethod
    def open(cls, path_or_url: str | os.PathLike[str], digest: str | None = None) -> Filter:
        """Opens a blob file, or a blob in a store: `STORE/FILTER/blobs/NAME`, such as
        `s3://ads/prod/rt/blobs/2026-11-19-9c41….bloom`. With `digest` (64 hex digits), it must be that blob."""

    def __contains__(self, id: _Id, /) -> bool: ...
    def __copy__(self) -> Filter: ...
    def __deepcopy__(self, _memo: Any) -> Filter: ...
    @overload
    def contains_batch(self, ids: _Ids) -> list[bool]: ...
    @overload
    def contains_batch(self, ids: Iterable[_Id] | _ArrowArray | _ArrowStream) -> Any:
        """Looks up many IDs. The answers have the kind of `ids`: a numpy array for numpy and pandas, a
        column of pyarrow or polars for theirs, `Answers` for other Arrow, else a list."""

    @property
    def header(self) -> Header: ...
    @property
    def path(self) -> pathlib.Path | None:
        """The file that it was read from; `None` if it was a URL."""

@final
class ServedFilter:
    """A filter of a server. Lookups wait for no load and no swap."""

    def __contains__(self, id: _Id, /) -> bool: ...
    @overload
    def contains_batch(self, ids: _Ids) -> list[bool]: ...
    @overload
    def contains_batch(self, ids: Iterable[_Id] | _ArrowArray | _ArrowStream) -> Any: ...
    @property
    def name(self) -> str: ...
    def is_loaded(self) -> bool: ...
    def status(self) -> dict[str, Any]: ...

@final
class Server:
    """Filters of a store, kept up to date by a thread that Python does not see."""

    def __new__(
        cls,
        store: str | os.PathLike[str],
        filters: str | Sequence[str] | AbstractSet[str] | Mapping[str, _FilterSettings],
        *,
        poll_interval: float | None = None,
        retry_interval: float | None = None,
        load_deadline: float | None = None,
        start_deadline: float | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Server: ...
    def start(self, *, wait: bool = True, answer_until_loaded: bool = False) -> Server:
        """Starts it and waits until every filter is loaded. With `wait=False` it returns at once, and each
        lookup returns `answer_until_loaded` until its filter is loaded."""

    def filter(self, name: str) -> ServedFilter: ...
    def reload(self, filter: str | None = None, *, force: bool = False) -> list[dict[str, Any]]:
        """Polls the store now, and says what each filter did; `force` goes past the guard."""

    def status(self) -> dict[str, dict[str, Any]]: ...
    def is_ready(self) -> bool: ...
    def close(self) -> None:
        """Ends the polling, as does the end of the last handle and of the server itself. Handles go on answering
        from the filters that they have."""

    def __enter__(self) -> Server: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Batch:
    """A batch for any library that reads `__arrow_c_array__`."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class PartsGather:
    """IDs to packed hashes: see `bloomsday.parts.gather`."""

    def __new__(cls, ranges: int, rows: int) -> PartsGather: ...
    def push(self, batch: _ArrowArray) -> None: ...
    def scan(self, file: str, bytes: int, column: str) -> None: ...
    def finish(self) -> None: ...
    def next(self) -> Batch | None: ...

@final
class PartsCount:
    """Packed hashes to distinct hashes: see `bloomsday.parts.count`."""

    def __new__(cls, ranges: int) -> PartsCount: ...
    def push(self, batch: _ArrowArray) -> None: ...
    def next(self) -> Batch | None: ...

@final
class PartsFill:
    """Distinct hashes to pieces of the blob: see `bloomsday.parts.fill`."""

    def __new__(cls, *, units: int, probes: int, ranges: int, head: int, body: int) -> PartsFill: ...
    def push(self, batch: _ArrowArray) -> None: ...
    def next(self) -> Batch | None: ...

@final
class Coordinator:
    """The steps of a build in parts that its driver does: `bloomsday.spark` calls them in order."""

    def __new__(cls, input: Any, publication: Any) -> Coordinator: ...
    def expected_rows(self) -> int | None: ...
    def files(self) -> list[tuple[str, int]]: ...
    def set_ranges(self, rows: int, least: int) -> int: ...
    def counted(self, batch: _ArrowArray) -> None: ...
    def shape(self) -> dict[str, int] | None: ...
    def sample(self) -> tuple[int, int]: ...
    def compare(self, batches: list[Any]) -> None: ...
    def filled(self, batch: _ArrowArray) -> None: ...
    def seal(self) -> None: ...
    def is_uploaded(self) -> bool: ...
    def begin_upload(self) -> None: ...
    def upload(self, batch: _ArrowArray) -> None: ...
    def end_upload(self) -> None: ...
    def abort_upload(self) -> None: ...
    def finish(self) -> tuple[str, str | None]: ...

def build(input: object, publication: object) -> tuple[str, str | None]: ...
def publish(filter: Filter, publication: object) -> tuple[str, str | None]: ...
def version() -> str: ...
