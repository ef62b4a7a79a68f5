"""What a user reads holds no secret and no control character, and a typo gets a hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.sources import open_source
from tidegate.wording import escaped, hidden, hint, redacted

KEYS = ["file-size", "flush-interval", "filter.rules", *(f"key-{letter}" for letter in "abcdef")]


def test_a_typo_gets_the_nearest_keys_and_an_unlike_word_the_page() -> None:
    assert hint("file-sise", KEYS, "docs/options.md") == "did you mean 'file-size'?"
    assert hint("key-x", KEYS, "docs/options.md").count("key-") == 3
    assert hint("rules", KEYS, "docs/options.md") == "did you mean 'filter.rules'?"
    assert hint("xyzzy", KEYS, "docs/options.md") == "docs/options.md lists all"
    assert hint("xyzzy", ["by", "k"], "docs/options.md") == "known: by, k"


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://root:hunter2@127.0.0.1:3306/shop",
        "mysqll://root:hunter2@127.0.0.1/shop",
        "mysqll://root:hun/ter2?x@127.0.0.1/shop",
        "workload://root:hunter2@sysbench?tables=3",
        "kafka://broker/topic?sasl-password=hunter2",
    ],
)
def test_a_password_in_a_source_uri_is_never_shown(uri: str) -> None:
    with pytest.raises(BadSetting) as refused:
        open_source(uri)
    assert "ter2" not in str(refused.value)
    assert "ter2" not in redacted(uri)


def test_a_short_secret_hides_no_part_of_other_words() -> None:
    assert hidden("a bucket: a is wrong, abc too", ["a"]) == "*** bucket: *** is wrong, abc too"
    assert hidden("x=secret-key1; y=xsecret-key1", ["secret-key1"]) == "x=***; y=x***"


@given(st.text())
def test_an_escaped_text_has_no_control_character_and_plain_text_stays_as_it_is(text: str) -> None:
    assert escaped(text).isprintable()
    assert not text.isprintable() or escaped(text) == text


def test_a_name_cannot_clear_the_screen() -> None:
    assert escaped("shop.a\x1b[2J\nb") == "shop.a\\x1b[2J\\nb"
