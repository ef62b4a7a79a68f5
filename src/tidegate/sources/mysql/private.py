"""What a source must know and nobody may see: the password, the keys of the sink, and where the relay is.

The driver writes it into a file that only its user can read, `<spool>/<changefeed id>/source.private`. Options of
Spark, splits, plans and event logs carry the path of this file alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidegate.errors import BadSetting, SourceUnavailable
from tidegate.sources.mysql.address import SCHEME, parse_address
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.store import Store, open_store

VARIABLE = "MYSQL_PWD"


@dataclass(frozen=True)
class Private:
    """`path` is the file that it came from, or will go to."""

    password: str = field(default="", repr=False)
    sink_uri: str = field(default="noop://", repr=False)
    access: Access = field(default=NO_ACCESS, repr=False)
    relay_dir: str = ""
    path: str = ""

    @property
    def keeps_nothing(self) -> bool:
        """Whether the sink stores nothing, so that records cannot be read back."""
        return self.sink_uri.startswith("noop:")

    def store(self) -> Store:
        """The sink, where the source keeps its own records beside the journal."""
        return open_store(self.sink_uri, self.access)

    def write(self) -> None:
        """Into `path`, in one step, readable by this user alone."""
        access = asdict(self.access) | {"shown": sorted(self.access.shown)}
        values = {"password": self.password, "sink_uri": self.sink_uri, "access": access, "relay_dir": self.relay_dir}
        temp = f"{self.path}.new"
        try:
            file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(file, "w", encoding="utf-8") as out:
                json.dump(values, out)
            os.replace(temp, self.path)
        except OSError as exc:
            raise SourceUnavailable(f"cannot write {self.path}, which the source reads: {exc.strerror}") from exc


def read_private(path: str) -> Private:
    """The inverse of `write`. The file goes with its changefeed, so a process that outlives it ends here."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise SourceUnavailable(f"cannot read {path}, which the driver writes for the source: {exc}") from exc
    access = found["access"]
    keys = tuple((name, value) for name, value in access["keys"])
    known = Access(keys, access["parts_at_once"], access["one_put_bytes"], frozenset(access["shown"]))
    return Private(found["password"], found["sink_uri"], known, found["relay_dir"], path)


def private_source(uri: str, file: str | None, environment: Mapping[str, str]) -> tuple[str, Private | None]:
    """The URI that may travel, and what must not travel with it: `mysql://repl@db/...` and the password.

    Sources that are no databases have nothing private.
    """
    if uri.partition(":")[0] != SCHEME:
        if file is not None:
            raise BadSetting(f"--password-file {file} is for databases; the source {uri!r} has no password")
        return uri, None
    address = parse_address(uri)
    return address.uri, Private(password_of(address.password, file, environment))


def password_of(in_uri: str | None, file: str | None, environment: Mapping[str, str]) -> str:
    """From the file, else the URI, else MYSQL_PWD; "" if nobody says one. A line end behind it does not count."""
    if file is not None:
        if in_uri is not None:
            raise BadSetting("the password is in the source's URI and in --password-file; keep one of them")
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            raise BadSetting(f"--password-file {file} cannot be read: {reason}") from exc
    return in_uri if in_uri is not None else environment.get(VARIABLE, "")
