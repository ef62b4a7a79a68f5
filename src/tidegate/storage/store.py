"""The contract of every store: the only door for bytes on the sink.

Promises of every kind of store:
* A created object is complete, or it does not exist. A create-only put never replaces an object that exists.
* A create that finds an object with the same bytes has succeeded before, and only its answer was lost. An object with
  other bytes is a conflict.
* A conditional put (`swap`) replaces an object only if it is still the one that was read.
* No reader looks at what a killed process leaves half-written.
* Errors of a library become ours where the library is called; their type says what to do next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from tidegate.errors import BadSetting
from tidegate.storage.access import NO_ACCESS, REMOTE, Access

Beat = Callable[[int], None]  # called before each operation with its bytes: shows progress, and may raise to cancel


class SliceStream(Protocol):
    """The bytes of slices, one after the other."""

    def fill(self, room: memoryview) -> None:
        """The next bytes, as many as fit into `room`. Raises SpoolLost if there are fewer."""

    def close(self) -> None: ...


class Slices(Protocol):
    """The bytes of a new object as they are in the spool: slices of segments, in order. A store reads them once."""

    @property
    def size(self) -> int: ...

    def copy_to(self, file: int, beat: Beat) -> None:
        """Append all of them to an open file, by the shortest way that the spool has."""

    def open(self) -> SliceStream: ...


class Store(Protocol):
    concurrency: int | None  # lanes that may gain from running at once in one task; None: as many as workers allow

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        """A create-only put of `head` and the slices."""

    def create_bytes(self, path: str, data: bytes) -> bool:
        """A create-only put of a small object; False if one exists."""

    def put(self, path: str, data: bytes) -> None:
        """A small object; replaces one that exists."""

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        """A conditional put: replace a small object if it still has this tag. The tag "" creates one.

        Returns the tag of the new object, "" if the store does not tell it. None if another object exists by now, or
        none. So a process that was paused cannot undo what others wrote.
        """

    def tag_of(self, data: bytes) -> str | None:
        """The tag that an object with these bytes should have; None if only the store knows."""

    def get(self, path: str) -> bytes | None: ...

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        """A small object and its tag."""

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        """Up to `length` bytes from `offset` on."""

    def size(self, path: str) -> int | None: ...

    def modified(self, path: str) -> float | None:
        """When the object was written, in seconds since 1970 by the store's own clock."""

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(path, size) of everything below a directory, in name order."""

    def delete(self, path: str) -> None:
        """Deleting an object that does not exist is fine."""

    def prepare(self) -> None:
        """Make the sink ready, and remove what a killed process left half-written."""


@runtime_checkable
class WithDirectories(Protocol):
    """A store whose directories exist by themselves, not only in the names of objects."""

    def make_folders(self, paths: Sequence[str]) -> None:
        """Make these directories, in this order. Those of a new file are made anyway, but only after a try has failed.

        So it is of use where nothing exists yet.
        """

    def remove_empty(self, path: str) -> None:
        """One that is not empty stays."""


@runtime_checkable
class WithLargeFiles(Protocol):
    """A store that cannot put a large file at once, and needs a copy under a condition to create it."""

    def copies_if_absent(self, path: str) -> bool:
        """Whether a copy keeps the condition that the object must not exist. `path` is tried on, and deleted."""


StoreOpener = Callable[[str, Access], Store]


def open_store(sink_uri: str, access: Access = NO_ACCESS) -> Store:
    """`open_store("file:///data/cdc")`, `open_store("s3://lake/cdc", access)`."""
    # Imported here: the kinds of stores import this contract, and a process loads only the client that it uses.
    parts = urlsplit(sink_uri)
    if parts.scheme in REMOTE:
        from tidegate.storage.objects import open_object_store

        return open_object_store(sink_uri, access)
    if parts.scheme == "file":
        from tidegate.storage.files import FileStore

        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "noop":
        return NoopStore()
    raise BadSetting(f"cannot open sink {sink_uri!r}: use file:///absolute/path, s3://, gs://, azblob:// or noop://")


def content_tag(data: bytes) -> str:
    """The tag of an object where the store has none of its own: equal bytes are as good as the same object."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class NoopStore:
    """Stores nothing: the baseline that shows what landing itself costs."""

    concurrency: int | None = 1

    def prepare(self) -> None:
        pass

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        beat(0)

    def create_bytes(self, path: str, data: bytes) -> bool:
        return True

    def put(self, path: str, data: bytes) -> None:
        pass

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        return ""

    def tag_of(self, data: bytes) -> str | None:
        return None

    def get(self, path: str) -> bytes | None:
        return None

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        return None

    def modified(self, path: str) -> float | None:
        return None

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        return None

    def size(self, path: str) -> int | None:
        return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return iter(())

    def delete(self, path: str) -> None:
        pass
