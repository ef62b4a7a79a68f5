"""Verify and everything that changes rows on their way: both protocols, filters, routes, selectors, split updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.config.settings import Settings
from tidegate.errors import TidegateError, VerifyError
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.rules.rules import ColumnSelector, ColumnSelectors, Route, Routes, Rules, TableFilter
from tidegate.format.tables import Column, Layout
from tidegate.sources import open_source
from tidegate.sources.parquet import write_events
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    layout_row,
    open_changefeed,
    tiny_settings,
)
from tidegate.tools.verify import verify

TABLE = Layout(
    (
        Column("id", "int", pk=True, nullable=False),
        Column("mail", "varchar"),
        Column("price", "double"),
        Column("colour", "enum", elems=("red", "green")),
        Column("data", "text", binary=True),
        Column("twice", "int", virtual=True),
    ),
    unique_keys=(("mail",),),
)


def values(n: int, mail: int | None = None) -> list[bytes | None]:
    return [b"%d" % n, b'm%d"<' % (n if mail is None else mail), b"%de6" % n, b"%d" % (n % 2 + 1), bytes([n, 200])]


def history() -> list[dict[str, Any]]:
    """Two tables: inserts, updates that change a key and some that do not, deletes; versions change once."""
    rows: list[dict[str, Any]] = []
    for n in range(1, 40):
        for table in (1, 2):
            common: dict[str, Any] = {"layout": TABLE.fingerprint, "table_version": START_TS + (20 if n > 20 else 0)}
            place = (table, START_TS + 1 + n // 3, 2 * n + table)
            if n % 5 == 1:
                rows.append(change(*place, kind="update", before=values(n), after=values(n, n + 100), **common))
            elif n % 5 == 2:
                rows.append(change(*place, kind="delete", before=values(n), **common))
            elif n % 5 == 3:
                rows.append(
                    change(*place, kind="update", before=values(n), after=[*values(n)[:2], None, b"1", None], **common)
                )
            else:
                rows.append(change(*place, after=values(n), **common))
    return rows


@pytest.fixture
def source(tmp_path: Path) -> str:
    folder = tmp_path / "events"
    write_events(folder, [events_batch([layout_row(TABLE)]), events_batch(history())], 1000)
    return f"parquet:{folder}"


def run(source_uri: str, tmp_path: Path, **given: Any) -> tuple[Settings, MemoryStore]:
    store, clock = MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path / "spool", clock, **given)
    source = open_source(source_uri)
    end = source.latest(source.initial(), 1 << 30, frozenset())
    rows = [row for s in source.splits(source.initial(), end, 1) for b in source.read(s) for row in b.to_pylist()]
    feed(changefeed, 0, rows, "0")
    clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()
    return tiny_settings(tmp_path, **given), store


RULES = {
    "none": Rules(),
    "filter": Rules(filter=TableFilter(("*.*", "!shop.t2"))),
    "routes": Rules(routes=Routes((Route(("shop.*",), "archive", "{schema}_{table}"),))),
    "selectors": Rules(selectors=ColumnSelectors((ColumnSelector(("shop.t1",), ("id", "mail", "colour")),))),
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"csv": CsvOptions(output_old_value=True, include_commit_ts=True, output_field_header=True)},
        {"output_raw_change_event": True},
        {"protocol": "canal-json"},
        {"output_column_id": True, "date_separator": "none"},
        {"table_id_as_path": True},
    ],
)
def test_what_a_changefeed_landed_is_right(source: str, tmp_path: Path, rules: str, given: dict[str, Any]) -> None:
    settings, store = run(source, tmp_path, rules=RULES[rules], **given)
    report = verify(source, settings, store)
    assert report.tables == (1 if rules == "filter" else 2)
    assert report.rows >= 39


@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_a_single_wrong_byte_in_a_value_is_found(source: str, tmp_path: Path, protocol: str) -> None:
    settings, store = run(source, tmp_path, protocol=protocol)
    path = next(path for path in sorted(store.objects) if "/CDC0" in path)
    store.objects[path] = store.objects[path].replace(b"m7", b"n7", 1)
    with pytest.raises(VerifyError, match=r"shop.t1: row \d+ is altered"):
        verify(source, settings, store)


def test_the_moment_of_writing_may_be_any_but_must_be_one(source: str, tmp_path: Path) -> None:
    settings, store = run(source, tmp_path, protocol="canal-json")
    path = next(path for path in sorted(store.objects) if "/CDC0" in path)
    stamp = store.objects[path].split(b'"ts":', 1)[1][:13]
    whole = store.objects[path]
    store.objects[path] = whole.replace(b'"ts":' + stamp, b'"ts":1999999999999', 1)
    verify(source, settings, store)
    store.objects[path] = whole.replace(b'"ts":' + stamp, b'"ts":nonsense, no', 1)
    with pytest.raises(VerifyError):
        verify(source, settings, store)


def test_swapped_lines_are_told_in_canal_json_too(source: str, tmp_path: Path) -> None:
    settings, store = run(source, tmp_path, protocol="canal-json")
    path = next(path for path in sorted(store.objects) if "/CDC0" in path)
    first, second, *rest = store.objects[path].splitlines(keepends=True)
    store.objects[path] = b"".join([second, first, *rest])
    with pytest.raises(VerifyError, match="rows 1 and 2 are swapped"):
        verify(source, settings, store)


def test_rows_under_a_version_that_is_not_theirs_are_found(source: str, tmp_path: Path) -> None:
    settings, store = run(source, tmp_path)
    moved = {path.replace(f"/{START_TS}/", f"/{START_TS + 7}/"): data for path, data in store.objects.items()}
    store.objects.clear()
    store.objects.update(moved)
    with pytest.raises(VerifyError):
        verify(source, settings, store)
