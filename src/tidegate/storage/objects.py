"""Stores that are reached over HTTP: S3, Google Cloud Storage, Azure Blob Storage, through obstore.

Promises beyond those of `store`: nothing is tried twice in here, since the second try of a create would find its own
first one, and since the driver plans again what failed; no message holds a key, a token or a signed URL. A file of up
to 64 MiB is one create-only put; a larger one goes in parts after a look whether it is there, and the journal is what
keeps two writers from doing that at once. Conditions are kept by the store's server: `prepare` tries whether it does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, PreconditionError
from obstore.exceptions import UnauthenticatedError as Unauthenticated
from obstore.store import AzureStore, GCSStore, S3Store

from tidegate.errors import BadSetting, SpoolLost, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.storage.access import Access, bucket_and_prefix
from tidegate.storage.store import Beat, Slice, open_segment

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config, S3Credential

_ONE_PUT_BYTES = 64 << 20
_PART_BYTES = 8 << 20
_TEMP = f"{RESERVED_PREFIX}/tmp"
_CONNECT_S, _ANSWER_S, _REQUEST_S = 5.0, 20.0, 120.0  # 64 MiB at 10 MiB/s are sent before an answer can come
_NO_RETRIES: RetryConfig = {"max_retries": 0}

_Client = S3Store | GCSStore | AzureStore


@functools.lru_cache(maxsize=16)
def open_object_store(sink_uri: str, access: Access, answer_s: float = _ANSWER_S) -> ObjectStore:
    """`open_object_store("s3://lake/cdc", access)`. One client for a process: its connections are used again."""
    scheme = urlsplit(sink_uri).scheme
    bucket, prefix = bucket_and_prefix(sink_uri)
    hidden = access.secrets
    kind = access.get("access-tier") or access.get("storage-class")
    try:
        client = _OPENERS[scheme](bucket, access, _client_options(access, answer_s))
    except (BaseError, ValueError, OSError) as exc:
        why = _scrubbed(_plain(exc).partition("\n")[0], hidden)
        raise BadSetting(f"the sink {sink_uri} cannot be opened: {why}; see docs/storage.md") from None
    attributes = {"Storage-Class": kind} if kind else {}
    return ObjectStore(client, sink_uri, prefix, hidden, attributes, access.parts_at_once)


def _client_options(access: Access, answer_s: float) -> ClientConfig:
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=answer_s),
        "timeout": timedelta(seconds=_REQUEST_S),
        "pool_idle_timeout": timedelta(seconds=15),  # a connection that the server has closed costs a failed request
    }
    if (access.get("endpoint") or "").startswith("http:"):
        options["allow_http"] = True
    return options


def _open_s3(bucket: str, access: Access, options: ClientConfig) -> _Client:
    config: dict[str, Any] = {"conditional_put": "etag", "disable_bulk_delete": True}
    names = {"region": "region", "sse": "server_side_encryption", "sse-kms-key-id": "sse_kms_key_id"}
    config |= {name: access.get(key) for key, name in names.items() if access.get(key)}
    by_host = access.get("force-path-style") == "false"
    config["virtual_hosted_style_request"] = by_host
    if endpoint := access.get("endpoint"):
        scheme, _, host = endpoint.partition("://")
        config["endpoint"] = f"{scheme}://{bucket}.{host}" if by_host else endpoint
    key, secret = access.get("access-key"), access.get("secret-access-key")
    # Through a provider, since a session token of the environment would go with the keys of the URI otherwise.
    provider = _StaticKeys(key, secret, access.get("session-token")) if key and secret else None
    return S3Store(
        bucket,
        config=cast("S3Config", config),
        client_options=options,
        retry_config=_NO_RETRIES,
        credential_provider=provider,
    )


@dataclass(frozen=True, repr=False)
class _StaticKeys:
    key: str
    secret: str
    token: str | None

    def __call__(self) -> S3Credential:
        return {
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "token": self.token,
            "expires_at": None,
        }


def _open_gs(bucket: str, access: Access, options: ClientConfig) -> _Client:
    config: dict[str, Any] = {}
    if endpoint := access.get("endpoint"):
        config["base_url"] = endpoint
    if file := access.get("credentials-file"):
        config[_credentials_key(file)] = file
    return GCSStore(bucket, config=cast("GCSConfig", config), client_options=options, retry_config=_NO_RETRIES)


def _credentials_key(file: str) -> str:
    """The client reads the two kinds of Google's credential files under two names."""
    with open(file, encoding="utf-8") as text:
        kind = json.load(text).get("type")
    return "application_credentials" if kind == "authorized_user" else "service_account"


def _open_azblob(bucket: str, access: Access, options: ClientConfig) -> _Client:
    names = {"account-name": "account_name", "account-key": "account_key", "sas-token": "sas_key"}
    names |= {"endpoint": "endpoint", "encryption-key": "encryption_key"}
    config: dict[str, Any] = {name: access.get(key) for key, name in names.items() if access.get(key)}
    if access.get("account-key"):
        config["credential_type"] = "access_key"  # whatever else the environment holds
    if token := access.get("sas-token"):
        config |= {"sas_key": token.removeprefix("?"), "credential_type": "sas_token"}
    return AzureStore(bucket, config=cast("AzureConfig", config), client_options=options, retry_config=_NO_RETRIES)


_OPENERS = {"s3": _open_s3, "gs": _open_gs, "azblob": _open_azblob}


class ObjectStore:
    concurrency: int | None = None

    def __init__(
        self,
        client: _Client,
        sink_uri: str,
        prefix: str,
        hidden: tuple[str, ...],
        attributes: dict[str, str],
        parts_at_once: int,
    ) -> None:
        self._client, self._sink_uri, self._hidden, self._attributes = client, sink_uri, hidden, attributes
        self._parts_at_once = parts_at_once
        self._prefix = f"{prefix}/" if prefix else ""
        self._scheme = urlsplit(sink_uri).scheme

    def prepare(self) -> None:
        """Also tries whether the server keeps the conditions of puts, which everything here rests upon."""
        for path, _ in self.list(_TEMP):
            self.delete(path)
        probe = f"{_TEMP}/{uuid.uuid4().hex}"
        if not self.create_bytes(probe, b""):
            raise StoreUnavailable(f"{probe} is there before it was made")
        try:
            if self.create_bytes(probe, b"") or self.swap(probe, b"", '"00000000000000000000000000000000"\n1'):
                raise StoreRefused(
                    f"{self._sink_uri} ignores the conditions of puts (If-None-Match, If-Match), so two writers could "
                    "overwrite each other; use a store that keeps them"
                )
        finally:
            self.delete(probe)

    def create(self, path: str, head: bytes, slices: Sequence[Slice], beat: Beat) -> None:
        size = len(head) + sum(length for _, _, length in slices)
        beat(size)
        if size > _ONE_PUT_BYTES:
            if self.size(path) is None:
                self._upload(path, head, slices, beat)
                return
        else:
            body = next(_parts(head, slices, _ONE_PUT_BYTES), b"")
            beat(size)
            if self._put(path, body, "create"):
                return
            del body
        self._check_same(path, head, slices, size, beat)

    def create_bytes(self, path: str, data: bytes) -> bool:
        return self._put(path, data, "create")

    def put(self, path: str, data: bytes) -> None:
        with self._sorted_errors(path):
            obstore.put(self._client, self._key(path), data, attributes=self._attributes, use_multipart=False)

    def swap(self, path: str, data: bytes, tag: str) -> bool:
        e_tag, _, version = tag.partition("\n")
        found = {"e_tag": e_tag} | ({"version": version} if version else {})
        return self._put(path, data, found if tag else "create")

    def _put(self, path: str, data: bytes | bytearray, mode: Any) -> bool:
        """False if the condition does not hold."""
        with self._sorted_errors(path):
            try:
                obstore.put(
                    self._client,
                    self._key(path),
                    data,
                    attributes=self._attributes,
                    mode=mode,
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as exc:
                missing = _code(exc) in _NO_BUCKET or (mode == "create" and isinstance(exc, FileNotFoundError))
                if missing or _code(exc) in _PASSING_CODES:  # another put is under way: nobody knows how it ends
                    raise
                return False
        return True

    def _upload(self, path: str, head: bytes, slices: Sequence[Slice], beat: Beat) -> None:
        """In parts; an error among them, also one raised by `beat`, makes the client abort the upload."""

        def parts() -> Iterator[bytearray]:
            for part in _parts(head, slices, _PART_BYTES):
                beat(self._parts_at_once * _PART_BYTES)
                yield part
            beat(self._parts_at_once * _PART_BYTES)  # for those that are still on their way

        with self._sorted_errors(path):
            obstore.put(
                self._client,
                self._key(path),
                parts(),
                attributes=self._attributes,
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=self._parts_at_once,
            )

    def _check_same(self, path: str, head: bytes, slices: Sequence[Slice], size: int, beat: Beat) -> None:
        beat(0)
        found = self.size(path)
        if found is None:
            raise StoreUnavailable(f"{path} was there and is gone: somebody deletes files of this sink")
        if found != size:
            raise StoreConflict(f"{path} exists with {found} bytes where {size} were to be written")
        offset = 0
        for part in _parts(head, slices, _PART_BYTES):
            beat(len(part))
            if self.get_range(path, offset, len(part)) != bytes(part):
                raise StoreConflict(f"{path} exists with other content than the {size} bytes to be written")
            offset += len(part)

    def get(self, path: str) -> bytes | None:
        found = self.get_tagged(path)
        return found[0] if found is not None else None

    def tag_of(self, data: bytes) -> str | None:
        return None

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        with self._sorted_errors(path):
            try:
                found = obstore.get(self._client, self._key(path))
                data = found.bytes().to_bytes()
            except FileNotFoundError as exc:
                _check_bucket(exc)
                return None
            return data, f"{found.meta['e_tag'] or ''}\n{found.meta['version'] or ''}"

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        if length <= 0:
            return b"" if self.size(path) is not None else None
        with self._sorted_errors(path):
            try:
                return obstore.get_range(self._client, self._key(path), start=offset, length=length).to_bytes()
            except FileNotFoundError as exc:
                _check_bucket(exc)
                return None
            except BaseError as exc:
                # Nothing stands there; some servers do not say 416, but send an empty part that the client refuses.
                if _status(exc) == 416 or (not _status(exc) and offset >= (self.size(path) or 0)):
                    return b""
                raise

    def size(self, path: str) -> int | None:
        with self._sorted_errors(path):
            try:
                return obstore.head(self._client, self._key(path))["size"]
            except FileNotFoundError as exc:
                _check_bucket(exc)
                return None

    def modified(self, path: str) -> float | None:
        with self._sorted_errors(path):
            try:
                return obstore.head(self._client, self._key(path))["last_modified"].timestamp()
            except FileNotFoundError as exc:
                _check_bucket(exc)
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

    @contextlib.contextmanager
    def _sorted_errors(self, path: str) -> Iterator[None]:
        """The client's errors hold URLs: none of them is shown, also not as a cause."""
        try:
            yield
        except (BaseError, FileNotFoundError, ValueError) as exc:
            kind, sentence = _sorted(exc)
            raise kind(_scrubbed(f"{path}: {sentence} ({self._sink_uri})", self._hidden)) from None


_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def _parts(head: bytes, slices: Sequence[Slice], part_bytes: int) -> Iterator[bytearray]:
    """The bytes of a file in parts of one size, but for the last; only one part is in memory at a time."""
    left = len(head) + sum(length for _, _, length in slices)
    part = bytearray(min(part_bytes, left))
    filled, source, opened = 0, -1, ""
    try:
        for segment, offset, length in [("", 0, len(head)), *slices]:
            if segment and segment != opened:
                if source >= 0:
                    os.close(source)
                source, opened = -1, segment
                source = open_segment(segment)
            while length:
                step = min(length, len(part) - filled)
                with memoryview(part)[filled : filled + step] as room:
                    if segment:
                        _fill(room, source, offset)
                    else:
                        room[:] = head[offset : offset + step]
                filled, offset, length, left = filled + step, offset + step, length - step, left - step
                if filled == len(part):
                    yield part
                    part, filled = bytearray(min(part_bytes, left)), 0
    finally:
        if source >= 0:
            os.close(source)


def _fill(room: memoryview, source: int, offset: int) -> None:
    done = 0
    while done < len(room):
        read = os.preadv(source, [room[done:]], offset + done)
        if not read:
            raise SpoolLost(f"a spool segment ends {len(room) - done} bytes too early; what it held is replayed")
        done += read


# -- errors ----------------------------------------------------------------------------------------------------------

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "AccountNotFound")
_PASSING_CODES = (
    *("SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "ServerBusy", "rateLimitExceeded"),
    *("RequestTimeout", "OperationTimedOut", "InternalError", "IncompleteBody", "BadDigest"),
    *("ConditionalRequestConflict", "OperationAborted"),
)
_WRONG_REGION = ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraint")
_OLD_TOKEN = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
# What the client says of a request without an answer, and how it is told. None of it is repeated: it holds URLs.
_UNANSWERED = (
    (r"certificate", StoreRefused, "the server's TLS certificate is not trusted; check the endpoint"),
    (r"path segment|parse path", StoreRefused, "a name on the sink is one that the client cannot read"),
    (r"scheme is not allowed", StoreRefused, "the endpoint is http; give it in the sink URI, or use https"),
    (r"ConnectionRefused|onnection refused", StoreUnavailable, "the connection was refused"),
    (r"dns error|lookup", StoreUnavailable, "the name of the server cannot be resolved; check the endpoint"),
    (r"TimedOut|timed out|kind: Timeout", StoreUnavailable, "the server did not answer in time"),
    (
        r"IncompleteMessage|IncompleteBody|UnexpectedEof|decoding|kind: (Body|Decode)|ConnectionReset|reset by peer",
        StoreUnavailable,
        "the answer was cut off",
    ),
)


def _plain(exc: BaseException) -> str:
    """The client's text without its description for developers."""
    return str(exc).partition("\n\nDebug source")[0]


def _status(exc: BaseException) -> int:
    found = re.search(r"status code: (\d{3})", _plain(exc)) or re.search(r"\(code: (\d{3})\)", _plain(exc))
    return int(found[1]) if found else 0


def _code(exc: BaseException) -> str:
    """What the server calls the error: `NoSuchBucket`."""
    found = re.search(r"<Code>\s*(\w+)|\"reason\":\s*\"(\w+)", _plain(exc))
    return (found[1] or found[2]) if found else ""


def _said(exc: BaseException) -> str:
    """`403 AccessDenied: Access Denied`: what the server said, one line of it."""
    found = re.search(r"<Message>\s*([^<\n]+)|\"message\":\s*\"([^\"\n]+)", _plain(exc))
    told = f": {(found[1] or found[2]).strip()[:200]}" if found else ""
    return " ".join(filter(None, [str(_status(exc) or ""), _code(exc)])) + told


def _sorted(exc: BaseException) -> tuple[type[StoreRefused] | type[StoreUnavailable], str]:
    status, code, text = _status(exc), _code(exc), str(exc)
    by_platform = bool(re.search(r"token request|//169\.254\.|//sts\.", text.partition("status code")[0]))
    if not status and not isinstance(exc, (PermissionDeniedError, Unauthenticated, FileNotFoundError)):
        kind, sentence = next(
            ((kind, sentence) for sign, kind, sentence in _UNANSWERED if re.search(sign, text)),
            (StoreUnavailable, "the request failed"),
        )
        if by_platform:
            sentence = f"no credentials in the sink URI or the environment, and asking the platform: {sentence}"
        return kind, sentence
    if code in _PASSING_CODES or status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
        return StoreUnavailable, f"the store answered {_said(exc)}"
    return StoreRefused, f"{_remedy(status, code, by_platform)} ({_said(exc)})"


def _remedy(status: int, code: str, by_platform: bool) -> str:
    if by_platform:
        return "no credentials in the sink URI or the environment, and the platform gives none; see docs/storage.md"
    if code in _OLD_TOKEN:
        return "the session token is not valid any more; give a fresh one"
    if code in _WRONG_REGION or status in (301, 307):
        return "the bucket is in another region; set region in the sink URI"
    if status in (401, 403):
        return "access is denied; check the keys, and that they may list, read, write and delete here"
    if code in _NO_BUCKET or status == 404:
        return "the bucket or container does not exist; make it, or correct the sink URI"
    return "the store refuses the request"


def _check_bucket(exc: FileNotFoundError) -> None:
    """An object may be missing, a bucket not."""
    if _code(exc) in _NO_BUCKET:
        raise exc


def _scrubbed(text: str, hidden: Sequence[str]) -> str:
    """Without anything that may be secret: values of the sink URI, signatures, queries of URLs."""
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***")
    text = re.sub(r"(https?://[^\s?\"']*)\?[^\s\"']*", r"\1?***", text)
    return re.sub(r"(?i)\b(sig|signature|credential|x-amz-[a-z-]+)=[^\s&,\"']*", r"\1=***", text)
