"""`tidegate bench mysql`: it gives its figures, and its check of both readers can fail."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tidegate.bench.harness.databases import missing
from tidegate.bench.mysql.decode import CASES, same_value
from tidegate.cli import main


@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")  # the library says it to PyMySQL
@pytest.mark.skipif(bool(missing("mariadb")), reason="MariaDB is not installed: make servers")
def test_both_readers_are_compared_on_every_log(tmp_path: Path) -> None:
    words = ["--rows", "300", "--repeats", "1", "--data-dir", str(tmp_path), "--json", str(tmp_path / "figures.json")]
    assert main(["bench", "mysql", "--part", "decode", *words]) == 0
    written = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    figures = written["figures"]
    assert written["name"] == "mysql"
    assert figures["decode_ratio_to_pure_python"] == min(figures[f"{case}_decode_ratio"] for case in CASES)


@pytest.mark.parametrize(
    ("text", "value", "is_same"),
    [
        (None, None, True),
        (b"", None, False),
        (None, 0, False),
        (b"7", 7, True),
        (b"7", 8, False),
        (b"0.50", Decimal("0.50"), True),
        (b"0.5", Decimal("0.50"), False),
        (b"0.1", 0.10000000149011612, True),
        (b"0.1", 0.2, False),
        (b"2026-01-31", date(2026, 1, 31), True),
        (b"2026-01-31 12:00:00.500", datetime(2026, 1, 31, 12, 0, 0, 500_000), True),
        (b"2026-01-31 12:00:00", datetime(2026, 1, 31, 13), False),
        (b"2", "green", True),
        (b"1", "green", False),
        ("ü".encode(), "ü", True),
        (b"\xff", b"\xfe", False),
        (b"x", object(), False),
    ],
)
def test_the_check_sees_values_that_differ(text: bytes | None, value: object, is_same: bool) -> None:
    assert same_value(text, value) is is_same
