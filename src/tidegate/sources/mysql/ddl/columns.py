"""Reads a column definition as MySQL and MariaDB do, into the column that `information_schema` shows.

    c int(5)                 MySQL forgets the 5, MariaDB keeps it
    c json                   a LONGTEXT in MariaDB
    c varchar(20000)         a MEDIUMTEXT where that many letters do not fit, if the server accepts it at all
    c int auto_increment     NOT NULL

A type without a place in TiCDC's format gives a column that says so (`ServerColumn.unread`). Whether that matters is
decided by who follows the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from tidegate.errors import BadDdl
from tidegate.format.sql.definitions import Attribute, Draft, Rules, read_column
from tidegate.format.sql.words import Dialect, Token, Words
from tidegate.format.tables import Column
from tidegate.sources.mysql.catalogue import Server
from tidegate.sources.mysql.ddl.defaults import Reading, server_default, take_default
from tidegate.sources.mysql.definition import ServerColumn
from tidegate.sources.mysql.log.charsets import CHARSETS, char_bytes
from tidegate.sources.mysql.log.control_events import Query

REAL_AS_FLOAT, ORACLE, MAXDB, NO_BACKSLASH_ESCAPES = 1, 1 << 9, 1 << 12, 1 << 20
_TIME_TRUNCATE, _TIME_ROUND = 1 << 32, 1 << 34
_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
_UNREAD = frozenset((*_GEOMETRIES, "uuid", "inet4", "inet6", "xmltype"))
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_WITH_CHARSET = (*_TEXTS, "enum", "set")
_WITH_FSP = ("datetime", "timestamp", "time")
_MOST_ROW_BYTES = 65535
_NO_PLACE = "{}, which has no place in TiCDC's format"
_ORACLE_NAMES = {"date": "datetime", "varchar2": "varchar", "clob": "longtext", "raw": "varbinary", "blob": "longblob"}


@dataclass(frozen=True)
class Context:
    """What decides how the text of a statement is read."""

    server: Server = field(default_factory=Server)
    sql_mode: int = 0
    explicit_timestamps: bool = True
    time_zone: str = ""

    @staticmethod
    def of(query: Query, server: Server) -> Context:
        # MySQL keeps the text of a default as it is written, MariaDB the moment that it means.
        time_zone = query.time_zone if server.mariadb else ""
        return Context(server, query.sql_mode, query.explicit_timestamps, time_zone)

    @property
    def dialect(self) -> Dialect:
        backslash = not self.sql_mode & NO_BACKSLASH_ESCAPES
        return Dialect(bool(self.sql_mode & 4), backslash, self.server.mariadb, self.server.version)

    @property
    def reading(self) -> Reading:
        """MySQL rounds digits of a second that do not fit, MariaDB cuts them off; a mode turns either around."""
        turned = self.sql_mode & (_TIME_ROUND if self.server.mariadb else _TIME_TRUNCATE)
        return Reading(self.server.mariadb == bool(turned), self.time_zone)


@dataclass(frozen=True)
class Declared:
    """A column as a statement declares it, with what is not part of the column: keys and a reference."""

    column: ServerColumn
    primary: bool = False
    unique: bool = False
    references: Words | None = None
    is_timestamp: bool = False  # of the kind that gets a default from nowhere unless explicit_defaults_for_timestamp
    has_default: bool = False


def read_declared(words: Words, context: Context, charset: str) -> Declared:
    """The column of `id int(10) unsigned NOT NULL PRIMARY KEY`. `charset` is the table's."""
    if words.ahead(1).lower in ("national", "nchar", "nvarchar"):
        charset = "utf8mb3"
    if context.server.mariadb and words.ahead(1).lower == "json":
        charset = "utf8mb4"
    draft = read_column(words, replace(_rules(context.server, context.sql_mode), charset=charset))
    notes, column = draft.notes, draft.column
    primary, nullable = column.pk, column.nullable and "auto_increment" not in notes
    column = canonical(replace(column, pk=False, nullable=nullable), draft.charset, context.server)
    if "default" in notes:
        column = replace(column, default=server_default(column, notes["default"], context.reading))
    bare = column.type == "timestamp" and not {"null", "not null"} & notes.keys()
    charset = _charset_of(column, draft.charset)
    read = ServerColumn(column, charset, "generated" in notes, "invisible" in notes, _unread(draft))
    return Declared(read, primary, draft.unique, notes.get("references"), bare, "default" in notes)


def shown_column(name: str, kind: str, charset: str | None, server: Server) -> ServerColumn:
    """The column of a type as `information_schema.columns` shows it: `decimal(12,2) unsigned`."""
    words = Words(f"`{name.replace('`', '``')}` {kind}", Dialect(mariadb=server.mariadb, version=server.version))
    draft = read_column(words, replace(_rules(server, 0), charset=charset or "binary"))
    column = canonical(draft.column, draft.charset, server)
    return ServerColumn(column, _charset_of(column, draft.charset), unread=_unread(draft))


def canonical(column: Column, charset: str, server: Server) -> Column:
    """The column in the one form that both the text of a DDL and `information_schema` lead to."""
    match column.type:
        case kind if kind in _INTEGERS:
            return replace(column, flen=_width(column, server))
        case "bit" | "char":
            return replace(column, flen=1 if column.flen is None else column.flen)
        case "decimal":
            return replace(column, flen=column.flen or 10, decimals=column.decimals or 0)
        case "year":
            return replace(column, flen=None)
        case "vector":
            return replace(column, flen=column.flen or 2048)
        case "varchar":
            return _fitting(column, charset)
        case kind if kind in _WITH_FSP:
            return replace(column, decimals=column.decimals or None)
    return column


def _width(column: Column, server: Server) -> int | None:
    usual = replace(column, flen=None).length
    shown = server.mariadb or column.zerofill or (column.type == "tinyint" and column.flen == 1 and not column.unsigned)
    return column.flen if shown and column.flen not in (usual, 0) else None


def _fitting(column: Column, charset: str) -> Column:
    most_bytes = (column.flen or 0) * char_bytes(charset)
    if most_bytes <= _MOST_ROW_BYTES:
        return column
    return replace(column, type="mediumtext" if most_bytes < 1 << 24 else "longtext", flen=None)


def _charset_of(column: Column, charset: str) -> str:
    return charset if column.type in _WITH_CHARSET else ""


def _unread(draft: Draft) -> str:
    if draft.declared in _UNREAD:
        return _NO_PLACE.format(draft.declared)
    return "a compressed column; ALTER it to one that is not compressed" if "compressed" in draft.notes else ""


# How these servers read definitions -----------------------------------------------------------------------------------


@cache
def _rules(server: Server, sql_mode: int) -> Rules:
    names: dict[str, str] = {}
    if sql_mode & REAL_AS_FLOAT:
        names["real"] = "float"
    if server.mariadb:
        names["json"] = "longtext"
        if sql_mode & ORACLE:
            names |= _ORACLE_NAMES
        if sql_mode & MAXDB:
            names["timestamp"] = "datetime"
    sizes = {charset: char_bytes(charset) for charset in CHARSETS}
    sizes["utf8"] = sizes[server.utf8]
    return Rules(char_bytes=sizes, names=names, unread=_UNREAD, attributes=_attributes(server), finish=_finish)


def resolved_charset(word: str, server: Server) -> str:
    """`utf8mb3` for `utf8`, `UTF8_general_ci`, `utf8mb3_bin`; "" for a collation that fits several."""
    word = word.lower()
    charset = word.partition("_")[0]
    if charset == "utf8":
        return server.utf8
    if charset in CHARSETS:
        return charset
    if word.startswith("uca1400_") or word == "default":
        return ""
    raise BadDdl(f"the character set or collation {word!r} is not known")


def _attributes(server: Server) -> dict[str, Attribute]:
    def note(name: str) -> Attribute:
        return lambda draft, words: draft.notes.__setitem__(name, True)

    def charset(draft: Draft, words: Words) -> None:
        words.skip("=")
        draft.charset = resolved_charset(words.take().value, server) or draft.charset

    def character(draft: Draft, words: Words) -> None:
        words.skip("set")
        charset(draft, words)

    of_server: dict[str, Attribute] = {
        **dict.fromkeys(("charset", "collate"), charset),
        **dict.fromkeys(("character", "char"), character),
        **dict.fromkeys(("srid", "ref_system_id", "engine_attribute", "secondary_engine_attribute"), _pass_one),
        **dict.fromkeys(("generated", "as"), _generated),
        "auto_increment": note("auto_increment"),
        "null": note("null"),
        "invisible": note("invisible"),
        "not": _not,
        "default": _default,
        "on": _on,
        "references": _references,
        "compressed": _compressed,
        "with": _versioning,
        "without": _versioning,
    }
    return of_server


def _finish(draft: Draft) -> None:
    if draft.declared == "serial":
        draft.notes["auto_increment"] = True


def _pass_one(draft: Draft, words: Words) -> None:
    words.skip("=")
    words.take()


def _not(draft: Draft, words: Words) -> None:
    if words.skip("null"):
        draft.notes["not null"] = True
        draft.set(nullable=False)
    elif not words.skip_one("enforced", "secondary"):
        raise words.refuse("has the word 'not' without 'null'")


def _default(draft: Draft, words: Words) -> None:
    draft.notes["default"] = take_default(words)


def _generated(draft: Draft, words: Words) -> None:
    words.skip("always")
    words.skip("as")
    draft.notes["generated"] = True
    if words.skip("row"):  # system versioning: a time that the server sets
        words.take()
        draft.set(nullable=False)
        return
    words.items()
    stored = words.skip_one("stored", "persistent")
    words.skip("virtual")
    draft.set(virtual=not stored)


def _on(draft: Draft, words: Words) -> None:
    """`on update now(3)` of a time. `on delete` belongs to a reference, which takes it."""
    words.take()
    words.take()
    words.items()


def _references(draft: Draft, words: Words) -> None:
    """All tokens of the reference, for whoever reads foreign keys."""
    found: list[Token] = [words.take()]
    while words.peek("."):
        found += [words.take(), words.take()]
    if words.peek("("):
        depth = 0
        while True:
            found.append(words.take())
            depth += (found[-1].lower == "(") - (found[-1].lower == ")")
            if not depth:
                break
    while words.peek("match") or words.peek("on", "delete") or (words.peek("on", "update") and _is_action(words)):
        found += _action(words)
    draft.notes["references"] = Words(words.text, tokens=found)


def _is_action(words: Words) -> bool:
    return words.ahead(2).lower in ("cascade", "restrict", "set", "no")


def _action(words: Words) -> list[Token]:
    found = [words.take(), words.take()]
    if found[0].lower == "on":
        found.append(words.take())
        if found[-1].lower in ("set", "no"):
            found.append(words.take())
    return found


def _compressed(draft: Draft, words: Words) -> None:
    if words.skip("="):
        words.take()
    draft.notes["compressed"] = True


def _versioning(draft: Draft, words: Words) -> None:
    if not words.skip("system", "versioning"):
        raise words.refuse("has the word 'with' or 'without' before something other than system versioning")
