"""Reads one column definition of a CREATE TABLE: its type, lengths and attributes.

c int unsigned zerofill                Column("c", "int", unsigned=True, zerofill=True)
c text(20)                             Column("c", "tinytext"), because 20 letters fit into it
c char(3) charset binary               Column("c", "char", 3, binary=True), which is BINARY(3)

`Rules` say what differs between TiDB, whose rules are the usual ones, and other servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.format.sql.defaults import stored_default
from tidegate.format.sql.words import Token, Words
from tidegate.format.tables import Column

# Types of more than one word. If one is the beginning of another, the longer one comes first.
_PHRASES = {
    "national character varying": "varchar", "national char varying": "varchar", "national varcharacter": "varchar",
    "national varchar": "varchar", "national character": "char", "national char": "char", "nchar varying": "varchar",
    "nchar varchar": "varchar", "nchar varcharacter": "varchar", "character varying": "varchar",
    "char varying": "varchar", "double precision": "double", "long char varying": "mediumtext",
    "long varchar": "mediumtext", "long varcharacter": "mediumtext", "long varbinary": "mediumblob",
    "long": "mediumtext",
}  # fmt: skip
_PHRASE_STARTS = frozenset(phrase.split()[0] for phrase in _PHRASES)
_ALIASES = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
    "int4": "int", "int8": "bigint", "numeric": "decimal", "dec": "decimal", "fixed": "decimal", "real": "double",
    "float4": "float", "float8": "double", "character": "char", "nchar": "char", "nvarchar": "varchar",
    "varcharacter": "varchar", "bool": "tinyint", "boolean": "tinyint", "serial": "bigint",
}  # fmt: skip
_BINARY_TYPES = {"binary": "char", "varbinary": "varchar"} | {
    f"{size}blob": f"{size}text" for size in ("tiny", "", "medium", "long")
}
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_SIGNED_TYPES = (*_INTEGERS, "float", "double", "decimal", "year")
_STRINGS = ("char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext")
_WITH_FSP = ("datetime", "timestamp", "time")
_ALWAYS_UNSIGNED = ("bit", "year")  # TiDB sets the flag on both
_WITHOUT_LENGTH = ("date", "json")
_TWO_LENGTHS = ("decimal", "float", "double")
_MOST = {"bit": 64, "decimal": 65, "year": 4, "char": 255} | dict.fromkeys(_WITH_FSP, 6) | dict.fromkeys(_INTEGERS, 255)
_MOST_SCALE = 30
_FLOAT_BITS, _DOUBLE_BITS = 24, 53
_CHAR_BYTES = {"binary": 1, "ascii": 1, "latin1": 1, "gbk": 2, "ucs2": 2, "utf8": 3, "utf8mb3": 3} | dict.fromkeys(
    ("utf8mb4", "gb18030"), 4
)
_TEXT_SIZES = {"tinytext": 255, "text": 65535, "mediumtext": 16777215, "longtext": 4294967295}


Attribute = Callable[["Draft", Words], None]


@dataclass(frozen=True)
class Rules:
    """How a server reads definitions.

    `charset` is of a column that names none, `char_bytes` are the character sets with the bytes of a letter, `names`
    are other names of types, `unread` are types that no layout has, `attributes` come before the usual ones. `finish`
    is called at the end of a definition.
    """

    charset: str = "utf8mb4"
    char_bytes: Mapping[str, int] = field(default_factory=lambda: _CHAR_BYTES)
    names: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    finish: Callable[[Draft], None] = lambda draft: None


@dataclass
class Draft:
    """A column while its definition is read. `declared` is the type as the definition names it."""

    column: Column
    rules: Rules
    charset: str
    declared: str = ""
    unique: bool = False
    has_default: bool = False
    notes: dict[str, Any] = field(default_factory=dict)  # what attributes of other servers say

    def set(self, **changes: Any) -> None:
        self.column = replace(self.column, **changes)


def read_column(words: Words, rules: Rules | None = None) -> Draft:
    name = words.take()
    if not name.is_name:
        raise words.refuse("must begin with a column name")
    draft = _typed(name.value, words, rules or TIDB)
    while words:
        _read_attribute(draft, words)
    _finish(draft)
    return draft


def _typed(name: str, words: Words, rules: Rules) -> Draft:
    declared = ""
    if words.ahead().lower in _PHRASE_STARTS:
        declared = next((kind for phrase, kind in _PHRASES.items() if words.skip(*phrase.split())), "")
    declared = declared or words.take().lower
    declared = rules.names.get(declared, declared)
    if declared in rules.unread:
        words.items()
        return Draft(Column(name, "unspecified"), rules, rules.charset, declared)
    kind = _BINARY_TYPES.get(declared) or _ALIASES.get(declared, declared)
    if kind == "vector":
        words.skip("<", "float", ">")
    column = Column(name, kind, unsigned=kind in _ALWAYS_UNSIGNED)
    draft = Draft(column, rules, "binary" if declared in _BINARY_TYPES else rules.charset, declared)
    draft.set(binary=declared in _BINARY_TYPES)
    if kind in ("enum", "set"):
        draft.set(elems=_elements(words))
    elif declared in ("bool", "boolean"):
        draft.set(flen=1)
    elif declared == "serial":
        draft.set(unsigned=True, nullable=False)
        draft.unique = True
    else:
        _size(draft, words)
    return draft


def _elements(words: Words) -> tuple[str, ...]:
    """TiDB removes spaces at the end of an element."""
    tokens = words.group()
    if not tokens or any(token.kind not in ("text", "literal") for token in tokens):
        raise words.refuse("needs its elements as quoted texts in parentheses")
    return tuple(token.text.rstrip(" ") for token in tokens)


def _size(draft: Draft, words: Words) -> None:
    kind = draft.column.type
    sizes = [_number(token, words) for token in words.group()]
    allowed = 0 if kind in _WITHOUT_LENGTH else 2 if kind in _TWO_LENGTHS else 1
    if len(sizes) > allowed:
        raise words.refuse(f"has {len(sizes)} numbers in parentheses; {kind} takes {allowed}")
    if sizes and sizes[0] > _MOST.get(kind, sizes[0]):
        raise words.refuse(f"has the length {sizes[0]}; the largest of {kind} is {_MOST[kind]}")
    if kind in _WITH_FSP:
        draft.set(decimals=sizes[0] if sizes else None)
    elif kind in ("float", "double") and len(sizes) == 1:
        _set_float_bits(draft, sizes[0], words)
    else:
        _set_lengths(draft, sizes, words)


def _number(token: Token, words: Words) -> int:
    if not (token.value.isascii() and token.value.isdecimal()):
        raise words.refuse(f"has {token.value!r} where a length should be")
    return int(token.value)


def _set_float_bits(draft: Draft, bits: int, words: Words) -> None:
    """In `float(30)` the number is a precision in bits: it decides the type and is not stored."""
    if draft.column.type == "double" or bits > _DOUBLE_BITS:
        raise words.refuse(f"has one length, {bits}; only float takes one, up to {_DOUBLE_BITS}, others need two")
    draft.set(type="double" if bits > _FLOAT_BITS else "float")


def _set_lengths(draft: Draft, sizes: Sequence[int], words: Words) -> None:
    length, scale = (*sizes, None, None)[:2]
    if length is not None and scale is not None and scale > min(length, _MOST_SCALE):
        raise words.refuse(f"has {scale} digits after the point; at most {min(length, _MOST_SCALE)} fit")
    if draft.column.type == "bit" and length == 0:
        raise words.refuse("has the length 0; a bit column holds 1 to 64")
    draft.set(flen=length, decimals=scale)


def _finish(draft: Draft) -> None:
    """Set what depends on the whole definition."""
    column = draft.column
    if draft.charset == "binary" and column.type in _STRINGS:
        draft.set(binary=True)
    if column.type == "text" and column.flen is not None:
        most_bytes = column.flen * draft.rules.char_bytes[draft.charset]
        draft.set(type=next((kind for kind, most in _TEXT_SIZES.items() if most_bytes <= most), "longtext"), flen=None)
    draft.rules.finish(draft)


def _year_of_tidb(draft: Draft) -> None:
    if draft.column.type == "year" and not draft.column.nullable and not draft.has_default:
        draft.set(default="0000")


# Attributes ---------------------------------------------------------------------------------------------------------


def _read_attribute(draft: Draft, words: Words) -> None:
    token = words.take()
    reader = draft.rules.attributes.get(token.lower) or _ATTRIBUTES.get(token.lower)
    if reader is None:
        raise words.refuse(f"has the unknown word {token.value!r}")
    reader(draft, words)


def _unsigned(draft: Draft, words: Words) -> None:
    if draft.column.type not in _SIGNED_TYPES:
        raise words.refuse(f"is unsigned or zerofill; {draft.column.type} cannot be")
    draft.set(unsigned=True)


def _zerofill(draft: Draft, words: Words) -> None:
    _unsigned(draft, words)
    draft.set(zerofill=draft.column.type != "year")


def _not(draft: Draft, words: Words) -> None:
    if words.skip("null"):
        draft.set(nullable=False)
    elif not words.skip("enforced"):
        raise words.refuse("has the word 'not' without 'null'")


def _primary(draft: Draft, words: Words) -> None:
    words.skip("key")
    draft.set(pk=True, nullable=False)


def _unique(draft: Draft, words: Words) -> None:
    words.skip("key")
    draft.unique = True


def _serial(draft: Draft, words: Words) -> None:
    if not words.skip("default", "value"):
        raise words.refuse("has the word 'serial' without 'default value'")
    draft.set(nullable=False)
    draft.unique = True


def _set_charset(draft: Draft, charset: str, words: Words) -> None:
    known = draft.rules.char_bytes
    if charset not in known:
        raise words.refuse(f"has the unknown charset {charset!r}; known: {', '.join(known)}")
    draft.charset = charset


def _charset(draft: Draft, words: Words) -> None:
    words.skip("=")
    _set_charset(draft, words.take().value.lower(), words)


def _character(draft: Draft, words: Words) -> None:
    if not words.skip("set"):
        raise words.refuse("has the word 'character' without 'set'")
    _charset(draft, words)


def _collate(draft: Draft, words: Words) -> None:
    words.skip("=")
    _set_charset(draft, words.take().value.lower().partition("_")[0], words)


def _of_charset(charset: str) -> Attribute:
    return lambda draft, words: _set_charset(draft, charset, words)


def _default(draft: Draft, words: Words) -> None:
    draft.set(default=stored_default(draft.column, words))
    draft.has_default = True


def _generated(draft: Draft, words: Words) -> None:
    if not words.skip("always", "as"):
        raise words.refuse("has the word 'generated' without 'always as'")
    _as(draft, words)


def _as(draft: Draft, words: Words) -> None:
    words.group()
    stored = words.skip("stored")
    words.skip("virtual")
    draft.set(virtual=not stored)


def _on(draft: Draft, words: Words) -> None:
    """`on update now(3)`, `on delete set null`: does not affect the encoded rows."""
    words.take()
    if words.take().value.lower() in ("set", "no"):
        words.take()
    words.group()


def _references(draft: Draft, words: Words) -> None:
    words.take()
    while words and not words.peek("(") and not words.peek("on"):
        words.take()
    words.group()


def _constraint(draft: Draft, words: Words) -> None:
    if not words.peek("check"):
        words.take()


def _pass(draft: Draft, words: Words) -> None:
    """A word without arguments that changes nothing here."""


def _pass_one(draft: Draft, words: Words) -> None:
    words.skip("=")
    words.take()


def _pass_group(draft: Draft, words: Words) -> None:
    words.group()


_ATTRIBUTES: dict[str, Attribute] = {
    "unsigned": _unsigned,
    "zerofill": _zerofill,
    "not": _not,
    "primary": _primary,
    "key": _primary,
    "unique": _unique,
    "serial": _serial,
    "charset": _charset,
    "character": _character,
    "char": _character,
    "collate": _collate,
    "ascii": _of_charset("latin1"),
    "unicode": _of_charset("ucs2"),
    "byte": _of_charset("binary"),
    "default": _default,
    "generated": _generated,
    "as": _as,
    "on": _on,
    "references": _references,
    "constraint": _constraint,
    "match": _pass_one,
    "check": _pass_group,
    "auto_random": _pass_group,
    **dict.fromkeys(("comment", "column_format", "storage"), _pass_one),
    **dict.fromkeys(("signed", "null", "auto_increment", "visible", "invisible", "binary", "enforced"), _pass),
    **dict.fromkeys(("clustered", "nonclustered"), _pass),
}
TIDB = Rules(finish=_year_of_tidb)
