"""Errors of remote stores: what the client raises becomes StoreRefused or StoreUnavailable, with a sentence.

Promises: no sentence holds a key, a token or a signed URL. The client's own text is never repeated, since it holds
URLs; only what the server said, one line of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.exceptions import UnauthenticatedError as Unauthenticated

from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.wording import hidden

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "AccountNotFound")
_PASSING_CODES = (
    *("SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "ServerBusy", "rateLimitExceeded"),
    *("RequestTimeout", "OperationTimedOut", "InternalError", "IncompleteBody", "BadDigest"),
    *("ConditionalRequestConflict", "OperationAborted"),
)
_WRONG_REGION = ("AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraint")
_OLD_TOKEN = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
# What the client says about a request without an answer, and what we say instead.
_UNANSWERED = (
    (r"certificate", StoreRefused, "the TLS certificate of {server} is not trusted; check the endpoint"),
    (r"path segment|parse path", StoreRefused, "a name on the sink is one that the client cannot read"),
    (r"scheme is not allowed", StoreRefused, "the endpoint is http; give it in the sink URI, or use https"),
    (r"ConnectionRefused|onnection refused", StoreUnavailable, "the connection to {server} was refused"),
    (r"dns error|lookup", StoreUnavailable, "the name of {server} cannot be resolved; check the endpoint"),
    (r"TimedOut|timed out|kind: Timeout", StoreUnavailable, "{server} did not answer in time"),
    (
        r"IncompleteMessage|IncompleteBody|UnexpectedEof|decoding|kind: (Body|Decode)|ConnectionReset|reset by peer",
        StoreUnavailable,
        "the answer of {server} was cut off",
    ),
)


@contextlib.contextmanager
def sorted_errors(path: str, sink_uri: str, endpoint: str, secrets: Sequence[str]) -> Iterator[None]:
    """The client's errors become ours. They hold URLs, so none of them is shown, also not as a cause."""
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as exc:
        kind, sentence = _sorted(exc, endpoint)
        raise kind(scrubbed(f"{path}: {sentence} ({sink_uri})", secrets)) from None


def check_bucket(exc: FileNotFoundError) -> None:
    """An object may be missing. A missing bucket is an error."""
    if is_bucket_missing(exc):
        raise exc


def is_bucket_missing(exc: BaseException) -> bool:
    return _code(exc) in _NO_BUCKET


def may_pass(exc: BaseException) -> bool:
    """Whether the server says that a retry may succeed."""
    return _code(exc) in _PASSING_CODES


def status(exc: BaseException) -> int:
    """The HTTP status; 0 if there was no answer."""
    found = re.search(r"status code: (\d{3})", plain(exc)) or re.search(r"\(code: (\d{3})\)", plain(exc))
    return int(found[1]) if found else 0


def plain(exc: BaseException) -> str:
    """The client's text without its description for developers."""
    return str(exc).partition("\n\nDebug source")[0]


def scrubbed(text: str, secrets: Sequence[str]) -> str:
    """Without anything that may be secret: values of the sink URI, signatures, queries of URLs."""
    text = hidden(text, secrets)
    text = re.sub(r"(https?://[^\s?\"']*)\?[^\s\"']*", r"\1?***", text)
    return re.sub(r"(?i)\b(sig|signature|credential|x-amz-[a-z-]+)=[^\s&,\"']*", r"\1=***", text)


def _server(exc: BaseException, endpoint: str) -> str:
    """`http://127.0.0.1:9000`: who was asked. Only scheme, host and port, because the rest of a URL may hold secrets.

    The client does not always say it; then it was the endpoint.
    """
    found = re.search(r"performing [A-Z]+ (https?://[^/\s?@]+)", str(exc))
    return found[1] if found else endpoint


def _code(exc: BaseException) -> str:
    """What the server calls the error: `NoSuchBucket`."""
    found = re.search(r"<Code>\s*(\w+)|\"reason\":\s*\"(\w+)", plain(exc))
    return (found[1] or found[2]) if found else ""


def _said(exc: BaseException) -> str:
    """`403 AccessDenied: Access Denied`: what the server said, one line of it."""
    found = re.search(r"<Message>\s*([^<\n]+)|\"message\":\s*\"([^\"\n]+)", plain(exc))
    message = f": {(found[1] or found[2]).strip()[:200]}" if found else ""
    return " ".join(filter(None, [str(status(exc) or ""), _code(exc)])) + message


def _sorted(exc: BaseException, endpoint: str) -> tuple[type[StoreRefused] | type[StoreUnavailable], str]:
    code, number, text = _code(exc), status(exc), str(exc)
    by_platform = bool(re.search(r"token request|//169\.254\.|//sts\.", text.partition("status code")[0]))
    if not number and not isinstance(exc, (PermissionDeniedError, Unauthenticated, FileNotFoundError)):
        kind, sentence = next(
            ((kind, sentence) for sign, kind, sentence in _UNANSWERED if re.search(sign, text)),
            (StoreUnavailable, "the request to {server} failed"),
        )
        sentence = sentence.format(server=_server(exc, endpoint))
        if by_platform:
            sentence = f"no credentials in the sink URI or the environment, and asking the platform: {sentence}"
        return kind, sentence
    if may_pass(exc) or number in (408, 425, 429) or (number >= 500 and number not in (501, 505)):
        return StoreUnavailable, f"the store answered {_said(exc)}"
    remedy = _NO_CREDENTIALS if by_platform else _remedy(number, code)
    return StoreRefused, f"{remedy} ({_said(exc)})"


_NO_CREDENTIALS = "no credentials in the sink URI or the environment, and the platform gives none; see docs/storage.md"


def _remedy(number: int, code: str) -> str:
    if code in _OLD_TOKEN:
        return "the session token is not valid any more; give a fresh one"
    if code in _WRONG_REGION or number in (301, 307):
        return "the bucket is in another region; set region in the sink URI"
    if number in (401, 403):
        return "access is denied; check the keys, and that they may list, read, write and delete here"
    if code in _NO_BUCKET or number == 404:
        return "the bucket or container does not exist; make it, or correct the sink URI"
    return "the store refuses the request"
