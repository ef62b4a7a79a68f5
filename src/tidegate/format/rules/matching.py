r"""Names against patterns, as TiDB's table filter matches them.

    shop.*            `*` any text, `?` one character, `[a-z]` and `[!a-z]` one of a set, `\` before a special character
    `a.b`."x y"       quoted names stand for themselves; a doubled quote is one quote
    /^t\d+$/.*        a regular expression of Go's kind, found anywhere in the name unless it says otherwise
    !shop.log         takes out what an earlier rule took in: the last rule that matches decides
    # text            nothing, as an empty rule

Letters, digits, `$`, `_` and everything outside ASCII stand for themselves; any other character must be quoted or
escaped. A text that is none of this is refused with the rest of a sentence that begins with the option's key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tidegate.errors import BadSetting


@dataclass(frozen=True)
class TablePatterns:
    """`TablePatterns(("shop.*", "!shop.log")).matches("shop", "orders")` is True. No pattern at all matches nothing."""

    texts: tuple[str, ...]
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        _ = self._rules  # bad texts are refused here, not at the first row

    def matches(self, schema: str, table: str) -> bool:
        schema, table = self._as_compared(schema), self._as_compared(table)
        found = (r.takes for r in self._rules if r.schema.search(schema) and r.table.search(table))
        return next(found, False)

    def matches_schema(self, schema: str) -> bool:
        """Whether some table of the schema may match, which decides about the schema's own DDL."""
        schema = self._as_compared(schema)
        found = (r.takes for r in self._rules if r.schema.search(schema) and (r.takes or r.table == _ANYTHING))
        return next(found, False)

    def _as_compared(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _rules(self) -> tuple[_TableRule, ...]:
        return tuple(_table_rule(*rule, self.case_sensitive) for rule in reversed(list(_said(self.texts))))


@dataclass(frozen=True)
class ColumnPatterns:
    """`ColumnPatterns(("co*", "!col2")).matches("COL1")` is True: column names never differ by case alone."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        _ = self._rules

    def matches(self, column: str) -> bool:
        column = column.lower()
        return next((takes for takes, pattern in self._rules if pattern.search(column)), False)

    @cached_property
    def _rules(self) -> tuple[tuple[bool, re.Pattern[str]], ...]:
        return tuple(_column_rule(*rule) for rule in reversed(list(_said(self.texts))))


class _TableRule(NamedTuple):
    takes: bool
    schema: re.Pattern[str]
    table: re.Pattern[str]


_ANYTHING = re.compile("")


def _said(texts: tuple[str, ...]) -> Iterator[tuple[str, bool, str]]:
    """(the rule as written, whether it takes in, its pattern) for every text that says something."""
    for text in texts:
        pattern = text.strip(" \t")
        if pattern.startswith("@"):
            raise _bad(text, "rules are not imported from files; write them here")
        if pattern and not pattern.startswith("#"):
            yield text, not pattern.startswith("!"), pattern.removeprefix("!")


def _table_rule(text: str, takes: bool, pattern: str, case_sensitive: bool) -> _TableRule:
    schema, rest = _one_pattern(text, pattern, case_sensitive)
    if not rest.startswith("."):
        raise _bad(text, "there must be a '.' between schema and table")
    table, rest = _one_pattern(text, rest[1:], case_sensitive)
    if rest:
        raise _bad(text, f"{rest!r} is left over behind schema and table")
    return _TableRule(takes, schema, table)


def _column_rule(text: str, takes: bool, pattern: str) -> tuple[bool, re.Pattern[str]]:
    column, rest = _one_pattern(text, pattern, case_sensitive=False)
    if rest:
        raise _bad(text, f"{rest!r} is left over behind the column; a special character needs a backslash")
    return takes, column


def _bad(text: str, reason: str) -> BadSetting:
    return BadSetting(f"has the bad rule {text!r}: {reason}")


_REGEX = re.compile(r"/((?:\\.|[^/])+)/")
_QUOTED = re.compile(r'"((?:""|[^"])+)"' + "|`((?:``|[^`])+)`")
_GLOB = re.compile(
    r"""\\(?P<escaped>[^0-9A-Za-z])
    | (?P<any>\*)
    | (?P<one>\?)
    | \[(?P<but>!?+)(?P<set>(?:\\[^0-9A-Za-z]|[^\\\]])+)\]
    | (?P<plain>[$_0-9A-Za-z]|[^\x00-\x7f])""",
    re.VERBOSE | re.DOTALL,
)


def _one_pattern(rule: str, text: str, case_sensitive: bool) -> tuple[re.Pattern[str], str]:
    """The pattern that `text` begins with, and what stands behind it."""
    if not text:
        raise _bad(rule, "a pattern is missing")
    if text[0] == "/":
        if not (found := _REGEX.match(text)):
            raise _bad(rule, "a regular expression must end with '/'")
        return _regex_of(rule, found[1], case_sensitive), text[found.end() :]
    if text[0] in '"`':
        if not (found := _QUOTED.match(text)):
            raise _bad(rule, "a quoted name must not be empty and must end with its quote")
        name = found[0][1:-1].replace(text[0] * 2, text[0])
        return _literal(name, case_sensitive), text[found.end() :]
    return _glob(rule, text, case_sensitive)


def _regex_of(rule: str, text: str, case_sensitive: bool) -> re.Pattern[str]:
    try:
        return go_regex(text, case_sensitive)
    except BadSetting as exc:
        raise _bad(rule, str(exc)) from None


def _literal(name: str, case_sensitive: bool) -> re.Pattern[str]:
    return re.compile(rf"\A{re.escape(name if case_sensitive else name.lower())}\Z")


def _glob(rule: str, text: str, case_sensitive: bool) -> tuple[re.Pattern[str], str]:
    pieces, at, literal = "", 0, ""
    while at < len(text) and text[at] != ".":
        token = _GLOB.match(text, at)
        if token is None:
            raise _bad(
                rule, f"{text[at:]!r} does not fit; quote the name, or put a backslash before special characters"
            )
        literal += token["escaped"] or token["plain"] or ""
        pieces += _glob_piece(token)
        at = token.end()
    if text[:at] == "*":
        return _ANYTHING, text[at:]
    if pieces == re.escape(literal):
        return _literal(literal, case_sensitive), text[at:]
    try:
        flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
        return re.compile(rf"\A{pieces}\Z", flags), text[at:]
    except re.error as exc:
        raise _bad(rule, str(exc)) from None


def _glob_piece(token: re.Match[str]) -> str:
    if token["set"]:
        inside = re.sub(
            r"\\.|[\[&|~^]", lambda m: m[0] if len(m[0]) > 1 else "\\" + m[0], token["set"], flags=re.DOTALL
        )
        return f"[{'^' if token['but'] else ''}{inside}]"
    if token["any"] or token["one"]:
        return ".*" if token["any"] else "."
    return re.escape(token["escaped"] or token["plain"])


# Regular expressions. Go's kind has no look-around and no back-references, its \d, \w, \s and \b know ASCII only, and
# its $ is the very end. What Python reads in another way is translated; what it cannot read is refused.

_WORD, _SPACE = "0-9A-Za-z_", r"\t\n\f\r "
_ESCAPES = {"d": "[0-9]", "D": "[^0-9]", "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]"}
_ESCAPES |= {"b": r"(?a:\b)", "B": r"(?a:\B)", "z": r"\Z", "A": r"\A"}
_SET_ESCAPES = {"d": "0-9", "w": _WORD, "s": _SPACE}
_SET_NAMES = {"alpha": "A-Za-z", "digit": "0-9", "alnum": "0-9A-Za-z", "upper": "A-Z", "lower": "a-z", "word": _WORD}
_SET_NAMES |= {"space": r"\t\n\v\f\r ", "blank": r"\t ", "xdigit": "0-9A-Fa-f", "punct": r"!-/:-@\[-`{-\~"}
_GO_TOKEN = re.compile(
    r"""\\(?P<escape>x[0-9A-Fa-f]{2}|.)
    | \[:(?P<named>[a-z]+):\]
    | (?P<opens>\[\^?\]?)
    | \(\?(?P<group>P?<[A-Za-z_]\w*>|[ims]*:|[ims]+\)|.?)
    | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def go_regex(text: str, case_sensitive: bool) -> re.Pattern[str]:
    r"""`go_regex(r"^t\d+$", True)` finds "t17", and not "t17\n" as Python's own reading would."""
    pieces, in_set = [], False
    for token in _GO_TOKEN.finditer(text):
        if in_set:
            in_set = token["plain"] != "]"
            pieces.append(_go_set_piece(token))
        else:
            in_set = token["opens"] is not None
            pieces.append(_go_piece(token, text))
    try:
        return re.compile("".join(pieces), re.NOFLAG if case_sensitive else re.IGNORECASE)
    except re.error as exc:
        raise BadSetting(f"{text!r} is no regular expression: {exc}") from None


def _go_piece(token: re.Match[str], text: str) -> str:
    if escape := token["escape"]:
        return _ESCAPES.get(escape) or _plain_escape(escape)
    if group := token["group"]:
        flags_first = group[-1] == ")" and token.start() == 0
        if not (group[-1] in ":>" or flags_first):
            raise BadSetting(f"{text!r} has '(?{group}', which Go's regular expressions do not have at that place")
        return "(?" + (group if group[0] != "<" else "P" + group)
    if token["opens"]:
        return token[0].replace("]", "\\]")
    return "\\Z" if token[0] == "$" and "(?m" not in text else token[0]


def _go_set_piece(token: re.Match[str]) -> str:
    if escape := token["escape"]:
        return _SET_ESCAPES.get(escape) or _plain_escape(escape)
    if token["named"]:
        if token["named"] not in _SET_NAMES:
            raise BadSetting(f"{token[0]} is no set of characters")
        return _SET_NAMES[token["named"]]
    return re.sub(r"[\[&|~]", r"\\\g<0>", token[0])


def _plain_escape(escape: str) -> str:
    if escape[0] in "xnrtfva" and (escape[0] != "x" or len(escape) == 3):
        return "\\" + escape
    if escape.isascii() and escape.isalnum():
        raise BadSetting(f"'\\{escape}' is not understood in a regular expression")
    return re.escape(escape)
