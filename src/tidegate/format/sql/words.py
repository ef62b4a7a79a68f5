"""Splits SQL DDL into tokens: names, texts, literals and marks, without spaces and comments.

TiDB's special comments count: `/*T![clustered_index] CLUSTERED */` and `/*!50100 ... */` are read as plain SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tidegate.errors import BadEvents

_BLANK = re.compile(r"(?:\s|/\*T!\[[\w,]*\]|/\*!\d*|\*/|/\*.*?\*/|--\s[^\n]*|#[^\n]*)*+", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<name>`(?:[^`]|``)+`)"""
    r"""|[xX]'(?P<hex>(?:[0-9a-fA-F]{2})*)'|0x(?P<hex0>[0-9a-fA-F]+)\b|[bB]'(?P<bit>[01]*)'|0b(?P<bit0>[01]+)\b"""
    r"""|(?:_\w+\s*|[nN])?(?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")"""
    r"""|(?P<word>[\w$.+-]+)|(?P<mark>[^'"`])""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class Token(NamedTuple):
    """`kind` is name (in backquotes), text, literal (`x'41'` or `b'1'`; bytes become code points), word or mark."""

    kind: str
    value: str

    @property
    def text(self) -> str:
        """The content of a text or a literal; bytes that are not UTF-8 become lone surrogates."""
        return self.raw.decode("utf-8", "surrogateescape") if self.kind == "literal" else self.value

    @property
    def raw(self) -> bytes:
        """The bytes of a literal."""
        return self.value.encode("latin-1")


_OPEN, _CLOSE, _COMMA = (Token("mark", mark) for mark in "(),")


class Words:
    """The tokens of one definition, taken from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._tokens)

    def take(self) -> Token:
        if not self:
            raise BadEvents(f"the definition {self.text!r} ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def peek(self, *words: str) -> bool:
        """Whether the next tokens are these words or marks."""
        ahead = self._tokens[self._at : self._at + len(words)]
        return [token.value.lower() for token in ahead if token.kind in ("word", "mark")] == list(words)

    def skip(self, *words: str) -> bool:
        found = self.peek(*words)
        self._at += len(words) if found else 0
        return found

    def group(self) -> list[Token]:
        """The first token of every item in the parentheses that open here; empty if there are no parentheses."""
        found: list[Token] = []
        depth, begins = int(self.skip("(")), True
        while depth:
            token = self.take()
            if begins and token != _CLOSE:
                found.append(token)
            depth += (token == _OPEN) - (token == _CLOSE)
            begins = depth == 1 and token == _COMMA
        return found

    def refuse(self, complaint: str) -> BadEvents:
        return BadEvents(f"the definition {self.text!r} {complaint}")


def _tokens(text: str) -> Iterator[Token]:
    at = _after_blanks(text, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadEvents(f"the definition {text!r} has a quote that is never closed: {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        yield _token(kind, match[kind])
        at = _after_blanks(text, match.end())


def _after_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _token(kind: str, value: str) -> Token:
    match kind:
        case "name":
            return Token(kind, value[1:-1].replace("``", "`"))
        case "text":
            return Token(kind, _unquoted(value))
        case "hex" | "hex0":
            return Token("literal", bytes.fromhex("0" * (len(value) % 2) + value).decode("latin-1"))
        case "bit" | "bit0":
            return Token("literal", int(value or "0", 2).to_bytes((len(value) + 7) // 8, "big").decode("latin-1"))
    return Token(kind, value)


def _unquoted(text: str) -> str:
    quote = text[0]
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else quote,
        text[1:-1],
        flags=re.DOTALL,
    )
