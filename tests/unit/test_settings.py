from __future__ import annotations

import ast
import dataclasses
import os
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.options import IDLE, SWITCHES
from tidegate.config.settings import (
    OPTIONS,
    Settings,
    changefeed_id,
    default_spool_dir,
    duration_s,
    effective,
    load_settings,
    read_config,
    show_duration,
    show_size,
    size_bytes,
)
from tidegate.config.text import show_text
from tidegate.errors import BadSetting
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions
from tidegate.format.rules.rules import (
    ColumnSelector,
    ColumnSelectors,
    EventFilter,
    EventFilters,
    Route,
    Routes,
    Rules,
    TableFilter,
)
from tidegate.storage.access import Access
from tidegate.wording import redacted

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
    assert (settings.flush_concurrency, settings.output_column_id, settings.output_raw_change_event) == (
        1,
        False,
        False,
    )
    assert (settings.file_expiration_days, settings.file_cleanup_cron) == (0, "0 0 2 * * *")
    assert (settings.transaction_atomicity, settings.across_nodes, settings.case_sensitive) == ("none", False, False)
    assert (settings.canal, settings.rules) == (CanalOptions(), Rules())
    assert (settings.paths, settings.encoding) == (PathOptions(), CsvOptions())


def test_the_defaults_of_our_own_options_follow_the_design() -> None:
    settings = load_settings(SINK)
    assert (settings.spool_type, settings.spool_max_bytes) == ("disk", 10737418240)
    assert settings.spool_dir == default_spool_dir()
    assert (settings.wake_mode, settings.encoder_ordering, settings.max_flush_delay_s) == ("enqueue", "per-table", None)
    assert (settings.dispatcher_share, settings.encoder_shards, settings.notes) == (0.125, None, ())


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
        "access",
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
on-bad-row = "set-aside"

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
    assert (settings.on_bad_row, load_settings(SINK).on_bad_row) == ("set-aside", "stop")
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


def test_a_config_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "changefeed.toml"
    path.write_bytes(b"\xef\xbb\xbf[sink]\nprotocol = 'canal-json'\n")
    assert load_settings(SINK, read_config(path)).protocol == "canal-json"


@pytest.mark.parametrize("text", [f"a = {'[' * 5000}{']' * 5000}", f"[{'a.' * 5000}b]\nc = 1"])
def test_a_config_file_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "changefeed.toml"
    path.write_text(text)
    with pytest.raises(BadSetting, match="is nested too deeply"):
        load_settings(SINK, read_config(path))


def test_a_value_where_a_table_belongs_is_refused() -> None:
    assert refusal(config={"sink": 3}).startswith("sink in the config file must be a table, written [sink]")
    assert refusal(config={"mounter": 3}).startswith("mounter in the config file must be a table, written [mounter]")


# Unknown keys


def test_an_unknown_key_names_the_nearest_and_not_all() -> None:
    message = refusal(SINK + "?flush-intervall=5s")
    assert message == "unknown option 'flush-intervall' in the sink URI; did you mean 'flush-interval'?"
    assert refusal(file_sise="1MiB") == "unknown option 'file_sise' in the options; did you mean 'file-size'?"
    assert refusal(SINK + "?spool=1").endswith("did you mean 'spool.dir' or 'spool.type'?")
    assert refusal(SINK + "?xyzzy=1") == "unknown option 'xyzzy' in the sink URI; docs/options.md lists all"


def test_a_key_at_the_wrong_place_of_the_config_file_is_shown_the_right_one() -> None:
    assert "did you mean 'sink.cloud-storage-config.file-size'?" in refusal(config={"file-size": 1024})
    assert "did you mean 'sink.csv.quote'?" in refusal(config={"sink": {"quote": "'"}})


def test_a_key_given_twice_is_refused_also_by_its_alias() -> None:
    assert "'file-size' is given twice" in refusal(SINK + "?file-size=1MiB&file-size=2MiB")
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
        ("date-separator=", "date_separator", "none", "is empty, which TiCDC treats as none"),
        ("flush-interval=", "flush_interval_s", 5.0, "changes nothing"),
        ("flush-concurrency=0", "flush_concurrency", 1, "is outside 1..512 and becomes 1"),
        ("flush-concurrency=513", "flush_concurrency", 1, "is outside 1..512 and becomes 1"),
        ("file-expiration-days=-1", "file_expiration_days", 0, "is negative and keeps files forever"),
        ("csv.output-handle-key=true", "csv", CsvOptions(), "csv.output-handle-key in the sink URI has no effect"),
        ("transaction-atomicity=table", "transaction_atomicity", "table", "may still be split over files"),
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
        ("flush-concurrency=512", "flush_concurrency", 512),
        ("encoder-shards=3", "encoder_shards", 3),
        ("encoder-shards=auto", "encoder_shards", None),
        ("protocol=CSV", "protocol", "csv"),
        ("transaction-atomicity=none", "transaction_atomicity", "none"),
        ("output-row-key=false", "protocol", "csv"),
        ("enable-table-across-nodes=false", "across_nodes", False),
        ("file-expiration-days=7", "file_expiration_days", 7),
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
        ("file-size=0", storage(file_size=1485760), "file_size_bytes", 1485760),
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
        (
            "protocol=avro",
            "protocol must be csv or canal-json, not 'avro': only csv and canal-json have a storage encoder",
        ),
        ("protocol=cvs", "protocol must be csv or canal-json, not 'cvs' (in the sink URI)"),
        ("flush-concurrency=few", "flush-concurrency must be a whole number, not 'few'"),
        ("encoder-shards=0", "encoder-shards must be greater than 0, not '0'"),
        ("transaction-atomicity=global", "transaction-atomicity must be none or table, not 'global'"),
        ("enable-table-across-nodes=true", "needs csv.include-commit-ts = true: without the commit-ts"),
        ("enable-table-across-nodes=true&protocol=canal-json", "needs enable-tidb-extension = true"),
        ("split-spans=0", "must be from 1 to 1024, not '0'"),
        ("enable-sync-point=true", "enable-sync-point must be false: sync points need a TiDB or MySQL downstream"),
        ("output-row-key=true", "output-row-key must be false: change events carry no TiDB row key"),
        ("output-row-key=maybe", "output-row-key must be true or false, not 'maybe'"),
        ("filter.rules=shop.*", "filter.rules must be a list of texts; as text, write it as JSON (in the sink URI)"),
        ("csv.binary-encoding-method=invalid", "csv.binary-encoding-method must be hex or base64, not 'invalid'"),
        ("spool.type=tape", "spool.type must be disk or memory, not 'tape'"),
        ("spool.max-bytes=-5", "spool.max-bytes must be greater than 0, not '-5'"),
        ("spool.dir=tmp", "spool.dir must be absolute"),
        ("dml-wake-mode=never", "dml-wake-mode must be enqueue or flush, not 'never'"),
        ("encoder-ordering=legacy", "not 'legacy': there is no reorder buffer"),
        ("on-bad-row=skip", "on-bad-row must be stop or set-aside, not 'skip'"),
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


# Protocols


def test_canal_json_has_its_own_options_and_extension() -> None:
    config = {"sink": {"content-compatible": True, "terminator": "\n"}}
    settings = load_settings(SINK + "?protocol=canal-json&enable-tidb-extension=true", config)
    assert settings.encoding == CanalOptions(terminator="\n", tidb_extension=True, content_compatible=True)
    assert settings.paths.extension == ".json"
    assert settings.notes == ()


def test_the_switches_of_canal_json_follow_ticdc_s_places() -> None:
    codec = {"sink": {"kafka-config": {"codec-config": {"enable-tidb-extension": True}}}}
    assert load_settings(SINK + "?protocol=canal-json", codec).canal.tidb_extension
    assert load_settings(SINK + "?protocol=canal-json&only-output-updated-columns=true").canal.only_updated_columns
    kept = load_settings(SINK + "?protocol=canal-json&content-compatible=false", {"sink": {"content-compatible": True}})
    assert kept.canal.content_compatible
    handle_key = {"sink": {"protocol": "canal-json", "delete-only-output-handle-key-columns": True}}
    assert load_settings(SINK, handle_key).canal.delete_only_handle_key


def test_the_sink_uri_s_protocol_wins_with_a_note() -> None:
    settings = load_settings(SINK + "?protocol=csv", {"sink": {"protocol": "canal-json"}})
    assert settings.protocol == "csv"
    assert settings.notes == ("protocol=csv in the sink URI wins over canal-json of the config file",)
    assert load_settings(SINK + "?protocol=csv", {"sink": {"protocol": "csv"}}).notes == ()


def test_table_ids_as_paths_in_the_sink_uri_win_with_a_note() -> None:
    settings = load_settings(SINK + "?use-table-id-as-path=true", storage(use_table_id_as_path=False))
    assert settings.table_id_as_path
    assert settings.notes == ("use-table-id-as-path=true in the sink URI wins over false of the config file",)


@pytest.mark.parametrize(
    "protocol", ["avro", "canal", "craft", "debezium", "default", "maxwell", "open-protocol", "simple"]
)
def test_a_protocol_without_a_storage_encoder_is_refused_by_name(protocol: str) -> None:
    message = refusal(config={"sink": {"protocol": protocol}})
    assert f"not {protocol!r}: only csv and canal-json have a storage encoder" in message


def test_deletes_with_handle_keys_only_are_refused_with_csv_and_with_force_replicate() -> None:
    config: dict[str, Any] = {"sink": {"delete-only-output-handle-key-columns": True}}
    assert "does not go with csv" in refusal(config=config)
    config |= {"force-replicate": True}
    assert "does not go with force-replicate" in refusal(SINK + "?protocol=canal-json", config)


@pytest.mark.parametrize("key", ["enable-tidb-extension", "only-output-updated-columns", "content-compatible"])
def test_an_option_of_canal_json_with_csv_is_noted(key: str) -> None:
    assert load_settings(f"{SINK}?{key}=true").notes == (f"{key} has no effect with protocol csv",)


def test_csv_options_are_checked_whatever_the_protocol() -> None:
    assert "csv delimiter is ''" in refusal(config={"sink": {"protocol": "canal-json", "csv": {"delimiter": ""}}})


@pytest.mark.parametrize("delimiter", ["FE", "|@|"])
def test_a_csv_delimiter_may_have_three_characters(delimiter: str) -> None:
    csv = {"quote": '"', "delimiter": delimiter, "binary-encoding-method": "hex"}
    assert load_settings(SINK, {"sink": {"csv": csv}}).csv.delimiter == delimiter


@pytest.mark.parametrize("terminator", ["\\n", "\\r\\n"])
def test_a_terminator_of_plain_letters_is_noted(terminator: str) -> None:
    [note] = load_settings(SINK, {"sink": {"terminator": terminator}}).notes
    assert note.startswith(f"terminator is {len(terminator)} plain characters, {terminator}, and no control character")
    assert load_settings(SINK, {"sink": {"terminator": "\n"}}).notes == ()


def test_an_empty_terminator_is_noted() -> None:
    [note] = load_settings(SINK + "?terminator=").notes
    assert "nothing divides the rows" in note


def test_rules_that_can_take_no_table_are_noted() -> None:
    [note] = load_settings(SINK, {"filter": {"rules": ["!shop.log", "!shop.tmp_*"]}}).notes
    assert "take no table" in note
    assert load_settings(SINK, {"filter": {"rules": ["shop.*", "!shop.tmp_*"]}}).notes == ()


def test_raw_change_events_without_old_values_are_noted() -> None:
    [note] = load_settings(SINK, storage(output_raw_change_event=True)).notes
    assert "an update of a key does not show the old key" in note
    old = storage(output_raw_change_event=True)
    old["sink"]["csv"] = {"output-old-value": True}
    assert load_settings(SINK, old).notes == ()


# What TiCDC's own tests of merging say


def test_the_config_file_alone_is_taken_as_it_is() -> None:
    config = storage(worker_count=12, file_size=1485760, flush_interval="1m2s", output_column_id=False)
    settings = load_settings(SINK, config)
    assert (settings.worker_count, settings.file_size_bytes, settings.flush_interval_s) == (12, 1485760, 62.0)


def test_the_sink_uri_overrules_the_config_file_key_by_key() -> None:
    config = storage(worker_count=12, file_size=10485760, flush_interval="1m2s", spool_base_dir="/data/b")
    settings = load_settings(SINK + "?worker-count=64&flush-interval=2m2s&file-size=33554432", config)
    assert (settings.worker_count, settings.file_size_bytes, settings.flush_interval_s) == (64, 33554432, 122.0)
    assert settings.spool_dir == "/data/b"
    assert load_settings(SINK + "?spool-base-dir=%2Fdata%2Fa", config).spool_dir == "/data/a"


def test_the_spool_s_size_and_place_may_stand_in_the_config_file() -> None:
    assert load_settings(SINK, storage(spool_disk_quota=3221225472)).spool_max_bytes == 3221225472
    assert "spool-base-dir must be absolute" in refusal(config=storage(spool_base_dir="relative/path"))
    assert load_settings(SINK, storage(spool_base_dir="")).spool_dir == load_settings(SINK).spool_dir


# The cleaning of old files


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("0 0 2 * * *", "0 0 2 * * *"),
        ("0 */10 1-5,7 ? jan-MAR mon", "0 */10 1-5,7 ? jan-MAR mon"),
        ("0 0 2 * *", "0 0 2 * * *"),
        ("@daily", "0 0 0 * * *"),
        ("5/15 * * * * *", "5/15 * * * * *"),
    ],
)
def test_a_cron_text_is_brought_into_six_fields(spec: str, fields: str) -> None:
    config = storage(file_expiration_days=1, file_cleanup_cron_spec=spec)
    assert load_settings(SINK, config).file_cleanup_cron == fields


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("", "must have six fields"),
        ("0 2 * *", "must have six fields"),
        ("@every 1h", "must have six fields"),
        ("60 0 2 * * *", "has '60' as its second, which must be 0 to 59"),
        ("0 0 24 * * *", "has '24' as its hour"),
        ("0 0 2 0 * *", "has '0' as its day of month"),
        ("0 0 2 * foo *", "has 'foo' as its month"),
        ("0 0 5-2 * * *", "has '5-2' as its hour"),
        ("0 */0 2 * * *", "has '*/0' as its minute"),
    ],
)
def test_a_bad_cron_text_is_refused_also_while_files_do_not_expire(spec: str, sentence: str) -> None:
    assert f"file-cleanup-cron-spec {sentence}" in refusal(config=storage(file_cleanup_cron_spec=spec))


def test_expiring_files_without_dates_in_paths_is_noted() -> None:
    [note] = load_settings(SINK + "?date-separator=month", storage(file_expiration_days=3)).notes
    assert note == "file-expiration-days has no effect unless date-separator is day"


# A whole changefeed.toml of TiCDC

CHANGEFEED = """
memory-quota = 1073741824
case-sensitive = true
force-replicate = true
ignore-ineligible-table = false
check-gc-safe-point = true
enable-sync-point = false
sync-point-interval = "10m"
sync-point-retention = "24h"
sql-mode = "STRICT_TRANS_TABLES"
bdr-mode = false
changefeed-error-stuck-duration = "30m"

[mounter]
worker-num = 16

[filter]
rules = ["shop.*", "!shop.log_*"]
ignore-txn-start-ts = [1, 2]

[[filter.event-filters]]
matcher = ["shop.audit"]
ignore-event = ["delete", "truncate table"]
ignore-sql = ["^drop"]

[scheduler]
enable-table-across-nodes = false
region-threshold = 100000
write-key-threshold = 30000

[sink]
protocol = "csv"
transaction-atomicity = "none"
terminator = "\\n"
date-separator = "month"
enable-partition-separator = true
file-index-digit = 6
encoder-concurrency = 32
schema-registry = "http://registry:8081"
delete-only-output-handle-key-columns = false
only-output-updated-columns = false
content-compatible = false
safe-mode = false
advance-timeout-in-sec = 150
dispatchers = [
    {matcher = ["shop.*"], topic = "t_{schema}", partition = "ts"},
    {matcher = ["shop.*"], target-schema = "lake", target-table = "{schema}_{table}"},
]
column-selectors = [{matcher = ["shop.users"], columns = ["*", "!password"]}]

[sink.csv]
delimiter = ","
quote = '"'
null = '\\N'
include-commit-ts = true
binary-encoding-method = "base64"
output-old-value = false
output-handle-key = false
output-field-header = false

[sink.cloud-storage-config]
worker-count = 8
flush-interval = "10s"
file-size = 33554432
output-column-id = true
file-expiration-days = 0
file-cleanup-cron-spec = "0 0 3 * * *"
flush-concurrency = 4
output-raw-change-event = false
spool-disk-quota = 1073741824
spool-base-dir = "/data/spool"
use-table-id-as-path = false

[sink.kafka-config]
sasl-password = "hunter2"
max-message-bytes = 1048576

[sink.kafka-config.large-message-handle]
large-message-handle-option = "none"

[sink.mysql-config]
ssl-key = "hunter2"

[sink.pulsar-config]
authentication-token = "hunter2"

[sink.debezium]
output-old-value = true

[sink.open]
output-old-value = true

[consistent]
level = "none"
storage = ""

[consistent.memory-usage]
memory-quota-percentage = 50

[integrity]
integrity-check-level = "none"
corruption-handle-level = "warn"

[synced-status]
synced-check-interval = 300
checkpoint-interval = 15
"""


def test_a_whole_changefeed_toml_works_as_it_is_with_one_warning() -> None:
    settings = load_settings(SINK, tomllib.loads(CHANGEFEED))
    rules = Rules(
        TableFilter(("shop.*", "!shop.log_*"), case_sensitive=True),
        EventFilters((EventFilter(("shop.audit",), ("delete", "truncate table"), ("^drop",)),), case_sensitive=True),
        frozenset((1, 2)),
        ColumnSelectors((ColumnSelector(("shop.users",), ("*", "!password")),), case_sensitive=True),
        Routes((Route(("shop.*",), "lake", "{schema}_{table}"),), case_sensitive=True),
    )
    [note] = settings.notes
    assert settings == dataclasses.replace(
        load_settings(SINK),
        file_size_bytes=32 << 20,
        flush_interval_s=10.0,
        worker_count=8,
        flush_concurrency=4,
        access=Access(parts_at_once=4),
        date_separator="month",
        index_digits=6,
        output_column_id=True,
        file_cleanup_cron="0 0 3 * * *",
        terminator="\n",
        csv=CsvOptions(terminator="\n", include_commit_ts=True),
        canal=CanalOptions(terminator="\n"),
        case_sensitive=True,
        force_replicate=True,
        rules=rules,
        spool_max_bytes=1 << 30,
        spool_dir="/data/spool",
        notes=(note,),
    )
    assert note == (
        "these do not apply to a storage sink and change nothing: memory-quota, ignore-ineligible-table, "
        "check-gc-safe-point, sync-point-interval, sync-point-retention, sql-mode, changefeed-error-stuck-duration, "
        "[mounter], scheduler.region-threshold, scheduler.write-key-threshold, sink.encoder-concurrency, "
        "sink.schema-registry, sink.safe-mode, sink.advance-timeout-in-sec, sink.dispatchers.topic, "
        "sink.dispatchers.partition, [sink.kafka-config], [sink.mysql-config], [sink.pulsar-config], [sink.debezium], "
        "[sink.open], [consistent], integrity.integrity-check-level, integrity.corruption-handle-level, [synced-status]"
    )
    assert pickle.loads(pickle.dumps(settings)) == settings


def nested(place: str, value: object) -> dict[str, Any]:
    """`{"sink": {"protocol": value}}` for "sink.protocol"."""
    *sections, key = place.split(".")
    config: dict[str, Any] = {key: value}
    for section in reversed(sections):
        config = {section: config}
    return config


@pytest.mark.parametrize("key", [key for key in IDLE if "integrity" not in key])
def test_a_key_of_another_sink_is_named_and_changes_nothing(key: str) -> None:
    settings = load_settings(SINK, nested(key + "any" * key.endswith("."), 1))
    name = f"[{key[:-1]}]" if key.endswith(".") else key
    assert settings.notes == (f"these do not apply to a storage sink and change nothing: {name}",)
    assert dataclasses.replace(settings, notes=()) == load_settings(SINK)


def test_a_key_of_another_sink_in_the_sink_uri_is_named_too() -> None:
    [note] = load_settings(SINK + "?max-message-bytes=1", {"memory-quota": 1}).notes
    assert note.endswith(": memory-quota, max-message-bytes")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("enable-sync-point", "sync points need a TiDB or MySQL downstream"),
        ("bdr-mode", "change events do not say which cluster wrote them first"),
        ("enable-active-active", "soft-delete columns are not understood"),
        ("sink.kafka-config.codec-config.output-row-key", "change events carry no TiDB row key"),
    ],
)
def test_a_key_that_would_change_the_data_is_refused_when_on(place: str, reason: str) -> None:
    message = refusal(config=nested(place, True))
    assert message.startswith(f"{place} must be false: ")
    assert reason in message
    assert load_settings(SINK, nested(place, False)) == load_settings(SINK)


def test_an_integrity_check_is_switched_off_with_a_note() -> None:
    notes = load_settings(SINK, nested("integrity.integrity-check-level", "correctness")).notes
    assert notes[1] == "integrity-check-level is switched off: only a Kafka sink has row checksums"
    assert "must be none or correctness" in refusal(config=nested("integrity.integrity-check-level", "high"))


@pytest.mark.parametrize(
    ("place", "nearest"),
    [
        ("memory-qouta", "memory-quota"),
        ("case-sensitiv", "case-sensitive"),
        ("enable-syncpoint", "enable-sync-point"),
        ("filter.rule", "filter.rules"),
        ("sink.dispatcher", "sink.dispatchers"),
        ("sink.cloud-storage-config.file-sise", "sink.cloud-storage-config.file-size"),
        ("scheduler.region-treshold", "scheduler.region-threshold"),
        ("mysql-config.worker-count", "sink.cloud-storage-config.worker-count"),
    ],
)
def test_an_unknown_key_of_the_config_file_names_the_nearest(place: str, nearest: str) -> None:
    assert f"unknown option {place!r} in the config file; did you mean {nearest!r}?" in refusal(config=nested(place, 1))


# Rules in the config file


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("filter.rules", "shop.*", "filter.rules must be a list of texts"),
        ("filter.rules", [1], "filter.rules must be text, not 1 (in the config file)"),
        ("filter.rules", ["shop"], "filter.rules has the bad rule 'shop': there must be a '.'"),
        ("filter.rules", ["s./(?=b)/"], "filter.rules has the bad rule 's./(?=b)/': '(?=b)' is no regular expression"),
        ("filter.ignore-txn-start-ts", [-1], "filter.ignore-txn-start-ts must be 0 or more, not -1"),
        ("filter.event-filters", {"matcher": ["a.*"]}, "unknown option 'filter.event-filters.matcher'"),
        ("filter.event-filters", [{"matcher": ["a"]}], "filter.event-filters entry 1 has the bad rule 'a'"),
        (
            "filter.event-filters",
            [{"matcher": ["a.*"]}, {"matcher": ["b.*"], "ignore-insert-value-expr": "id > 1"}],
            "entry 2 has ignore-insert-value-expr, which is refused: it needs TiDB's SQL evaluator",
        ),
        (
            "filter.event-filters",
            [{"matcher": ["b.*"], "ignore-update-only-columns": ["c"]}],
            "entry 1 has ignore-update-only-columns, which is refused",
        ),
        (
            "sink.column-selectors",
            [{"matcher": ["a.*"], "colums": ["a"]}],
            "sink.column-selectors entry 1 has the unknown key 'colums'; did you mean 'columns'? (in the config file)",
        ),
        ("sink.column-selectors", [{"matcher": ["a.*"]}], "entry 1 must have matcher and columns"),
        (
            "sink.column-selectors",
            [{"matcher": "a.*", "columns": ["a"]}],
            "entry 1 has a bad matcher: it must be a list",
        ),
        ("sink.column-selectors", ["a.*"], "sink.column-selectors must be a list of tables, not 'a.*'"),
        ("sink.dispatchers", [{"target-schema": "x"}], "sink.dispatchers entry 1 must have matcher"),
        (
            "sink.dispatchers",
            [{"matcher": ["a.*"], "target-table": "{db}"}],
            "entry 1 has the target-table '{db}'; only {schema} and {table} may be in braces (in the config file)",
        ),
        ("sink.dispatchers", [{"matcher": ["a.*"], "target-tabel": "x"}], "did you mean 'target-table'?"),
    ],
)
def test_a_bad_rule_is_refused_where_it_stands(place: str, value: object, sentence: str) -> None:
    assert sentence in refusal(config=nested(place, value))


def test_rules_may_be_given_as_lists_and_as_json() -> None:
    rules = ["shop.*", "!shop.log"]
    assert load_settings(SINK, None, {"filter_rules": rules}).rules.filter.rules == tuple(rules)
    assert load_settings(SINK + '?filter.rules=["a.*"]').rules.filter.rules == ("a.*",)
    assert load_settings(SINK, {"filter": {"rules": []}}).rules == Rules()


def test_a_dispatcher_for_topics_alone_routes_nothing() -> None:
    settings = load_settings(SINK, nested("sink.dispatchers", [{"matcher": ["a.*"], "topic": "t"}]))
    assert settings.rules.routes_nothing


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
        ("flie:///data/out", "unknown sink scheme flie://; did you mean file://? known: file, s3, gs,"),
        ("kafka://broker/topic", "unknown sink scheme kafka://; known: file, s3, gs, gcs, azblob, azure, noop"),
    ],
)
def test_a_bad_sink_uri_is_refused_with_the_remedy(uri: str, sentence: str) -> None:
    assert sentence in refusal(uri)


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


def test_the_effective_settings_show_every_option_in_force_once_with_units() -> None:
    shown = dict(effective(load_settings(SINK + "?flush-interval=1m2s", {"sink": {"csv": {"delimiter": "\t"}}})))
    in_force = [key for key, option in OPTIONS.items() if not option.alias and option.only != "canal-json"]
    assert list(shown) == ["sink", *in_force]
    assert (shown["sink"], shown["file-size"], shown["flush-interval"]) == (SINK, "64MiB", "1m2s")
    assert (shown["max-flush-delay"], shown["spool.max-bytes"], shown["encoder-shards"]) == ("off", "10GiB", "auto")
    assert (shown["terminator"], shown["csv.delimiter"]) == (r"'\r\n'", r"'\t'")
    assert (shown["enable-partition-separator"], shown["filter.rules"]) == ("true", '["*.*"]')
    assert "csv.quote" not in dict(effective(load_settings(SINK + "?protocol=canal-json")))


def test_the_effective_settings_show_rules_as_they_can_be_given() -> None:
    shown = dict(effective(load_settings(SINK, tomllib.loads(CHANGEFEED))))
    assert shown["filter.rules"] == '["shop.*", "!shop.log_*"]'
    assert shown["filter.ignore-txn-start-ts"] == "[1, 2]"
    assert shown["filter.event-filters"] == (
        '[{"matcher": ["shop.audit"], "ignore-event": ["delete", "truncate table"], "ignore-sql": ["^drop"]}]'
    )
    assert shown["column-selectors"] == '[{"matcher": ["shop.users"], "columns": ["*", "!password"]}]'
    assert (
        shown["dispatchers"] == '[{"matcher": ["shop.*"], "target-schema": "lake", "target-table": "{schema}_{table}"}]'
    )


_patterns = st.lists(st.sampled_from(["*.*", "shop.*", "!shop.log", r"/^a\d$/.`b c`"]), min_size=1, max_size=3)
_given = {
    "file-size": st.integers(1024, 512 << 20),
    "flush-interval": st.integers(100, 600000).map(lambda ms: f"{ms}ms"),
    "worker-count": st.integers(1, 512),
    "flush-concurrency": st.integers(1, 512),
    "encoder-shards": st.integers(1, 99),
    "date-separator": st.sampled_from(["none", "year", "month", "day"]),
    "file-index-digit": st.integers(6, 20),
    "use-table-id-as-path": st.booleans(),
    "output-column-id": st.booleans(),
    "terminator": st.text("\r\n|é'\"\\", max_size=2),
    "case-sensitive": st.booleans(),
    "filter.rules": _patterns,
    "filter.ignore-txn-start-ts": st.lists(st.integers(0, 1 << 63)),
    "filter.event-filters": st.lists(
        st.fixed_dictionaries({"matcher": _patterns, "ignore-event": st.just(["all dml", "drop table"])})
    ),
    "column-selectors": st.lists(st.fixed_dictionaries({"matcher": _patterns, "columns": st.just(["*", "!a"])})),
    "dispatchers": st.lists(
        st.fixed_dictionaries({"matcher": _patterns, "target-table": st.sampled_from(["{schema}_{table}", "é"])})
    ),
}
_csv_given = {
    "csv.delimiter": st.sampled_from([",", "|@|", "\t"]),
    "csv.quote": st.sampled_from(["", "'", '"']),
    "csv.output-old-value": st.booleans(),
}
_canal_given = {"content-compatible": st.booleans(), "enable-tidb-extension": st.booleans()}


@given(
    st.fixed_dictionaries({}, optional=_given | _csv_given)
    | st.fixed_dictionaries({"protocol": st.just("canal-json")}, optional=_given | _canal_given)
)
def test_what_is_shown_reads_back_to_the_same_settings(given_options: dict[str, Any]) -> None:
    settings = load_settings(SINK, None, given_options)
    shown = dict(effective(settings))
    sink = shown.pop("sink")
    back = {key: ast.literal_eval(value) if OPTIONS[key].show is show_text else value for key, value in shown.items()}
    assert load_settings(sink, None, back) == settings


def test_secrets_are_hidden_in_a_shown_uri() -> None:
    assert redacted("s3://me:hunter2@bucket/p?secret-access-key=abc&region=eu") == (
        "s3://me:***@bucket/p?secret-access-key=***&region=eu"
    )
    assert redacted("noop://me:hunter2@x") == "noop://me:***@x"
    assert redacted("s3://me:hun/ter@2@bucket/p") == "s3://me:***@bucket/p"
    assert redacted(SINK) == SINK
    assert redacted("file:///data/a:b@c?file-size=1") == "file:///data/a:b@c?file-size=1"
    assert redacted("mysql://root:hun?ter&2=@host/db") == "mysql://root:***@host/db"
    assert redacted("s3://lake/x?endpoint=http://me:hunter2@h:9000") == "s3://lake/x?endpoint=http://me:***@h:9000"


@pytest.mark.parametrize(
    "name",
    [
        *("access-key", "secret-access-key", "session-token", "sse-kms-key-id", "external-id", "access_key"),
        *("credentials", "account-key", "sas-token", "sig", "encryption-key", "X-Amz-Signature", "%73ecret"),
    ],
)
def test_every_secret_of_an_object_store_is_hidden(name: str) -> None:
    uri = f"azure://container/p?endpoint=http%3A%2F%2Fh&{name}=hunter2&storage-class=COLD&acl=private&sse=AES256"
    assert redacted(uri) == uri.replace("hunter2", "***")


@pytest.mark.parametrize(
    "name",
    [
        *("endpoint", "region", "force-path-style", "storage-class", "acl", "role-arn", "provider", "access-tier"),
        "credentials-file",
    ],
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    assert redacted(f"s3://bucket?{name}=x") == f"s3://bucket?{name}=x"


def test_the_page_of_options_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "options.md").read_text(encoding="utf-8")
    assert [key for key in (*OPTIONS, *SWITCHES) if f"`{key}`" not in page] == []
    assert [key for key in IDLE if "." not in key and f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"XDG_STATE_HOME": "/data/state"}, "/data/state/tidegate/spool"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/me"}, "/home/me/.local/state/tidegate/spool"),
        ({"XDG_STATE_HOME": "not/absolute", "HOME": "/home/me"}, "/home/me/.local/state/tidegate/spool"),
    ],
)
def test_the_spool_is_in_a_data_directory_of_the_user_and_not_a_temporary_one(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], directory: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load_settings(SINK).spool_dir == directory
