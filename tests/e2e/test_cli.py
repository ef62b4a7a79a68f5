"""The command line as a user meets it: processes, signals, kills, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.events import EVENTS
from tidegate.sources.parquet import write_events
from tidegate.testing import START_TS, change, events_batch, layout_row

WORKLOAD = "workload://sysbench?tables=5&rows=5000&seed=3&txn-rows=9&batch=128KiB&rate=4MiB"
OPTIONS = ["--option", "flush-interval=1s", "--option", "file-size=256KiB"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tidegate.cli", *arguments]


def tidegate(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def ends(tmp_path: Path) -> list[str]:
    return ["--source", WORKLOAD, "--sink", f"file://{tmp_path}/out", "--spool-dir", str(tmp_path / "spool"), *OPTIONS]


@pytest.fixture
def launch() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `tidegate` as the leader of its own process group; whatever is left of it is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_data(out: Path, files: int = 6, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while len(list(out.glob("sbtest/*/*/*/CDC*.csv"))) < files or not (out / "metadata").exists():
        assert time.monotonic() < deadline, "no data landed in time"
        time.sleep(0.1)


def verified(ends: list[str]) -> str:
    answer = tidegate("verify", *ends)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_a_signal_to_the_whole_group_lands_what_is_spooled_and_exits_0(
    tmp_path: Path, ends: list[str], launch: Callable[..., subprocess.Popen[str]]
) -> None:
    report = tmp_path / "report.json"
    # Files are cut by size alone, so what the last rows need to fill one is always spooled.
    process = launch("run", *ends, "--option", "flush-interval=10m", "--report", str(report))
    wait_for_data(tmp_path / "out")
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    figures = json.loads(report.read_text())
    assert figures["flush_reasons"].get("close", 0) > 0
    assert "checkpoint" in output
    assert f"checkpoint_ts          {figures['checkpoint_ts']}" in verified(ends)


def test_after_kill_9_a_second_run_goes_on_and_every_change_is_there_once(
    tmp_path: Path, ends: list[str], launch: Callable[..., subprocess.Popen[str]]
) -> None:
    process = launch("run", *ends)
    wait_for_data(tmp_path / "out", 12)
    process.kill()  # the driver alone; Spark's JVM and workers follow when it is gone
    process.wait()
    time.sleep(1.0)
    answer = tidegate("run", *ends, "--duration", "12s")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    verified(ends)


def test_a_second_signal_leaves_at_once(
    tmp_path: Path, ends: list[str], launch: Callable[..., subprocess.Popen[str]]
) -> None:
    process = launch("run", *ends)
    wait_for_data(tmp_path / "out")
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode in (0, 130)
    verified(ends)


def test_a_finite_source_ends_by_itself_and_the_report_counts_it(tmp_path: Path) -> None:
    ends = [
        "--source", "workload://sysbench?tables=3&rows=1000&events=3000",
        "--sink", f"file://{tmp_path}/out", "--spool-dir", str(tmp_path / "spool"),
    ]  # fmt: skip
    answer = tidegate("run", *ends, "--report", str(tmp_path / "report.json"))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    figures = json.loads((tmp_path / "report.json").read_text())
    assert figures["rows"] == 3000
    assert figures["flush_reasons"] == {"close": 3}
    assert "tidegate verify" in answer.stdout
    verified(ends)


def test_verify_fails_when_a_row_is_missing(tmp_path: Path) -> None:
    ends = ["--source", "workload://sysbench?tables=1&rows=100&events=100", "--sink", f"file://{tmp_path}/out"]
    assert tidegate("run", *ends, "--spool-dir", str(tmp_path / "spool")).returncode == 0
    data = next((tmp_path / "out").rglob("CDC*.csv"))
    lines = data.read_bytes().splitlines(keepends=True)
    data.write_bytes(b"".join(lines[:40] + lines[41:]))
    answer = tidegate("verify", *ends)
    assert answer.returncode == 1
    assert "sbtest.sbtest1" in answer.stderr
    assert "41" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--source", "workload://sysbench?tabels=1", "--sink", "file:///tmp/x"], "tabels"),
        (["--source", "mysqll://x", "--sink", "file:///tmp/x"], "mysqll"),
        (["--source", WORKLOAD, "--sink", "file://relative/x"], "absolute"),
        (["--source", WORKLOAD, "--sink", "ftp://host/x"], "ftp"),
        (["--source", WORKLOAD, "--sink", "file:///tmp/x?flush-intervall=5s"], "flush-interval"),
        (["--source", WORKLOAD, "--sink", "file:///tmp/x", "--option", "spool.max-bytes"], "KEY=VALUE"),
        (["--source", WORKLOAD, "--sink", "file:///tmp/x", "--duration", "soon"], "--duration"),
        (["--source", WORKLOAD, "--sink", "file:///tmp/x", "--option", "encoder-ordering=legacy"], "reorder buffer"),
        (["--source", "parquet:/no/such/dir", "--sink", "file:///tmp/x"], "/no/such/dir"),
        (["no-such.toml", "--source", WORKLOAD, "--sink", "file:///tmp/x"], "no-such.toml"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_culprit_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    answer = tidegate("run", *arguments)
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("kind", ["empty", "no-column"])
def test_parquet_files_that_cannot_be_read_are_refused_before_spark_starts(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    if kind == "no-column":
        pq.write_table(pa.Table.from_pylist([], schema=EVENTS).drop_columns(["seq"]), folder / "a.parquet")
    sentence = "has no .parquet files" if kind == "empty" else "a.parquet' has no column 'seq'; add it (int64)"
    answer = tidegate("run", "--source", f"parquet:{folder}", "--sink", f"file://{tmp_path}/out")
    assert answer.returncode == (2 if kind == "empty" else 1)
    assert sentence in answer.stderr
    assert str(folder) in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "starting Spark" not in answer.stdout
    assert not (tmp_path / "out").exists()
    answer = tidegate("check", f"file://{tmp_path}/out", "--source", f"parquet:{folder}")
    assert answer.returncode == 1
    assert f"problem  source       {'directory' if kind == 'empty' else repr(str(folder))[:-1]}" in answer.stdout


def test_a_bad_row_ends_a_run_with_one_sentence_or_is_set_aside_and_named(tmp_path: Path) -> None:
    rows = [change(1, START_TS + n, n) for n in range(1, 50)]
    rows[20]["after"] = [b"4711;x", b"v"]
    write_events(tmp_path / "events", [events_batch([layout_row(), *rows])], 1000)
    ends = ["--source", f"parquet:{tmp_path}/events", "--sink", f"file://{tmp_path}/out"]
    ends += ["--spool-dir", str(tmp_path / "spool")]
    stopped = tidegate("run", *ends)
    assert stopped.returncode == 1
    assert stopped.stderr.strip().splitlines()[-1] == (
        f"tidegate: shop.t1, commit-ts {START_TS + 21}, column 'id': the value is not a whole number; "
        "correct it in the source, or let such rows be set aside: on-bad-row = set-aside"
    )
    assert "started again" not in stopped.stderr
    run = tidegate("run", *ends, "--option", "on-bad-row=set-aside", "--report", str(tmp_path / "report.json"))
    assert run.returncode == 0, run.stderr
    assert "set aside   1 rows of shop.t1, in _tidegate/bad-rows/1: column 'id': the value is not" in run.stdout
    assert json.loads((tmp_path / "report.json").read_text())["set_aside"]["shop.t1"]["rows"] == 1
    assert "4711" not in stopped.stderr + run.stdout + run.stderr
    assert "note: 1 rows cannot be written; they are set aside in _tidegate/bad-rows" in verified(ends)


def test_a_sink_without_write_rights_is_a_failure_not_a_traceback(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a directory")
    answer = tidegate(
        "run", "--source", WORKLOAD, "--sink", f"file://{blocked}/out", "--spool-dir", str(tmp_path / "spool")
    )
    assert answer.returncode == 1
    assert str(blocked) in answer.stderr
    assert "Traceback" not in answer.stderr


def encode(given: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # The date in paths is that of the local time zone.
    environment = os.environ | {"TZ": "UTC"}
    return subprocess.run(
        command("encode", *arguments), input=given.encode(), capture_output=True, timeout=120, env=environment
    )


def test_encode_writes_the_exact_bytes_or_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "changefeed.toml"
    config.write_text('[sink]\nterminator = "\\n"\n[sink.csv]\ninclude-commit-ts = true\n', encoding="utf-8")
    rows = """{"schema": "shop", "table": "orders", "version": 437, "columns": ["id int primary key", "note blob"],
        "rows": [{"kind": "insert", "commit_ts": 7, "after": {"id": 1, "note": {"hex": "e9"}}},
                 {"kind": "update", "commit_ts": 9, "before": [1, null], "after": [2, "x"]}]}"""
    csv = encode(rows, "--config", str(config), "--option", "csv.binary-encoding-method=hex")
    assert csv.stdout == b'"I","orders","shop",7,1,"e9"\n"D","orders","shop",9,1,\\N\n"I","orders","shop",9,2,"78"\n'
    assert (csv.returncode, csv.stderr) == (0, b"")

    canal = encode(
        rows, "--protocol", "canal-json", "--option", "output-raw-change-event=true", "--now", "1663572946034"
    )
    first, second, end = canal.stdout.split(b"\r\n")
    assert first.endswith('"old":null,"data":[{"id":"1","note":"é"}]}'.encode())
    assert b'"type":"UPDATE","es":0,"ts":1663572946034,' in second
    assert end == b""

    places = encode(rows, "--sink", "noop://?protocol=canal-json", "--output", "paths", "--now", "1663572946034")
    assert places.stdout.splitlines()[1:] == [
        b"data   shop/orders/437/2022-09-19/CDC00000000000000000001.json",
        b"index  shop/orders/437/2022-09-19/meta/CDC.index",
    ]
    assert places.stdout.startswith(b"schema shop/orders/meta/schema_437_")
    schema = encode(rows, "--output", "schema").stdout
    assert schema.startswith(b'{\n    "Table": "orders",\n    "Schema": "shop",\n')
    assert schema.endswith(b'"ColumnType": "BLOB",\n            "ColumnPrecision": "65535"\n        }\n    ],\n'
                           b'    "TableColumnsTotal": 2\n}')  # fmt: skip

    for given, arguments, code, sentence in [
        (rows.replace("[2,", '["two",'), [], 1, "row 2, `after`: column 'id' (int) cannot be 'two'"),
        (rows.replace("blob", "blub"), [], 1, "'blub'"),
        (rows, ["--option", "csv.quote=ab"], 2, "csv quote is 'ab'"),
        (rows, ["--protocol", "avro"], 2, "avro"),
        (rows, ["--config", str(tmp_path / "none.toml")], 2, "none.toml"),
    ]:
        answer = encode(given, *arguments)
        assert (answer.returncode, answer.stdout) == (code, b"")
        assert sentence in answer.stderr.decode()
        assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", [[], ["run"], ["check"], ["verify"], ["encode"], ["bench"]])
def test_help_shows_an_example(verb: list[str]) -> None:
    answer = tidegate(*verb, "--help")
    assert answer.returncode == 0
    assert "example" in answer.stdout


def test_version_is_that_of_the_package_and_of_the_changelog() -> None:
    from tidegate import __version__

    assert tidegate("--version").stdout.strip() == f"tidegate {__version__}"
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert f"## [{__version__}]" in changelog
