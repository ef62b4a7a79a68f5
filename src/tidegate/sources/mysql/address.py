"""The address of a database as a source: `mysql://repl@db:3306/?tables=shop.*,crm.orders&snapshot=initial`.

    tables      rules of TiCDC's table filter, separated by commas; the last one that matches decides. Always given
    snapshot    initial (default): what the tables hold, then their changes; never: changes alone; only: no changes
    from        FILE:POS, where reading begins at the first start; only with snapshot=never
    ssl         preferred (default: encrypted if the server can), required (default with a file below), off, or verify:
                the server's certificate and its name are checked
    ssl-ca, ssl-cert, ssl-key    files in PEM form
    relay       most bytes of the log on local disk (default 1GiB)

Whether it is MySQL or MariaDB is asked, not told. A password may stand in the text, `mysql://repl:secret@db`, but never
leaves here as a part of it: `uri` is the text without it. Messages show that one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.errors import BadSetting
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.source import byte_count, read_query

SCHEME = "mysql"
INITIAL, NEVER, ONLY = "initial", "never", "only"
OFF, PREFERRED, REQUIRED, VERIFY = "off", "preferred", "required", "verify"
_PORT = 3306
_RELAY_BYTES = 1 << 30
_LEAST_RELAY_BYTES = 1 << 20
_EXAMPLE = "mysql://user@host:3306/?tables=shop.*"


@dataclass(frozen=True)
class Tls:
    mode: str = PREFERRED
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Address:
    """Where the database is and what of it is followed. `password` is never printed."""

    uri: str  # without the password
    user: str
    host: str
    port: int
    filter: TableFilter
    snapshot: str = INITIAL
    begin: tuple[str, int] | None = None  # log file and position
    tls: Tls = Tls()
    relay_bytes: int = _RELAY_BYTES
    password: str | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """`repl@db:3306`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"


def parse_address(uri: str) -> Address:
    """Refuses what is unknown, missing or out of range; an error shows the address without its password."""
    shown = without_password(uri)
    try:
        parts = urlsplit(uri)
        port = parts.port or _PORT
    except ValueError as exc:
        raise BadSetting(f"source {shown!r} is no address: {exc}; write {_EXAMPLE}") from None
    if parts.scheme != SCHEME or not parts.hostname or not parts.username or parts.path.strip("/") or parts.fragment:
        raise BadSetting(f"source {shown!r} must name a user and a host, and no path; write {_EXAMPLE}")
    values = read_query(parts.query, _READERS, f"source {shown!r}", "docs/mysql.md")
    if "tables" not in values:
        raise BadSetting(f"source {shown!r} does not say which tables to follow; write {_EXAMPLE}")
    address = Address(
        uri=shown,
        user=unquote(parts.username),
        host=parts.hostname,
        port=port,
        filter=values["tables"],
        snapshot=values.get("snapshot", INITIAL),
        begin=values.get("from"),
        tls=_tls(values, shown),
        relay_bytes=values.get("relay", _RELAY_BYTES),
        password=unquote(parts.password) if parts.password is not None else None,
    )
    if address.begin is not None and address.snapshot != NEVER:
        raise BadSetting(f"source {shown!r}: from is a place in the log, so it needs snapshot=never")
    return address


def without_password(uri: str) -> str:
    """`mysql://repl@db/?tables=shop.*` for `mysql://repl:secret@db/?tables=shop.*`."""
    plain, mark, query = uri.partition("?")
    return re.sub(r"(://[^/@:]*):.*@", r"\1@", plain) + mark + query


def _tls(values: dict[str, str], shown: str) -> Tls:
    files = {name: values[f"ssl-{name}"] for name in ("ca", "cert", "key") if f"ssl-{name}" in values}
    mode = values.get("ssl", REQUIRED if files else PREFERRED)
    if mode == OFF and files:
        raise BadSetting(f"source {shown!r}: ssl=off leaves ssl-{min(files)} without use; remove one of them")
    if ("cert" in files) != ("key" in files):
        raise BadSetting(f"source {shown!r}: ssl-cert and ssl-key belong together; give both or none")
    return Tls(mode, **files)


def _filter(text: str) -> TableFilter:
    try:
        return TableFilter(tuple(_rules(text)))
    except BadSetting as exc:
        raise ValueError(f"rules of tables such as shop.*,!shop.log: it {exc}") from None


def _rules(text: str) -> list[str]:
    """The rules between commas. A comma inside of quotes or slashes is no separator."""
    found = re.findall(r"(?:`(?:``|[^`])*`|\"(?:\"\"|[^\"])*\"|/(?:\\.|[^/\\])*/|\\.|[^,`\"/\\]|[`\"/\\])+", text)
    if not any(rule.strip() for rule in found):
        raise ValueError("rules of tables such as shop.*,!shop.log")
    return [rule.strip() for rule in found]


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return read


def _place(text: str) -> tuple[str, int]:
    file, _, position = text.rpartition(":")
    if not file or not position.isdigit() or int(position) < 4:
        raise ValueError("a place in the log such as bin.000001:4")
    return file, int(position)


def _relay(text: str) -> int:
    size = byte_count(text)
    if size < _LEAST_RELAY_BYTES:
        raise ValueError("a size of 1MiB or more")
    return size


def _file(text: str) -> str:
    if not text:
        raise ValueError("the path of a file")
    return text


_READERS: Mapping[str, Callable[[str], Any]] = {
    "tables": _filter,
    "snapshot": _one_of(INITIAL, NEVER, ONLY),
    "from": _place,
    "ssl": _one_of(OFF, PREFERRED, REQUIRED, VERIFY),
    "ssl-ca": _file,
    "ssl-cert": _file,
    "ssl-key": _file,
    "relay": _relay,
}
