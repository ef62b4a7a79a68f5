"""The log: every line has a time and a level, no name can steer a terminal, and what an operator waits for is said."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from tidegate.cli import main
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.log import log
from tidegate.events import DDL
from tidegate.format.ddl.scope import Table, create_table
from tidegate.spark.session import _forward
from tidegate.testing import SHAPE, START_TS, MemoryStore, TinySource, change, feed, layout_row, resolved_row, until
from tidegate.tools.logs import LogLines, set_up

EVIL = "a\x1b[2J\nFAKE line\u202e"
SOURCE = TinySource(tables=1, batches=1, rows=1)


@pytest.fixture
def lines() -> Iterator[Callable[..., list[str]]]:
    """Sets the log up and returns the lines that are written from then on."""
    root, chosen = logging.getLogger(), logging.getLogger("tidegate")
    before = root.level, chosen.level
    written: list[str] = []

    def listen(level: str = "info", kind: str = "text") -> list[str]:
        set_up(level, kind).write = written.append
        return written

    yield listen
    for handler in [each for each in root.handlers if isinstance(each, LogLines)]:
        root.removeHandler(handler)
    root.setLevel(before[0])
    chosen.setLevel(before[1])


def test_a_line_of_text_has_a_time_a_level_and_one_sentence(lines: Callable[..., list[str]]) -> None:
    written = lines()
    log.info("landing %s failed", EVIL)
    [line] = written
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ", line)
    assert line.endswith("landing a\\x1b[2J\\nFAKE line\\u202e failed")


def test_a_line_of_json_has_the_same(lines: Callable[..., list[str]]) -> None:
    written = lines(kind="json")
    log.warning("landing %s failed, %d tables", EVIL, 3)
    line = json.loads(written[0])
    assert (line["level"], line["logger"]) == ("warning", "tidegate")
    assert line["message"] == "landing a\\x1b[2J\\nFAKE line\\u202e failed, 3 tables"
    assert line["time"].endswith("Z")


def test_the_level_decides_what_is_written(lines: Callable[..., list[str]]) -> None:
    written = lines("warning")
    log.info("quiet")
    log.warning("loud")
    logging.getLogger("library").info("quiet")
    assert [line[-4:] for line in written] == ["loud"]


def test_names_are_escaped_for_a_log_of_others_too(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("landing %s failed", EVIL)
    assert caplog.messages == ["landing a\\x1b[2J\\nFAKE line\\u202e failed"]


def test_what_spark_says_is_in_the_log_with_its_level(lines: Callable[..., list[str]]) -> None:
    written = lines(kind="json")
    _forward([b"WARNING: Using incubator modules\n", b"spark ERROR Utils: lost\n", b"  at x\n", b"spark WARN A: b\n"])
    assert [json.loads(line)["level"] for line in written] == ["error", "error", "warning"]


def test_an_error_of_the_command_line_is_a_line_of_json_too(
    lines: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    lines()
    assert main(["check", "ftp://x", "--log-format", "json"]) == 2
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "error"
    assert line["message"].startswith("unknown sink scheme ftp://")


def test_the_end_of_each_ddl_is_said(opened: Callable[..., Changefeed], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    changefeed = opened()
    event = create_table(Table(100, "shop", "t1", 1, SHAPE), "CREATE TABLE t1\n(id INT)")
    assert event is not None
    ddl = {"kind": DDL, "commit_ts": START_TS, "seq": 5, "table_id": 0, "ddl": event.to_json()}
    feed(changefeed, 0, [layout_row(), ddl, resolved_row(START_TS)], "0")
    while changefeed.landing.land_next():
        pass
    assert [text for text in caplog.messages if text.startswith("DDL ")] == [
        f"DDL {START_TS}/5 is over after 0.0 s, its schema files are written: CREATE TABLE `t1` (`id` INT)"
    ]


def test_each_wake_that_is_held_back_is_said_and_its_end(
    opened: Callable[..., Changefeed], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    changefeed = opened(spool_max_bytes=100_000, dispatcher_share=1.0)
    feed(changefeed, 0, [layout_row(), change(1, START_TS + 1, 1, b"1", b"x" * 84_000)], "0")
    waiting = threading.Thread(target=changefeed.intake.await_wake, args=(0, 0.0))
    waiting.start()
    until(lambda: "the wake is held back" in caplog.text)
    assert re.search(r"the spool has 82\.\d KiB of 97\.7 KiB; the source goes on at 58\.6 KiB", caplog.text)
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    waiting.join()
    assert "the upstream is woken after" in caplog.text


def test_a_table_that_lands_again_is_said(
    opened: Callable[..., Changefeed], store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.ledger.planner.closing = True
    store.begin("refuse", "/CDC")
    assert changefeed.landing.land_next()
    store.end("refuse", "/CDC")
    changefeed.clock.advance(61)  # type: ignore[attr-defined]
    assert changefeed.landing.land_next()
    heads = [text.split(":")[0] for text in caplog.messages]
    assert heads == ["landing shop.t1 failed, will retry", "shop.t1 lands again"]
