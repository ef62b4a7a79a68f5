r"""Names against patterns, as TiDB's table filter matches them.

    shop.*            `*` any text, `?` one character, `[a-z]` and `[!a-z]` one of a set, `\` before a special character
    `a.b`."x y"       a quoted name matches itself alone; a doubled quote is one quote
    /^t\d+$/.*        a regular expression of Go's kind, found anywhere in the name unless it has `^` and `$`
    !shop.log         takes out what an earlier rule took in: the last rule that matches decides
    # text            a remark; it says nothing, as an empty rule

Letters, digits, `$`, `_` and everything outside ASCII match themselves. Any other character must be quoted or escaped.
A text that is none of this is refused: the error holds the rest of a sentence that begins with the option's key.

Regular expressions are run by RE2, the library that Go's own are modelled on. So a rule means here what it means to
TiCDC, and no rule can hang a task: the time that RE2 takes grows with the length of the name alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import re2

from tidegate.errors import BadSetting


class GoRegex:
    r"""`GoRegex(r"^t\d+$", case_sensitive=True).matches("t17")` is True; without `^` the name may begin in any way."""

    def __init__(self, text: str, case_sensitive: bool) -> None:
        options = re2.Options()
        options.case_sensitive = case_sensitive
        options.never_capture = True  # nobody asks what a group matched, and RE2 is faster without
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as exc:
            reason = exc.args[0].decode(errors="replace")
            raise BadSetting(f"{text!r} is no regular expression of Go's kind: {reason}") from None
        except UnicodeEncodeError:
            raise BadSetting(f"{text!r} is no regular expression of Go's kind: it is no valid UTF-8") from None

    def matches(self, name: str) -> bool:
        return self._compiled.search(name.encode()) is not None  # bytes: RE2 counts no characters for us then


class _Exactly(NamedTuple):
    name: str

    def matches(self, name: str) -> bool:
        return name == self.name


class _Anything(NamedTuple):
    def matches(self, name: str) -> bool:
        return True


_NamePattern = GoRegex | _Exactly | _Anything


class _TableRule(NamedTuple):
    takes: bool
    schema: _NamePattern
    table: _NamePattern


@dataclass(frozen=True)
class TablePatterns:
    """`TablePatterns(("shop.*", "!shop.log")).matches("shop", "orders")` is True. No pattern at all matches nothing."""

    texts: tuple[str, ...]
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        _ = self._rules  # bad texts are refused here, not at the first row

    def matches(self, schema: str, table: str) -> bool:
        schema, table = self._as_compared(schema), self._as_compared(table)
        for rule in self._rules:
            if rule.schema.matches(schema) and rule.table.matches(table):
                return rule.takes
        return False

    def matches_schema(self, schema: str) -> bool:
        """Whether some table of the schema may match, which decides about the schema's own DDL."""
        schema = self._as_compared(schema)
        for rule in self._rules:
            if (rule.takes or isinstance(rule.table, _Anything)) and rule.schema.matches(schema):
                return rule.takes
        return False

    @property
    def takes_nothing(self) -> bool:
        return not any(rule.takes for rule in self._rules)

    def _as_compared(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _rules(self) -> tuple[_TableRule, ...]:
        """The rules, the last one first."""
        return tuple(_table_rule(*rule, self.case_sensitive) for rule in reversed(list(_said(self.texts))))


@dataclass(frozen=True)
class ColumnPatterns:
    """`ColumnPatterns(("co*", "!col2")).matches("COL1")` is True: column names never differ by case alone."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        _ = self._rules

    def matches(self, column: str) -> bool:
        column = column.lower()
        return next((takes for takes, pattern in self._rules if pattern.matches(column)), False)

    @cached_property
    def _rules(self) -> tuple[tuple[bool, _NamePattern], ...]:
        return tuple(_column_rule(*rule) for rule in reversed(list(_said(self.texts))))


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


def _column_rule(text: str, takes: bool, pattern: str) -> tuple[bool, _NamePattern]:
    column, rest = _one_pattern(text, pattern, case_sensitive=False)
    if rest:
        raise _bad(text, f"{rest!r} is left over behind the column; a special character needs a backslash")
    return takes, column


def _bad(text: str, reason: str) -> BadSetting:
    return BadSetting(f"has the bad rule {text!r}: {reason}")


_REGEX = re.compile(r"/((?:\\.|[^/\\])+)/", re.DOTALL)
_QUOTED = re.compile(r'"((?:""|[^"])+)"' + "|`((?:``|[^`])+)`")
_WILDCARDS = re.compile(
    r"""\\(?P<escaped>[^0-9A-Za-z])
    | (?P<any>\*)
    | (?P<one>\?)
    | \[(?P<but>!?+)(?P<set>(?:\\[^0-9A-Za-z]|[^\\\]])+)\]
    | (?P<plain>[$_0-9A-Za-z]|[^\x00-\x7f])""",
    re.VERBOSE | re.DOTALL,
)


def _one_pattern(rule: str, text: str, case_sensitive: bool) -> tuple[_NamePattern, str]:
    """The pattern that `text` begins with, and the text behind it."""
    if not text:
        raise _bad(rule, "a pattern is missing")
    if text[0] == "/":
        if not (found := _REGEX.match(text)):
            raise _bad(rule, "a regular expression must end with '/'")
        return _regex(rule, found[1], case_sensitive), text[found.end() :]
    if text[0] in '"`':
        if not (found := _QUOTED.match(text)):
            raise _bad(rule, "a quoted name must not be empty and must end with its quote")
        name = found[0][1:-1].replace(text[0] * 2, text[0])
        return _exactly(name, case_sensitive), text[found.end() :]
    return _wildcards(rule, text, case_sensitive)


def _regex(rule: str, text: str, case_sensitive: bool) -> GoRegex:
    try:
        return GoRegex(text, case_sensitive)
    except BadSetting as exc:
        raise _bad(rule, str(exc)) from None


def _exactly(name: str, case_sensitive: bool) -> _Exactly:
    return _Exactly(name if case_sensitive else name.lower())


def _wildcards(rule: str, text: str, case_sensitive: bool) -> tuple[_NamePattern, str]:
    """A pattern up to the next '.' or the end. Most have no wildcard at all, and are compared as they are."""
    tokens: list[re.Match[str]] = []
    at = 0
    while at < len(text) and text[at] != ".":
        token = _WILDCARDS.match(text, at)
        if token is None:
            raise _bad(
                rule, f"{text[at:]!r} does not fit; quote the name, or put a backslash before special characters"
            )
        tokens.append(token)
        at = token.end()
    if text[:at] == "*":
        return _Anything(), text[at:]
    letters = [token["escaped"] or token["plain"] for token in tokens]
    if all(letters):
        return _exactly("".join(letters), case_sensitive), text[at:]
    try:
        return GoRegex(rf"(?s)\A{''.join(map(_as_regex, tokens))}\z", case_sensitive), text[at:]
    except BadSetting:
        raise _bad(rule, f"{text[:at]!r} has a set of characters that cannot be read; write it as [a-z]") from None


def _as_regex(token: re.Match[str]) -> str:
    """`*` is `.*`, `[!a-z]` is `[^a-z]`, `.` is `\\.`."""
    if inside := token["set"]:
        but = "^" if token["but"] else ""
        literal = "\\" if inside[0] == "^" and not but else ""  # `[^a]` is a set of two characters, as in TiDB
        return f"[{but}{literal}{inside}]"
    if token["any"] or token["one"]:
        return ".*" if token["any"] else "."
    escaped: str = re2.escape(token["escaped"] or token["plain"])
    return escaped
