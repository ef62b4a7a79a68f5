"""Stores on a file system: `file:///data/cdc`.

Promises beyond those of `store`:
* A new file has no name until it is complete. A file system without nameless files gets a temporary name for it, under
  `_tidegate/tmp`; `prepare` deletes what a killed process left there.
* A conditional put holds a lock on the file that it replaces, so two processes never replace the same one.
* A sink that went away is not begun anew: nothing is written unless `_tidegate/tmp` exists.
* No name leads out of the sink.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tidegate.errors import StoreConflict, StoreRefused, StoreUnavailable
from tidegate.format.layout import HALF_WRITTEN, RESERVED_PREFIX
from tidegate.storage.store import Beat, Slices, content_tag

_READ_BYTES = 8 << 20
_SMALL_BYTES = 16 << 10
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR, errno.EISDIR}
_NAMELESS = os.O_WRONLY | os.O_TMPFILE
_NAMELESS_AT = "/proc/self/fd/"
_NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}  # from file systems without nameless files


class FileStore:
    concurrency: int | None = 4
    nameless = True  # whether a new file gets its name only when it is complete

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)
        self._temp = _temp_folder(self._root)
        self._name, self._names = uuid.uuid4().hex, itertools.count()  # of temporary files

    def prepare(self) -> None:
        with _SortedErrors(self._root):
            os.makedirs(self._temp, exist_ok=True)
            for name in os.listdir(self._temp):
                _unlink(f"{self._temp}/{name}")

    def make_folders(self, paths: Sequence[str]) -> None:
        for path in paths:
            with _SortedErrors(path):
                _make_folder(self._path(path), self._root)

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        with _SortedErrors(path):
            target = self._path(path)
            file, source = self._new(target)
            try:
                _write(file, head)
                slices.copy_to(file, beat)
                beat(0)
                if not self._link(file, source, target):
                    _refuse_another(path, source, target, len(head) + slices.size)
            finally:
                _leave(file, source)

    def create_bytes(self, path: str, data: bytes) -> bool:
        with _SortedErrors(path):
            return self._create(path, data)

    def put(self, path: str, data: bytes) -> None:
        with _SortedErrors(path):
            target = self._path(path)
            try:
                _replace(self._temporary(), target, data)
            except FileNotFoundError:
                _make_folder(target.rpartition("/")[0], self._root)
                _replace(self._temporary(), target, data)

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        with _SortedErrors(path):
            if not tag:
                return "" if self._create(path, data) else None
            target = self._path(path)
            try:
                file = os.open(target, os.O_RDWR)
            except FileNotFoundError:
                return None
            try:
                # All others wait for this lock, also while this process is paused: otherwise it could compare, sleep,
                # and then overwrite what another process wrote meanwhile. If the process dies, the kernel unlocks.
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _still_there(file, target) or content_tag(_read(file)) != tag:
                    return None
                # In the same directory: renames between directories wait for each other on the whole file system.
                _replace(f"{target}{HALF_WRITTEN}", target, data)
                return ""  # `tag_of` tells the same
            finally:
                os.close(file)

    def _create(self, path: str, data: bytes) -> bool:
        target = self._path(path)
        file, source = self._new(target)
        try:
            _write(file, data)
            return self._link(file, source, target)
        finally:
            _leave(file, source)

    def _new(self, target: str) -> tuple[int, str]:
        """A file that is to become `target`, and the path by which it is reached until then."""
        if self.nameless:
            folder = target.rpartition("/")[0]
            try:
                try:
                    file = os.open(folder, _NAMELESS, 0o666)
                except FileNotFoundError:
                    _make_folder(folder, self._root)
                    file = os.open(folder, _NAMELESS, 0o666)
                return file, f"{_NAMELESS_AT}{file}"
            except OSError as exc:
                if exc.errno not in _NO_NAMELESS:
                    raise
                self.nameless = False
        temp = self._temporary()
        return os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), temp

    def tag_of(self, data: bytes) -> str | None:
        return content_tag(data)

    def get(self, path: str) -> bytes | None:
        with _SortedErrors(path):
            try:
                file = os.open(self._path(path), os.O_RDONLY)
            except OSError as exc:
                _must_be_missing(exc)
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
            except OSError as exc:
                _must_be_missing(exc)
                return None

    def size(self, path: str) -> int | None:
        with _SortedErrors(path):
            return _size(self._path(path))

    def modified(self, path: str) -> float | None:
        with _SortedErrors(path):
            found = _stat(self._path(path))
            return found.st_mtime if found is not None else None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        with _SortedErrors(prefix):
            yield from _list(self._path(prefix) if prefix else self._root, f"{prefix}/" if prefix else "")

    def delete(self, path: str) -> None:
        with _SortedErrors(path):
            _unlink(self._path(path))

    def remove_empty(self, path: str) -> None:
        """Remove a directory if it is empty; one that does not exist is fine."""
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
        """Give a complete file its name; False if another file has it."""
        try:
            try:
                os.link(source, target, src_dir_fd=file)  # by `linkat`: `link` does not follow what has no name
            except FileNotFoundError:
                _make_folder(target.rpartition("/")[0], self._root)
                os.link(source, target, src_dir_fd=file)  # fails again if another process has removed `source`
        except FileExistsError:
            return False
        return True

    def _temporary(self) -> str:
        return f"{self._temp}/{self._name}-{next(self._names)}"


def _temp_folder(root: str) -> str:
    return f"{root}/{RESERVED_PREFIX}/tmp"


def _make_folder(path: str, root: str) -> None:
    """Make a directory and those above it. Nothing is checked first: the directories of a new table do not exist."""
    above = path.rpartition("/")[0]
    if len(above) <= len(root):
        os.stat(_temp_folder(root))  # fails if the sink went away: a new one must not begin in its place
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        _make_folder(above, root)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)


def _leave(file: int, source: str) -> None:
    os.close(file)
    if not source.startswith(_NAMELESS_AT):
        _unlink(source)


def _list(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    """The files of a directory in name order, then those of its directories."""
    folders = []
    for entry in _entries(folder):
        if entry.is_dir():
            folders += [entry] if not entry.is_symlink() else []
        elif (size := _size(entry.path)) is not None:  # it may have been deleted since its directory was read
            yield prefix + entry.name, size
    for entry in folders:
        yield from _list(entry.path, f"{prefix}{entry.name}/")


def _entries(folder: str) -> Sequence[os.DirEntry[str]]:
    """In name order. Empty for a directory that does not exist, or is a file; one that cannot be read is an error."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except NotADirectoryError:
        return []
    except OSError as exc:
        _must_be_missing(exc)
        return []


def _size(path: str) -> int | None:
    found = _stat(path)
    return found.st_size if found is not None else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError as exc:
        _must_be_missing(exc)
        return None


def _must_be_missing(exc: OSError) -> None:
    """There is no such file, also if its name is one that this file system does not take; else raises the error."""
    if exc.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
        raise exc


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as exc:
        _must_be_missing(exc)


def _refuse_another(path: str, source: str, target: str, size: int) -> None:
    """The file that exists must have the bytes to be written: then an earlier try made it, and its answer was lost."""
    if (found := _size(target)) != size:
        raise StoreConflict(f"{path} exists with {found} bytes where {size} were to be written")
    filecmp.clear_cache()  # it knows files by their names, and an earlier `source` may have had the same one
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


def _still_there(file: int, path: str) -> bool:
    """Whether the open file still has this name: it was neither replaced nor deleted."""
    found = _stat(path)
    return found is not None and os.path.samestat(os.fstat(file), found)


def _read(file: int) -> bytes:
    if len(data := os.read(file, _SMALL_BYTES)) < _SMALL_BYTES:
        return data
    pieces = [data]
    while data := os.read(file, _READ_BYTES):
        pieces.append(data)
    return b"".join(pieces)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


class _SortedErrors:
    """Library errors become ours. A class: a context manager made of a generator costs a tenth of a small file."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(exc, OSError) and exc.errno == errno.ENAMETOOLONG:
            raise StoreRefused(
                f"{self._path}: {exc.strerror}, where a name has 255 bytes at most; rename the table, route it to "
                "another name or filter it"
            ) from exc
        if isinstance(exc, OSError):
            ours = StoreRefused if exc.errno in _REFUSED else StoreUnavailable
            raise ours(f"{exc.filename2 or exc.filename or self._path}: {exc.strerror or exc}") from exc
