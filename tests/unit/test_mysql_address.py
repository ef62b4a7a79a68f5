"""The address of a database: what it says, what is refused, and that nobody sees the password."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidegate.errors import BadSetting, SourceUnavailable
from tidegate.sources.mysql.address import INITIAL, NEVER, PREFERRED, REQUIRED, parse_address, without_password
from tidegate.sources.mysql.private import Private, password_of, read_private
from tidegate.storage.access import Access

PLAIN = "mysql://repl@db:3307/?tables=shop.*"


def test_an_address_says_where_who_and_what() -> None:
    found = parse_address("mysql://re%40pl:s%2Fec%40ret@db/?tables=shop.*,!shop.log&snapshot=never&from=bin.000007:4")
    assert (found.user, found.host, found.port, found.password) == ("re@pl", "db", 3306, "s/ec@ret")
    assert (found.snapshot, found.begin, found.tls.mode) == (NEVER, ("bin.000007", 4), PREFERRED)
    assert found.filter.matches("shop", "orders")
    assert not found.filter.matches("shop", "log")
    assert not parse_address("mysql://repl@db/?tables=*.*").filter.matches("mysql", "user")


def test_what_is_not_said_has_a_default() -> None:
    found = parse_address(PLAIN)
    assert (found.snapshot, found.begin, found.password, found.relay_bytes) == (INITIAL, None, None, 1 << 30)
    assert found.endpoint == "repl@db:3307"


@pytest.mark.parametrize(
    ("tables", "rules"),
    [
        ("a.b,c.d", ("a.b", "c.d")),
        ("`a,b`.c, d.*", ("`a,b`.c", "d.*")),
        (r"/^t,\/x$/.*,d.e", (r"/^t,\/x$/.*", "d.e")),
        (r"a\,b.c", (r"a\,b.c",)),
    ],
)
def test_a_comma_separates_rules_unless_it_is_quoted(tables: str, rules: tuple[str, ...]) -> None:
    assert parse_address(f"mysql://repl@db/?tables={tables}").filter.rules == rules


def test_files_of_certificates_mean_that_tls_is_required() -> None:
    found = parse_address(PLAIN + "&ssl-ca=/ca.pem&ssl-cert=/c.pem&ssl-key=/k.pem").tls
    assert (found.mode, found.ca, found.cert, found.key) == (REQUIRED, "/ca.pem", "/c.pem", "/k.pem")


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("mysql://repl:pw@db", "tables"),
        ("mysql://repl:pw@db/?tables=", "tables"),
        ("mysql://repl:pw@db/?tables=shop", "'.'"),
        ("mysql://repl:pw@db/shop?tables=a.b", "no path"),
        ("mysql://db/?tables=a.b", "user"),
        ("mysql://repl:pw@db:port/?tables=a.b", "address"),
        ("mysql://repl:pw@db/?tables=a.b&snapshot=maybe", "initial, never, only"),
        ("mysql://repl:pw@db/?tables=a.b&from=bin.000001", "bin.000001:4"),
        ("mysql://repl:pw@db/?tables=a.b&from=bin.000001:4", "snapshot=never"),
        ("mysql://repl:pw@db/?tables=a.b&ssl=off&ssl-ca=x", "ssl-ca"),
        ("mysql://repl:pw@db/?tables=a.b&ssl-cert=x", "ssl-key"),
        ("mysql://repl:pw@db/?tables=a.b&relay=3", "1MiB"),
        ("mysql://repl:pw@db/?tables=a.b&password=x", "unknown parameter"),
    ],
)
def test_a_bad_address_is_refused_and_its_password_is_not_shown(uri: str, word: str) -> None:
    with pytest.raises(BadSetting, match=word) as caught:
        parse_address(uri)
    assert ":pw@" not in str(caught.value)


def test_the_address_that_travels_has_no_password() -> None:
    found = parse_address("mysql://repl:s%40c:r@db:3307/?tables=shop.*")
    assert found.uri == PLAIN == without_password(PLAIN)
    assert parse_address(found.uri).password is None
    assert "s@c" not in repr(found)


def test_a_password_comes_from_a_file_the_address_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\n")
    environment = {"MYSQL_PWD": "from environment"}
    assert password_of(None, str(file), environment) == "from file"
    assert password_of("from uri", None, environment) == "from uri"
    assert password_of(None, None, environment) == "from environment"
    assert password_of(None, None, {}) == ""
    with pytest.raises(BadSetting, match="keep one"):
        password_of("x", str(file), {})
    with pytest.raises(BadSetting, match="cannot be read"):
        password_of(None, str(tmp_path / "nowhere"), {})


def test_private_values_come_back_from_a_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    access = Access((("access-key", "id"), ("secret-access-key", "key")), 3, 7, frozenset(["access-key"]))
    written = Private("secret word", "s3://lake/cdc", access, str(tmp_path / "relay"), str(tmp_path / "private"))
    written.write()
    assert read_private(written.path) == written
    assert stat.S_IMODE(Path(written.path).stat().st_mode) == 0o600
    assert "secret word" not in repr(written)
    Path(written.path).unlink()
    with pytest.raises(SourceUnavailable, match="private"):
        read_private(written.path)
