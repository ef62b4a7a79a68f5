"""The preflight: what it finds, what it says to do, and that it leaves everything as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import main
from tidegate.clock import SystemClock, now_ms
from tidegate.config.settings import Settings, load_settings
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.startup import probe
from tidegate.errors import BadSetting, StoreRefused, StoreUnavailable
from tidegate.events import tso
from tidegate.executor.directory import RESERVE_BYTES, SpoolDirectory
from tidegate.storage.access import Access
from tidegate.storage.files import FileStore
from tidegate.storage.store import NoopStore, Store
from tidegate.testing import MemoryStore, TinySource, feed, open_changefeed
from tidegate.tools.check import OK, PROBLEM, WARNING, Line, preflight

TICDC = {
    "metadata": b'{"checkpoint-ts":450253245512155140}',
    "shop/meta/schema_100_3233644819.json": b"{}",
    "shop/orders/meta/schema_100_3752767265.json": b"{}",
    "shop/orders/meta/schema_100_3752767265.json.tmp.1b2c": b"{",
    "shop/orders/100/2023-05-09/CDC00000000000000000001.csv": b"x",
    "shop/orders/100/2023-05-09/meta/CDC.index": b"CDC00000000000000000001.csv\n",
}


@dataclass
class Written(MemoryStore):
    """A store whose objects were all written this long ago, but for those of a check; its clock is `ahead_s` ahead."""

    age_s: float = 3600.0
    ahead_s: float = 0.0

    def modified(self, path: str) -> float | None:
        age_s = 0.0 if "/check/" in path else self.age_s
        return time.time() - age_s + self.ahead_s if path in self.objects else None


class Careless(MemoryStore):
    """Takes conditional puts and ignores the conditions."""

    def create_bytes(self, path: str, data: bytes) -> bool:
        self.put(path, data)
        return True

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        self.put(path, data)
        return ""


class Immutable(MemoryStore):
    def delete(self, path: str) -> None:
        raise StoreRefused(f"{path}: objects are locked")


class Broken(MemoryStore):
    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        raise RuntimeError("bad answer, sig=abc%2Fdef&se=2026 and hunter2+/x")


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    def load(**overrides: Any) -> Settings:
        return load_settings("file:///data/cdc", None, {"spool.dir": str(tmp_path / "spool"), **overrides})

    return load


def lines(settings: Settings, store: Store) -> dict[str, Line]:
    return {line.name: line for line in preflight(settings, store, SystemClock())}


def bad(found: dict[str, Line]) -> set[tuple[str, str]]:
    return {(line.name, line.verdict) for line in found.values() if line.verdict != OK}


def test_a_good_sink_has_no_problem_and_is_left_as_it_was(settings: Callable[..., Settings], tmp_path: Path) -> None:
    for store in (MemoryStore(), Written(objects=dict(TICDC)), FileStore(tmp_path / "sink")):
        before = {path for path, _ in store.list("")}
        assert bad(lines(settings(), store)) == set()
        assert {path for path, _ in store.list("")} == before
    assert not (tmp_path / "spool").exists()


def test_every_line_that_is_not_ok_says_what_to_do(settings: Callable[..., Settings]) -> None:
    stores = (Careless(), Immutable(), Broken(), Written(objects={"x": b""}, ahead_s=90.0), MemoryStore(after="refuse"))
    for store in stores:
        found = [line for line in lines(settings(), store).values() if line.verdict != OK]
        assert found
        assert all(line.remedy for line in found)


# -- reach and rights ------------------------------------------------------------------------------------------------


def test_a_sink_that_does_not_answer_is_one_problem_and_the_spool_is_still_looked_at(
    settings: Callable[..., Settings],
) -> None:
    store = MemoryStore()
    store.begin("unavailable")
    found = lines(settings(), store)
    assert list(found) == ["sink", "spool", "space"]
    assert bad(found) == {("sink", PROBLEM)}
    assert "does not answer" in found["sink"].sentence


@pytest.mark.parametrize(
    ("store", "name"), [(MemoryStore(after="refuse"), "put"), (Immutable(), "delete"), (Broken(), "sink")]
)
def test_a_right_that_is_missing_is_named(settings: Callable[..., Settings], store: MemoryStore, name: str) -> None:
    assert bad(lines(settings(), store)) == {(name, PROBLEM)}


def test_a_sink_that_may_not_be_written_says_so(settings: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    found = lines(settings(), FileStore(tmp_path / "file"))
    assert ("put", PROBLEM) in bad(found)


def test_a_store_that_ignores_conditions_is_a_problem(settings: Callable[..., Settings]) -> None:
    found = lines(settings(), Careless())
    assert bad(found) == {("create-only", PROBLEM), ("swap", PROBLEM)}
    assert "If-None-Match" in found["create-only"].remedy


@pytest.mark.parametrize(
    ("ahead_s", "verdict"), [(0.0, OK), (3.0, OK), (30.0, WARNING), (-30.0, WARNING), (90.0, PROBLEM), (-90.0, PROBLEM)]
)
def test_a_clock_that_is_wrong_is_said(settings: Callable[..., Settings], ahead_s: float, verdict: str) -> None:
    line = lines(settings(), Written(ahead_s=ahead_s))["clock"]
    assert line.verdict == verdict
    assert (("behind" if ahead_s > 0 else "ahead of") in line.sentence) == (verdict != OK)


def test_no_secret_is_shown(settings: Callable[..., Settings]) -> None:
    secret = Settings(
        "s3://lake/cdc", "s3", "tiny", "/spool", access=Access((("secret-access-key", "hunter2+/x"), ("region", "eu")))
    )
    text = str(lines(secret, Broken()))
    assert "hunter2" not in text
    assert "abc" not in text
    assert "sig=***" in text


def test_a_sink_that_stores_nothing_has_nothing_to_look_at(tmp_path: Path) -> None:
    noop = load_settings("noop://", None, {"spool.dir": str(tmp_path)})
    assert bad(lines(noop, NoopStore())) == set()


# -- the prefix --------------------------------------------------------------------------------------------------------


def written_by_tidegate(store: MemoryStore, spool: Path, **settings: Any) -> Changefeed:
    source = TinySource(batches=1)
    changefeed = open_changefeed(store, spool, **settings)
    feed(changefeed, 0, source.batch(0))
    changefeed.source_ended()
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()
    return changefeed


def test_a_prefix_of_ours_is_known_with_its_checkpoint(settings: Callable[..., Settings], tmp_path: Path) -> None:
    store = Written()
    changefeed = written_by_tidegate(store, tmp_path / "other")
    changefeed.close()
    found = lines(settings(), store)
    assert bad(found) == set()
    assert f"checkpoint-ts {TinySource().resolved_ts(0)} (2026-01-01" in found["prefix"].sentence


def test_a_prefix_of_ticdc_is_taken_over_from_its_checkpoint(settings: Callable[..., Settings]) -> None:
    line = lines(settings(), Written(objects=dict(TICDC)))["prefix"]
    assert (line.verdict, "written by TiCDC" in line.sentence) == (OK, True)
    assert "checkpoint-ts 450253245512155140 (2024-" in line.sentence


def test_files_of_ticdc_without_a_checkpoint_are_warned_about(settings: Callable[..., Settings]) -> None:
    objects = {path: data for path, data in TICDC.items() if path != "metadata"}
    line = lines(settings(), Written(objects=objects))["prefix"]
    assert (line.verdict, "no checkpoint" in line.sentence) == (WARNING, True)


def test_another_writer_after_us_is_warned_about(settings: Callable[..., Settings], tmp_path: Path) -> None:
    store = Written()
    written_by_tidegate(store, tmp_path / "other").close()
    later = tso(now_ms())
    store.put("metadata", b'{"checkpoint-ts":%d}' % later)
    line = lines(settings(), store)["prefix"]
    assert (line.verdict, str(later) in line.sentence) == (WARNING, True)


def test_a_prefix_that_holds_other_things_is_named_with_one(settings: Callable[..., Settings]) -> None:
    alone = lines(settings(), Written(objects={"photos/cat.jpg": b"x"}))["prefix"]
    among = lines(settings(), Written(objects=TICDC | {"photos/cat.jpg": b"x"}))["prefix"]
    assert (alone.verdict, among.verdict) == (PROBLEM, WARNING)
    assert all("photos/cat.jpg" in line.sentence for line in (alone, among))


def test_a_bad_metadata_object_is_a_line(settings: Callable[..., Settings]) -> None:
    line = lines(settings(), Written(objects={"metadata": b"\xff{"}))["prefix"]
    assert line.verdict == PROBLEM


def test_a_million_objects_are_not_walked(settings: Callable[..., Settings]) -> None:
    taken = 0

    class Endless(Written):
        def list(self, prefix: str) -> Iterator[tuple[str, int]]:
            if prefix:
                yield from super().list(prefix)
                return
            nonlocal taken
            while True:
                taken += 1
                yield f"s/t/5/2026-01-01/CDC{taken:020d}.csv", 1

    store = Endless()
    assert bad(lines(settings(), store)) == {("prefix", WARNING)}
    assert taken == 1000
    assert len(store.calls) < 25


# -- options against the prefix ----------------------------------------------------------------------------------------


def test_an_option_that_shapes_the_prefix_is_named_with_both_values(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    store = Written()
    written_by_tidegate(store, tmp_path / "other").close()
    found = [
        line for line in preflight(settings(date_separator="month"), store, SystemClock()) if line.name == "options"
    ]
    assert [line.sentence for line in found] == ["date-separator is month, but the prefix is written with day"]
    assert found[0].remedy == "set date-separator to day, or give another prefix"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"protocol": "canal-json"}, "protocol is canal-json, but the prefix is written with csv"),
        ({"file_index_digit": 6}, "file-index-digit is 6, but the prefix is written with 20"),
        ({"date_separator": "month"}, "date-separator is month, but the prefix is written with day"),
        ({"date_separator": "none"}, "date-separator is none, but the prefix is written with day"),
        ({"use_table_id_as_path": True}, "use-table-id-as-path is true, but the prefix is written with false"),
    ],
)
def test_without_a_journal_the_names_of_files_tell(
    settings: Callable[..., Settings], overrides: dict[str, Any], sentence: str
) -> None:
    line = lines(settings(**overrides), Written(objects=dict(TICDC)))["options"]
    assert (line.verdict, line.sentence) == (PROBLEM, sentence)


@pytest.mark.parametrize(
    ("path", "overrides"),
    [
        ("12345/5/CDC_77_000001.json", {"protocol": "canal-json", "file_index_digit": 6, "date_separator": "none",
                                        "use_table_id_as_path": True}),
        ("s/t/437/2026/CDC00000000000000000001.csv", {"date_separator": "year"}),
        ("s/t/437/2026/CDC00000000000000000001.csv", {"date_separator": "none"}),
        ("s/t/437/55/2026-01/meta/CDC_7.index", {"date_separator": "month"}),
        ("s/t/437/2026-01-31/CDC1234567.csv", {"file_index_digit": 6}),
    ],
)  # fmt: skip
def test_options_that_suit_the_names_pass(
    settings: Callable[..., Settings], path: str, overrides: dict[str, Any]
) -> None:
    assert lines(settings(**overrides), Written(objects={path: b"x"}))["options"].verdict == OK


# -- another writer ----------------------------------------------------------------------------------------------------


def test_a_changefeed_that_runs_here_is_said_and_not_disturbed(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    sink = FileStore(tmp_path / "sink")
    chosen = settings(changefeed_id="tiny")
    changefeed = open_changefeed(sink, chosen.spool_dir)
    half_written = tmp_path / "sink/_tidegate/tmp/half"
    half_written.write_bytes(b"x")
    try:
        found = lines(chosen, sink)
        assert bad(found) == {("writers", WARNING)}
        assert "runs on this machine" in found["writers"].sentence
        assert half_written.exists()
        feed(changefeed, 0, TinySource().batch(0))
        changefeed.scribe.write_progress()
    finally:
        changefeed.close()
    assert "runs on this machine" not in lines(chosen, sink)["writers"].sentence


def test_a_journal_written_just_now_is_warned_about(settings: Callable[..., Settings], tmp_path: Path) -> None:
    store = Written(age_s=3.0, ahead_s=-4000.0)
    written_by_tidegate(store, tmp_path / "other").close()
    line = lines(settings(), store)["writers"]
    assert (line.verdict, "written 3 s ago" in line.sentence) == (WARNING, True)


def test_ticdc_at_work_is_a_problem(settings: Callable[..., Settings]) -> None:
    line = lines(settings(), Written(objects=dict(TICDC), age_s=2.0))["writers"]
    assert (line.verdict, "TiCDC" in line.sentence) == (PROBLEM, True)


# -- the spool ---------------------------------------------------------------------------------------------------------


def test_a_spool_directory_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    chosen = load_settings("noop://", None, {"spool.dir": str(tmp_path / "file/spool")})
    line = lines(chosen, NoopStore())["spool"]
    assert (line.verdict, line.remedy) == (PROBLEM, "give another directory with --spool-dir")


def test_too_little_space_for_the_spool_is_warned_about(tmp_path: Path) -> None:
    chosen = load_settings("noop://", None, {"spool.dir": str(tmp_path), "spool.max-bytes": 1 << 60})
    line = lines(chosen, NoopStore())["space"]
    assert (line.verdict, "spool.max-bytes" in line.remedy) == (WARNING, True)
    assert os.listdir(tmp_path) == []


def test_a_spool_in_memory_is_held_against_the_ram_there_is(tmp_path: Path) -> None:
    given = {"spool.dir": str(tmp_path), "spool.type": "memory"}
    small, large = (load_settings("noop://", None, {**given, "spool.max-bytes": size}) for size in (1 << 10, 1 << 60))
    assert lines(small, NoopStore())["space"].sentence == "1 KiB of RAM for the spool"
    assert lines(large, NoopStore())["space"].verdict == WARNING


def test_the_reserve_is_the_changefeeds(tmp_path: Path) -> None:
    assert SpoolDirectory.reserve_bytes == RESERVE_BYTES
    spool = SpoolDirectory.open(str(tmp_path), "tiny", "disk", 1 << 20)
    spool.close()


# -- what a start does -------------------------------------------------------------------------------------------------


def no_secrets(text: str) -> str:
    return text


def test_the_probe_of_a_start_needs_few_requests() -> None:
    store = MemoryStore()
    probe(store, "file:///data/cdc", no_secrets)
    first, store.calls = len(store.calls), []
    probe(store, "file:///data/cdc", no_secrets)
    assert (first, len(store.calls)) == (2, 1)


def test_the_probe_of_a_start_raises_what_says_what_to_do() -> None:
    with pytest.raises(StoreUnavailable, match=r"file:///data/cdc does not answer.*try again"):
        probe(MemoryStore(after="unavailable"), "file:///data/cdc", no_secrets)
    with pytest.raises(StoreRefused, match="cannot be used"):
        probe(MemoryStore(after="refuse"), "file:///data/cdc", no_secrets)
    with pytest.raises(StoreRefused, match="ignores create-only puts"):
        probe(Careless(), "file:///data/cdc", no_secrets)


def test_a_start_with_other_options_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = MemoryStore()
    written_by_tidegate(store, tmp_path / "other").close()
    before = dict(store.objects)
    with pytest.raises(BadSetting, match=r"protocol = canal-json \(was csv\)"):
        open_changefeed(store, tmp_path, protocol="canal-json")
    assert store.objects == before


def test_a_start_on_ticdcs_files_of_other_options_is_refused_as_the_check_says(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    store = MemoryStore(
        objects={"shop/orders/437/2026-01-31/CDC000001.json": b"{}", "metadata": b'{"checkpoint-ts":7}'}
    )
    assert lines(settings(), store)["options"].verdict == PROBLEM
    with pytest.raises(BadSetting, match=r"protocol = csv \(was canal-json\)"):
        open_changefeed(store, tmp_path)


def test_a_sample_of_ticdcs_files_is_no_proof_that_options_differ(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    old = {f"a/t{n:04d}/437/CDC{1:020d}.csv": b"x" for n in range(1100)}
    suits = {f"z/t/437/2026-01-31/CDC{1:020d}.csv": b"x", "metadata": b'{"checkpoint-ts":7}'}
    store = MemoryStore(objects=old | suits)
    line = lines(settings(), store)["options"]
    assert (line.verdict, "as far as its first files show" in line.sentence) == (WARNING, True)
    open_changefeed(store, tmp_path).close()


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"file://{tmp_path}/sink", "--spool-dir", f"{tmp_path}/spool"]) == 0
    out = capsys.readouterr().out
    assert "  ok       create-only  an object is created once only" in out
    assert out.endswith("0 problems, 0 warnings\n")


def test_the_command_fails_where_there_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sink").mkdir()
    (tmp_path / "sink/cat.jpg").write_bytes(b"x")
    config = tmp_path / "feed.toml"
    config.write_text("[sink]\ndate-separator = 'Day'\n")
    assert main(["check", f"file://{tmp_path}/sink", str(config), "--spool-dir", f"{tmp_path}/spool"]) == 1
    out = capsys.readouterr().out
    assert "  problem  prefix       holds cat.jpg and nothing of TiCDC's layout" in out
    assert "-> give an empty prefix" in out
    assert "note: " in out


def test_the_command_loads_no_spark(tmp_path: Path) -> None:
    text = (
        "import sys; from tidegate.cli import main; main(['check', 'noop://', '--spool-dir', sys.argv[1]]);"
        "print([name for name in ('pyspark', 'tidegate.bench', 'tidegate.driver.changefeed') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=True)
    assert answer.stdout.endswith("0 problems, 0 warnings\n[]\n")


def test_a_bad_option_is_refused_before_anything_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "file:///data/cdc", "--option", "file-sise=1"]) == 2
    assert "did you mean 'file-size'?" in capsys.readouterr().err


# -- real servers ------------------------------------------------------------------------------------------------------

SERVERS = pytest.mark.parametrize("kind", ["s3_server", "azblob_server"])


@SERVERS
def test_an_object_store_is_found_good_and_left_empty(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = request.getfixturevalue(kind)
    uri = server.uri(f"check-{kind}")
    assert main(["check", uri, "--spool-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.endswith("0 problems, 0 warnings\n")
    assert list(server.store(f"check-{kind}").list("")) == []
    probe(server.store(f"check-{kind}"), uri, no_secrets)
    assert "secret" not in out.replace("secret-access-key=***", "")


@SERVERS
def test_an_object_store_that_cannot_be_reached_is_one_problem(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = request.getfixturevalue(kind)
    assert main(["check", server.uri("x", bucket="absent"), "--spool-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "  problem  " in out
    assert "Traceback" not in out
