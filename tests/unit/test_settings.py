from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.settings import (
    OPTIONS,
    Settings,
    changefeed_id,
    duration_s,
    effective,
    load_settings,
    read_config,
    redacted,
    show_duration,
    show_size,
    size_bytes,
)

SINK = "file:///data/out"


def storage(**values: Any) -> dict[str, Any]:
    """A config file with these keys under [sink.cloud-storage-config]."""
    return {"sink": {"cloud-storage-config": {key.replace("_", "-"): value for key, value in values.items()}}}


def refusal(uri: str = SINK, config: dict[str, Any] | None = None, **overrides: Any) -> str:
    with pytest.raises(BadSetting) as caught:
        load_settings(uri, config, overrides)
    return str(caught.value)


# Defaults and layers


def test_the_defaults_are_ticdcs() -> None:
    settings = load_settings(SINK)
    assert (settings.sink_uri, settings.scheme, settings.protocol) == (SINK, "file", "csv")
    assert (settings.file_size_bytes, settings.flush_interval_s, settings.worker_count) == (67108864, 5.0, 16)
    assert (settings.date_separator, settings.index_digits) == ("day", 20)
    assert (settings.partition_separator, settings.table_id_as_path) == (True, False)
    assert (settings.terminator, settings.csv.terminator, settings.csv.null) == ("\r\n", "\r\n", "\\N")


def test_the_defaults_of_our_own_options_follow_the_design() -> None:
    settings = load_settings(SINK)
    assert (settings.spool_type, settings.spool_max_bytes) == ("disk", 10737418240)
    assert settings.spool_dir == os.path.join(tempfile.gettempdir(), "tidegate-spool")
    assert (settings.wake_mode, settings.encoder_ordering, settings.max_flush_delay_s) == ("enqueue", "per-table", None)
    assert (settings.dispatcher_share, settings.notes) == (0.125, ())


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_settings(SINK).worker_count = 3  # type: ignore[misc]


def test_the_sink_uri_wins_over_the_config_file_and_options_win_over_both() -> None:
    config = storage(file_size="8MiB")
    assert load_settings(SINK, config).file_size_bytes == 8 << 20
    assert load_settings(SINK + "?file-size=16777216", config).file_size_bytes == 16 << 20
    assert load_settings(SINK + "?file-size=16777216", config, {"file-size": "32MiB"}).file_size_bytes == 32 << 20


def test_an_option_that_is_none_counts_as_not_given() -> None:
    assert load_settings(SINK + "?worker-count=3", None, {"worker_count": None}).worker_count == 3


@pytest.mark.parametrize("name", ["spool.max-bytes", "spool-max-bytes", "spool_max_bytes", "spool_disk_quota"])
def test_options_are_known_in_both_spellings_and_by_alias(name: str) -> None:
    assert load_settings(SINK, None, {name: "1GiB"}).spool_max_bytes == 1 << 30


def test_every_field_but_the_derived_ones_has_an_option() -> None:
    filled = {option.field.partition(".")[0] for option in OPTIONS.values()}
    assert {f.name for f in dataclasses.fields(Settings)} - filled == {
        "sink_uri",
        "scheme",
        "dispatcher_share",
        "notes",
    }


def test_every_option_stands_at_its_own_place_in_the_config_file() -> None:
    assert len({option.place for option in OPTIONS.values()}) == len(OPTIONS)


# The config file

CONFIG = """
changefeed-id = "orders"
max-flush-delay = "200ms"
dml-wake-mode = "flush"
encoder-ordering = "global"

[sink]
protocol = "csv"
date-separator = "month"
file-index-digit = 6
enable-partition-separator = false
terminator = ""

[sink.csv]
delimiter = "|@|"
quote = ""
null = "NULL"
include-commit-ts = true
binary-encoding-method = "hex"
output-old-value = true
output-field-header = true

[sink.cloud-storage-config]
worker-count = 12
flush-interval = "1m2s"
file-size = 1485760
use-table-id-as-path = true

[spool]
type = "memory"
max-bytes = "3GiB"
dir = "/data/spool"
"""


def test_every_key_of_a_config_file_arrives(tmp_path: Path) -> None:
    file = tmp_path / "feed.toml"
    file.write_text(CONFIG)
    settings = load_settings(SINK, read_config(file))
    assert (settings.changefeed_id, settings.wake_mode, settings.encoder_ordering) == ("orders", "flush", "global")
    assert (settings.max_flush_delay_s, settings.flush_interval_s) == (0.2, 62.0)
    assert (settings.date_separator, settings.index_digits, settings.partition_separator) == ("month", 6, False)
    assert (settings.worker_count, settings.file_size_bytes, settings.table_id_as_path) == (12, 1485760, True)
    assert (settings.spool_type, settings.spool_max_bytes, settings.spool_dir) == ("memory", 3 << 30, "/data/spool")
    csv = settings.csv
    assert (csv.delimiter, csv.quote, csv.null, csv.binary_encoding) == ("|@|", "", "NULL", "hex")
    assert (csv.include_commit_ts, csv.output_old_value, csv.output_field_header) == (True, True, True)
    assert settings.terminator == csv.terminator == ""


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"feed\.toml' cannot be read: No such file"):
        read_config(tmp_path / "feed.toml")
    with pytest.raises(BadSetting, match="cannot be read: Is a directory"):
        read_config(tmp_path)


def test_a_config_file_that_is_not_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "feed.toml"
    file.write_text("[sink\n")
    with pytest.raises(BadSetting, match=r"is not valid TOML: .*line 1"):
        read_config(file)
    file.write_bytes(b"a = '\xff'")
    with pytest.raises(BadSetting, match="is not UTF-8 text"):
        read_config(file)


def test_a_value_where_a_table_belongs_is_refused() -> None:
    assert refusal(config={"sink": 3}).startswith("sink in the config file must be a table, written [sink]")


# Unknown keys


def test_an_unknown_key_names_the_nearest_and_lists_all() -> None:
    message = refusal(SINK + "?flush-intervall=5s")
    assert "unknown option 'flush-intervall' in the sink URI; did you mean 'flush-interval'?" in message
    assert all(key in message for key in OPTIONS)
    assert "did you mean 'file-size'?" in refusal(file_sise="1MiB")


def test_a_key_at_the_wrong_place_of_the_config_file_is_shown_the_right_one() -> None:
    assert "did you mean 'sink.cloud-storage-config.file-size'?" in refusal(config={"file-size": 1024})
    assert "did you mean 'sink.csv.quote'?" in refusal(config={"sink": {"quote": "'"}})


@pytest.mark.parametrize("key", ["output-column-id", "flush-concurrency"])
def test_a_ticdc_key_that_is_still_missing_says_so(key: str) -> None:
    assert "not yet in this version" in refusal(config=storage(**{key: 1}))


def test_a_key_given_twice_is_refused_also_by_its_alias() -> None:
    assert "'file-size' stands twice" in refusal(SINK + "?file-size=1MiB&file-size=2MiB")
    assert "are the same option" in refusal(SINK + "?spool.dir=/a&spool-base-dir=/a")


def test_a_query_part_without_a_value_is_refused() -> None:
    assert refusal(SINK + "?file-size") == "'file-size' in the sink URI must be written file-size=VALUE"


# TiCDC's rules for TiCDC's keys


@pytest.mark.parametrize(
    ("query", "field", "expected", "note"),
    [
        ("worker-count=10000", "worker_count", 512, "worker-count '10000' in the sink URI is clamped to 512"),
        ("flush-interval=-10s", "flush_interval_s", 0.1, "is clamped to 100ms"),
        ("flush-interval=11m", "flush_interval_s", 600.0, "is clamped to 10m"),
        ("file-size=1073741824", "file_size_bytes", 536870912, "is clamped to 512MiB"),
        ("file-size=1", "file_size_bytes", 1024, "is clamped to 1KiB"),
        ("file-index-digit=5", "index_digits", 20, "is outside 6..20"),
        ("file-index-digit=21", "index_digits", 20, "is outside 6..20"),
        ("date-separator=Day", "date_separator", "none", "TiCDC treats as none"),
        ("flush-interval=", "flush_interval_s", 5.0, "changes nothing"),
    ],
)
def test_a_clamped_value_is_noted(query: str, field: str, expected: object, note: str) -> None:
    settings = load_settings(f"{SINK}?{query}")
    assert getattr(settings, field) == expected
    assert len(settings.notes) == 1
    assert note in settings.notes[0]


@pytest.mark.parametrize(
    ("query", "field", "expected"),
    [
        ("worker-count=64", "worker_count", 64),
        ("flush-interval=2m2s", "flush_interval_s", 122.0),
        ("flush-interval=100ms", "flush_interval_s", 0.1),
        ("file-size=33554432", "file_size_bytes", 33554432),
        ("file-index-digit=16", "index_digits", 16),
        ("date-separator=none", "date_separator", "none"),
        ("spool-base-dir=%2Fdata%2Fa", "spool_dir", "/data/a"),
        ("csv.delimiter=FE", "csv", dataclasses.replace(load_settings(SINK).csv, delimiter="FE")),
    ],
)
def test_a_value_in_range_is_taken_without_a_note(query: str, field: str, expected: object) -> None:
    settings = load_settings(f"{SINK}?{query}")
    assert getattr(settings, field) == expected
    assert settings.notes == ()


def test_a_note_of_a_layer_that_lost_is_dropped() -> None:
    assert load_settings(SINK, storage(worker_count=10000), {"worker-count": 3}).notes == ()


@pytest.mark.parametrize(
    ("query", "config", "field", "kept"),
    [
        ("use-table-id-as-path=false", storage(use_table_id_as_path=True), "table_id_as_path", True),
        ("worker-count=0", storage(worker_count=12), "worker_count", 12),
        ("spool-disk-quota=0", storage(spool_disk_quota=3221225472), "spool_max_bytes", 3221225472),
    ],
)
def test_zero_in_the_sink_uri_leaves_the_config_file_alone_as_in_ticdc(
    query: str, config: dict[str, Any], field: str, kept: object
) -> None:
    settings = load_settings(f"{SINK}?{query}", config)
    assert getattr(settings, field) == kept
    assert settings.notes == (f"{query} in the sink URI changes nothing (TiCDC's rule)",)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("worker-count=-1", "worker-count must be greater than 0, not '-1' (in the sink URI)"),
        ("worker-count=0", "worker-count must be greater than 0"),
        ("worker-count=many", "worker-count must be a whole number, not 'many'"),
        ("flush-interval=5", "flush-interval must be a duration such as 5s, 200ms or 1m30s, not '5'"),
        ("file-size=big", "file-size must be a size such as 67108864, 64MiB or 64MB, not 'big'"),
        ("use-table-id-as-path=yes", "use-table-id-as-path must be true or false, not 'yes'"),
        ("date-separator=week", "date-separator must be none or year or month or day, not 'week'"),
        ("spool-disk-quota=0", "spool-disk-quota must be greater than 0"),
        ("spool-base-dir=relative/path", "spool-base-dir must be absolute"),
        ("protocol=canal-json", "protocol must be csv, not 'canal-json': canal-json is not yet in this version"),
        ("csv.binary-encoding-method=invalid", "csv.binary-encoding-method must be hex or base64, not 'invalid'"),
        ("spool.type=tape", "spool.type must be disk or memory, not 'tape'"),
        ("spool.max-bytes=-5", "spool.max-bytes must be greater than 0, not '-5'"),
        ("spool.dir=tmp", "spool.dir must be absolute"),
        ("dml-wake-mode=never", "dml-wake-mode must be enqueue or flush, not 'never'"),
        ("encoder-ordering=legacy", "not 'legacy': there is no reorder buffer"),
        ("max-flush-delay=0s", "max-flush-delay must be at least 1ms, or off, not '0s'"),
        ("max-flush-delay=6s", "max-flush-delay 6s is longer than flush-interval 5s and would never act"),
        ("changefeed-id=../x", "changefeed-id must be 1 to 128 letters, digits, '.', '_' or '-'"),
        ("changefeed-id=", "changefeed-id must be 1 to 128 letters"),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_sentence(query: str, sentence: str) -> None:
    assert sentence in refusal(f"{SINK}?{query}")


@pytest.mark.parametrize(
    ("quote", "delimiter"),
    [("***", ","), ("\n", ","), ("'", "\r"), ("'", "'"), ("E", "FE"), ('"', ""), ('"', "abcd"), ("é", ",")],
)
def test_csv_texts_that_ticdc_refuses_are_refused(quote: str, delimiter: str) -> None:
    message = refusal(config={"sink": {"csv": {"quote": quote, "delimiter": delimiter}}})
    assert repr(quote) in message or repr(delimiter) in message


@pytest.mark.parametrize(
    "config",
    [storage(worker_count=True), storage(worker_count=1.5), storage(flush_interval=5), {"sink": {"terminator": 3}}],
)
def test_a_toml_value_of_the_wrong_type_is_refused(config: dict[str, Any]) -> None:
    assert "(in the config file)" in refusal(config=config)


def test_off_switches_the_flush_delay_off() -> None:
    config = {"max-flush-delay": "200ms"}
    assert load_settings(SINK, config).max_flush_delay_s == 0.2
    assert load_settings(SINK, config, {"max_flush_delay": "off"}).max_flush_delay_s is None


# The sink URI


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("file:///data/out", "file:///data/out"),
        ("FILE:///data/out/?file-size=1MiB", "file:///data/out"),
        ("file:/data/out", "file:///data/out"),
        ("file://localhost/data/out", "file:///data/out"),
        ("file:////data//x/../out", "file:///data/out"),
        ("file:///data/a%20b", "file:///data/a%20b"),
        ("file:///data/a b", "file:///data/a%20b"),
        ("noop://", "noop://"),
        ("noop:///", "noop://"),
        ("noop://any?worker-count=2", "noop://any"),
    ],
)
def test_one_directory_has_one_sink_uri_however_it_is_spelled(uri: str, plain: str) -> None:
    assert load_settings(uri).sink_uri == plain


@pytest.mark.parametrize("uri", ["file://./out", "file://out", "file:out", "./out", "out"])
def test_a_relative_directory_is_refused_with_the_absolute_one_to_write(uri: str) -> None:
    assert f"write file://{os.path.abspath('out')}" in refusal(uri)


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("/data/out", "sink '/data/out' has no scheme: for a directory write file:///data/out"),
        ("file://", "the sink URI names no directory: write file:///absolute/path"),
        ("file:///", "the sink URI names no directory"),
        ("file:///data/#1", "write it as %23"),
        ("flie:///data/out", "unknown sink scheme flie://; did you mean file://? known: file, noop"),
        ("kafka://broker/topic", "unknown sink scheme kafka://; known: file, noop"),
    ],
)
def test_a_bad_sink_uri_is_refused_with_the_remedy(uri: str, sentence: str) -> None:
    assert sentence in refusal(uri)


@pytest.mark.parametrize("scheme", ["s3", "gs", "gcs", "azblob", "azure"])
def test_a_remote_scheme_is_not_yet_there_and_its_secrets_are_not_told(scheme: str) -> None:
    message = refusal(f"{scheme}://bucket/prefix?secret-access-key=hunter2")
    assert f"{scheme}:// is not yet in this version" in message
    assert "hunter2" not in message


# The changefeed id


def test_the_changefeed_id_is_readable_and_follows_the_sink() -> None:
    first, other = changefeed_id("file:///data/out"), changefeed_id("file:///data-out")
    assert first == "file-data-out-42a75c73"
    assert other.startswith("file-data-out-")
    assert first != other
    assert load_settings("file:///data/out/?worker-count=3").changefeed_id == first


@given(st.text(min_size=1))
def test_any_derived_changefeed_id_is_one_that_could_be_given(path: str) -> None:
    derived = changefeed_id("file:///" + path.encode("utf-8", "replace").decode())
    assert load_settings(SINK, None, {"changefeed-id": derived}).changefeed_id == derived


# Values and what is shown of them


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("200ms", 0.2), ("1m30s", 90.0), ("1.5h", 5400.0), ("-10s", -10.0), ("0", 0.0), ("10us", 1e-5)],
)
def test_durations_are_written_as_in_go(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5x", "1m-3s", "1e3s", 5, 5.0, None, True])
def test_anything_else_is_no_duration(text: object) -> None:
    with pytest.raises(BadSetting, match="must be a duration"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [(1024, 1024), ("1024", 1024), ("64MiB", 67108864), ("64MB", 64000000), ("64 mib", 67108864), ("1.5KiB", 1536)],
)
def test_sizes_are_bytes_or_have_a_unit(text: object, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "64M", "1.5", "0.3B", 1.5, True, None])
def test_anything_else_is_no_size(text: object) -> None:
    with pytest.raises(BadSetting, match="must be a size"):
        size_bytes(text)


@given(st.integers(0, 1 << 50))
def test_a_size_is_shown_as_it_can_be_read(size: int) -> None:
    assert size_bytes(show_size(size)) == size


@given(st.integers(0, 10**15))
def test_a_duration_is_shown_as_it_can_be_read(microseconds: int) -> None:
    assert duration_s(show_duration(microseconds / 10**6)) == pytest.approx(microseconds / 10**6, rel=1e-12)


def test_the_effective_settings_show_every_option_once_with_units() -> None:
    shown = dict(effective(load_settings(SINK + "?flush-interval=1m2s", {"sink": {"csv": {"delimiter": "\t"}}})))
    assert list(shown) == ["sink", *(key for key, option in OPTIONS.items() if not option.alias)]
    assert (shown["sink"], shown["file-size"], shown["flush-interval"]) == (SINK, "64MiB", "1m2s")
    assert (shown["max-flush-delay"], shown["spool.max-bytes"]) == ("off", "10GiB")
    assert (shown["terminator"], shown["csv.delimiter"]) == (r"'\r\n'", r"'\t'")
    assert shown["enable-partition-separator"] == "true"


def test_secrets_are_hidden_in_a_shown_uri() -> None:
    assert redacted("s3://me:hunter2@bucket/p?secret-access-key=abc&region=eu") == (
        "s3://me:***@bucket/p?secret-access-key=***&region=eu"
    )
    assert redacted("noop://me:hunter2@x") == "noop://me:***@x"
    assert redacted(SINK) == SINK
