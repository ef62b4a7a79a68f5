"""Options of a table and clauses about partitions, which end a CREATE TABLE or stand in an ALTER TABLE.

Options need no commas between them, and servers have many. Only those that decide columns or rows are looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.format.sql.words import Token, Words
from tidegate.sources.mysql.catalogue import Server
from tidegate.sources.mysql.ddl.columns import resolved_charset


@dataclass(frozen=True)
class Options:
    """`convert` is the character set to which all texts are converted; "default" is the database's."""

    charset: str = ""
    convert: str = ""
    engine: str = ""
    versioned: bool = False
    sequence: bool = False
    select: bool = False
    partitioned: bool = False
    named: frozenset[str] = frozenset()


def read_options(tokens: Sequence[Token], server: Server) -> Options:
    """The options among these tokens, those in parentheses left out."""
    words = Words("", tokens=top_level(tokens))
    charset = collation = convert = engine = ""
    named: set[str] = set()
    flags = dict.fromkeys(("versioned", "sequence", "select", "partitioned"), False)
    while words:
        if words.skip("convert", "to") and words.skip_one("character", "charset", "char"):
            words.skip("set")
            convert = _value(words)
            if words.skip("collate") and convert.lower() == "default":
                convert = _value(words)
            named.add("charset")
        elif words.skip("partition", "by"):
            flags["partitioned"] = True
            break
        elif words.skip_one("charset") or words.skip("character", "set") or words.skip("char", "set"):
            charset = _value(words)
            named.add("charset")
        elif words.skip("collate"):
            collation = _value(words)
            named.add("charset")
        elif words.skip("engine") or words.skip("type"):
            engine = _value(words)
        elif words.skip("with", "system", "versioning"):
            flags["versioned"] = True
        elif words.skip("sequence"):
            flags["sequence"] = _value(words) == "1"
        elif words.peek("select") or words.peek("values") or words.peek("with"):
            flags["select"] = True
            break
        else:
            named.add(words.take().lower)
    given = (charset if charset.lower() != "default" else "") or collation
    known = resolved_charset(given, server) if given else ""
    if convert and convert.lower() != "default":
        convert = resolved_charset(convert, server)
    return Options(known, convert.lower(), engine, named=frozenset(named), **flags)


def _value(words: Words) -> str:
    words.skip("=")
    return words.take().value


def top_level(tokens: Sequence[Token]) -> list[Token]:
    """Those that are in no parentheses."""
    found, depth = [], 0
    for token in tokens:
        depth -= token.lower == ")"
        if not depth and token.lower != ")":
            found.append(token)
        depth += token.lower == "("
    return [token for token in found if token.lower != "("]
