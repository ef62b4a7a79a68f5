"""Files that are too large for one put: sent in parts, and still created only if they do not exist.

The client has no condition for parts. So they are uploaded under a temporary name, and the file is created by a copy
inside the store, under the condition that it does not exist. A process that was paused in between can replace nothing.
Where the store has no such copy, the file is uploaded after a check whether it exists, and only the journal keeps two
writers apart. What a killed process leaves under a temporary name is deleted by the next start.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from tidegate.errors import LandingError, StoreRefused, StoreUnavailable
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.storage.clients import Client
from tidegate.storage.object_errors import check_bucket, may_pass
from tidegate.storage.store import Beat, Slices, Store

PART_BYTES = 8 << 20
TEMP = f"{RESERVED_PREFIX}/tmp"


@dataclass
class LargeFiles:
    store: Store  # for the small requests
    client: Client
    key: Callable[[str], str]  # of a path
    sorted_errors: Callable[[str], contextlib.AbstractContextManager[None]]
    attributes: dict[str, str]  # of every object
    parts_at_once: int
    may_copy: bool  # a copy would be the same as what was uploaded
    _copies: bool | None = None  # whether copies keep their condition; None until that was tried
    _trying: threading.Lock = field(default_factory=threading.Lock)

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> bool:
        """False if it exists. An earlier try may have made it, so it is looked for before all of it is sent."""
        if self.store.size(path) is not None:
            return False
        if not self._has_copies():
            self._upload(path, head, slices, beat)
            return True
        return self._create_by_copy(path, head, slices, beat)

    def copies_if_absent(self, path: str) -> bool:
        """An object is copied onto itself: that must fail, and does no harm where it does not."""
        if not self.may_copy:
            return False
        self.store.put(path, b"x")
        try:
            return not self._copy(path, path)
        except StoreRefused:
            return False
        finally:
            self.store.delete(path)

    def _has_copies(self) -> bool:
        """Tried once in a process, before its first large file."""
        with self._trying:
            if self._copies is None:
                self._copies = self.copies_if_absent(f"{TEMP}/{uuid.uuid4().hex}")
            return self._copies

    def _create_by_copy(self, path: str, head: bytes, slices: Slices, beat: Beat) -> bool:
        temporary, size = f"{TEMP}/{uuid.uuid4().hex}", len(head) + slices.size
        try:
            self._upload(temporary, head, slices, beat)
            beat(size)
            if not self._copy(temporary, path):
                return False
        finally:
            with contextlib.suppress(LandingError):  # the next start deletes what is left
                self.store.delete(temporary)
        if self.store.size(path) != size:  # Azure may copy in the background
            raise StoreUnavailable(f"{path}: its copy is not complete yet")
        return True

    def _copy(self, source: str, path: str) -> bool:
        """A copy under the condition that the object does not exist; False if it does."""
        with self.sorted_errors(path):
            try:
                obstore.copy(self.client, self.key(source), self.key(path), overwrite=False)
            except (AlreadyExistsError, PreconditionError) as exc:
                if may_pass(exc):  # another copy is under way, and nobody knows yet how it ends
                    raise
                return False
            except FileNotFoundError as exc:
                check_bucket(exc)
                raise StoreUnavailable(f"{path}: what was uploaded is gone: another writer has started") from None
        return True

    def _upload(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        """In parts. If a part fails, or `beat` raises, the client aborts the upload."""

        def parts() -> Iterator[bytearray]:
            for part in parts_of(head, slices, PART_BYTES):
                beat(self.parts_at_once * PART_BYTES)
                yield part
            beat(self.parts_at_once * PART_BYTES)  # for those that are still on their way

        with self.sorted_errors(path):
            obstore.put(
                self.client,
                self.key(path),
                parts(),
                attributes=self.attributes,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=self.parts_at_once,
            )


def parts_of(head: bytes, slices: Slices, part_bytes: int) -> Iterator[bytearray]:
    """`head` and the slices in parts of one size, but for the last; only one part is in memory at a time."""
    left = len(head) + slices.size
    with contextlib.closing(slices.open()) as stream:
        while left:
            part = bytearray(min(part_bytes, left))
            left -= len(part)
            of_head = min(len(head), len(part))
            part[:of_head], head = head[:of_head], head[of_head:]
            with memoryview(part) as whole, whole[of_head:] as room:
                stream.fill(room)
            yield part
