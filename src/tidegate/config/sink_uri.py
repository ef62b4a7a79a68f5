"""The sink URI: its parts, and the changefeed id made from it."""

from __future__ import annotations

import difflib
import hashlib
import os
import posixpath
import re
from urllib.parse import parse_qsl, quote, unquote

from tidegate.errors import BadSetting
from tidegate.storage.access import NO_ACCESS, REMOTE, Access

SCHEMES = ("file", "s3", "gs", "gcs", "azblob", "azure", "noop")
_KEYS_OF = {"s3": "access-key, secret-access-key", "gs": "credentials-file", "azblob": "account-key or sas-token"}
_SPELLED = {"gcs": "gs", "azure": "azblob"}  # two spellings of one store become one URI


def split_sink_uri(sink_uri: str) -> tuple[str, str, dict[str, str]]:
    """`file:///data/out/?file-size=1024` is ("file", "file:///data/out", {"file-size": "1024"})."""
    plain, _, query = sink_uri.partition("?")
    scheme = _known_scheme(plain)
    if "#" in sink_uri:
        raise BadSetting("the sink URI has a '#', which would cut it off there: write it as %23")
    rest = plain.partition(":")[2]
    if scheme == "file":
        return scheme, "file://" + _absolute_path(rest), _query_options(query)
    if scheme in REMOTE:
        return scheme, f"{scheme}://{_bucket_and_prefix(rest, scheme)}", _query_options(query)
    return scheme, f"{scheme}://{rest.strip('/')}", _query_options(query)


def _known_scheme(plain: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", plain)
    if match is None:
        raise BadSetting(f"sink {plain!r} has no scheme: for a directory write file://{quote(os.path.abspath(plain))}")
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        hint = f"did you mean {near[0]}://? " if near else ""
        raise BadSetting(f"unknown sink scheme {scheme}://; {hint}known: {', '.join(SCHEMES)}")
    return _SPELLED.get(scheme, scheme)


def _bucket_and_prefix(rest: str, scheme: str) -> str:
    """The part after `s3:`, always spelled the same way."""
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    place = "container" if scheme == "azblob" else "bucket"
    if "@" in bucket or (":" in bucket and not re.fullmatch(r"[^:]+:\d+", bucket)):
        raise BadSetting(
            f"the sink URI has a user or password before the {place}: give keys as options "
            f"({_KEYS_OF[scheme]}) or in the environment; see docs/storage.md"
        )
    if not bucket:
        raise BadSetting(f"the sink URI names no {place}: write {scheme}://{place}/prefix")
    if ":" in bucket:
        raise BadSetting(
            f"{bucket!r} in the sink URI is a host and port: write {scheme}://{place}/prefix?endpoint=http://{bucket}"
        )
    if not re.fullmatch(r"[A-Za-z0-9$][A-Za-z0-9._-]*", bucket):
        raise BadSetting(
            f"{bucket!r} in the sink URI is not a name of a {place}: use only letters, digits, '.', '_' and '-'"
        )
    levels = unquote(prefix).strip("/").split("/")
    if levels != [""] and not {"", ".", ".."}.isdisjoint(levels):
        raise BadSetting(
            f"the prefix {unquote(prefix)!r} in the sink URI has an empty level, '.' or '..': leave it out"
        )
    return "/".join([bucket, *(quote(level) for level in levels if level)])


def _absolute_path(rest: str) -> str:
    """The path after `file:`, always spelled the same way, so that equal directories give equal changefeed ids."""
    path = rest.removeprefix("//")
    path = path.removeprefix("localhost") if path.startswith("localhost/") else path
    if not path.strip("/"):
        raise BadSetting("the sink URI names no directory: write file:///absolute/path")
    if not path.startswith("/"):
        raise BadSetting(
            f"sink path {unquote(path)!r} is not absolute: write file://{quote(os.path.abspath(unquote(path)))}"
        )
    return quote(posixpath.normpath("/" + unquote(path).lstrip("/")))


def _query_options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in filter(None, query.split("&")):
        name, equals, _ = piece.partition("=")
        if not equals:
            raise BadSetting(f"{unquote(name)!r} in the sink URI must be written {unquote(name)}=VALUE")
        [(name, value)] = parse_qsl(piece, keep_blank_values=True)
        if name in found:
            raise BadSetting(f"option {name!r} is given twice in the sink URI: keep one")
        found[name] = value
    return found


def changefeed_id(sink_uri: str, access: Access = NO_ACCESS) -> str:
    """Readable, and different for different sinks: `changefeed_id("file:///data/out")` is "file-data-out-42a75c73".

    Buckets of the same name at two endpoints or in two accounts are two sinks. Secrets do not change the id.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", unquote(sink_uri)).strip("-")[-40:].strip("-")
    place = " ".join(filter(None, [sink_uri, access.get("endpoint"), access.get("account-name")]))
    return f"{readable}-{hashlib.blake2b(place.encode(), digest_size=4).hexdigest()}"
