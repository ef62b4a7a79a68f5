"""Reading logs without a server: kept logs of both, cut and broken in every way.

`tests/fixtures/binlog/NAME.log` is what a server wrote for `STATEMENTS`; a test compares it with what servers write.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.bench.harness.database_log import changes_in
from tidegate.bench.harness.databases import NAMES, Database, asked
from tidegate.errors import BadLog, TidegateError
from tidegate.sources.mysql.log import control_events as read
from tidegate.sources.mysql.log.charsets import charset_of, text_of
from tidegate.sources.mysql.log.framing import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    ROWS,
    TABLE_MAP,
    Packets,
    ServerSays,
    check_sums,
    event_of,
    frame,
    whole_events,
)
from tidegate.sources.mysql.log.rows import TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import read_table_map

FIXTURES = Path(__file__).parents[1] / "fixtures" / "binlog"
LOGS = {name: (FIXTURES / f"{name}.log").read_bytes() for name in NAMES}

STATEMENTS = (
    "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, price decimal(10,3), name varchar(20) CHARACTER SET latin1, "
    "raw binary(4), day date, moment datetime(3), stamp timestamp(1) NULL, span time, ratio double, score float, "
    "bits bit(10), y year, colour enum('red','grün'), flags set('a','b'), note text CHARACTER SET utf8mb4, doc json)",
    "INSERT INTO orders VALUES (1, -0.5, 'größe', x'0100', '2026-01-31', '2026-01-31 23:59:59.25', "
    "'2026-01-31 12:00:00.5', '-12:34:56', 0.1, 0.1, 513, 2026, 'grün', 'a,b', 'emoji 😀', "
    """'{"bb": [1, 2.5, null, true, {"x": "y"}], "a": "quote\\\\" 😀"}')""",
    f"INSERT INTO orders VALUES (18446744073709551615{', NULL' * 15})",
    "UPDATE orders SET price = price + 1000, doc = '[-1, 70000, 5000000000, \"text\"]' WHERE id = 1",
    "DELETE FROM orders",
)
FIRST = [b"1", b"-0.500", "größe".encode(), b"\1\0\0\0", b"2026-01-31", b"2026-01-31 23:59:59.250",
         b"2026-01-31 12:00:00.5", b"-12:34:56", b"0.1", b"0.1", b"513", b"2026", b"2", b"3",
         "emoji 😀".encode()]  # fmt: skip
EMPTY = [b"18446744073709551615", *[None] * 15]
DOCUMENTS = {
    "mariadb": [
        '{"bb": [1, 2.5, null, true, {"x": "y"}], "a": "quote\\" 😀"}'.encode(),
        b'[-1, 70000, 5000000000, "text"]',
    ],
    "mysql": [
        '{"a": "quote\\" 😀", "bb": [1, 2.5, null, true, {"x": "y"}]}'.encode(),
        b'[-1, 70000, 5000000000, "text"]',
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_log_has_the_changes_that_were_written(name: str) -> None:
    first, second = ([*FIRST, document] for document in DOCUMENTS[name])
    second[1] = b"999.500"
    assert [change for _, change in changes_in(LOGS[name])] == [
        ("insert", None, first),
        ("insert", None, EMPTY),
        ("update", first, second),
        ("delete", second, None),
        ("delete", EMPTY, None),
    ]


def test_servers_still_write_what_was_kept(database: Database) -> None:
    with database.connect() as client:
        asked(client, "DROP DATABASE IF EXISTS kept", "CREATE DATABASE kept", "USE kept", "SET time_zone = '+00:00'")
        file = database.begin_log()
        asked(client, *STATEMENTS)
    assert changes_in(database.read_log(file)) == changes_in(LOGS[database.name])


# Framing --------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_a_log_can_be_cut_anywhere(data: st.DataObject) -> None:
    log = LOGS[data.draw(st.sampled_from(NAMES))]
    all_of_it, end = frame(log, CHECKSUM_BYTES)
    assert end == len(log)
    cut = data.draw(st.integers(0, len(log)))
    events, rest = frame(log[:cut], CHECKSUM_BYTES)
    assert rest <= cut
    assert rest == (0 if not len(events.end) else events.end[-1] + CHECKSUM_BYTES)
    more, _ = frame(log, CHECKSUM_BYTES, rest)
    assert [*events.start, *more.start] == all_of_it.start.tolist()
    assert [*events.kind, *more.kind] == all_of_it.kind.tolist()


@given(st.data())
def test_events_are_whole_however_their_bytes_come(data: st.DataObject) -> None:
    log = LOGS[data.draw(st.sampled_from(NAMES))]
    cuts = sorted({0, len(log), *data.draw(st.lists(st.integers(0, len(log))))})
    pieces = (log[a:b] for a, b in pairwise(cuts))
    found = [
        held[start:end]
        for held, events in whole_events(pieces, CHECKSUM_BYTES)
        for start, end in zip(events.start, events.end, strict=True)
    ]
    events, _ = frame(log, CHECKSUM_BYTES)
    assert found == [log[start:end] for start, end in zip(events.start, events.end, strict=True)]


def test_a_log_that_ends_within_an_event_is_refused() -> None:
    with pytest.raises(BadLog, match="ends within an event"):
        list(whole_events(iter([LOGS["mysql"][:-1]]), CHECKSUM_BYTES))


@given(st.data())
def test_every_changed_bit_is_noticed(data: st.DataObject) -> None:
    log = bytearray(LOGS[data.draw(st.sampled_from(NAMES))])
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        events, end = frame(bytes(log), CHECKSUM_BYTES)
    except BadLog:
        return
    if end == len(log):
        with pytest.raises(BadLog, match="checksum"):
            check_sums(bytes(log), events)


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 400))
def test_packets_are_joined_however_they_arrive(payloads: list[bytes], step: int) -> None:
    stream = b"".join(struct.pack("<I", len(body) | i % 256 << 24) + body for i, body in enumerate(payloads))
    packets = Packets()
    found = [body for at in range(0, len(stream), step) for body in packets.feed(stream[at : at + step])]
    assert found == payloads


@pytest.mark.parametrize("size", [0xFFFFFE, 0xFFFFFF, 0x1000000, 2 * 0xFFFFFF])
def test_a_payload_that_fills_a_packet_goes_on_in_the_next(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    packets, found = Packets(), []
    for at in range(0, size + 1, 0xFFFFFF):
        part = body[at : at + 0xFFFFFF]
        found += packets.feed(struct.pack("<I", len(part)) + part)
    assert found == [body]
    assert packets.feed(b"\1\0\0\7z") == [b"z"]


def test_the_end_and_an_error_are_no_events() -> None:
    assert event_of(b"\0abc") == b"abc"
    assert event_of(b"\xfe\0\0\2\0") is None
    with pytest.raises(ServerSays, match=r"the server sends no log: it is gone \(error 1236\)"):
        event_of(b"\xff" + struct.pack("<H", 1236) + b"#HY000it is gone")
    with pytest.raises(BadLog, match="no event of the log"):
        event_of(b"\1")


# Broken logs ----------------------------------------------------------------------------------------------------------


def signed_again(log: bytearray) -> bytes:
    """The log with right checksums, so that its events are read."""
    events, _ = frame(bytes(log), CHECKSUM_BYTES)
    for start, end in zip(events.start.tolist(), events.end.tolist(), strict=True):
        log[end : end + CHECKSUM_BYTES] = zlib.crc32(log[start:end]).to_bytes(4, "little")
    return bytes(log)


@settings(max_examples=100)
@given(st.data())
def test_a_broken_log_gives_rows_or_an_error_of_ours(data: st.DataObject) -> None:
    log = bytearray(LOGS[data.draw(st.sampled_from(NAMES))])
    events, _ = frame(bytes(log), CHECKSUM_BYTES)
    which = data.draw(st.sampled_from(np.flatnonzero(np.isin(events.kind, (TABLE_MAP, *ROWS))).tolist()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(int(events.start[which]) + HEADER_BYTES, int(events.end[which]) - 1))
        log[at] = data.draw(st.integers(0, 255))
    with suppress(TidegateError):
        changes_in(signed_again(log))


def test_rows_without_their_table_are_refused() -> None:
    log = LOGS["mysql"]
    events, _ = frame(log, CHECKSUM_BYTES)
    with pytest.raises(BadLog, match="without the TABLE_MAP"):
        list(decode_rows(log, events.chosen(events.kind != TABLE_MAP), TableMaps()))


def test_a_part_of_a_log_without_rows_has_none() -> None:
    events, _ = frame(b"", CHECKSUM_BYTES)
    assert list(decode_rows(b"", events, TableMaps())) == []


def test_an_id_with_two_meanings_is_refused() -> None:
    log = LOGS["mysql"].replace(b"\6orders\0", b"\6others\0", 1)
    assert log != LOGS["mysql"]
    with pytest.raises(BadLog, match=r"two tables have the id of kept\.orders; log files must be decoded one by one"):
        changes_in(signed_again(bytearray(log)))


def test_broken_json_names_table_and_column_and_not_the_value() -> None:
    log = bytearray(LOGS["mysql"])
    document = log.index(b"\0\2\0", log.index(b"emoji"))  # an object with two members
    log[document] = 0x77
    with pytest.raises(BadLog, match=r"^kept\.orders, column 'doc': the JSON is broken$"):
        changes_in(signed_again(log))


def test_a_table_map_that_is_cut_is_refused_or_lacks_only_what_may_be_absent() -> None:
    log = LOGS["mariadb"]
    events, _ = frame(log, CHECKSUM_BYTES)
    which = int(np.flatnonzero(events.kind == TABLE_MAP)[0])
    body = log[events.start[which] + HEADER_BYTES : events.end[which]]
    whole = read_table_map(body)
    for end in range(len(body)):
        with suppress(BadLog):  # a table without a key has no field for it, so a cut before that field is no fault
            assert read_table_map(body[:end]).shape == whole.shape


def test_a_broken_compressed_transaction_is_refused() -> None:
    header = b"\2\1\0\3\1\x40\1\1\x10\0"
    with pytest.raises(BadLog, match="cannot be unpacked"):
        list(read.read_payload(header + b"no zstd at all"))
    with pytest.raises(BadLog, match="unknown compression 7"):
        read.read_payload(b"\2\1\7\0abc")


def test_an_unknown_collation_is_refused() -> None:
    assert charset_of(255) == "utf8mb4"
    assert charset_of(8 + 1024) == "latin1"
    with pytest.raises(BadLog, match="the id 9999 is not known"):
        charset_of(9999)


def test_names_of_elements_are_read_in_their_character_set() -> None:
    assert text_of(b"gr\xfcn", "latin1") == "grün"
    assert text_of("日".encode("utf-16-be"), "ucs2") == "日"


def test_packed_numbers_have_four_widths() -> None:
    for number, raw in (
        (250, b"\xfa"),
        (251, b"\xfc\xfb\0"),
        (70_000, b"\xfd\x70\x11\1"),
        (1 << 40, b"\xfe" + (1 << 40).to_bytes(8, "little")),
    ):
        assert read.packed_number(raw + b"rest", 0) == (number, len(raw))
    with pytest.raises(BadLog):
        read.packed_number(b"\xfb", 0)


def test_variables_behind_an_unknown_one_are_not_guessed() -> None:
    variables = b"\1" + (4).to_bytes(8, "little") + b"\xc8" + b"\4\x08\0\x08\0\x08\0"
    body = struct.pack("<IIBHH", 1, 0, 2, 0, len(variables)) + variables + b"db\0CREATE TABLE t (id int)"
    assert read.read_query(body) == read.Query("db", "CREATE TABLE t (id int)", 4, "utf8mb4")
