"""Stores that are reached over HTTP: S3, Google Cloud Storage, Azure Blob Storage, through obstore.

Promises beyond those of `store`:
* Nothing is retried in here. The second try of a create-only put would find the object of the first one, and the
  driver retries what failed.
* A file of up to `Access.one_put_bytes` is one create-only put; how a larger one is created is in `large`.
* The server keeps the conditions of puts; `prepare` checks whether it does.
* No message holds a key, a token or a signed URL.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tidegate.errors import BadSetting, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.storage.access import Access, bucket_and_prefix
from tidegate.storage.clients import ANSWER_S, Client, open_client
from tidegate.storage.large import PART_BYTES, TEMP, LargeFiles, parts_of
from tidegate.storage.object_errors import (
    check_bucket,
    is_bucket_missing,
    may_pass,
    plain,
    scrubbed,
    sorted_errors,
    status,
)
from tidegate.storage.store import Beat, Slices

_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@functools.lru_cache(maxsize=16)
def open_object_store(sink_uri: str, access: Access, answer_s: float = ANSWER_S) -> ObjectStore:
    """`open_object_store("s3://lake/cdc", access)`. A process has one for each sink and reuses its connections."""
    scheme = urlsplit(sink_uri).scheme
    bucket, prefix = bucket_and_prefix(sink_uri)
    kind = access.get("access-tier") or access.get("storage-class")
    try:
        client = open_client(scheme, bucket, access, answer_s)
    except (BaseError, ValueError, OSError) as exc:
        why = scrubbed(plain(exc).partition("\n")[0], access.secrets)
        raise BadSetting(f"the sink {sink_uri} cannot be opened: {why}; see docs/storage.md") from None
    attributes = {"Storage-Class": kind} if kind else {}
    return ObjectStore(client, sink_uri, prefix, access, attributes)


class ObjectStore:
    concurrency: int | None = None

    def __init__(self, client: Client, sink_uri: str, prefix: str, access: Access, attributes: dict[str, str]) -> None:
        self._client, self._sink_uri, self._attributes = client, sink_uri, attributes
        self._secrets, self._one_put_bytes = access.secrets, access.one_put_bytes
        self._endpoint = access.get("endpoint") or "the server"
        # The client's copies have neither the storage class of the object nor a key of the user's own.
        may_copy = not attributes and access.get("encryption-key") is None
        self._large = LargeFiles(
            self, client, self._key, self._sorted_errors, attributes, access.parts_at_once, may_copy
        )
        self._prefix = f"{prefix}/" if prefix else ""
        self._scheme = urlsplit(sink_uri).scheme
        self._tags_are_md5 = self._scheme == "s3"  # until the store tells another tag

    def prepare(self) -> None:
        """Also checks whether the server keeps the conditions of puts: all promises rest on them."""
        for path, _ in self.list(TEMP):
            self.delete(path)
        probe = f"{TEMP}/{uuid.uuid4().hex}"
        if not self.create_bytes(probe, b""):
            raise StoreUnavailable(f"{probe} exists before it was created")
        try:
            another = '"00000000000000000000000000000000"\n1'
            if self.create_bytes(probe, b"") or self.swap(probe, b"", another) is not None:
                raise StoreRefused(
                    f"{self._sink_uri} ignores the conditions of puts (If-None-Match, If-Match), so two writers could "
                    "overwrite each other; use a store that keeps them"
                )
        finally:
            self.delete(probe)

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        size = len(head) + slices.size
        beat(size)
        if size > self._one_put_bytes:
            is_made = self._large.create(path, head, slices, beat)
        else:
            body = next(parts_of(head, slices, self._one_put_bytes), b"")
            beat(size)
            is_made = self._put(path, body, "create") is not None
            del body
        if not is_made:
            self._check_same(path, head, slices, beat)

    def copies_if_absent(self, path: str) -> bool:
        return self._large.copies_if_absent(path)

    def create_bytes(self, path: str, data: bytes) -> bool:
        return self._put(path, data, "create") is not None

    def put(self, path: str, data: bytes) -> None:
        with self._sorted_errors(path):
            obstore.put(self._client, self._key(path), data, attributes=self._attributes, use_multipart=False)

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        e_tag, _, version = tag.partition("\n")
        expected = {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}
        made = self._put(path, data, expected if tag else "create")
        if made is not None and made != _md5_tag(data):
            self._tags_are_md5 = False
        return made

    def _put(self, path: str, data: bytes | bytearray, mode: Any) -> str | None:
        """A put under a condition; returns the tag of what was made, None if the condition does not hold."""
        with self._sorted_errors(path):
            try:
                made = obstore.put(
                    self._client,
                    self._key(path),
                    data,
                    attributes=self._attributes,
                    mode=mode,
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as exc:
                missing = is_bucket_missing(exc) or (mode == "create" and isinstance(exc, FileNotFoundError))
                if missing or may_pass(exc):  # another put is under way, and nobody knows yet how it ends
                    raise
                return None
        return self._tag(made["e_tag"], made["version"])

    def _tag(self, e_tag: str | None, version: str | None) -> str:
        """What the store compares: the generation on Google, the ETag elsewhere. "" if it told none."""
        if self._scheme == "gs":
            return f"\n{version}" if version else ""
        return f"{e_tag}\n" if e_tag else ""

    def _check_same(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        """The object that exists must have the bytes to be written: then an earlier try made it."""
        size = len(head) + slices.size
        beat(0)
        found = self.size(path)
        if found is None:
            raise StoreUnavailable(f"{path} existed and is gone: somebody deletes files of this sink")
        if found != size:
            raise StoreConflict(f"{path} exists with {found} bytes where {size} were to be written")
        offset = 0
        for part in parts_of(head, slices, PART_BYTES):
            beat(len(part))
            if self.get_range(path, offset, len(part)) != bytes(part):
                raise StoreConflict(f"{path} exists with other content than the {size} bytes to be written")
            offset += len(part)

    def get(self, path: str) -> bytes | None:
        found = self.get_tagged(path)
        return found[0] if found is not None else None

    def tag_of(self, data: bytes) -> str | None:
        """On S3 the ETag of an object that was put at once is its MD5, unless the bucket is encrypted with KMS keys.

        A tag that is wrong does no harm: the condition fails, and the object is read.
        """
        return _md5_tag(data) if self._tags_are_md5 else None

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        with self._sorted_errors(path):
            try:
                found = obstore.get(self._client, self._key(path))
                data = found.bytes().to_bytes()
            except FileNotFoundError as exc:
                check_bucket(exc)
                return None
            return data, self._tag(found.meta["e_tag"], found.meta["version"])

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        if length <= 0:
            return b"" if self.size(path) is not None else None
        with self._sorted_errors(path):
            try:
                return obstore.get_range(self._client, self._key(path), start=offset, length=length).to_bytes()
            except FileNotFoundError as exc:
                check_bucket(exc)
                return None
            except BaseError as exc:
                # Past the end. Some servers do not say 416, but send an empty part, which the client refuses.
                if status(exc) == 416 or (not status(exc) and offset >= (self.size(path) or 0)):
                    return b""
                raise

    def size(self, path: str) -> int | None:
        with self._sorted_errors(path):
            try:
                return obstore.head(self._client, self._key(path))["size"]
            except FileNotFoundError as exc:
                check_bucket(exc)
                return None

    def modified(self, path: str) -> float | None:
        with self._sorted_errors(path):
            try:
                return obstore.head(self._client, self._key(path))["last_modified"].timestamp()
            except FileNotFoundError as exc:
                check_bucket(exc)
                return None

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        below = self._key(prefix) if prefix else self._prefix.rstrip("/")
        with self._sorted_errors(prefix or self._sink_uri):
            for page in obstore.list(self._client, below or None, chunk_size=1000):
                for meta in page:
                    yield meta["path"].removeprefix(self._prefix), meta["size"]

    def delete(self, path: str) -> None:
        with self._sorted_errors(path), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._client, self._key(path))

    def _key(self, path: str) -> str:
        levels = path.split("/")
        if path.startswith("/") or ".." in levels:
            raise StoreRefused(f"{path!r} leads out of the sink; names with '..' or a leading slash are never written")
        # The client writes no control characters, and Azure takes a backslash for a slash.
        if not {"", "."}.isdisjoint(levels) or _UNWRITABLE.search(path) or ("\\" in path and self._scheme == "azblob"):
            raise StoreRefused(
                f"{path!r} cannot be a name on {self._scheme}://: a control character, a backslash or an empty level; "
                "give the table another name with [[sink.dispatchers]], or use-table-id-as-path = true"
            )
        return self._prefix + path

    def _sorted_errors(self, path: str) -> contextlib.AbstractContextManager[None]:
        return sorted_errors(path, self._sink_uri, self._endpoint, self._secrets)


def _md5_tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"\n'
