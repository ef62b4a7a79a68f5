"""The crash harness, small: it kills a changefeed in a process of its own, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.bench import recovery


def test_a_changefeed_that_is_killed_at_a_named_point_loses_and_doubles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = recovery.Parameters(kills=1, points="data-before-index", seconds=1, tables=3, shards=1, rate="128KiB")
    figures = recovery.run(tmp_path, few)
    faults = ("lost", "doubled", "reordered", "altered", "schema_after_data", "broken_indexes", "verify_faults")
    assert {key: figures[key] for key in faults} == dict.fromkeys(faults, 0)
    assert figures["kills"] == 1
    assert float(figures["restart_p50_s"]) > 0
    assert int(figures["rows"]) > 0
    assert "kill 1 of 1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
