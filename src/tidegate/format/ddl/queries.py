"""The text of a DDL as the schema file shows it.

DROP TABLE, DROP VIEW, RENAME TABLE and EXCHANGE PARTITION are built with full names. Each part of a DDL of several
tables ends with `;`. TiCDC prints all other statements again with TiDB's parser. Here only a plain CREATE TABLE is
printed again, and only if its text is certain. All other statements keep the text of the source, which is also what
TiCDC does with a statement that it cannot parse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidegate.errors import BadEvents

Name = tuple[str, str]

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_FULL_NAME = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_IF = r"(?:\s+IF\s+(?:NOT\s+)?EXISTS)?"
# ALTER DATABASE without a name means the current database; then an option follows.
_ALTER_DATABASE = r"ALTER\s+(?:DATABASE|SCHEMA)(?!\s+(?:DEFAULT|CHARACTER|CHARSET|COLLATE|ENCRYPTION|PLACEMENT|SET)\b)"
_VIEW_OPTIONS = (
    r"(?:OR\s+REPLACE\s+)?(?:ALGORITHM\s*=\s*\w+\s+)?"
    r"(?:DEFINER\s*=\s*\S+(?:\s*@\s*\S+)?\s+)?(?:SQL\s+SECURITY\s+\w+\s+)?"
)
_HEAD = re.compile(
    rf"\s*(?:(?:CREATE|ALTER|TRUNCATE|RECOVER)\s+TABLE{_IF}|TRUNCATE|(?:CREATE|DROP)\s+(?:DATABASE|SCHEMA){_IF}|{_ALTER_DATABASE}"
    rf"|CREATE\s+{_VIEW_OPTIONS}VIEW|(?:CREATE|DROP)\s+(?:\w+\s+)?INDEX{_IF}\s+{_NAME}(?:\s+USING\s+\w+)?\s+ON)"
    rf"(?:\s+|(?=`))(?P<name>{_FULL_NAME})",
    re.IGNORECASE,
)
_EXCHANGE = re.compile(
    rf"\s*ALTER\s+TABLE\s+{_FULL_NAME}\s+EXCHANGE\s+PARTITION\s+(?P<partition>{_NAME})\s+WITH\s+TABLE\s+{_FULL_NAME}"
    r"(?:\s+(?:WITH|(?P<without>WITHOUT))\s+VALIDATION)?[\s;]*",
    re.IGNORECASE,
)


def quoted(name: str) -> str:
    """`` `a``b` `` for ``a`b``."""
    return "`" + name.replace("`", "``") + "`"


def full_name(name: Name) -> str:
    """`` `shop`.`orders` ``; a database has table ""."""
    return ".".join(quoted(part) for part in name if part)


def drop_table_query(name: Name) -> str:
    return f"DROP TABLE {full_name(name)}"


def drop_view_query(name: Name) -> str:
    return f"DROP VIEW {full_name(name)}"


def rename_query(old: Name, new: Name) -> str:
    return f"RENAME TABLE {full_name(old)} TO {full_name(new)}"


def exchange_query(query: str, partitioned: Name, normal: Name) -> str:
    """The same exchange with these table names. A text that is not an exchange is returned unchanged."""
    found = _EXCHANGE.fullmatch(query)
    if found is None:
        return query
    partition = found["partition"] if found["partition"].startswith("`") else quoted(found["partition"])
    without = " WITHOUT VALIDATION" if found["without"] else ""
    return (
        f"ALTER TABLE {full_name(partitioned)} EXCHANGE PARTITION {partition} WITH TABLE {full_name(normal)}{without}"
    )


def named_query(query: str, name: Name) -> str:
    """The statement with this full name for the object that it creates or changes: the first name after its verb.

    Only CREATE, ALTER and TRUNCATE of tables, databases, views and indexes are known; other texts are unchanged.
    """
    found = _HEAD.match(query)
    return query[: found.start("name")] + full_name(name) + query[found.end("name") :] if found else query


def statement(query: str) -> str:
    """A single statement without `;` and surrounding comments; printed again if its text is certain."""
    try:
        statements = list(_statements(query))
    except BadEvents:  # TiCDC, too, keeps a text that it cannot parse
        return query
    return _printed(query, statements[0]) if len(statements) == 1 else query


def split_queries(text: str) -> tuple[str, ...]:
    """The statements of a text, each ended with `;` and printed again if its text is certain.

    ``("CREATE TABLE `a` (`id` INT);", "CREATE TABLE b LIKE a;")`` for `create table a (id int); CREATE TABLE b LIKE a`.
    """
    return tuple(f"{_printed(text, tokens)};" for tokens in _statements(text))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text

    @property
    def name(self) -> str:
        """The token as a quoted name; "" if it is not a name."""
        return quoted(self.text) if self.kind == "word" else self.text if self.kind == "name" else ""


# A comment that begins with !, T!, M! or + is not skipped: its content is part of the statement.
_TOKEN = re.compile(
    r"(?P<blank>\s+|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!!|[TM]!|\+).*?\*/)"
    r"|(?P<name>`(?:[^`]|``)+`)"
    r"""|(?P<string>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")"""
    r"|(?P<word>[\w$]+)"
    r"|(?P<mark>/\*.*?\*/|[^'\"`])",
    re.DOTALL,
)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadEvents(f"the DDL text {text!r:.120} has a quote at {at} that is never closed")
        if found.lastgroup != "blank":
            yield _Token(found.lastgroup or "", found[0], at)
        at = found.end()


def _statements(text: str) -> Iterator[list[_Token]]:
    statement: list[_Token] = []
    depth = 0
    for token in [*_tokens(text), _Token("mark", ";", len(text))]:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth < 0 or (depth and token.text == ";"):
            raise BadEvents(f"the DDL text {text!r:.120} has an unmatched bracket before {token.start}")
        if token.text != ";":
            statement.append(token)
        elif statement:
            yield statement
            statement = []


def _printed(text: str, tokens: list[_Token]) -> str:
    printed = _Create(tokens).printed()
    return printed or text[tokens[0].start : tokens[-1].start + len(tokens[-1].text)]


# Types that are printed exactly as written. BIT is not one of them: it is printed as BIT(1).
_TYPES = frozenset(
    (
        *("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "DECIMAL", "DATE", "DATETIME", "TIMESTAMP", "TIME"),
        *("JSON", "ENUM", "VARCHAR", "VARBINARY", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
        *("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
    )
)
_ATTRIBUTES = (("UNSIGNED",), ("NOT", "NULL"), ("NULL",), ("PRIMARY", "KEY"), ("AUTO_INCREMENT",))
_NOT_COLUMNS = frozenset(
    ("PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "FOREIGN", "CHECK", "SPATIAL", "VECTOR", "COLUMNAR")
)
_STRING = re.compile(r"'[^'\\]*'")


class _Unknown(Exception):
    """The statement holds something whose printed form is not certain."""


class _Create:
    """Prints `create table t (id int primary key)` as ``CREATE TABLE `t` (`id` INT PRIMARY KEY)``."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def printed(self) -> str | None:
        """None for any other statement."""
        try:
            return self._table()
        except _Unknown:
            return None

    def _table(self) -> str:
        self._expect("CREATE", "TABLE")
        head = "IF NOT EXISTS " if self._skip("IF", "NOT", "EXISTS") else ""
        name = self._name()
        if self._skip("."):
            name += "." + self._name()
        elements = self._list(self._element)
        if self._at < len(self._tokens):
            raise _Unknown
        return f"CREATE TABLE {head}{name} ({','.join(elements)})"

    def _element(self) -> str:
        if self._skip("PRIMARY", "KEY"):
            names = self._list(self._name)
            if len(names) > 1:
                raise _Unknown
            return f"PRIMARY KEY({names[0]})"
        if self._next().upper in _NOT_COLUMNS:
            raise _Unknown
        return " ".join([self._name(), self._type(), *self._attributes()])

    def _type(self) -> str:
        name = self._take().upper
        if name not in _TYPES:
            raise _Unknown
        return name + (f"({','.join(self._list(self._literal))})" if self._next().text == "(" else "")

    def _attributes(self) -> Iterator[str]:
        while self._next().text not in (",", ")"):
            known = next((words for words in _ATTRIBUTES if self._skip(*words)), None)
            if known is not None:
                yield " ".join(known)
                continue
            self._expect("DEFAULT")
            default = self._literal()
            yield f"DEFAULT {'_UTF8MB4' if default.startswith(chr(39)) else ''}{default}"

    def _literal(self) -> str:
        token = self._take()
        if token.text.isdecimal() or token.upper == "NULL" or _STRING.fullmatch(token.text):
            return token.upper
        raise _Unknown

    def _name(self) -> str:
        name = self._take().name
        if not name:
            raise _Unknown
        return name

    def _list(self, item: Callable[[], str]) -> list[str]:
        self._expect("(")
        items = [item()]
        while self._skip(","):
            items.append(item())
        self._expect(")")
        return items

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise _Unknown
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next()
        self._at += 1
        return token

    def _skip(self, *words: str) -> bool:
        found = tuple(token.upper for token in self._tokens[self._at : self._at + len(words)]) == words
        self._at += len(words) if found else 0
        return found

    def _expect(self, *words: str) -> None:
        if not self._skip(*words):
            raise _Unknown
