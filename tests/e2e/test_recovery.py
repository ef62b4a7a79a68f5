"""The crash harness, small: it kills a changefeed in a process of its own, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.bench import recovery

FAULTS = ("lost", "doubled", "reordered", "altered", "schema_after_data", "broken_indexes", "verify_faults")


def test_a_changefeed_that_is_killed_at_a_named_point_loses_and_doubles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = recovery.Parameters(kills=1, points="data-before-index", seconds=1, tables=3, shards=1, rate="128KiB")
    figures = recovery.run(tmp_path, few)
    assert {key: figures[key] for key in FAULTS} == dict.fromkeys(FAULTS, 0)
    assert figures["kills"] == 1
    assert float(figures["restart_p50_s"]) > 0
    assert int(figures["rows"]) > 0
    assert "kill 1 of 1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_kills_on_an_object_store_add_up_over_two_runs_of_the_benchmark(tmp_path: Path) -> None:
    few = recovery.Parameters(
        kills=1, store="s3", points="after-copy", seconds=1, tables=3, shards=1, one_put="1KiB", resume=True
    )
    assert recovery.run(tmp_path, few)["kills"] == 1
    figures = recovery.run(tmp_path, few)
    assert {key: figures[key] for key in FAULTS} == dict.fromkeys(FAULTS, 0)
    assert figures["kills"] == 2
    assert int(figures["large_files"]) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["recovery-s3"], "it can go on once more"
