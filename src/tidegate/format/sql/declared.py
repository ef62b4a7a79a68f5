"""Reads table definitions in SQL: `id int(10) unsigned NOT NULL PRIMARY KEY` becomes a `Column`, by TiDB's rules.

Each text is a column definition or a key clause of a CREATE TABLE, or a type as `information_schema.columns` shows it.
Clauses that do not affect rows (indexes that are not unique, foreign keys, checks) are ignored. An unknown word is
refused, and the message names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tidegate.errors import BadEvents
from tidegate.format.sql.definitions import read_column
from tidegate.format.sql.words import Token, Words
from tidegate.format.tables import Column, Layout

_CLAUSES = ("primary", "unique", "key", "index", "fulltext", "spatial", "foreign", "check", "constraint")
# Words that may follow a key's columns, and how many more words belong to each.
_KEY_OPTIONS = dict.fromkeys(
    ("clustered", "nonclustered", "visible", "invisible", "global", "local"), 0
) | dict.fromkeys(("using", "comment", "key_block_size"), 1)


class _Key(NamedTuple):
    """`kind` is primary or unique."""

    kind: str
    names: tuple[str, ...]
    text: str


def declared_layout(definitions: Sequence[str | Column]) -> Layout:
    """The layout of a table with these columns and keys. A key may be an entry of its own: `PRIMARY KEY (a, b)`."""
    columns: list[Column] = []
    keys: list[_Key] = []
    own_keys: list[_Key] = []
    for definition in definitions:
        if isinstance(definition, Column):
            columns.append(definition)
        elif _is_clause(words := Words(definition)):
            keys += _keys(words)
        else:
            draft = read_column(words)
            columns.append(draft.column)
            own_keys += [_Key("unique", (draft.column.name,), definition)] if draft.unique else []
    return _layout(columns, [*keys, *own_keys])  # TiDB gives the keys of clauses the lower index ids


def declared_column(definition: str) -> Column:
    """`declared_column("c varchar(30) not null")` is `Column("c", "varchar", flen=30, nullable=False)`."""
    return read_column(Words(definition)).column


def _layout(columns: Sequence[Column], keys: Sequence[_Key]) -> Layout:
    names = _names(columns)
    found = [key._replace(names=_column_names(key, names)) for key in keys]
    primary = [key for key in found if key.kind == "primary"]
    if len(primary) + any(column.pk for column in columns) > 1:
        raise BadEvents(f"the table has two primary keys; one is {primary[-1].text!r}")
    in_key = {name for key in primary for name in key.names}
    return Layout(
        tuple(_placed(column, at, in_key) for at, column in enumerate(columns, start=1)),
        tuple(key.names for key in found if key.kind == "unique"),
    )


def _names(columns: Sequence[Column]) -> dict[str, str]:
    """The names of the columns by their lower-case form, because SQL ignores case."""
    names: dict[str, str] = {}
    for column in columns:
        if column.name.lower() in names:
            raise BadEvents(f"two columns are called {column.name!r}; names are compared without case")
        names[column.name.lower()] = column.name
    return names


def _column_names(key: _Key, names: dict[str, str]) -> tuple[str, ...]:
    if unknown := [name for name in key.names if name.lower() not in names]:
        raise BadEvents(f"the key {key.text!r} names {unknown[0]!r}, which is not a column of its table")
    return tuple(names[name.lower()] for name in key.names)


def _placed(column: Column, number: int, primary: set[str]) -> Column:
    """The column with its place in the table as its id, unless it has an id, and with `pk` set if it is in the key."""
    column = column if column.id is not None else replace(column, id=number)
    return replace(column, pk=True, nullable=False) if column.name in primary else column


def _is_clause(words: Words) -> bool:
    return any(words.peek(word) for word in _CLAUSES) or words.peek("vector", "index")


def _keys(words: Words) -> list[_Key]:
    """The primary or unique key of a clause as a list of one; an empty list if the clause does not affect rows."""
    if words.skip("constraint") and not _is_clause(words):
        words.take()  # its name
    kind = next((kind for kind in ("primary", "unique") if words.skip(kind)), None)
    if kind is None:
        if not _is_clause(words):
            raise words.refuse("is not a key, an index or a check")
        return []
    while words and not words.peek("("):
        words.take()  # key or index, and its name
    names = tuple(_part(token, words) for token in words.group())
    if not names:
        raise words.refuse("is a key that names no column")
    _pass_options(words)
    return [_Key(kind, names, words.text)]


def _part(token: Token, words: Words) -> str:
    if token.kind not in ("word", "name"):
        raise words.refuse("is a key over an expression, whose values change events do not have: leave it out")
    return token.value


def _pass_options(words: Words) -> None:
    while words:
        word = words.take().value.lower()
        if word not in _KEY_OPTIONS:
            raise words.refuse(f"has the unknown word {word!r}")
        words.skip("=")
        for _ in range(_KEY_OPTIONS[word]):
            words.take()
