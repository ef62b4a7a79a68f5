"""The only door for bytes on the sink.

Promises: a created object is complete or not there at all, and is never overwritten by another create; a create that
finds an object with the same bytes takes it as its own lost answer, any other is a conflict; `swap` replaces an object
only if it is still the one that was read; what a killed process leaves half-written no reader looks at.
Library errors become ours here, sorted by what to do next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import hashlib
import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from tidegate.errors import BadSetting, SpoolLost, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.format.layout import HALF_WRITTEN, RESERVED_PREFIX
from tidegate.storage.access import NO_ACCESS, REMOTE, Access

Slice = tuple[str, int, int]  # spool segment, offset, length
Beat = Callable[[int], None]  # called before each operation with its bytes: progress, and the place to be cancelled

_STEP_BYTES = 8 << 20
_SMALL_BYTES = 16 << 10
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR, errno.EISDIR}
_NAMELESS = os.O_WRONLY | os.O_TMPFILE
_NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}  # of file systems without such files
_NO_RANGE_COPY = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Store(Protocol):
    concurrency: int | None  # landings that may gain from running at once in one task; None: as many as workers allow

    def create(self, path: str, head: bytes, slices: Sequence[Slice], beat: Beat) -> None:
        """A new object of `head` and the spool slices in order."""

    def create_bytes(self, path: str, data: bytes) -> bool:
        """A new small object; False if there is one already."""

    def put(self, path: str, data: bytes) -> None:
        """A small object, replacing what is there."""

    def swap(self, path: str, data: bytes, tag: str) -> bool:
        """Replace a small object if it is still the one that `get_tagged` gave `tag` for; "" is for one to be made.

        False if another stands there, or none. A process that was paused cannot set back what others wrote since.
        """

    def tag_of(self, data: bytes) -> str | None:
        """The tag of an object with these bytes; None where only the store knows."""

    def get(self, path: str) -> bytes | None: ...

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        """A small object, and the tag that says which one it was."""

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        """Up to `length` bytes from `offset` on."""

    def size(self, path: str) -> int | None: ...

    def modified(self, path: str) -> float | None:
        """When the object was written, in seconds since 1970 by the store's own clock."""

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(path, size) of everything below a directory, in name order."""

    def delete(self, path: str) -> None: ...

    def prepare(self) -> None:
        """Make the sink ready and remove what a killed process left half-written."""


@runtime_checkable
class WithDirectories(Protocol):
    """A store whose directories are there by themselves, not only in the names of objects."""

    def remove_empty(self, path: str) -> None: ...


StoreOpener = Callable[[str, Access], Store]


def open_store(sink_uri: str, access: Access = NO_ACCESS) -> Store:
    """`open_store("file:///data/cdc")`, `open_store("s3://lake/cdc", access)`."""
    parts = urlsplit(sink_uri)
    if parts.scheme in REMOTE:
        from tidegate.storage.objects import open_object_store  # its client is loaded only where it is used

        return open_object_store(sink_uri, access)
    if parts.scheme == "file":
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "noop":
        return NoopStore()
    raise BadSetting(f"cannot open sink {sink_uri!r}: use file:///absolute/path, s3://, gs://, azblob:// or noop://")


class FileStore:
    concurrency: int | None = 4
    nameless = True  # a new file gets its name when it is whole; False: it has a temporary one until then

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)
        self._temp = f"{self._root}/{RESERVED_PREFIX}/tmp"
        self._name, self._names = uuid.uuid4().hex, itertools.count()  # of temporary files

    def prepare(self) -> None:
        with _SortedErrors(self._root):
            os.makedirs(self._temp, exist_ok=True)
            for name in os.listdir(self._temp):
                _unlink(f"{self._temp}/{name}")

    def create(self, path: str, head: bytes, slices: Sequence[Slice], beat: Beat) -> None:
        size = len(head) + sum(length for _, _, length in slices)
        with _SortedErrors(path):
            target = self._path(path)
            file, source = self._new(target)
            try:
                _write(file, head)
                _copy_slices(file, slices, beat)
                beat(0)
                if not self._link(file, source, target):
                    _refuse_another(path, source, target, size)
            finally:
                self._leave(file, source)

    def create_bytes(self, path: str, data: bytes) -> bool:
        with _SortedErrors(path):
            return self._create(path, data)

    def put(self, path: str, data: bytes) -> None:
        with _SortedErrors(path):
            target = self._path(path)
            try:
                _replace(self._temporary(), target, data)
            except FileNotFoundError:
                self._make_folder(target.rpartition("/")[0])
                _replace(self._temporary(), target, data)

    def swap(self, path: str, data: bytes, tag: str) -> bool:
        with _SortedErrors(path):
            if not tag:
                return self._create(path, data)
            target = self._path(path)
            try:
                file = os.open(target, os.O_RDWR)
            except FileNotFoundError:
                return False
            try:
                # Whoever is paused with it keeps the others out until it is ended.
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _stands(file, target) or content_tag(_read(file)) != tag:
                    return False
                # Renames between directories wait for each other on the whole file system, so this one is not.
                _replace(f"{target}{HALF_WRITTEN}", target, data)
                return True
            finally:
                os.close(file)

    def _create(self, path: str, data: bytes) -> bool:
        target = self._path(path)
        file, source = self._new(target)
        try:
            _write(file, data)
            return self._link(file, source, target)
        finally:
            self._leave(file, source)

    def _new(self, target: str) -> tuple[int, str]:
        """A file that is to become `target`, and where it can be found until then."""
        if self.nameless:
            folder = target.rpartition("/")[0]
            try:
                try:
                    file = os.open(folder, _NAMELESS, 0o666)
                except FileNotFoundError:
                    self._make_folder(folder)
                    file = os.open(folder, _NAMELESS, 0o666)
                return file, f"/proc/self/fd/{file}"
            except OSError as exc:
                if exc.errno not in _NO_NAMELESS:
                    raise
                self.nameless = False
        temp = self._temporary()
        return os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temp

    def _leave(self, file: int, source: str) -> None:
        os.close(file)
        if source.startswith(self._temp):
            _unlink(source)

    def tag_of(self, data: bytes) -> str | None:
        return content_tag(data)

    def get(self, path: str) -> bytes | None:
        with _SortedErrors(path):
            try:
                file = os.open(self._path(path), os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                return _read(file)
            finally:
                os.close(file)

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        data = self.get(path)
        return (data, content_tag(data)) if data is not None else None

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        with _SortedErrors(path):
            try:
                with open(self._path(path), "rb", buffering=0) as file:
                    return os.pread(file.fileno(), length, offset)
            except FileNotFoundError:
                return None

    def size(self, path: str) -> int | None:
        with _SortedErrors(path):
            return _size(self._path(path))

    def modified(self, path: str) -> float | None:
        with _SortedErrors(path):
            try:
                return os.stat(self._path(path)).st_mtime
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with _SortedErrors(prefix):
            yield from self._list(self._path(prefix) if prefix else self._root, f"{prefix}/" if prefix else "")

    def _list(self, folder: str, prefix: str) -> Iterator[tuple[str, int]]:
        """The files of a folder in name order, then those of its folders."""
        folders = []
        for entry in _entries(folder):
            if entry.is_dir():
                folders += [entry] if not entry.is_symlink() else []
            elif (size := _size(entry.path)) is not None:  # it may be deleted since its directory was read
                yield prefix + entry.name, size
        for entry in folders:
            yield from self._list(entry.path, f"{prefix}{entry.name}/")

    def delete(self, path: str) -> None:
        with _SortedErrors(path):
            _unlink(self._path(path))

    def remove_empty(self, path: str) -> None:
        """Remove a directory that holds nothing; one that holds something stays, one that is not there is fine."""
        with _SortedErrors(path):
            try:
                os.rmdir(self._path(path))
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def _path(self, path: str) -> str:
        if path.startswith("/") or (".." in path and ".." in path.split("/")):
            raise StoreRefused(f"{path!r} leads out of the sink; names with '..' or a leading slash are never written")
        return f"{self._root}/{path}"

    def _link(self, file: int, source: str, target: str) -> bool:
        """Give a whole file its name; False if another has it."""
        try:
            try:
                os.link(source, target, src_dir_fd=file)  # by `linkat`: `link` does not follow what has no name
            except FileNotFoundError:
                self._make_folder(target.rpartition("/")[0])
                os.link(source, target, src_dir_fd=file)  # fails again if another process has removed `source`
        except FileExistsError:
            return False
        return True

    def _make_folder(self, path: str) -> None:
        """With those above it, and without a look whether they are there: a new table's are not."""
        above = path.rpartition("/")[0]
        if len(above) <= len(self._root):
            os.stat(self._temp)  # fails if the sink has gone away: another is not begun in its place
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except FileNotFoundError:
            self._make_folder(above)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)

    def _temporary(self) -> str:
        return f"{self._temp}/{self._name}-{next(self._names)}"


def content_tag(data: bytes) -> str:
    """The tag of an object where the store has none of its own: equal contents are as good as the same object."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class NoopStore:
    """Stores nothing: the control that shows what landing costs."""

    concurrency: int | None = 1

    def prepare(self) -> None:
        pass

    def create(self, path: str, head: bytes, slices: Sequence[Slice], beat: Beat) -> None:
        beat(0)

    def create_bytes(self, path: str, data: bytes) -> bool:
        return True

    def put(self, path: str, data: bytes) -> None:
        pass

    def swap(self, path: str, data: bytes, tag: str) -> bool:
        return True

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


def _entries(folder: str) -> Sequence[os.DirEntry[str]]:
    """In name order. A directory that is not there, or is a file, holds nothing; others must not look empty."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _unlink(path: str) -> None:
    try:  # noqa: SIM105 as `_SortedErrors`
        os.unlink(path)
    except FileNotFoundError:
        pass


def _refuse_another(path: str, source: str, target: str, size: int) -> None:
    """What stands there is what was to be written, from a try whose answer was lost."""
    if (found := _size(target)) != size:
        raise StoreConflict(f"{path} exists with {found} bytes where {size} were to be written")
    filecmp.clear_cache()  # it knows files by their names, and `source` may have had another one's
    if not filecmp.cmp(source, target, shallow=False):
        raise StoreConflict(f"{path} exists with other content than the {size} bytes to be written")


def _replace(temp: str, target: str, data: bytes) -> None:
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        try:
            _write(file, data)
        finally:
            os.close(file)
        os.replace(temp, target)
    except BaseException:
        _unlink(temp)
        raise


def _stands(file: int, path: str) -> bool:
    """The open file is the one of that name: nobody has put another in its place."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _read(file: int) -> bytes:
    if len(data := os.read(file, _SMALL_BYTES)) < _SMALL_BYTES:
        return data
    pieces = [data]
    while data := os.read(file, _STEP_BYTES):
        pieces.append(data)
    return b"".join(pieces)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _copy_slices(target: int, slices: Sequence[Slice], beat: Beat) -> None:
    source, opened = -1, ""
    try:
        for segment, offset, length in slices:
            if segment != opened:
                if source >= 0:
                    os.close(source)
                source, opened = open_segment(segment), segment
            _copy(source, target, offset, length, beat)
    finally:
        if source >= 0:
            os.close(source)


def open_segment(segment: str) -> int:
    try:
        return os.open(segment, os.O_RDONLY)
    except OSError as exc:
        raise SpoolLost(f"cannot read the spool segment {segment}: {exc.strerror}; what it held is replayed") from exc


def _copy(source: int, target: int, offset: int, length: int, beat: Beat) -> None:
    while length:
        step = min(length, _STEP_BYTES)
        beat(step)
        done = _copy_step(source, target, offset, step)
        if not done:
            raise SpoolLost(f"a spool segment ends {length} bytes too early; what it held is replayed")
        offset, length = offset + done, length - done


def _copy_step(source: int, target: int, offset: int, length: int) -> int:
    if length <= _SMALL_BYTES:
        data = os.pread(source, length, offset)
        _write(target, data)
        return len(data)
    try:
        return os.copy_file_range(source, target, length, offset_src=offset)
    except OSError as exc:
        if exc.errno not in _NO_RANGE_COPY:
            raise
        return os.sendfile(target, source, offset, length)  # the spool and the sink are different kinds of file system


class _SortedErrors:
    """Library errors become ours. A class, because one made from a generator costs a tenth of a small file."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(exc, OSError):
            ours = StoreRefused if exc.errno in _REFUSED else StoreUnavailable
            raise ours(f"{exc.filename2 or exc.filename or self._path}: {exc.strerror or exc}") from exc
