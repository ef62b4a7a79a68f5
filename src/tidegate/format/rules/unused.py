"""Rules that no table of a run matched: mostly a misspelled name, which nothing else would tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegate.format.rules.matching import TablePatterns
from tidegate.format.rules.rules import Name, Rules


def unused(rules: Rules, tables: Collection[Name]) -> list[str]:
    """`["filter.rules 'shpo.*'"]`: the rules that match none of these tables, as the source names them."""
    return [
        shown
        for shown, texts, case_sensitive in _matchers(rules)
        if not _matches_any(TablePatterns(texts, case_sensitive), tables)
    ]


def _matches_any(patterns: TablePatterns, tables: Collection[Name]) -> bool:
    return any(patterns.matches(*table) for table in tables)


def _matchers(rules: Rules) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Each rule: how it is called, its patterns, and whether case counts."""
    for text in rules.filter.rules:
        pattern = text.strip(" \t").removeprefix("!")  # one that takes out is used if it matches, too
        if pattern and not pattern.startswith("#"):
            yield f"filter.rules {text!r}", (pattern,), rules.filter.case_sensitive
    lists = (
        ("filter.event-filters", [f.matcher for f in rules.event_filters.filters], rules.event_filters.case_sensitive),
        ("column-selectors", [s.matcher for s in rules.selectors.selectors], rules.selectors.case_sensitive),
        ("dispatchers", [r.matcher for r in rules.routes.routes], rules.routes.case_sensitive),
    )
    for key, matchers, case_sensitive in lists:
        for number, matcher in enumerate(matchers, start=1):
            yield f"{key} entry {number} ({', '.join(matcher)})", matcher, case_sensitive
