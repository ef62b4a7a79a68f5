from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections import Counter as Count
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadSetting, BrokenInvariant
from tidegate.observe.metrics import (
    ALWAYS,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    LABELS,
    METRICS,
    PREFIX,
    Metric,
    Metrics,
    MetricsServer,
    listen_address,
)
from tidegate.spark.answers import answer
from tidegate.testing import TinySource, feed


def some_labels(metric: Metric) -> dict[str, str]:
    return dict.fromkeys(metric.labels, "some")


def move(metrics: Metrics, metric: Metric) -> None:
    change = {COUNTER: metrics.inc, GAUGE: metrics.set, HISTOGRAM: metrics.observe}[metric.kind]
    change(metric.name, 3.0, **some_labels(metric))


def buckets(metrics: Metrics, name: str, **labels: str) -> dict[str, float]:
    """Everything that a histogram shows, by its sample name and bound."""
    return {
        sample.name + sample.labels.get("le", ""): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if family.name == PREFIX + name and labels.items() <= sample.labels.items() and "_created" not in sample.name
    }


def test_no_name_stands_twice_in_the_table() -> None:
    assert [name for name, times in Count(metric.name for metric in METRICS).items() if times > 1] == []


def test_a_name_is_without_prefix_and_only_counters_end_in_total() -> None:
    assert all(not metric.name.startswith("ticdc") for metric in METRICS)
    assert all(metric.name.endswith("_total") == (metric.kind == COUNTER) for metric in METRICS)


def test_no_metric_has_a_label_for_tables_or_dispatchers() -> None:
    assert {label for metric in METRICS for label in metric.labels} <= set(LABELS)
    assert not {"table", "schema", "dispatcher", "table_id", "path"} & {*LABELS, *ALWAYS}


def test_every_histogram_has_rising_buckets_and_nothing_else_has_any() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind == HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_every_series_names_its_changefeed() -> None:
    metrics = Metrics("feed-7")
    for metric in METRICS:
        move(metrics, metric)
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    assert len(samples) > len(METRICS)
    assert all(
        sample.labels["changefeed"] == "feed-7" and sample.labels["namespace"] == "default" for sample in samples
    )


def test_two_changefeeds_count_apart() -> None:
    one, other = Metrics("one"), Metrics("other")
    one.inc("wake_calls_total")
    assert (one.value("wake_calls_total"), other.value("wake_calls_total")) == (1, 0)


def test_reasons_count_apart() -> None:
    metrics = Metrics("feed")
    metrics.inc("flush_total", reason="size")
    metrics.inc("flush_total", 2, reason="interval")
    assert metrics.value("flush_total", reason="size") == 1
    assert metrics.value("flush_total", reason="interval") == 2


@pytest.mark.parametrize(
    ("change", "name", "labels"),
    [
        ("inc", "no_such_metric", {}),
        ("inc", "spool_items", {}),
        ("set", "flush_bytes", {"reason": "size"}),
        ("observe", "wake_calls_total", {}),
        ("inc", "flush_total", {}),
        ("inc", "flush_total", {"reason": "size", "table": "t"}),
    ],
)
def test_a_name_kind_or_label_outside_the_table_is_a_bug(change: str, name: str, labels: dict[str, str]) -> None:
    with pytest.raises(BrokenInvariant, match=name):
        getattr(Metrics("feed"), change)(name, 1.0, **labels)


@given(
    hnp.arrays(
        np.float64,
        st.integers(0, 50),
        elements=st.one_of(st.sampled_from([0.0, 0.001, 0.002, 131.072]), st.floats(0, 1000, width=32)),
    )
)
def test_many_values_at_once_count_like_one_after_the_other(values: np.ndarray) -> None:
    at_once, one_by_one = Metrics("feed"), Metrics("feed")
    at_once.observe_many("accepted_to_durable_seconds", values)
    for value in values:
        one_by_one.observe("accepted_to_durable_seconds", value)
    shown = buckets(at_once, "accepted_to_durable_seconds")
    assert shown == pytest.approx(buckets(one_by_one, "accepted_to_durable_seconds"))
    assert shown.get(PREFIX + "accepted_to_durable_seconds_count", 0) == len(values)


def test_many_whole_numbers_at_once_add_up_exactly() -> None:
    metrics = Metrics("feed")
    metrics.observe_many("batch_rows", np.arange(1_000_000, dtype=np.int32))
    assert metrics.value("batch_rows") == 1_000_000
    assert buckets(metrics, "batch_rows")[PREFIX + "batch_rows_sum"] == 999_999 * 1_000_000 / 2


def test_the_endpoint_on_loopback_shows_every_metric_as_it_moves() -> None:
    metrics = Metrics("feed")
    with metrics.serve("127.0.0.1:0") as server:
        for metric in METRICS:
            move(metrics, metric)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    shown = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {PREFIX + metric.name for metric in METRICS} <= shown
    assert f'{PREFIX}flush_total{{changefeed="feed",namespace="default",reason="some"}} 3.0' in text
    assert metrics.text().splitlines()[0] in text


def test_an_unlabelled_metric_shows_from_the_start() -> None:
    assert f'{PREFIX}spool_disk_bytes{{changefeed="feed",namespace="default"}} 0.0' in Metrics("feed").text()


def test_a_closed_endpoint_frees_its_port() -> None:
    server = Metrics("feed").serve(":0")
    server.close()
    again = Metrics("feed").serve(f":{server.port}")
    assert again.port == server.port
    again.close()


def test_a_taken_port_is_refused_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(BadSetting, match=r"cannot be opened .*choose another"):
            Metrics("feed").serve(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(
    ("addr", "expected"),
    [
        ("127.0.0.1:9100", ("127.0.0.1", 9100)),
        (":9100", ("127.0.0.1", 9100)),
        ("9100", ("127.0.0.1", 9100)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:9100", ("::1", 9100)),
    ],
)
def test_an_address_without_a_host_is_loopback(addr: str, expected: tuple[str, int]) -> None:
    assert listen_address(addr) == expected


@pytest.mark.parametrize("addr", ["", "localhost", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1"])
def test_a_bad_address_is_refused_with_an_example(addr: str) -> None:
    with pytest.raises(BadSetting, match=r"must be HOST:PORT, such as 127\.0\.0\.1:9100"):
        listen_address(addr)


def answered(server: MetricsServer, path: str) -> tuple[int, Any]:
    """The HTTP status and the JSON of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def test_what_is_asked_for_beside_the_metrics_is_answered_as_json(opened: Callable[..., Changefeed]) -> None:
    changefeed = opened()
    feed(changefeed, 0, TinySource().batch(0), "0")
    with changefeed.metrics.serve("127.0.0.1:0", partial(answer, changefeed=lambda: changefeed)) as server:
        status, tables = answered(server, "/status"), answered(server, "/tables?by=lag&k=1")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as found:
            assert b"ticdc_sink_cloud_storage_" in found.read()
    assert (status[0], status[1]["rows_accepted"]) == (200, 4)
    assert (tables[0], len(tables[1])) == (200, 1)


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        ("/status", 503, "the changefeed is starting; ask again in some seconds"),
        ("/tables", 503, "the changefeed is starting; ask again in some seconds"),
        ("/status?k=3", 400, "/status does not know 'k'; it takes no parameters"),
        ("/tables?by=lag&n=3", 400, "/tables does not know 'n'; it takes by and k"),
        ("/tables?k=many", 400, "k='many' must be a whole number from 1 to 1000"),
        ("/tables?k=", 400, "k='' must be a whole number from 1 to 1000"),
        ("/tables?k=0", 400, "k='0' must be a whole number from 1 to 1000"),
        ("/nothing", 404, "there is no /nothing; ask for /metrics, /status or /tables"),
    ],
)
def test_a_question_too_early_or_wrong_is_answered_by_a_sentence(path: str, code: int, sentence: str) -> None:
    with Metrics("tiny").serve("127.0.0.1:0", partial(answer, changefeed=lambda: None)) as server:
        assert answered(server, path) == (code, {"error": sentence})


def test_a_list_by_what_is_unknown_is_a_bad_question(opened: Callable[..., Changefeed]) -> None:
    changefeed = opened()
    with changefeed.metrics.serve("127.0.0.1:0", partial(answer, changefeed=lambda: changefeed)) as server:
        code, found = answered(server, "/tables?by=colour")
    assert code == 400
    assert "not by 'colour'" in found["error"]
