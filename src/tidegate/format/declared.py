"""Columns as SQL declares them: `id int(10) unsigned NOT NULL PRIMARY KEY` becomes a `Column` with TiDB's rules.

It reads column definitions and key clauses of a CREATE TABLE, one text each, and the types that
`information_schema.columns.column_type` shows. What it does not know it refuses, naming the word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidegate.errors import BadEvents
from tidegate.format.tables import Column, Layout

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>`(?:[^`]|``)*`)|(?P<text>[xXbB]?'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")"""
    r"""|(?P<word>[\w$.+-]+)|(?P<mark>\S))""",
    re.DOTALL,
)
_ALIASES = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
    "int4": "int", "int8": "bigint", "numeric": "decimal", "dec": "decimal", "fixed": "decimal", "real": "double",
    "float4": "float", "float8": "double", "character": "char", "nchar": "char", "nvarchar": "varchar",
}  # fmt: skip
_BINARY_TYPES = {"binary": "char", "varbinary": "varchar"} | {
    f"{size}blob": f"{size}text" for size in ("tiny", "", "medium", "long")
}
_WITH_FSP = ("datetime", "timestamp", "time")
_ALWAYS_UNSIGNED = ("bit", "year")  # TiDB sets the flag on both
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a"}
# Attributes that change nothing here, with the number of words after them that belong to them.
_IGNORED = {"auto_increment": 0, "comment": 1, "collate": 1, "invisible": 0, "visible": 0, "column_format": 1}
_KEY_WORDS = {"primary", "unique", "key", "index", "constraint"}


class _Token(NamedTuple):
    kind: str  # name (in backquotes), text, word or mark
    value: str


class _Words:
    """The tokens of one definition, taken from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._tokens)

    def take(self) -> _Token:
        if not self:
            raise BadEvents(f"the column definition {self.text!r} ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these words or marks."""
        ahead = self._tokens[self._at : self._at + len(words)]
        return [t.value.lower() for t in ahead if t.kind in ("word", "mark")] == list(words)

    def skip(self, *words: str) -> bool:
        found = self.peek(*words)
        self._at += len(words) if found else 0
        return found

    def group(self) -> list[_Token]:
        """The first token of every item in the parentheses that open here; none if none do."""
        found: list[_Token] = []
        depth, begins = int(self.skip("(")), True
        while depth:
            token = self.take()
            if begins and token != _CLOSE:
                found.append(token)
            depth += (token == _OPEN) - (token == _CLOSE)
            begins = depth == 1 and token == _COMMA
        return found


_OPEN, _CLOSE, _COMMA = (_Token("mark", mark) for mark in "(),")


def declared_layout(definitions: Sequence[str | Column]) -> Layout:
    """The layout of a table whose columns and keys are declared so; `PRIMARY KEY (a, b)` stands among them."""
    columns: list[Column] = []
    primary: tuple[str, ...] = ()
    unique: list[tuple[str, ...]] = []
    for definition in definitions:
        if isinstance(definition, Column):
            columns.append(definition)
        elif key := _key(definition):
            kind, names = key
            if kind == "primary":
                primary = names
            else:
                unique.append(names)
        else:
            column, is_unique = _declared(definition)
            columns.append(column)
            if is_unique:
                unique.append((column.name,))
    if unknown := set(primary) - {column.name for column in columns}:
        raise BadEvents(f"the primary key names {min(unknown)!r}, which is no column of its table")
    return Layout(
        tuple(_numbered(_in_key(column, primary), at) for at, column in enumerate(columns, start=1)), tuple(unique)
    )


def declared_column(definition: str) -> Column:
    """`declared_column("c varchar(30) not null")` is `Column("c", "varchar", flen=30, nullable=False)`."""
    return _declared(definition)[0]


def _in_key(column: Column, primary: tuple[str, ...]) -> Column:
    return replace(column, pk=True, nullable=False) if column.name in primary else column


def _numbered(column: Column, number: int) -> Column:
    return column if column.id is not None else replace(column, id=number)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadEvents(f"the column definition {text!r} cannot be read from {text[at : at + 20]!r} on")
        kind = match.lastgroup or ""
        value = match[kind]
        yield _Token(kind, value[1:-1].replace("``", "`") if kind == "name" else value)
        at = match.end()


def _key(definition: str) -> tuple[str, tuple[str, ...]] | None:
    """`("primary", ("a", "b"))` or `("unique", ...)` of a key clause; None for a column definition."""
    words = _Words(definition)
    if not any(words.peek(word) for word in _KEY_WORDS):
        return None
    if words.skip("constraint") and not (words.peek("primary") or words.peek("unique")):
        words.take()
    kind = "primary" if words.skip("primary") else "unique" if words.skip("unique") else ""
    if not kind:
        raise BadEvents(f"{definition!r} is no unique key and says nothing about rows: leave it out")
    if not words.skip("key"):
        words.skip("index")
    if not words.peek("("):
        words.take()
    names = tuple(token.value for token in words.group())
    if not names:
        raise BadEvents(f"the key {definition!r} names no column")
    return kind, names


def _declared(definition: str) -> tuple[Column, bool]:
    words = _Words(definition)
    name = words.take()
    if name.kind not in ("word", "name"):
        raise BadEvents(f"the column definition {definition!r} must begin with a name")
    column = _typed(name.value, words)
    unique = False
    while words:
        column, more = _attribute(column, words)
        unique |= more
    return column, unique


def _typed(name: str, words: _Words) -> Column:
    declared = words.take().value.lower()
    if declared in ("bool", "boolean"):
        return Column(name, "tinyint", flen=1)
    words.skip("precision")  # double precision
    if declared in ("char", "character") and words.skip("varying"):
        declared = "varchar"
    binary = declared in _BINARY_TYPES
    kind = _BINARY_TYPES.get(declared) or _ALIASES.get(declared, declared)
    arguments = words.group()
    column = Column(name, kind, binary=binary, unsigned=kind in _ALWAYS_UNSIGNED)
    if kind in ("enum", "set"):
        return replace(column, elems=tuple(_unquoted(token.value) for token in arguments))
    sizes = [_size(token, words.text) for token in arguments]
    if kind in _WITH_FSP:
        return replace(column, decimals=sizes[0] if sizes else None)
    if kind in ("float", "double") and len(sizes) == 1:  # a precision in bits, which decides the type alone
        return replace(column, type="double" if sizes[0] > 24 else kind)
    return replace(column, flen=sizes[0] if sizes else None, decimals=sizes[1] if len(sizes) > 1 else None)


def _size(token: _Token, text: str) -> int:
    if not token.value.isdecimal():
        raise BadEvents(f"the column definition {text!r} has {token.value!r} where a length should stand")
    return int(token.value)


def _attribute(column: Column, words: _Words) -> tuple[Column, bool]:
    """The column with the next attribute, and whether it makes the column a unique key."""
    if words.skip("unsigned"):
        return replace(column, unsigned=True), False
    if words.skip("zerofill"):
        return replace(column, zerofill=True, unsigned=True), False
    if words.skip("not", "null"):
        return replace(column, nullable=False), False
    if words.skip("null") or words.skip("signed"):
        return column, False
    if words.skip("primary", "key") or words.skip("primary") or words.skip("key"):
        return replace(column, pk=True, nullable=False), False
    if words.skip("unique", "key") or words.skip("unique"):
        return column, True
    if words.skip("character", "set") or words.skip("charset"):
        words.skip("=")
        binary = words.take().value.lower() == "binary"
        return replace(column, binary=column.binary or binary), False
    return _rare_attribute(column, words), False


def _rare_attribute(column: Column, words: _Words) -> Column:
    if words.skip("default"):
        return replace(column, default=_default(column, words))
    if words.skip("on", "update"):
        words.take()
        words.group()
        return column
    if words.skip("generated", "always", "as") or words.skip("as"):
        words.group()
        stored = words.skip("stored")
        words.skip("virtual")
        return replace(column, virtual=not stored)
    word = words.take().value.lower()
    if word not in _IGNORED:
        raise BadEvents(f"the column definition {words.text!r} has the unknown word {word!r}")
    for _ in range(_IGNORED[word]):
        words.take()
    return column


def _default(column: Column, words: _Words) -> object:
    """What TiDB keeps of a default: nearly always its text."""
    token = words.take()
    if token.kind == "word":
        word = token.value.lower()
        if word in ("current_timestamp", "now"):
            size = words.group()
            return "CURRENT_TIMESTAMP" + (f"({size[0].value})" if size else "")
        return None if word == "null" else {"true": "1", "false": "0"}.get(word, token.value)
    if column.type == "bit" and token.value[:1] in "bB":
        bits = token.value[2:-1]
        return int(bits or "0", 2).to_bytes(max(1, (len(bits) + 7) // 8), "big").decode("utf-8", "surrogateescape")
    return _unquoted(token.value)


def _unquoted(text: str) -> str:
    quote = text[-1]
    inner = text[text.index(quote) + 1 : -1].replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), inner, flags=re.DOTALL)
