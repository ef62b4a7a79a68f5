"""Verify takes `sqlType` and `mysqlType` in any order, as TiCDC writes them, and forgives nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.settings import Settings
from tidegate.errors import TidegateError, VerifyError
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.tables import Column, Layout
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
    resolved_row,
    tiny_settings,
)
from tidegate.tools.verify import verify
from tidegate.tools.verify.key_order import in_one_order

# Names and values that look like the fields themselves.
TABLE = Layout(
    (
        Column("id", "int", pk=True, nullable=False),
        Column("mysqlType", "varchar"),
        Column('a"sqlType":{', "varchar"),
        Column("colour", "enum", elems=("red", 'it\'s,"mysqlType":{')),
        Column("z\\", "text"),
    )
)
CANAL = {"plain": CanalOptions(), "full": CanalOptions(content_compatible=True, tidb_extension=True)}
Lines = list[bytes]


def rows() -> list[dict[str, Any]]:
    texts = [b'"mysqlType":{"b":"int","a":"int"}', b'},"old":null', b'"sqlType":{"b":1,"a":2}']
    return [
        change(1, START_TS + n, n, b"%d" % n, texts[n % 3], b"x%d" % n, b"2", b"\\", layout=TABLE.fingerprint)
        for n in range(1, 30)
    ]


class Sink:
    def __init__(self, tmp_path: Path, canal: CanalOptions) -> None:
        folder = tmp_path / "events"
        write_events(folder, [events_batch([layout_row(TABLE), *rows()])], 1000)
        self.source, self.store = f"parquet:{folder}", MemoryStore()
        self.settings: Settings = tiny_settings(tmp_path, protocol="canal-json", canal=canal)
        changefeed = open_changefeed(self.store, tmp_path / "spool", FakeClock(), protocol="canal-json", canal=canal)
        feed(changefeed, 0, [layout_row(TABLE), *rows(), resolved_row(START_TS + 29)], "0")
        changefeed.clock.advance(5.0)  # type: ignore[attr-defined]
        while changefeed.landing.land_next():
            pass
        changefeed.scribe.write_progress()
        changefeed.life.fail(TidegateError("the test is over"))
        changefeed.close()
        (self.path,) = (path for path in self.store.objects if "/CDC0" in path)

    def rewrite(self, change: Callable[[Lines], Lines]) -> None:
        lines = change(self.store.objects[self.path].split(b"\r\n")[:-1])
        self.store.objects[self.path] = b"".join(line + b"\r\n" for line in lines)

    def verify(self) -> int:
        return verify(self.source, self.settings, self.store).rows

    def error(self) -> str:
        with pytest.raises(VerifyError) as caught:
            self.verify()
        return str(caught.value)


@pytest.fixture(params=CANAL)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    return Sink(tmp_path, CANAL[request.param])


def shuffled(line: bytes, fields: tuple[str, ...] = ("sqlType", "mysqlType"), seed: int = 0) -> bytes:
    """The line with the members of these objects in another order, and every other byte as it was."""
    parsed = json.loads(line)
    chance = random.Random(seed)
    for name in fields:
        before = json.dumps(parsed[name], ensure_ascii=False, separators=(",", ":"))
        members = list(parsed[name].items())
        chance.shuffle(members)
        after = json.dumps(dict(members), ensure_ascii=False, separators=(",", ":"))
        assert line.count(f'"{name}":{before}'.encode()) == 1
        line = line.replace(f'"{name}":{before}'.encode(), f'"{name}":{after}'.encode())
    return line


def all_shuffled(lines: Lines) -> Lines:
    return [shuffled(line, seed=n) for n, line in enumerate(lines)]


def test_types_in_any_order_are_right(sink: Sink) -> None:
    before = sink.store.objects[sink.path]
    sink.rewrite(all_shuffled)
    assert sink.store.objects[sink.path] != before
    assert sink.verify() == 29


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sqlType":{"id":4,', b'"sqlType":{"id":5,'),
        (b'"colour":"enum', b'"colour":"enun'),
        (b'"id":4,"mysqlType":12,', b'"id":4,"mysqlType":12 '),
        (b'"data":[{"id":"7","mysqlType"', b'"data":[{"mysqlType":"7","id"'),  # not an object of types
        (b'"database":"shop","table":"t1"', b'"table":"t1","database":"shop"'),
    ],
)
def test_any_other_difference_is_told(sink: Sink, old: bytes, new: bytes) -> None:
    def spoil(lines: Lines) -> Lines:
        assert old in lines[6], lines[6]
        return [shuffled(line, ("mysqlType",), n) if n != 6 else line.replace(old, new) for n, line in enumerate(lines)]

    sink.rewrite(spoil)
    assert "shop.t1: row 7 is altered" in sink.error()


def test_a_member_that_is_missing_and_one_that_is_doubled_are_told(sink: Sink) -> None:
    sink.rewrite(lambda lines: [lines[0].replace(b'"id":4,"mysqlType":12', b'"id":4,"id":4,"mysq":12'), *lines[1:]])
    assert "shop.t1: row 1 is altered" in sink.error()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda lines: [*lines[:9], *lines[10:]], "1 row is dropped from row 10 on"),
        (lambda lines: [*lines[:9], lines[10], lines[9], *lines[11:]], "rows 10 and 11 are swapped"),
        (lambda lines: [*lines[:10], *lines[9:]], "row 10 is doubled"),
    ],
)
def test_what_happened_to_rows_is_told_in_any_order_of_types(
    sink: Sink, spoil: Callable[[Lines], Lines], sentence: str
) -> None:
    sink.rewrite(lambda lines: all_shuffled(spoil(lines)))
    assert sentence in sink.error()


NAMES = st.text(max_size=4) | st.sampled_from(["mysqlType", '"sqlType":{', "}", "\\"])


@given(
    st.dictionaries(NAMES, st.integers(-20, 20), min_size=1), st.dictionaries(NAMES, NAMES, min_size=1), st.randoms()
)
def test_only_the_order_is_forgotten(numbers: dict[str, int], names: dict[str, str], chance: random.Random) -> None:
    def line(numbers: dict[str, int], names: dict[str, str]) -> bytes:
        return json.dumps({"sqlType": numbers, "mysqlType": names, "old": [names]}, separators=(",", ":")).encode()

    other = [list(each.items()) for each in (numbers, names)]
    for members in other:
        chance.shuffle(members)
    one, two = line(numbers, names), line(dict(other[0]), names)  # type: ignore[arg-type]
    assert in_one_order(one) == in_one_order(two)
    assert len(in_one_order(one)) == len(one)
    assert json.loads(in_one_order(one)) == json.loads(one)
    first = next(iter(numbers))
    assert in_one_order(line({**numbers, first: numbers[first] + 1}, names)) != in_one_order(one)
