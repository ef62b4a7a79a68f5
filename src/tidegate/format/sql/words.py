"""Splits SQL DDL into tokens: names, texts, literals and marks, without spaces and comments.

A `Dialect` says how: which quotes hold names, and which of the comments with a mark are part of the statement. TiDB's
`/*T![clustered_index] CLUSTERED */` and `/*!50100 ... */` are read as plain SQL; a server of MySQL or MariaDB reads
only those of a version that it has reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tidegate.errors import BadEvents

_COMMENT_END = "*/"
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w$])"
_LITERALS = (
    r"[xX]'(?P<hex>(?:[0-9a-fA-F]{2})*)'|0x(?P<hex0>[0-9a-fA-F]+)(?![\w$])"
    r"|[bB]'(?P<bit>[01]*)'|0b(?P<bit0>[01]+)(?![\w$])"
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


@dataclass(frozen=True)
class Dialect:
    """How text is cut into tokens. `version` is 0 for TiDB, else the server's: 101115 for MariaDB 10.11.15."""

    ansi_quotes: bool = False  # "x" is a name
    backslash: bool = True  # a backslash escapes the next character of a text
    mariadb: bool = False
    version: int = 0

    def comment(self, mark: str, version: int) -> bool:
        """Whether what follows `/*!50100` or `/*M!100100` is part of the statement."""
        if not self.version:
            return mark in ("!", "T!")
        if mark == "T!" or (mark == "M!" and not self.mariadb):
            return False
        # MariaDB never had what MySQL 5.7 and later have, so it leaves out their comments.
        foreign = self.mariadb and mark == "!" and 50700 <= version <= 99999
        return version <= self.version and not foreign


TIDB = Dialect()


class Token(NamedTuple):
    """`kind` is name (in quotes), text, literal (`x'41'` or `b'1'`; bytes become code points), word or mark.

    `start` and `end` are its place in the text.
    """

    kind: str
    value: str
    start: int = 0
    end: int = 0

    @property
    def text(self) -> str:
        """The content of a text or a literal; bytes that are not UTF-8 become lone surrogates."""
        return self.raw.decode("utf-8", "surrogateescape") if self.kind == "literal" else self.value

    @property
    def raw(self) -> bytes:
        """The bytes of a literal."""
        return self.value.encode("latin-1")

    @property
    def is_name(self) -> bool:
        return self.kind in ("name", "word")

    @property
    def lower(self) -> str:
        """The word or mark in small letters; "" for what is quoted."""
        return self.value.lower() if self.kind in ("word", "mark") else ""


class Words:
    """The tokens of one definition or statement, taken from left to right."""

    def __init__(self, text: str, dialect: Dialect = TIDB, tokens: list[Token] | None = None) -> None:
        self.text = text
        self._tokens = list(_tokens(text, dialect)) if tokens is None else tokens
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._tokens)

    def take(self) -> Token:
        if not self:
            raise BadEvents(f"the definition {self.text!r} ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def ahead(self, places: int = 0) -> Token:
        """The next token, or one behind it, without taking it; an empty mark at the end."""
        at = self._at + places
        return self._tokens[at] if at < len(self._tokens) else Token("mark", "")

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these words or marks."""
        tokens, at = self._tokens, self._at
        if at + len(words) > len(tokens):
            return False
        return all(token.lower == word for token, word in zip(tokens[at : at + len(words)], words, strict=True))

    def skip(self, *words: str) -> bool:
        found = self.peek(*words)
        self._at += len(words) if found else 0
        return found

    def skip_one(self, *words: str) -> str:
        """The word that is next, if it is one of these; else ""."""
        found = self.ahead().lower
        if found not in words:
            return ""
        self._at += 1
        return found

    def copy(self) -> Words:
        """The same tokens, to be taken once more."""
        return Words(self.text, tokens=self._tokens[self._at :])

    def rest(self) -> list[Token]:
        """All tokens that are left, taken."""
        found, self._at = self._tokens[self._at :], len(self._tokens)
        return found

    def group(self) -> list[Token]:
        """The first token of every item in the parentheses that open here; empty if there are no parentheses."""
        return [item.take() for item in self.items() if item]

    def items(self) -> list[Words]:
        """The items in the parentheses that open here, each as tokens; empty if there are no parentheses."""
        if not self.skip("("):
            return []
        begin, depth = self._at, 1
        while depth:
            mark = self.take().lower
            depth += (mark == "(") - (mark == ")")
        return self._parts(self._tokens[begin : self._at - 1])

    def parts(self) -> list[Words]:
        """What is left, cut at the commas that are in no parentheses."""
        return self._parts(self.rest())

    def _parts(self, tokens: list[Token]) -> list[Words]:
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            depth += (token.lower == "(") - (token.lower == ")")
            if token.lower == "," and not depth:
                parts.append([])
            else:
                parts[-1].append(token)
        return [Words(self.text, tokens=part) for part in parts]

    def refuse(self, complaint: str) -> BadEvents:
        return BadEvents(f"the definition {self.text!r} {complaint}")


def _tokens(text: str, dialect: Dialect) -> Iterator[Token]:
    pattern = _pattern(dialect)
    before: Token | None = None
    at = _after_blanks(text, 0, dialect)
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            raise BadEvents(f"the definition {text!r} has a quote that is never closed: {text[at : at + 20]!r}")
        token = _token(match, dialect)
        if before is not None and before.kind == token.kind == "text":  # 'a' 'b' is one text
            before = before._replace(value=before.value + token.value, end=token.end)
        else:
            if before is not None:
                yield before
            before = token
        at = _after_blanks(text, match.end(), dialect)
    if before is not None:
        yield before


@cache
def _pattern(dialect: Dialect) -> re.Pattern[str]:
    inside = r"[^{0}\\]|{0}{0}|\\." if dialect.backslash else r"[^{0}]|{0}{0}"
    single, double = (f"{quote}(?:{inside.format(quote)})*{quote}" for quote in "'\"")
    names = r"(?P<name>`(?:[^`]|``)+`" + (r'|"(?:[^"]|"")+"' if dialect.ansi_quotes else "") + ")"
    texts = single if dialect.ansi_quotes else f"{single}|{double}"
    word = r"(?P<word>[\w$\u0080-\uffff]+)|(?P<mark>[^'\"`])"
    parts = [names, _LITERALS, rf"(?:_\w+\s*|[nN])?(?P<text>{texts})", f"(?P<number>{_NUMBER})", word]
    return re.compile("|".join(parts), re.DOTALL)


_BLANK = re.compile(r"(?:\s|--(?=\s|\Z)[^\n]*|#[^\n]*)++")
_COMMENT = re.compile(r"/\*(?:(?P<mark>T!)\[[\w,]*\]|(?P<bang>!|M!)(?P<version>\d{5,6})?)?")


def _after_blanks(text: str, at: int, dialect: Dialect) -> int:
    while True:
        if match := _BLANK.match(text, at):
            at = match.end()
        elif text.startswith(_COMMENT_END, at):  # of a comment that is part of the statement
            at += len(_COMMENT_END)
        elif match := _COMMENT.match(text, at):
            mark = match["mark"] or match["bang"] or ""
            is_part = bool(mark) and dialect.comment(mark, int(match["version"] or 0))
            at = match.end() if is_part else _after_comment(text, match.end())
        else:
            return at


def _after_comment(text: str, at: int) -> int:
    """A comment may hold others."""
    depth = 1
    while depth:
        match = _COMMENT_MARKS.search(text, at)
        if match is None:
            return len(text)
        depth += 1 if match[0] == "/*" else -1
        at = match.end()
    return at


def _token(match: re.Match[str], dialect: Dialect) -> Token:
    kind = match.lastgroup or ""
    value, place = match[kind], match.span()
    match kind:
        case "name":
            return Token(kind, value[1:-1].replace(value[0] * 2, value[0]), *place)
        case "text":
            return Token(kind, _unquoted(value, dialect.backslash), *place)
        case "hex" | "hex0":
            return Token("literal", bytes.fromhex("0" * (len(value) % 2) + value).decode("latin-1"), *place)
        case "bit" | "bit0":
            raw = int(value or "0", 2).to_bytes((len(value) + 7) // 8, "big")
            return Token("literal", raw.decode("latin-1"), *place)
        case "number":
            return Token("word", value, *place)
    return Token(kind, value, *place)


def _unquoted(text: str, backslash: bool) -> str:
    quote = text[0]
    if not backslash:
        return text[1:-1].replace(quote * 2, quote)
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else quote,
        text[1:-1],
        flags=re.DOTALL,
    )
