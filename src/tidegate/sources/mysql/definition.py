"""A table as its server defines it: what later DDLs refer to, and what decides how its rows are written.

The column layout of the events follows from it (`Definition.layout`). Character sets, names of keys, the engine and
foreign keys are in no layout, but a later statement may depend on them: `MODIFY c text(300)` becomes a TEXT or a
MEDIUMTEXT by the character set of the table, `DROP KEY u` names a key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from tidegate.format.tables import Column, Layout

PRIMARY, UNIQUE, INDEX = "primary", "unique", "index"

T = TypeVar("T")


@dataclass(frozen=True)
class ServerColumn:
    """A column, and what its layout does not say.

    `charset` is of texts, ENUM and SET. `unread` says why its values cannot be followed: `uuid, which has no place in
    TiCDC's format`.
    """

    column: Column
    charset: str = ""
    generated: bool = False
    invisible: bool = False
    unread: str = ""

    @property
    def name(self) -> str:
        return self.column.name


@dataclass(frozen=True)
class Key:
    """An index by its name on the server. Parts over an expression have no column and are left out of `columns`.

    `generated`: the server made it for a foreign key, and drops it as soon as another one serves.
    """

    name: str
    kind: str
    columns: tuple[str, ...] = ()
    expressions: bool = False
    generated: bool = False


@dataclass(frozen=True)
class ForeignKey:
    """`on_delete` and `on_update` are `CASCADE`, `SET NULL`, `SET DEFAULT` or `RESTRICT`, which is also NO ACTION."""

    name: str
    columns: tuple[str, ...]
    database: str
    table: str
    on_delete: str = "RESTRICT"
    on_update: str = "RESTRICT"


@dataclass(frozen=True)
class Definition:
    """Columns in table order. `last_id` is the largest id that a column ever had, so that ids are not used again.

    `unread` says why the columns are not known, which may be so for a table that nobody follows. `sequence` is a
    sequence of MariaDB, which its log shows as a table.
    """

    columns: tuple[ServerColumn, ...] = ()
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    charset: str = "utf8mb4"
    engine: str = "InnoDB"
    partitioned: bool = False
    versioned: bool = False
    sequence: bool = False
    last_id: int = 0
    unread: str = ""

    @cached_property
    def layout(self) -> Layout:
        """The columns of the events. Unique keys are in the order of their names: that order is known everywhere."""
        primary = {name for key in self.keys if key.kind == PRIMARY for name in key.columns}
        columns = (replace(each.column, pk=each.name in primary) for each in self.columns)
        unique = [key for key in self.keys if key.kind == UNIQUE and key.columns and not key.expressions]
        return Layout(tuple(columns), tuple(key.columns for key in sorted(unique, key=lambda key: key.name)))

    def to_json(self) -> str:
        """`{"columns":{...},"charsets":["",...],...}`; `from_json` undoes it exactly."""
        return json.dumps(_shape(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Definition:
        return _of_shape(json.loads(text))


def _shape(of: Definition) -> dict[str, Any]:
    shape = _set(of)
    shape["columns"] = json.loads(Layout(tuple(each.column for each in of.columns)).to_json())["columns"]
    for at, each in enumerate(of.columns):
        shape["columns"][at] |= {"of_server": more} if (more := _set(replace(each, column=None))) else {}  # type: ignore[arg-type]
    shape["keys"] = [_set(key) for key in of.keys]
    shape["foreign_keys"] = [_set(key) for key in of.foreign_keys]
    return {name: value for name, value in shape.items() if value != []}


def _set(value: Any) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    given = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: item for field, item in given if item is not None and item != field.default}


def _of_shape(shape: dict[str, Any]) -> Definition:
    more = [entry.pop("of_server", {}) for entry in shape.get("columns", ())]
    layout = Layout.from_json(json.dumps({"columns": shape.get("columns", [])}))
    columns = (ServerColumn(column, **of) for column, of in zip(layout.columns, more, strict=True))
    lists = {
        "columns": tuple(columns),
        "keys": tuple(_read(Key, each) for each in shape.get("keys", ())),
        "foreign_keys": tuple(_read(ForeignKey, each) for each in shape.get("foreign_keys", ())),
    }
    return Definition(**shape | lists)


def _read(kind: type[T], shape: dict[str, Any]) -> T:
    return kind(**shape | {"columns": tuple(shape.get("columns", ()))})
